"""LLVM IR of the compile thread, which takes jobs from a queue and compiles their modules.

`compile_thread.py` compiles it. It calls LLVM through the functions that llvmlite uses, but never takes the GIL between
jobs, which could take five milliseconds each time.

A job is the words `JOB_WORDS`. Its state changes from waiting to taken by a compare-exchange of the thread or a client,
and from taken to done under the mutex. `is_released` is set when the thread no longer uses the job's memory. The queue
is a ring of `MAX_WAITING` jobs: `@submitted` counts the jobs that entered it, `@served` those that left.
"""

import sys
from string import Template

from livegrad.runtime.cpu.native.pool_life_ir import KEEP_APART, LOCKING, TRUST_SCHEDULER

JOB_WORDS = ("state", "is_verified", "text", "image", "is_released")
WAITING, TAKEN, DONE = range(3)  # states
LLVM_FUNCTIONS = (
    "LLVMPY_ContextCreate", "LLVMPY_ContextDispose", "LLVMPY_ParseAssembly", "LLVMPY_VerifyModule",
    "LLVMPY_DisposeModule", "LLVMPY_TargetMachineEmitToMemory", "LLVMPY_DisposeString",
)  # fmt: skip
EXPORTS = ("do_job", "await_job", "reset", "submit", "serve")
MAX_WAITING = 64

_COMPILE_THREAD = """
declare ptr @LLVMPY_ContextCreate()
declare void @LLVMPY_ContextDispose(ptr)
declare ptr @LLVMPY_ParseAssembly(ptr, ptr, ptr)
declare i8 @LLVMPY_VerifyModule(ptr, ptr)
declare void @LLVMPY_DisposeModule(ptr)
declare ptr @LLVMPY_TargetMachineEmitToMemory(ptr, ptr, i32, ptr)
declare void @LLVMPY_DisposeString(ptr)
$locking

@mutex = internal global [256 x i8] zeroinitializer, align 128
@job_submitted = internal global [256 x i8] zeroinitializer, align 128
@done = internal global [256 x i8] zeroinitializer, align 128
@jobs = internal global [$most_waiting x ptr] zeroinitializer, align 64
@submitted = internal global i64 0, align 8 ; guarded by the mutex
@served = internal global i64 0, align 8 ; written by the thread
@spare_context = internal global ptr null, align 8
@handles = internal global [1 x i64] zeroinitializer, align 8 ; for @keep_apart: the thread, once @started is 1
@started = internal global i64 0, align 8
declare i64 @pthread_self()

; Frees the error message of LLVM at %message, if there is one.
define internal void @free_message(ptr %message) nounwind {
entry:
  %text = load ptr, ptr %message
  %none = icmp eq ptr %text, null
  br i1 %none, label %leave, label %free
free:
  call void @LLVMPY_DisposeString(ptr %text)
  store ptr null, ptr %message
  br label %leave
leave:
  ret void
}

; Returns a context: the spare one, or else a new one.
define internal ptr @take_context() nounwind {
entry:
  %spare = atomicrmw xchg ptr @spare_context, ptr null acq_rel
  %missing = icmp eq ptr %spare, null
  br i1 %missing, label %create, label %leave
create:
  %new = call ptr @LLVMPY_ContextCreate()
  br label %leave
leave:
  %context = phi ptr [ %spare, %entry ], [ %new, %create ]
  ret ptr %context
}

; Creates the spare context while no client waits. Only the compile thread calls it, so it overwrites no other context.
define internal void @create_spare_context() nounwind {
entry:
  %context = call ptr @take_context()
  store atomic ptr %context, ptr @spare_context release, align 8
  ret void
}

; Returns the object code of a module; null if LLVM rejects it (Python then compiles it again to get the error). Stores
; the context and the module, which may be null, to %resources; @dispose frees them after clients have the result.
define internal ptr @compile(ptr %text, i1 %verified, ptr %machine, ptr %resources, ptr %message) nounwind {
entry:
  %context = call ptr @take_context()
  store ptr %context, ptr %resources
  %module = call ptr @LLVMPY_ParseAssembly(ptr %context, ptr %text, ptr %message)
  %module_slot = getelementptr ptr, ptr %resources, i64 1
  store ptr %module, ptr %module_slot
  %parsed = icmp ne ptr %module, null
  br i1 %parsed, label %look, label %leave
look:
  br i1 %verified, label %verify, label %generate
verify:
  %status = call i8 @LLVMPY_VerifyModule(ptr %module, ptr %message)
  call void @free_message(ptr %message)
  %valid = icmp eq i8 %status, 0
  br i1 %valid, label %generate, label %leave
generate:
  %code = call ptr @LLVMPY_TargetMachineEmitToMemory(ptr %machine, ptr %module, i32 1, ptr %message)
  br label %leave
leave:
  %result = phi ptr [ null, %entry ], [ null, %verify ], [ %code, %generate ]
  ret ptr %result
}

define internal void @dispose(ptr %resources) nounwind {
entry:
  %context = load ptr, ptr %resources
  %module_slot = getelementptr ptr, ptr %resources, i64 1
  %module = load ptr, ptr %module_slot
  %parsed = icmp ne ptr %module, null
  br i1 %parsed, label %dispose_module, label %leave
dispose_module:
  call void @LLVMPY_DisposeModule(ptr %module)
  br label %leave
leave:
  call void @LLVMPY_ContextDispose(ptr %context)
  ret void
}

; Runs a job unless another thread has taken it. No other thread may use the target machine meanwhile.
define void @do_job(ptr %job, ptr %machine) nounwind {
entry:
  %message = alloca ptr, align 8
  %resources = alloca [2 x ptr], align 16
  store ptr null, ptr %message
  %attempt = cmpxchg ptr %job, i64 $waiting, i64 $taken acq_rel monotonic
  %won = extractvalue { i64, i1 } %attempt, 1
  br i1 %won, label %begin, label %leave
begin:
  %verified_slot = getelementptr i64, ptr %job, i64 $is_verified
  %verified_word = load i64, ptr %verified_slot
  %verified = icmp ne i64 %verified_word, 0
  %text_slot = getelementptr i64, ptr %job, i64 $text
  %text = load ptr, ptr %text_slot
  %image = call ptr @compile(ptr %text, i1 %verified, ptr %machine, ptr %resources, ptr %message)
  %image_slot = getelementptr i64, ptr %job, i64 $image
  store ptr %image, ptr %image_slot
  call void @free_message(ptr %message)
  call i32 @pthread_mutex_lock(ptr @mutex)
  store atomic i64 $done_state, ptr %job release, align 8
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call i32 @pthread_cond_broadcast(ptr @done)
  call void @dispose(ptr %resources)
  br label %leave
leave:
  ret void
}

; Waits until a job that was taken is done.
define void @await_job(ptr %job) nounwind {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %state = load atomic i64, ptr %job acquire, align 8
  %done = icmp eq i64 %state, $done_state
  br i1 %done, label %leave, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @done, ptr @mutex)
  br label %look
leave:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; Called before a thread starts to serve, and in the child of a fork, whose parent may have held the mutex.
define void @reset() nounwind {
entry:
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @job_submitted, ptr null)
  call i32 @pthread_cond_init(ptr @done, ptr null)
  store i64 0, ptr @submitted
  store atomic i64 0, ptr @served monotonic, align 8
  store i64 0, ptr @started
  store i32 -1, ptr @caller_processor
  ret void
}

; Adds a job to the queue; null ends the thread. Returns 0 if the queue is full.
define i32 @submit(ptr %job) nounwind {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %number = load i64, ptr @submitted
  %served = load atomic i64, ptr @served monotonic, align 8
  %waiting = sub i64 %number, %served
  %room = icmp slt i64 %waiting, $most_waiting
  br i1 %room, label %add, label %leave
add:
  %index = urem i64 %number, $most_waiting
  %slot = getelementptr ptr, ptr @jobs, i64 %index
  store ptr %job, ptr %slot
  %next = add i64 %number, 1
  store i64 %next, ptr @submitted
  br label %leave
leave:
  %taken = zext i1 %room to i32
  call void @keep_apart()
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call i32 @pthread_cond_signal(ptr @job_submitted)
  ret i32 %taken
}

; Runs the submitted jobs in order, until one is null.
define void @serve(ptr %machine) nounwind {
entry:
  %self = call i64 @pthread_self()
  call i32 @pthread_mutex_lock(ptr @mutex)
  store i64 %self, ptr @handles
  store i64 1, ptr @started
  store i32 -1, ptr @caller_processor
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %next
next:
  %number = load atomic i64, ptr @served monotonic, align 8
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %submitted = load i64, ptr @submitted
  %none = icmp eq i64 %submitted, %number
  br i1 %none, label %wait, label %take
wait:
  call i32 @pthread_cond_wait(ptr @job_submitted, ptr @mutex)
  br label %look
take:
  %index = urem i64 %number, $most_waiting
  %slot = getelementptr ptr, ptr @jobs, i64 %index
  %job = load ptr, ptr %slot
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %last = icmp eq ptr %job, null
  br i1 %last, label %leave, label %work
work:
  call void @do_job(ptr %job, ptr %machine)
  call void @create_spare_context()
  %released_slot = getelementptr i64, ptr %job, i64 $is_released
  store atomic i64 1, ptr %released_slot release, align 8 ; from here on, the job's memory may be freed
  %done = add i64 %number, 1
  store atomic i64 %done, ptr @served release, align 8
  br label %next
leave:
  ret void
}
"""


def compile_thread_ir() -> str:
    """The IR of the compile thread for this system."""
    words = {name: str(number) for number, name in enumerate(JOB_WORDS)}
    affinity = KEEP_APART if sys.platform == "linux" else TRUST_SCHEDULER
    template = Template(_COMPILE_THREAD + affinity)
    return template.substitute(
        words, waiting=WAITING, taken=TAKEN, done_state=DONE, most_waiting=MAX_WAITING, locking=LOCKING, max_threads=1
    )

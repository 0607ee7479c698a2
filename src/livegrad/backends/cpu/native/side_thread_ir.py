"""LLVM IR text of the thread that works for LLVM beside Python's: how it takes jobs, and how texts become code.

`side_thread.py` compiles it. It calls LLVM by the functions that llvmlite calls, but needs no lock of Python's from one
job to the next: whoever holds that would be waited for, up to five milliseconds each time.
"""

from string import Template

from livegrad.backends.cpu.native.pthread_ir import LOCKING

JOB_WORDS = (
    "state", "kind", "text", "image", "linking_machine", "engine", "elements", "imports", "import_count", "exports",
    "export_count", "library", "is_left",
)  # fmt: skip
WAITING, TAKEN, DONE = range(3)  # states
COMPILE, VERIFY_AND_COMPILE, MAKE_ENGINE, DISPOSE = range(4)  # kinds
LLVM_FUNCTIONS = (
    "LLVMPY_ContextCreate", "LLVMPY_ContextDispose", "LLVMPY_ParseAssembly", "LLVMPY_VerifyModule",
    "LLVMPY_DisposeModule", "LLVMPY_TargetMachineEmitToMemory", "LLVMPY_DisposeString", "LLVMPY_CreateLLJITCompiler",
    "LLVMPY_GetBufferStart", "LLVMPY_GetBufferSize", "LLVMPY_LLJIT_Link", "LLVMPY_LLJIT_Dylib_Tracker_Dispose",
    "LLVMPY_LLJITDispose",
)  # fmt: skip
EXPORTS = ("do_job", "await_job", "reset", "submit", "serve")
MOST_WAITING = 64

_SIDE_THREAD = """
declare ptr @LLVMPY_ContextCreate()
declare void @LLVMPY_ContextDispose(ptr)
declare ptr @LLVMPY_ParseAssembly(ptr, ptr, ptr)
declare i8 @LLVMPY_VerifyModule(ptr, ptr)
declare void @LLVMPY_DisposeModule(ptr)
declare ptr @LLVMPY_TargetMachineEmitToMemory(ptr, ptr, i32, ptr)
declare void @LLVMPY_DisposeString(ptr)
declare ptr @LLVMPY_CreateLLJITCompiler(ptr, i1 zeroext, i1 zeroext, ptr)
declare ptr @LLVMPY_GetBufferStart(ptr)
declare i64 @LLVMPY_GetBufferSize(ptr)
declare ptr @LLVMPY_LLJIT_Link(ptr, ptr, ptr, i64, ptr, i64, ptr, i64, ptr)
declare i8 @LLVMPY_LLJIT_Dylib_Tracker_Dispose(ptr, ptr)
declare void @LLVMPY_LLJITDispose(ptr)
@name = internal constant [7 x i8] c"kernel\\00"
$locking

@mutex = internal global [256 x i8] zeroinitializer, align 128
@came = internal global [256 x i8] zeroinitializer, align 128
@done = internal global [256 x i8] zeroinitializer, align 128
@jobs = internal global [$most_waiting x ptr] zeroinitializer, align 64
@submitted = internal global i64 0, align 8 ; guarded by the mutex
@served = internal global i64 0, align 8 ; the thread is through with as many

define internal void @forget(ptr %complaint) nounwind {
entry:
  %said = load ptr, ptr %complaint
  %quiet = icmp eq ptr %said, null
  br i1 %quiet, label %leave, label %free
free:
  call void @LLVMPY_DisposeString(ptr %said)
  store ptr null, ptr %complaint
  br label %leave
leave:
  ret void
}

; The object code of a text; null where LLVM refuses it. Why, it says when it is asked again, by Python.
define internal ptr @compile(ptr %text, i1 %verified, ptr %machine, ptr %complaint) nounwind {
entry:
  %context = call ptr @LLVMPY_ContextCreate()
  %module = call ptr @LLVMPY_ParseAssembly(ptr %context, ptr %text, ptr %complaint)
  %parsed = icmp ne ptr %module, null
  br i1 %parsed, label %look, label %leave
look:
  br i1 %verified, label %verify, label %generate
verify:
  %status = call i8 @LLVMPY_VerifyModule(ptr %module, ptr %complaint)
  call void @forget(ptr %complaint)
  %valid = icmp eq i8 %status, 0
  br i1 %valid, label %generate, label %dispose
generate:
  %code = call ptr @LLVMPY_TargetMachineEmitToMemory(ptr %machine, ptr %module, i32 1, ptr %complaint)
  br label %dispose
dispose:
  %found = phi ptr [ null, %verify ], [ %code, %generate ]
  call void @LLVMPY_DisposeModule(ptr %module)
  br label %leave
leave:
  %result = phi ptr [ null, %entry ], [ %found, %dispose ]
  call void @LLVMPY_ContextDispose(ptr %context)
  ret ptr %result
}

; The job's engine, which is made unless it is there.
define internal ptr @engine_of(ptr %job, ptr %complaint) nounwind {
entry:
  %engine_place = getelementptr i64, ptr %job, i64 $engine
  %there = load ptr, ptr %engine_place
  %missing = icmp eq ptr %there, null
  br i1 %missing, label %make, label %leave
make:
  %machine_place = getelementptr i64, ptr %job, i64 $linking_machine
  %machine = load ptr, ptr %machine_place
  %made = call ptr @LLVMPY_CreateLLJITCompiler(ptr %machine, i1 zeroext true, i1 zeroext true, ptr %complaint)
  store ptr %made, ptr %engine_place
  br label %leave
leave:
  %engine = phi ptr [ %there, %entry ], [ %made, %make ]
  ret ptr %engine
}

; Places object code in memory: a library of the engine, and the addresses of what it exports.
define internal void @link(ptr %job, ptr %image, ptr %complaint) nounwind {
entry:
  %engine = call ptr @engine_of(ptr %job, ptr %complaint)
  %elements_place = getelementptr i64, ptr %job, i64 $elements
  %elements = load ptr, ptr %elements_place
  %start = call ptr @LLVMPY_GetBufferStart(ptr %image)
  %size = call i64 @LLVMPY_GetBufferSize(ptr %image)
  %start_place = getelementptr i64, ptr %elements, i64 1
  %size_place = getelementptr i64, ptr %elements, i64 2
  store ptr %start, ptr %start_place
  store i64 %size, ptr %size_place
  %p1 = getelementptr i64, ptr %job, i64 $imports
  %p2 = getelementptr i64, ptr %job, i64 $import_count
  %p3 = getelementptr i64, ptr %job, i64 $exports
  %p4 = getelementptr i64, ptr %job, i64 $export_count
  %imports = load ptr, ptr %p1
  %import_count = load i64, ptr %p2
  %exports = load ptr, ptr %p3
  %export_count = load i64, ptr %p4
  %made = icmp ne ptr %engine, null
  br i1 %made, label %place, label %leave
place:
  %library = call ptr @LLVMPY_LLJIT_Link(ptr %engine, ptr @name, ptr %elements, i64 2, ptr %imports, i64 %import_count,
    ptr %exports, i64 %export_count, ptr %complaint)
  %library_place = getelementptr i64, ptr %job, i64 $library
  store ptr %library, ptr %library_place
  br label %leave
leave:
  ret void
}

; Does a job unless somebody has taken it. Code is generated by the caller's own machine.
define void @do_job(ptr %job, ptr %machine) nounwind {
entry:
  %complaint = alloca ptr, align 8
  store ptr null, ptr %complaint
  %attempt = cmpxchg ptr %job, i64 0, i64 1 acq_rel monotonic
  %won = extractvalue { i64, i1 } %attempt, 1
  br i1 %won, label %begin, label %leave
begin:
  %kind_place = getelementptr i64, ptr %job, i64 $kind
  %kind = load i64, ptr %kind_place
  %verified = icmp eq i64 %kind, 1
  switch i64 %kind, label %compile [ i64 2, label %engine i64 3, label %dispose ]
compile:
  %text_place = getelementptr i64, ptr %job, i64 $text
  %text = load ptr, ptr %text_place
  %image = call ptr @compile(ptr %text, i1 %verified, ptr %machine, ptr %complaint)
  %image_place = getelementptr i64, ptr %job, i64 $image
  store ptr %image, ptr %image_place
  %compiled = icmp ne ptr %image, null
  br i1 %compiled, label %link, label %done
link:
  call void @link(ptr %job, ptr %image, ptr %complaint)
  br label %done
engine:
  call ptr @engine_of(ptr %job, ptr %complaint)
  br label %done
dispose:
  %library_place = getelementptr i64, ptr %job, i64 $library
  %engine_place = getelementptr i64, ptr %job, i64 $engine
  %library = load ptr, ptr %library_place
  %its_engine = load ptr, ptr %engine_place
  call i8 @LLVMPY_LLJIT_Dylib_Tracker_Dispose(ptr %library, ptr %complaint)
  call void @LLVMPY_LLJITDispose(ptr %its_engine)
  br label %done
done:
  call void @forget(ptr %complaint)
  call i32 @pthread_mutex_lock(ptr @mutex)
  store atomic i64 2, ptr %job release, align 8
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call i32 @pthread_cond_broadcast(ptr @done)
  br label %leave
leave:
  ret void
}

; Returns when a job that somebody has taken is done.
define void @await_job(ptr %job) nounwind {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %state = load atomic i64, ptr %job acquire, align 8
  %done = icmp eq i64 %state, 2
  br i1 %done, label %leave, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @done, ptr @mutex)
  br label %look
leave:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; Called before a thread serves: in a child of a fork, whatever the parent's was doing.
define void @reset() nounwind {
entry:
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @came, ptr null)
  call i32 @pthread_cond_init(ptr @done, ptr null)
  store i64 0, ptr @submitted
  store atomic i64 0, ptr @served monotonic, align 8
  ret void
}

; Has a job done by the thread; null ends it. Returns 0 when too many wait.
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
  %place = getelementptr ptr, ptr @jobs, i64 %index
  store ptr %job, ptr %place
  %next = add i64 %number, 1
  store i64 %next, ptr @submitted
  br label %leave
leave:
  %taken = zext i1 %room to i32
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call i32 @pthread_cond_signal(ptr @came)
  ret i32 %taken
}

; Does the jobs that are submitted, in order, until one is null.
define void @serve(ptr %machine) nounwind {
entry:
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
  call i32 @pthread_cond_wait(ptr @came, ptr @mutex)
  br label %look
take:
  %index = urem i64 %number, $most_waiting
  %place = getelementptr ptr, ptr @jobs, i64 %index
  %job = load ptr, ptr %place
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %last = icmp eq ptr %job, null
  br i1 %last, label %leave, label %work
work:
  call void @do_job(ptr %job, ptr %machine)
  %left_place = getelementptr i64, ptr %job, i64 $is_left
  store atomic i64 1, ptr %left_place release, align 8 ; from here on, the job's memory may be gone
  %done = add i64 %number, 1
  store atomic i64 %done, ptr @served release, align 8
  br label %next
leave:
  ret void
}
"""


def side_thread_ir() -> str:
    """The text, with the numbers of the words filled in."""
    words = {name: str(number) for number, name in enumerate(JOB_WORDS)}
    return Template(_SIDE_THREAD).substitute(words, most_waiting=MOST_WAITING, locking=LOCKING)

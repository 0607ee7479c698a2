"""LLVM IR of the thread pool. In: the architecture and the system. Out: the text of a module.

Called by `pool.py`, which compiles it together with `builtins_ir.py`. It is IR instead of C, because users may not have
a C compiler.

Runs. `@state` is one 64-bit word:

    generation:15 | open:1 | limit:16 | joined:16 | active:16

The caller takes `@busy`, writes the job, and opens a new generation with one store. A thread joins by one
compare-exchange that adds 1 to `joined` (its worker number) and to `active`, and succeeds only while the job is open
and has room. It leaves by subtracting 1 from `active`. When no chunks are left, the caller closes the job and waits
until `active` is 0. Therefore the fields of a job never change while a thread reads them, and a caller never waits for
a sleeping thread.

Whether a run is shared with other threads is decided in `pool_sharing_ir.py`.
The threads themselves, with work stealing and sleeping, are in `pool_worker_ir.py`.
"""

from __future__ import annotations

import signal
from string import Template

from livegrad.runtime.cpu.native.pool_life_ir import (
    INTERRUPT,
    KEEP_APART,
    LIFE,
    LOCKING,
    SINGLE_THREADED,
    TRUST_SCHEDULER,
)
from livegrad.runtime.cpu.native.pool_sharing_ir import BRIEF, SHARING, sharing_values
from livegrad.runtime.cpu.native.pool_worker_ir import WORKER

MAX_THREADS = 512
STACK_BYTES = 16 * 1024 * 1024  # a kernel of 3,000 ops may spill 400 KiB; macOS threads have 512 KiB by default

_PAUSE = {
    "x86": "call void @llvm.x86.sse2.pause()",
    "arm": "call void @llvm.aarch64.isb(i32 15)",  # about 10 ns; `yield` takes one cycle on most cores
    "other": "fence seq_cst",
}
_PAUSE_DECLARATION = {
    "x86": "declare void @llvm.x86.sse2.pause()",
    "arm": "declare void @llvm.aarch64.isb(i32)",
    "other": "",
}

_CLOCK_MONOTONIC = {"darwin": 6}  # 1 elsewhere

_RUN_INLINE = """
; Runs [0, total) on this thread, in the same chunks of %grain as with several threads.
define internal void @run_inline(ptr %kernel, i64 %total, i64 %grain, ptr %args) nounwind {
entry:
  br label %check
check:
  %begin = phi i64 [ 0, %entry ], [ %end, %chunk ]
  %more = icmp slt i64 %begin, %total
  br i1 %more, label %chunk, label %finish
chunk:
  %rest = sub i64 %total, %begin
  %size = call i64 @llvm.smin.i64(i64 %rest, i64 %grain)
  %end = add i64 %begin, %size
  call void %kernel(i64 %begin, i64 %end, ptr %args, i64 0)
  br label %check
finish:
  ret void
}
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""

_GLOBALS = """
@state = internal global i64 0, align 128
@stopping = internal global i32 0
@cursors = internal global [$max_threads x [16 x i64]] zeroinitializer, align 128 ; the next chunk of each part
@busy = internal global i32 0, align 128
@sleepers = internal global i32 0, align 128
@caller_waits = internal global i32 0
@job_kernel = internal global ptr null, align 128
@job_args = internal global ptr null
@job_total = internal global i64 0
@job_grain = internal global i64 0
@job_chunks = internal global i64 0
@job_parts = internal global i64 1
@wanted = internal global i64 1
@started = internal global i64 0
@spin = internal global i64 0
@initialized = internal global i32 0
@mutex = internal global [256 x i8] zeroinitializer, align 128
@wake = internal global [256 x i8] zeroinitializer, align 128
@done = internal global [256 x i8] zeroinitializer, align 128
@handles = internal global [$max_threads x i64] zeroinitializer
@pool_counts = global [3 x i64] zeroinitializer ; parallel runs, contended runs, threads started

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
$locking
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @sigaction(i32, ptr, ptr)
$pause_declaration

declare i32 @clock_gettime(i32, ptr)

define internal i64 @nanoseconds() nounwind {
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 $monotonic, ptr %time)
  %seconds = load i64, ptr %time
  %second = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %second
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

define void @pool_pause(i64 %count) nounwind {
entry:
  br label %again
again:
  %n = phi i64 [ 0, %entry ], [ %n1, %again ]
  $pause
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %count
  br i1 %more, label %again, label %finish
finish:
  ret void
}
"""

_RUN = """
; Runs a kernel over [0, total) in chunks, on this thread and on workers. %grain_and_flags may have the flag BRIEF.
define void @pool_run(ptr %kernel, i64 %total, i64 %grain_and_flags, ptr %args) nounwind {
entry:
  %brief_bit = and i64 %grain_and_flags, $brief
  %brief = icmp ne i64 %brief_bit, 0
  %grain_bits = xor i64 %grain_and_flags, %brief_bit
  %grain = call i64 @llvm.smax.i64(i64 %grain_bits, i64 1)
  %one_chunk = icmp sle i64 %total, %grain
  %wanted0 = load atomic i64, ptr @wanted monotonic, align 8
  %one_thread = icmp sle i64 %wanted0, 1
  %alone = or i1 %one_chunk, %one_thread
  br i1 %alone, label %inline, label %share
inline:
  call void @run_inline(ptr %kernel, i64 %total, i64 %grain, ptr %args)
  ret void
share:
  call void @run_either_way(ptr %kernel, i64 %total, i64 %grain, ptr %args, i1 %brief)
  ret void
}

; Runs a kernel on this thread and on workers.
define internal void @run_shared(ptr %kernel, i64 %total, i64 %grain, ptr %args) nounwind {
entry:
  %attempt = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %won = extractvalue { i32, i1 } %attempt, 1
  br i1 %won, label %claimed, label %contended
contended:
  %c1 = atomicrmw add ptr getelementptr ([3 x i64], ptr @pool_counts, i64 0, i64 1), i64 1 monotonic
  call void @run_inline(ptr %kernel, i64 %total, i64 %grain, ptr %args)
  ret void
claimed:
  %started0 = load i64, ptr @started
  %with_caller = add i64 %started0, 1
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %lacking = icmp slt i64 %with_caller, %wanted
  br i1 %lacking, label %start, label %ready
start:
  call void @start_workers()
  br label %ready
ready:
  %c0 = atomicrmw add ptr @pool_counts, i64 1 monotonic
  %less = sub i64 %total, 1
  %chunks_less = sdiv i64 %less, %grain
  %started = load i64, ptr @started
  %helpers = call i64 @llvm.smin.i64(i64 %started, i64 %chunks_less)
  store ptr %kernel, ptr @job_kernel
  store ptr %args, ptr @job_args
  store i64 %total, ptr @job_total
  store i64 %grain, ptr @job_grain
  %chunks = add i64 %chunks_less, 1
  %parts = add i64 %helpers, 1
  store i64 %chunks, ptr @job_chunks
  store i64 %parts, ptr @job_parts
  br label %part
part:
  %k = phi i64 [ 0, %ready ], [ %k1, %part ]
  %first = call i64 @first_chunk(i64 %k)
  %cursor = getelementptr [$max_threads x [16 x i64]], ptr @cursors, i64 0, i64 %k
  store atomic i64 %first, ptr %cursor monotonic, align 8
  %k1 = add i64 %k, 1
  %more_parts = icmp slt i64 %k1, %parts
  br i1 %more_parts, label %part, label %open
open:
  call void @open_job(i64 %helpers)
  call void @run_chunks(i64 0, i64 0)
  call void @close_job()
  store atomic i32 0, ptr @busy release, align 4
  ret void
}

; Publishes the job to spinning threads, and wakes up to %helpers sleeping ones.
define internal void @open_job(i64 %helpers) nounwind {
entry:
  call void @keep_apart()
  %old = load atomic i64, ptr @state monotonic, align 8
  %generation = lshr i64 %old, 49
  %generation1 = add i64 %generation, 1
  %generation_bits = shl i64 %generation1, 49
  %limit_bits = shl i64 %helpers, 32
  %opened = or i64 %generation_bits, 281474976710656
  %state = or i64 %opened, %limit_bits
  %ignored = atomicrmw xchg ptr @state, i64 %state seq_cst
  %sleepers32 = load atomic i32, ptr @sleepers seq_cst, align 4
  %sleepers = zext i32 %sleepers32 to i64
  %must_signal = icmp ne i32 %sleepers32, 0
  br i1 %must_signal, label %wake, label %finish
wake:
  call void @pass_through_mutex()
  %all = icmp sge i64 %helpers, %sleepers
  br i1 %all, label %wake_all, label %wake_one
wake_all:
  call i32 @pthread_cond_broadcast(ptr @wake)
  br label %finish
wake_one:
  %n = phi i64 [ 0, %wake ], [ %n1, %wake_one ]
  call i32 @pthread_cond_signal(ptr @wake)
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %helpers
  br i1 %more, label %wake_one, label %finish
finish:
  ret void
}

; Closes the job to further threads, and waits until all have left: spins first, then sleeps.
define internal void @close_job() nounwind {
entry:
  %before = atomicrmw and ptr @state, i64 -281474976710657 seq_cst ; not (1 << 48)
  %spin = load i64, ptr @spin
  br label %look
look:
  %spun = phi i64 [ 0, %entry ], [ %spun1, %rest ]
  %state = load atomic i64, ptr @state seq_cst, align 8
  %active = and i64 %state, 65535
  %over = icmp eq i64 %active, 0
  br i1 %over, label %finish, label %idle
idle:
  %spin_on = icmp slt i64 %spun, %spin
  br i1 %spin_on, label %rest, label %sleep
rest:
  %spun1 = add i64 %spun, 1
  $pause
  br label %look
sleep:
  store atomic i32 1, ptr @caller_waits seq_cst, align 4
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %check
check:
  %state2 = load atomic i64, ptr @state seq_cst, align 8
  %active2 = and i64 %state2, 65535
  %over2 = icmp eq i64 %active2, 0
  br i1 %over2, label %woken, label %wait
wait:
  call i32 @pthread_cond_wait(ptr @done, ptr @mutex)
  br label %check
woken:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  store atomic i32 0, ptr @caller_waits seq_cst, align 4
  br label %finish
finish:
  ret void
}
"""


def pool_ir(architecture: str, system: str) -> str:
    """The pool's IR for `architecture` ("x86", "arm" or "other") and `system`, a value of `sys.platform`."""
    if system == "win32":
        return _RUN_INLINE + SINGLE_THREADED
    faults = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
    affinity = KEEP_APART if system == "linux" else TRUST_SCHEDULER
    template = Template(_RUN_INLINE + _GLOBALS + WORKER + _RUN + SHARING + LIFE + affinity + INTERRUPT)
    return template.substitute(
        max_threads=MAX_THREADS,
        locking=LOCKING,
        stack_bytes=STACK_BYTES,
        pause=_PAUSE[architecture],
        monotonic=_CLOCK_MONOTONIC.get(system, 1),
        brief=BRIEF,
        **sharing_values(),
        pause_declaration=_PAUSE_DECLARATION[architecture],
        sig_setmask=int(signal.SIG_SETMASK),
        sigint=int(signal.SIGINT),
        unblock_faults="\n".join(f"  call i32 @sigdelset(ptr %blocked, i32 {int(number)})" for number in faults),
    )

"""LLVM IR that starts, stops and resets the threads of the pool, and sets the interrupt flag on SIGINT.

`pool_ir.py` fills in these templates and appends them to its text. The compile thread shares `LOCKING` and
`KEEP_APART`.
"""

LOCKING = """declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)"""

LIFE = """
; Starts the missing workers. The caller has @busy. Workers block all signals but those of faults, so that signals
; interrupt the Python thread that waits for them.
define internal void @start_workers() nounwind noinline {
entry:
  %attributes = alloca [256 x i8], align 64
  %blocked = alloca [256 x i8], align 64
  %before = alloca [256 x i8], align 64
  %initialized = load i32, ptr @initialized
  %fresh = icmp eq i32 %initialized, 0
  br i1 %fresh, label %initialize, label %prepare
initialize:
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @wake, ptr null)
  call i32 @pthread_cond_init(ptr @done, ptr null)
  store i32 1, ptr @initialized
  br label %prepare
prepare:
  call i32 @sigfillset(ptr %blocked)
$unblock_faults
  call i32 @pthread_sigmask(i32 $sig_setmask, ptr %blocked, ptr %before)
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $stack_bytes)
  br label %check
check:
  %started = load i64, ptr @started
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %with_caller = add i64 %started, 1
  %more = icmp slt i64 %with_caller, %wanted
  br i1 %more, label %create, label %finish
create:
  %handle = getelementptr [$max_threads x i64], ptr @handles, i64 0, i64 %started
  %number = inttoptr i64 %with_caller to ptr ; the caller is 0
  %failed = call i32 @pthread_create(ptr %handle, ptr %attributes, ptr @worker_main, ptr %number)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %created, label %refused
created:
  store i64 %with_caller, ptr @started
  store i32 -1, ptr @caller_processor
  %c2 = atomicrmw add ptr getelementptr ([3 x i64], ptr @pool_counts, i64 0, i64 2), i64 1 monotonic
  br label %check
refused: ; no more threads available: use those that started
  store atomic i64 %with_caller, ptr @wanted monotonic, align 8
  br label %finish
finish:
  call i32 @pthread_attr_destroy(ptr %attributes)
  call i32 @pthread_sigmask(i32 $sig_setmask, ptr %before, ptr null)
  ret void
}

; Ends the workers and sets the number of threads of the next run. During a run, does nothing and returns 0.
define i32 @pool_resize(i64 %wanted, i64 %spin) nounwind {
entry:
  %attempt = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %won = extractvalue { i32, i1 } %attempt, 1
  br i1 %won, label %claimed, label %contended
contended:
  ret i32 0
claimed:
  %started = load i64, ptr @started
  %some = icmp sgt i64 %started, 0
  br i1 %some, label %stop, label %set
stop:
  store atomic i32 1, ptr @stopping seq_cst, align 4
  call void @pass_through_mutex()
  call i32 @pthread_cond_broadcast(ptr @wake)
  br label %join
join:
  %n = phi i64 [ 0, %stop ], [ %n1, %join ]
  %slot = getelementptr [$max_threads x i64], ptr @handles, i64 0, i64 %n
  %handle = load i64, ptr %slot
  call i32 @pthread_join(i64 %handle, ptr null)
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, %started
  br i1 %more, label %join, label %joined
joined:
  store i64 0, ptr @started
  store atomic i32 0, ptr @stopping seq_cst, align 4
  br label %set
set:
  store atomic i64 %wanted, ptr @wanted monotonic, align 8
  store i64 %spin, ptr @spin
  store atomic i32 0, ptr @busy release, align 4
  ret i32 1
}

; Resets all state in the child of a fork, which has no workers and may have inherited taken locks.
define void @pool_reset_after_fork() nounwind {
entry:
  store i64 0, ptr @state
  store i32 0, ptr @stopping
  store i32 0, ptr @busy
  store i32 0, ptr @sleepers
  store i32 0, ptr @caller_waits
  store i64 0, ptr @started
  store i32 0, ptr @initialized
  store i32 -1, ptr @caller_processor
  store i32 0, ptr @interrupt_flag
  store i32 0, ptr @interruptible_runs
  call void @unchain_sigint()
  ret void
}
"""

# Linux may wake a thread on its waker's processor while another processor is idle: on two processors, a sum of 16M
# numbers takes 10.7 ms instead of 5.6, with both threads alternating on one processor. So workers get the affinity of
# their caller without its current processor. It is set only when that processor changes, and never for a caller with a
# single processor.
KEEP_APART = """
@caller_processor = internal global i32 -1 ; the processor that workers avoid, because their caller runs there
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)

define internal void @keep_apart() nounwind {
entry:
  %cpu = call i32 @sched_getcpu()
  %previous = load i32, ptr @caller_processor
  %same = icmp eq i32 %cpu, %previous
  %listed = icmp ult i32 %cpu, 1024
  %different = xor i1 %same, true
  %changed = and i1 %different, %listed
  br i1 %changed, label %look, label %finish
look:
  %mask = alloca [128 x i8], align 64
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %has_mask = icmp eq i32 %failed, 0
  br i1 %has_mask, label %exclude, label %finish
exclude:
  %allowed = load i1024, ptr %mask, align 64
  %wide = zext i32 %cpu to i1024
  %bit = shl i1024 1, %wide
  %other_bits = xor i1024 %bit, -1
  %others = and i1024 %allowed, %other_bits
  %some = icmp ne i1024 %others, 0
  br i1 %some, label %store, label %finish
store:
  store i1024 %others, ptr %mask, align 64
  store i32 %cpu, ptr @caller_processor
  %started = load i64, ptr @started
  br label %each
each:
  %n = phi i64 [ 0, %store ], [ %n1, %set ]
  %more = icmp slt i64 %n, %started
  br i1 %more, label %set, label %finish
set:
  %slot = getelementptr [$max_threads x i64], ptr @handles, i64 0, i64 %n
  %handle = load i64, ptr %slot
  call i32 @pthread_setaffinity_np(i64 %handle, i64 128, ptr %mask)
  %n1 = add i64 %n, 1
  br label %each
finish:
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

# Other systems leave the placement of threads to the scheduler.
TRUST_SCHEDULER = """
@caller_processor = internal global i32 -1
define internal void @keep_apart() nounwind alwaysinline {
  ret void
}
"""

INTERRUPT = """
@interrupt_flag = global i32 0, align 64
@interruptible_runs = internal global i32 0
@chained = internal global i32 0
@previous_action = internal global [512 x i8] zeroinitializer, align 64

; Sets the flag and calls the previous handler, the first member of struct sigaction on Linux and macOS. Passes the
; three arguments of SA_SIGINFO, which other handlers ignore.
define internal void @on_sigint(i32 %number, ptr %info, ptr %context) nounwind {
  store atomic i32 1, ptr @interrupt_flag seq_cst, align 4
  %handler = load ptr, ptr @previous_action
  call void %handler(i32 %number, ptr %info, ptr %context)
  ret void
}

; Installs @on_sigint in front of the current handler. Returns 0 if it is already installed, or if there is no handler
; (SIGINT ends the process or is ignored).
define internal i32 @chain_sigint() nounwind {
entry:
  %action = alloca [512 x i8], align 64
  call i32 @sigaction(i32 $sigint, ptr null, ptr %action)
  %handler = load ptr, ptr %action
  %value = ptrtoint ptr %handler to i64
  %trivial = icmp ule i64 %value, 1
  %ours = icmp eq ptr %handler, @on_sigint
  %keep = or i1 %trivial, %ours
  br i1 %keep, label %nothing, label %chain
nothing:
  ret i32 0
chain:
  call void @llvm.memcpy.p0.p0.i64(ptr @previous_action, ptr %action, i64 512, i1 false)
  store ptr @on_sigint, ptr %action
  store i32 1, ptr @chained
  call i32 @sigaction(i32 $sigint, ptr %action, ptr null)
  ret i32 1
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Restores the previous handler.
define internal void @unchain_sigint() nounwind {
entry:
  %chained = load i32, ptr @chained
  %needed = icmp ne i32 %chained, 0
  br i1 %needed, label %restore, label %finish
restore:
  call i32 @sigaction(i32 $sigint, ptr @previous_action, ptr null)
  store i32 0, ptr @chained
  br label %finish
finish:
  ret void
}
"""

# Without pthreads (on Windows), a run is a serial loop over its chunks, and SIGINT takes effect at its end.
SINGLE_THREADED = """
@interrupt_flag = global i32 0, align 64
@interruptible_runs = internal global i32 0
@pool_counts = global [3 x i64] zeroinitializer
define void @pool_run(ptr %kernel, i64 %total, i64 %grain_and_flags, ptr %args) nounwind {
  %grain_bits = and i64 %grain_and_flags, 1099511627775 ; without the flag BRIEF
  %grain = call i64 @llvm.smax.i64(i64 %grain_bits, i64 1)
  call void @run_inline(ptr %kernel, i64 %total, i64 %grain, ptr %args)
  ret void
}
@pool_records = global [1 x i64] zeroinitializer
@pool_shares_always = global i32 0
define void @pool_pause(i64 %count) nounwind {
  ret void
}
define i32 @pool_resize(i64 %wanted, i64 %spin) nounwind {
  ret i32 1
}
define void @pool_reset_after_fork() nounwind {
  ret void
}
define internal i32 @chain_sigint() nounwind {
  ret i32 0
}
define internal void @unchain_sigint() nounwind {
  ret void
}
"""

"""LLVM IR of a thread of the pool: it waits for a job, joins it, runs chunks, and steals chunks of other threads.

`pool_ir.py` fills in this template; its docstring describes the word `@state`.

Work stealing. Each thread has a part of the chunks, the same one in all runs with this number of chunks, and then
steals chunks of other parts. Therefore time steps over a grid find most of their data in the cache of their core.

Sleeping. A thread that found no work for `@spin` pauses increments `@sleepers` and checks `@state` again before it
waits; a caller opens the job and then reads `@sleepers`. Both are sequentially consistent, so at least one sees the
other. A caller that wakes sleepers keeps them off its processor (`pool_life_ir.KEEP_APART`).
"""

WORKER = """
; Part k of the chunks begins at k * chunks / parts.
define internal i64 @first_chunk(i64 %part) nounwind alwaysinline {
  %chunks = load i64, ptr @job_chunks
  %parts = load i64, ptr @job_parts
  %scaled = mul i64 %part, %chunks
  %first = udiv i64 %scaled, %parts
  ret i64 %first
}

; Runs the chunks of part %number, and then the remaining chunks of other parts.
define internal void @run_chunks(i64 %worker, i64 %number) nounwind {
entry:
  %kernel = load ptr, ptr @job_kernel
  %args = load ptr, ptr @job_args
  %total = load i64, ptr @job_total
  %grain = load i64, ptr @job_grain
  %parts = load i64, ptr @job_parts
  br label %visit
visit:
  %visited = phi i64 [ 0, %entry ], [ %visited1, %empty ]
  %sum = add i64 %number, %visited
  %part = urem i64 %sum, %parts
  %part1 = add i64 %part, 1
  %stop = call i64 @first_chunk(i64 %part1)
  %cursor = getelementptr [$max_threads x [16 x i64]], ptr @cursors, i64 0, i64 %part
  br label %take
take:
  %chunk = atomicrmw add ptr %cursor, i64 1 monotonic
  %more = icmp slt i64 %chunk, %stop
  br i1 %more, label %run, label %empty
run:
  %begin = mul i64 %chunk, %grain
  %rest = sub i64 %total, %begin
  %size = call i64 @llvm.smin.i64(i64 %rest, i64 %grain)
  %end = add i64 %begin, %size
  call void %kernel(i64 %begin, i64 %end, ptr %args, i64 %worker)
  br label %take
empty:
  %visited1 = add i64 %visited, 1
  %all = icmp eq i64 %visited1, %parts
  br i1 %all, label %finish, label %visit
finish:
  ret void
}

; Whether a thread that last worked on generation %last may join the job of this state.
define internal i1 @can_join(i64 %state, i64 %last) nounwind alwaysinline {
  %open_bits = and i64 %state, 281474976710656 ; 1 << 48
  %open = icmp ne i64 %open_bits, 0
  %generation = lshr i64 %state, 49
  %is_new = icmp ne i64 %generation, %last
  %limit_bits = lshr i64 %state, 32
  %limit = and i64 %limit_bits, 65535
  %joined_bits = lshr i64 %state, 16
  %joined = and i64 %joined_bits, 65535
  %room = icmp ult i64 %joined, %limit
  %a = and i1 %open, %is_new
  %b = and i1 %a, %room
  ret i1 %b
}

; The main loop of a worker thread: joins jobs, spins while there are none, and sleeps after %spin pauses.
define internal ptr @worker_main(ptr %argument) nounwind {
entry:
  %number = ptrtoint ptr %argument to i64
  br label %look
look:
  %last = phi i64 [ -1, %entry ], [ %last, %rest ], [ %last, %join ], [ %generation, %left ], [ %last, %awake ]
  %spun = phi i64 [ 0, %entry ], [ %spun1, %rest ], [ %spun, %join ], [ 0, %left ], [ 0, %awake ]
  %stopping = load atomic i32, ptr @stopping acquire, align 4
  %stop = icmp ne i32 %stopping, 0
  br i1 %stop, label %finish, label %test
test:
  %state = load atomic i64, ptr @state acquire, align 8
  %joinable = call i1 @can_join(i64 %state, i64 %last)
  br i1 %joinable, label %join, label %idle
join:
  %joined = add i64 %state, 65537 ; joined + 1, active + 1
  %attempt = cmpxchg ptr @state, i64 %state, i64 %joined acq_rel monotonic
  %won = extractvalue { i64, i1 } %attempt, 1
  br i1 %won, label %work, label %look
work:
  %joined_before = lshr i64 %state, 16
  %rank = and i64 %joined_before, 65535
  %worker = add i64 %rank, 1
  %generation = lshr i64 %state, 49
  call void @run_chunks(i64 %worker, i64 %number)
  call void @leave_job()
  br label %left
left:
  br label %look
idle:
  %spin = load i64, ptr @spin
  %spin_on = icmp slt i64 %spun, %spin
  br i1 %spin_on, label %rest, label %sleep
rest:
  %spun1 = add i64 %spun, 1
  $pause
  br label %look
sleep:
  call void @sleep_until_woken(i64 %last)
  br label %awake
awake:
  br label %look
finish:
  ret ptr null
}

; Leaves a job. The last thread to leave signals the caller if it sleeps.
define internal void @leave_job() nounwind {
entry:
  %before = atomicrmw sub ptr @state, i64 1 seq_cst
  %active = and i64 %before, 65535
  %was_last = icmp eq i64 %active, 1
  br i1 %was_last, label %last, label %finish
last:
  %waits = load atomic i32, ptr @caller_waits seq_cst, align 4
  %must_signal = icmp ne i32 %waits, 0
  br i1 %must_signal, label %signal, label %finish
signal:
  call void @pass_through_mutex()
  call i32 @pthread_cond_signal(ptr @done)
  br label %finish
finish:
  ret void
}

; Lets a thread that has the mutex start to wait, so that a later signal reaches it. Callers signal without the mutex,
; so that the woken thread does not block on it.
define internal void @pass_through_mutex() nounwind {
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @sleep_until_woken(i64 %last) nounwind {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %stopping = load atomic i32, ptr @stopping seq_cst, align 4
  %stop = icmp ne i32 %stopping, 0
  %state = load atomic i64, ptr @state seq_cst, align 8
  %joinable = call i1 @can_join(i64 %state, i64 %last)
  %stay_awake = or i1 %stop, %joinable
  br i1 %stay_awake, label %finish, label %wait
wait:
  ; Waits once, spurious wake-ups included: the worker checks the state again.
  call i32 @pthread_cond_wait(ptr @wake, ptr @mutex)
  br label %finish
finish:
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""

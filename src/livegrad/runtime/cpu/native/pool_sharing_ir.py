"""LLVM IR that decides for each run whether other threads take part.

`pool_ir.py` fills in the template and appends it to its text.

A short run may be faster on the caller's thread alone or shared with other threads. Which one depends on the machine
and the moment: a cache line travels between two cores in 20 ns if they share a cache and in 180 ns otherwise, and a
hypervisor moves its processors from one place to the other. A kernel of 12 µs that reads what one thread wrote takes
11 µs shared in the first case and 26 µs in the second. So `@pool_records` keeps for each kernel the time of an item in
both ways, as a moving average, and the faster way is taken. Long runs are always shared.

For `TRIAL` of every `PERIOD` runs, the other way is tried. The first `SETTLING` runs after a change of the way do not
count, because a thread may have to wake up, and the data lie in the other cache. Before both ways are known, runs with
the flag `BRIEF` are alone, because they take less time than waking a thread, and others are shared. Results never
depend on the way: the chunks are the same.
"""

BRIEF = 1 << 40  # a flag in the grain

PERIOD, TRIAL, SETTLING = 4096, 32, 16  # runs; a trial follows the first `TRIAL` runs of a period
LONG_RUN = 100_000  # nanoseconds
FAR_SLOWER = 4  # running alone is not tried again if it took so many times as long
RECORD_BITS = 8  # of the index of a record; kernels that meet in one replace each other

SHARING = """
@pool_records = global [$records x [4 x i64]] zeroinitializer, align 128 ; key, runs, time alone, time shared
@pool_shares_always = global i32 0 ; 1: runs are shared without regard to their times, for tests

; Runs a kernel of several chunks, alone or with other threads. Times of items are in 2^-20 ns.
define internal void @run_either_way(ptr %kernel, i64 %total, i64 %grain, ptr %args, i1 %brief) nounwind {
entry:
  %record = call ptr @record_of(ptr %kernel, i64 %total)
  %runs_at = getelementptr i64, ptr %record, i64 1
  %runs = load atomic i64, ptr %runs_at monotonic, align 8
  %runs1 = add i64 %runs, 1
  store atomic i64 %runs1, ptr %runs_at monotonic, align 8
  %phase = and i64 %runs, $last_phase
  %alone_at = getelementptr i64, ptr %record, i64 2
  %alone = load atomic i64, ptr %alone_at monotonic, align 8
  %shared_at = getelementptr i64, ptr %record, i64 3
  %shared = load atomic i64, ptr %shared_at monotonic, align 8
  %share = call i1 @sharing_pays(i64 %alone, i64 %shared, i64 %phase, i64 %total, i1 %brief)
  %start = call i64 @nanoseconds()
  br i1 %share, label %with_others, label %alone_here
with_others:
  call void @run_shared(ptr %kernel, i64 %total, i64 %grain, ptr %args)
  br label %measure
alone_here:
  call void @run_inline(ptr %kernel, i64 %total, i64 %grain, ptr %args)
  br label %measure
measure:
  %average = phi ptr [ %shared_at, %with_others ], [ %alone_at, %alone_here ]
  %within_stage = urem i64 %phase, $trial
  %begins = icmp ult i64 %within_stage, $settling
  %may_have_changed = icmp ult i64 %phase, $third_stage_end
  %settling = and i1 %begins, %may_have_changed
  br i1 %settling, label %finish, label %learn
learn:
  %end = call i64 @nanoseconds()
  %taken = sub i64 %end, %start
  %scaled = shl i64 %taken, 20
  %item = udiv i64 %scaled, %total
  call void @update_average(ptr %average, i64 %item)
  br label %finish
finish:
  ret void
}

; Whether to share the run with this number in its period, given the times of an item in both ways, 0 if unknown.
define internal i1 @sharing_pays(i64 %alone, i64 %shared, i64 %phase, i64 %total, i1 %brief) nounwind {
  %alone_known = icmp ne i64 %alone, 0
  %shared_known = icmp ne i64 %shared, 0
  %known = and i1 %alone_known, %shared_known
  %faster = icmp slt i64 %shared, %alone
  %not_brief = xor i1 %brief, true
  %usual = select i1 %known, i1 %faster, i1 %not_brief
  %far_at = mul i64 %shared, $far_slower
  %far_slower = icmp sgt i64 %alone, %far_at
  %hopeless = and i1 %shared_known, %far_slower
  %from_trial = sub i64 %phase, $trial
  %is_time = icmp ult i64 %from_trial, $trial
  %trial = select i1 %hopeless, i1 false, i1 %is_time
  %likely = xor i1 %trial, %usual
  %limit = udiv i64 $long_run, %total
  %is_long = icmp sgt i64 %shared, %limit
  %always32 = load atomic i32, ptr @pool_shares_always monotonic, align 4
  %always = icmp ne i32 %always32, 0
  %certain = or i1 %always, %is_long
  %share = or i1 %certain, %likely
  ret i1 %share
}

; The record of a kernel, for up to twice as many items and this number of threads. Two callers may write to it at once;
; a time may be lost.
define internal ptr @record_of(ptr %kernel, i64 %total) nounwind {
entry:
  %address = ptrtoint ptr %kernel to i64
  %zeros = call i64 @llvm.ctlz.i64(i64 %total, i1 false)
  %threads = load atomic i64, ptr @wanted monotonic, align 8
  %threads_bits = shl i64 %threads, 6
  %shape = or i64 %zeros, %threads_bits
  %shape_bits = shl i64 %shape, 48
  %key = xor i64 %address, %shape_bits
  %mixed = mul i64 %key, -7046029254386353131 ; 2^64 divided by the golden ratio
  %index = lshr i64 %mixed, $index_shift
  %record = getelementptr [$records x [4 x i64]], ptr @pool_records, i64 0, i64 %index
  %known = load atomic i64, ptr %record monotonic, align 8
  %same = icmp eq i64 %known, %key
  br i1 %same, label %finish, label %replace
replace:
  %runs_at = getelementptr i64, ptr %record, i64 1
  store atomic i64 0, ptr %runs_at monotonic, align 8
  %alone_at = getelementptr i64, ptr %record, i64 2
  store atomic i64 0, ptr %alone_at monotonic, align 8
  %shared_at = getelementptr i64, ptr %record, i64 3
  store atomic i64 0, ptr %shared_at monotonic, align 8
  store atomic i64 %key, ptr %record monotonic, align 8
  br label %finish
finish:
  ret ptr %record
}
declare i64 @llvm.ctlz.i64(i64, i1)

; Moves an average a quarter of the way to a new time. A time of more than twice the average counts as twice: the thread
; may have been interrupted.
define internal void @update_average(ptr %average, i64 %taken) nounwind {
entry:
  %old = load atomic i64, ptr %average monotonic, align 8
  %is_first = icmp eq i64 %old, 0
  %limit = mul i64 %old, 2
  %limited = call i64 @llvm.smin.i64(i64 %taken, i64 %limit)
  %difference = sub i64 %limited, %old
  %quarter = sdiv i64 %difference, 4
  %moved = add i64 %old, %quarter
  %new = select i1 %is_first, i64 %taken, i64 %moved
  store atomic i64 %new, ptr %average monotonic, align 8
  ret void
}
"""


def sharing_values() -> dict[str, int]:
    """The values of the template's names."""
    return {
        "records": 1 << RECORD_BITS,
        "index_shift": 64 - RECORD_BITS,
        "last_phase": PERIOD - 1,
        "trial": TRIAL,
        "third_stage_end": 3 * TRIAL,
        "settling": SETTLING,
        "long_run": LONG_RUN << 20,
        "far_slower": FAR_SLOWER,
    }

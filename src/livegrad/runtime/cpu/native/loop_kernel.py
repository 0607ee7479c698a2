"""A kernel that runs all iterations of a loop over the kernels of its body, without returning to Python.

Its argument block, filled by `loop_body.py`, names the kernels of both sides and the addresses that change between
iterations. It ends early if a check fails, the loop condition is false, or an interrupt arrives.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_kernel

# The argument block. Iterations alternate between two sides. Each has records (kernel, total, grain, arguments) and
# moves (the address of a word, its value in iteration 0, and its increment per iteration).
WORDS = (
    "run", "iterations", "done", "first", "step", "side", "index", "goes_on", "statuses", "checks", "interrupt",
    "count", "records_0", "records_1", "moves_0", "moves_1", "moved_0", "moved_1",
)  # fmt: skip
PLACE = {name: place for place, name in enumerate(WORDS)}
_POINTERS = {"run", "index", "goes_on", "statuses", "interrupt", "records_0", "records_1", "moves_0", "moves_1"}


@lru_cache(maxsize=1)
def iterations_library() -> NativeFunction:
    """The kernel `run_iterations`; it stays for the process's life."""
    made = compile_kernel(_text(), "run_iterations", speed=1)
    made.make_immortal()
    return made


def _text() -> str:
    loads = [
        f"  %at_{name} = getelementptr i64, ptr %args, i64 {place}\n"
        f"  %{name} = load {'ptr' if name in _POINTERS else 'i64'}, ptr %at_{name}"
        for name, place in PLACE.items()
        if name != "done"
    ]
    return _TRIPS.replace("$loads", "\n".join(loads)).replace("$done", str(PLACE["done"]))


_TRIPS = """
define void @run_iterations(i64 %begin, i64 %end, ptr %args, i64 %worker) #0 {
entry:
$loads
  %at_done = getelementptr i64, ptr %args, i64 $done
  %conditional = icmp ne ptr %goes_on, null
  br label %head
head:
  %done = phi i64 [ 0, %entry ], [ %done1, %latch ]
  %more = icmp slt i64 %done, %iterations
  br i1 %more, label %iteration, label %over
iteration:
  %far = mul i64 %done, %step
  %number = add i64 %first, %far
  store i64 %number, ptr %index
  %turned = add i64 %side, %done
  %last_bit = trunc i64 %turned to i1
  %records = select i1 %last_bit, ptr %records_1, ptr %records_0
  %moves = select i1 %last_bit, ptr %moves_1, ptr %moves_0
  %moved = select i1 %last_bit, i64 %moved_1, i64 %moved_0
  br label %more_moves
more_moves:
  %m = phi i64 [ 0, %iteration ], [ %m1, %move ]
  %is_move = icmp slt i64 %m, %moved
  br i1 %is_move, label %move, label %more_records
move:
  %entry_m = getelementptr [3 x i64], ptr %moves, i64 %m
  %word = load ptr, ptr %entry_m
  %at_start = getelementptr i64, ptr %entry_m, i64 1
  %start = load i64, ptr %at_start
  %at_distance = getelementptr i64, ptr %entry_m, i64 2
  %distance = load i64, ptr %at_distance
  %so_far = mul i64 %number, %distance
  %address = add i64 %start, %so_far
  store i64 %address, ptr %word
  %m1 = add i64 %m, 1
  br label %more_moves
more_records:
  %r = phi i64 [ 0, %more_moves ], [ %r1, %record ]
  %is_record = icmp slt i64 %r, %count
  br i1 %is_record, label %record, label %ran
record:
  %entry_r = getelementptr [4 x i64], ptr %records, i64 %r
  %kernel = load ptr, ptr %entry_r
  %at_total = getelementptr i64, ptr %entry_r, i64 1
  %total = load i64, ptr %at_total
  %at_grain = getelementptr i64, ptr %entry_r, i64 2
  %grain = load i64, ptr %at_grain
  %at_block = getelementptr i64, ptr %entry_r, i64 3
  %block = load ptr, ptr %at_block
  call void %run(ptr %kernel, i64 %total, i64 %grain, ptr %block)
  %r1 = add i64 %r, 1
  br label %more_records
ran:
  %done1 = add i64 %done, 1
  %flag = load atomic i32, ptr %interrupt monotonic, align 4
  %interrupted = icmp ne i32 %flag, 0
  br i1 %interrupted, label %over, label %more_checks
more_checks:
  %c = phi i64 [ 0, %ran ], [ %c1, %check ]
  %is_check = icmp slt i64 %c, %checks
  br i1 %is_check, label %check, label %ask
check:
  %at_status = getelementptr i64, ptr %statuses, i64 %c
  %status = load i64, ptr %at_status
  %fine = icmp eq i64 %status, -1
  %c1 = add i64 %c, 1
  br i1 %fine, label %more_checks, label %over
ask:
  br i1 %conditional, label %condition, label %latch
condition:
  %answer = load i8, ptr %goes_on
  %yes = icmp ne i8 %answer, 0
  br i1 %yes, label %latch, label %over
latch:
  br label %head
over:
  %finished = phi i64 [ %done, %head ], [ %done1, %ran ], [ %done1, %check ], [ %done1, %condition ]
  store i64 %finished, ptr %at_done
  ret void
}
attributes #0 = { nounwind }
"""

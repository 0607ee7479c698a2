"""Emits the kernel that runs all iterations of a loop without returning to Python.

Its argument block, which `loop_body.py` and `native_loops.py` fill, has tables of the kernels of the body, which
iterations cycle through, and the addresses that change between iterations. The kernel returns early if a check fails,
the loop condition is false, or an interrupt arrives.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, Value, call, counting, load_slot, slot_address, when
from livegrad.ir.types import i32, i64, u8
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_library

# The argument block. Iterations use the first `lead` tables once and then cycle through `period` tables; the first
# iteration uses table `position`. A table has the address of its records (kernel, total, grain, arguments), and the
# address and number of its moves (the address of a slot, its value in iteration 0, and its increment). The first
# `initial_records` records run only in the first `initial_iterations` iterations: they copy parts of the state that no
# iteration changes. Copies (to, from, bytes) run before the first iteration and after the last. `failed` is the address
# of a word that becomes 0 if a check fails.
SLOTS = {
    "run": pointer, "iterations": i64, "done": i64, "first": i64, "step": i64, "index": pointer,
    "condition": pointer, "statuses": pointer, "checks": i64, "failed": pointer, "interrupt": pointer, "count": i64,
    "initial_records": i64, "initial_iterations": i64, "tables": pointer, "position": i64, "lead": i64, "period": i64,
    "copies": pointer, "copies_before": i64, "copies_after": i64,
}  # fmt: skip
SLOT_INDEX = {name: index for index, name in enumerate(SLOTS)}
TABLE_WORDS = 3
_RECORD_BYTES, _MOVE_BYTES, _COPY_BYTES, _TABLE_BYTES = 32, 24, 24, 8 * TABLE_WORDS
_COPY = "llvm.memcpy.p0.p0.i64"


@lru_cache(maxsize=1)
def iterations_library() -> NativeFunction:
    """The kernel `run_iterations`, which is never freed."""
    return compile_library(_emit_module(), "run_iterations", speed=1)


def _emit_module() -> str:
    module = LlvmModule({f"declare void @{_COPY}(ptr, ptr, i64, i1)"})
    kernel = PoolKernel(module, "run_iterations")
    builder, slots = kernel.builder, kernel.arguments(SLOTS)
    _run_copies(slots["copies"], slots["copies_before"])
    loop = OpenLoop(builder, [builder.constant(0, i64)])
    done = Value(builder, loop.carried[0])
    exits = [(done.register, builder.block)]  # the number of completed iterations at each exit
    builder.branch((done < slots["iterations"]).register, loop.body, loop.done)
    builder.begin(loop.body)
    _run_iteration(slots, done)
    completed = done + 1

    def leave_unless(condition: Value) -> None:
        exits.append((completed.register, builder.block))
        following = builder.label("on")
        builder.branch(condition.register, following, loop.done)
        builder.begin(following)

    interrupt = builder.make(f"load atomic i32, {slots['interrupt'].typed} monotonic, align 4", i32, 1)
    leave_unless(Value(builder, interrupt).equals(0))
    with counting(0, slots["checks"]) as check:
        passed = load_slot(slots["statuses"], check).equals(-1)
        with when(passed.equals(0)), when(slots["failed"].convert("ptrtoint", i64).compare("ne", 0)):
            slots["failed"].store(Value(builder, builder.constant(0, i64)))
        leave_unless(passed)
    with when(slots["condition"].convert("ptrtoint", i64).compare("ne", 0)):
        leave_unless(slots["condition"].load(u8).compare("ne", 0))
    loop.close([completed.register])
    finished = Value(builder, builder.phi(i64, 1, exits))
    slot_address(kernel.parameters["args"], SLOT_INDEX["done"]).store(finished)
    _run_copies(slots["copies"] + slots["copies_before"] * _COPY_BYTES, slots["copies_after"])
    kernel.finish(exported=True)
    return module.text("attributes #0 = { nounwind }")


def _run_copies(copies: Value, count: Value) -> None:
    with counting(0, count) as index:
        record = copies + index * _COPY_BYTES
        target, source = load_slot(record, 0, pointer), load_slot(record, 1, pointer)
        size = load_slot(record, 2)
        size.builder.line(f"call void @{_COPY}({target.typed}, {source.typed}, {size.typed}, i1 false)")


def _run_iteration(slots: dict[str, Value], done: Value) -> None:
    """Applies the moves of an iteration's table, and runs its kernels."""
    number = slots["first"] + done * slots["step"]
    slots["index"].store(number)
    position = slots["position"] + done
    repeated = slots["lead"] + (position - slots["lead"]) % slots["period"]
    table = slots["tables"] + (position < slots["lead"]).select(position, repeated) * _TABLE_BYTES
    records, moves = load_slot(table, 0, pointer), load_slot(table, 1, pointer)
    with counting(0, load_slot(table, 2)) as index:
        move = moves + index * _MOVE_BYTES
        load_slot(move, 0, pointer).store(load_slot(move, 1) + number * load_slot(move, 2))
    skipped = done.compare("sge", slots["initial_iterations"]).select(slots["initial_records"], 0)
    with counting(skipped, slots["count"]) as index:
        record = records + index * _RECORD_BYTES
        types = (pointer, i64, i64, pointer)
        call(slots["run"].text, *[load_slot(record, field, type) for field, type in enumerate(types)])

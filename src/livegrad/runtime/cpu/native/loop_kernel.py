"""A kernel that runs all iterations of a loop over the kernels of its body, without returning to Python.

Its argument block, filled by `loop_body.py`, names the kernels of both sides and the addresses that change between
iterations. It ends early if a check fails, the loop condition is false, or an interrupt arrives.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.codegen.llvm.counted_loops import OpenLoop
from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, Value, call, counting, load_slot, slot_address, when
from livegrad.ir.types import bool_, i32, i64, u8
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_kernel

# The argument block. Iterations alternate between two sides. Each has records (kernel, total, grain, arguments) and
# moves (the address of a slot, its value in iteration 0, and its increment per iteration). The first `kept` records run
# in the first `full` iterations only: they copy what no iteration changes.
SLOTS = {
    "run": pointer, "iterations": i64, "done": i64, "first": i64, "step": i64, "side": i64, "index": pointer,
    "goes_on": pointer, "statuses": pointer, "checks": i64, "interrupt": pointer, "count": i64,
    "kept": i64, "full": i64,
    "records_0": pointer, "records_1": pointer, "moves_0": pointer, "moves_1": pointer, "moved_0": i64, "moved_1": i64,
}  # fmt: skip
SLOT_INDEX = {name: index for index, name in enumerate(SLOTS)}
_RECORD_BYTES, _MOVE_BYTES = 32, 24


@lru_cache(maxsize=1)
def iterations_library() -> NativeFunction:
    """The kernel `run_iterations`; it stays for the process's life."""
    kernel = compile_kernel(_text(), "run_iterations", speed=1)
    kernel.make_immortal()
    return kernel


def _text() -> str:
    module = LlvmModule()
    kernel = PoolKernel(module, "run_iterations")
    builder, w = kernel.builder, kernel.arguments(SLOTS)
    loop = OpenLoop(builder, [builder.constant(0, i64)])
    done = Value(builder, loop.carried[0])
    exits = [(done.register, builder.block)]  # how many iterations are done where the loop ends
    builder.branch((done < w["iterations"]).register, loop.body, loop.done)
    builder.begin(loop.body)
    _run_iteration(w, done)
    completed = done + 1

    def leave_unless(condition: Value) -> None:
        exits.append((completed.register, builder.block))
        following = builder.label("on")
        builder.branch(condition.register, following, loop.done)
        builder.begin(following)

    interrupt = builder.make(f"load atomic i32, {w['interrupt'].typed} monotonic, align 4", i32, 1)
    leave_unless(Value(builder, interrupt).equals(0))
    with counting(0, w["checks"]) as check:
        leave_unless(load_slot(w["statuses"], check).equals(-1))
    with when(w["goes_on"].convert("ptrtoint", i64).compare("ne", 0)):
        leave_unless(w["goes_on"].load(u8).compare("ne", 0))
    loop.close([completed.register])
    finished = Value(builder, builder.phi(i64, 1, exits))
    slot_address(kernel.parameters["args"], SLOT_INDEX["done"]).store(finished)
    kernel.finish(exported=True)
    return module.text("attributes #0 = { nounwind }")


def _run_iteration(w: dict[str, Value], done: Value) -> None:
    """Moves the addresses of the side whose turn it is, and runs its kernels."""
    number = w["first"] + done * w["step"]
    w["index"].store(number)
    is_second = (w["side"] + done).convert("trunc", bool_)
    records, moves, moved = (is_second.select(w[f"{name}_1"], w[f"{name}_0"]) for name in ("records", "moves", "moved"))
    with counting(0, moved) as index:
        move = moves + index * _MOVE_BYTES
        load_slot(move, 0, pointer).store(load_slot(move, 1) + number * load_slot(move, 2))
    skipped = done.compare("sge", w["full"]).select(w["kept"], 0)
    with counting(skipped, w["count"]) as index:
        record = records + index * _RECORD_BYTES
        types = (pointer, i64, i64, pointer)
        call(w["run"].text, *[load_slot(record, field, type) for field, type in enumerate(types)])

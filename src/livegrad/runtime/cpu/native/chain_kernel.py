"""Emits the kernel that runs a chain of kernels for each tile of rows (producer–consumer tiling).

Its argument block lists the members of the chain. Each worker copies their argument blocks, because the addresses of
intermediate results differ between workers and tiles. Called when a plan with chains is bound.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import LlvmModule, PoolKernel, call, counting, load_slot, slot_address, smallest
from livegrad.ir.types import i64
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_library

# The argument block: a header, and then words for each member and for each address in private memory.
HEADER = ("members", "patches", "scratch", "scratch_bytes")
MEMBER = ("code", "block", "words", "items", "total", "copy")  # `items` in a tile; byte offset of the copy of the block
# Byte offsets in the worker's scratch memory of the slot, and of the buffer that it points to. Members index rows from
# the first row of the matrix, so the address decreases by `step` bytes for each tile.
PATCH = ("slot", "buffer", "step")
LIBRARY = "chain"


@lru_cache(maxsize=1)
def chain_library() -> NativeFunction:
    """The kernel `run_chain`, which is never freed."""
    return compile_library(_emit_module(), "run_chain", speed=1)


def _emit_module() -> str:
    module = LlvmModule()
    kernel = PoolKernel(module, "run_chain")
    block = kernel.parameters["args"]
    members, patches, scratch, scratch_bytes = (load_slot(block, index) for index in range(len(HEADER)))
    base = scratch.convert("inttoptr", pointer) + kernel.worker * scratch_bytes
    first_member = block + 8 * len(HEADER)
    first_patch = first_member + members * (8 * len(MEMBER))
    base_address = base.convert("ptrtoint", i64)
    with counting(0, members) as number:
        member = first_member + number * (8 * len(MEMBER))
        slots, copy = load_slot(member, 2), base + load_slot(member, 5)
        source = load_slot(member, 1).convert("inttoptr", pointer)
        with counting(0, slots) as slot:
            value = load_slot(source, slot)
            slot_address(copy, slot).store(value)
    with counting(kernel.begin, kernel.end) as block_number:
        with counting(0, patches) as number:
            patch = first_patch + number * (8 * len(PATCH))
            address = base_address + load_slot(patch, 1) - block_number * load_slot(patch, 2)
            (base + load_slot(patch, 0)).store(address)
        with counting(0, members) as number:
            member = first_member + number * (8 * len(MEMBER))
            items = load_slot(member, 3)
            first = block_number * items
            last = smallest(first + items, load_slot(member, 4))
            copy = base + load_slot(member, 5)
            code = load_slot(member, 0).convert("inttoptr", pointer)
            call(code.text, first, last, copy, kernel.worker)
    kernel.finish(exported=True)
    return module.text("attributes #0 = { nounwind }")

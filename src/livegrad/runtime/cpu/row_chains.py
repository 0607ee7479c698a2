"""Producer–consumer tiling on the CPU: which chains of steps run tile by tile, and their serialised form.

`schedule/tile_row_chains.py` finds what may be chained; this module decides what should be (`rows_of_tile`). Chains are
serialised with the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.runtime.cpu.matmul_steps import native_product
from livegrad.runtime.cpu.native.caches import second_level_bytes
from livegrad.runtime.cpu.native.chain_kernel import HEADER, LIBRARY, MEMBER, PATCH
from livegrad.runtime.cpu.native.matmul import goes_by_rows
from livegrad.runtime.cpu.native.pool import default_threads
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel
from livegrad.schedule.loops.cost_model import (
    FEWEST_TILES,
    LEAST_TILE_ROWS,
    MOST_TILE_ROWS,
    PRODUCT_ROWS,
    TILE_SHARE,
    TILES_A_THREAD,
)
from livegrad.schedule.loops.nest import RowTile
from livegrad.schedule.plan import Buffer, HostStep, RowChain


def _is_native(step: object) -> bool:
    if not isinstance(step, HostStep):
        return True
    product = native_product(step)
    return product is not None and goes_by_rows(product)


def rows_of_tile(chain: RowChain) -> int | None:
    """How many rows run together; None where products do worse that way, or threads would find too little work.

    A tile never reaches from one matrix into the next.
    """
    total, rows = prod(chain.rows), chain.rows[-1]
    if not total:
        return None
    # Results do not depend on the number of tiles: rows are computed alike in any tile.
    processors = default_threads()
    fewest = max(FEWEST_TILES, TILES_A_THREAD * processors)
    most = min(MOST_TILE_ROWS, second_level_bytes() // (TILE_SHARE * max(1, chain.row_bytes)), total // fewest)
    if total == rows:
        # As many for each processor, about alike, and of whole tiles.
        count = _whole(-(-total // max(1, most)), processors)
        block = min(most, _whole(-(-total // count), PRODUCT_ROWS))
    else:
        block = max((size for size in range(4, most + 1, 4) if rows % size == 0), default=0)
    return block if block >= LEAST_TILE_ROWS and all(map(_is_native, chain.steps)) else None


def row_tile(chain: RowChain) -> RowTile:
    return RowTile(prod(chain.rows), chain.tile)


@dataclass
class ChainBuilder:
    """Puts the kernels of a chain together; what is private to the chain lies in each worker's own memory."""

    chain: RowChain
    block: RowTile

    def private_slot(self, buffer: Buffer, offset: int) -> ArgumentSlot:
        """The slot for an address in a private buffer, by its offset in bytes."""
        return ArgumentSlot("private", buffer.number, offset)

    def serialise(
        self, members: Sequence[tuple[SerialisedKernel, int]], scratch: ArgumentSlot
    ) -> tuple[SerialisedKernel, int]:
        """The chain as one kernel, from its members with their items of a block; and the bytes a worker needs."""
        offset, copies = 0, []
        for kernel, _ in members:
            copies.append(offset)
            offset += 8 * len(kernel.slots)
        regions: dict[int, int] = {}
        offset = _lines(offset)
        for buffer in sorted(self.chain.private, key=lambda buffer: buffer.number):
            regions[buffer.number] = offset
            offset = _lines(offset + self._step(buffer))
        steps = {buffer.number: self._step(buffer) for buffer in self.chain.private}
        patches = [
            (copy + 8 * index, regions[slot.buffer] + slot.offset, steps[slot.buffer])
            for (kernel, _), copy in zip(members, copies, strict=True)
            for index, slot in enumerate(kernel.slots)
            if isinstance(slot, ArgumentSlot) and slot.kind == "private"
        ]
        slots: list[int | ArgumentSlot] = [len(members), len(patches), scratch, offset]
        assert len(slots) == len(HEADER)
        for number, ((kernel, items), copy) in enumerate(zip(members, copies, strict=True)):
            code, block = ArgumentSlot("code", number), ArgumentSlot("block", number)
            member = (code, block, len(kernel.slots), items, kernel.total, copy)
            assert len(member) == len(MEMBER)
            slots += member
        for patch in patches:
            assert len(patch) == len(PATCH)
            slots += patch
        inner = tuple(_without_private(kernel) for kernel, _ in members)
        chain_kernel = SerialisedKernel(b"", tuple(slots), self.block.count, 1, False, (), LIBRARY, "run_chain", inner)
        return chain_kernel, offset

    def _step(self, buffer: Buffer) -> int:
        """Bytes of a private buffer that one block of rows takes."""
        return buffer.bytes // self.block.rows * self.block.block


def _without_private(kernel: SerialisedKernel) -> SerialisedKernel:
    """The addresses of private memory are put in by the chain, for each block."""
    slots = [0 if isinstance(slot, ArgumentSlot) and slot.kind == "private" else slot for slot in kernel.slots]
    return replace(kernel, slots=tuple(slots))


def _lines(size: int) -> int:
    return _whole(size, 64)


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit

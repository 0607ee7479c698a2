"""Steps of which sizes decide how they run: matrix products, convolutions, transforms, and chains.

In: the sizes, and the slots of the operands. Out: serialised kernels. Called when a plan is serialised or, where sizes
are symbolic, when they are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.codegen.llvm.matmul.product import Launches, Product
from livegrad.runtime.cpu.native.chain_kernel import HEADER, LIBRARY, MEMBER, PATCH
from livegrad.runtime.cpu.native.convolution import Convolution, arrange_convolution
from livegrad.runtime.cpu.native.fourier import PREFIX, Transform, Word, arrange_transform
from livegrad.runtime.cpu.native.matmul import arrange, arrange_rows
from livegrad.runtime.cpu.native.ordering import PREFIX as ORDERING
from livegrad.runtime.cpu.native.ordering import Ordering, arrange_ordering
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel

_LINE = 64


def rounded(size: int) -> int:
    """A size in whole cache lines."""
    return -(-size // _LINE) * _LINE


@dataclass
class Memory:
    """Where steps find memory beside their buffers, and how much of it they turned out to need."""

    start: int  # of the workspace, behind the arena
    product_scratch: int  # the number of the scratch buffer of products
    workspace: int = 0  # bytes
    scratch: dict[int, int] | None = None  # bytes for each thread, by the number of the buffer

    def need(self, workspace: int, number: int, scratch: int) -> None:
        self.workspace = max(self.workspace, workspace)
        if scratch:
            self.scratch = self.scratch or {}
            self.scratch[number] = max(self.scratch.get(number, 0), scratch)


@dataclass(frozen=True)
class ProductCall:
    """A matrix product or a convolution, with the slots of its operands."""

    sizes: Product | Convolution
    left: ArgumentSlot
    right: ArgumentSlot
    out: ArgumentSlot

    def kernels(self, memory: Memory) -> tuple[SerialisedKernel, ...]:
        """The launches that compute it."""
        launches = arrange_convolution(self.sizes) if isinstance(self.sizes, Convolution) else arrange(self.sizes)
        memory.need(_workspace_of(launches), memory.product_scratch, launches.scratch)
        return self._launch(launches, memory, 0)

    def kernels_by_rows(self, block: int, memory: Memory, used: int) -> tuple[tuple[SerialisedKernel, ...], int]:
        """The launches for blocks of rows, with so many bytes of the workspace in use; and how many are after them."""
        assert isinstance(self.sizes, Product)
        launches = arrange_rows(self.sizes, block)
        after = used + _workspace_of(launches)
        memory.need(after, memory.product_scratch, launches.scratch)
        return self._launch(launches, memory, used), after

    def _launch(self, launches: Launches, memory: Memory, used: int) -> tuple[SerialisedKernel, ...]:
        start = memory.start + used
        slots = {
            "left": self.left, "right": self.right, "out": self.out,
            "workspace": ArgumentSlot("arena", 0, start),
            "between": ArgumentSlot("arena", 0, start + rounded(launches.workspace)),
            "scratch": ArgumentSlot("scratch", memory.product_scratch, 0) if launches.scratch else 0,
        }  # fmt: skip
        return tuple(
            SerialisedKernel(
                b"", tuple([slots.get(w, 0) if isinstance(w, str) else w for w in launch.words]),
                launch.total, launch.grain, False, (), self.sizes.element, launch.kernel,
            )
            for launch in launches.steps
        )  # fmt: skip


def _workspace_of(launches: Launches) -> int:
    return rounded(launches.workspace) + rounded(launches.between)


@dataclass(frozen=True)
class TransformCall:
    """Fourier transforms one after the other. No group of rows writes over what another one reads: in between, results
    go back and forth between the step's result and a copy of it."""

    transforms: tuple[Transform, ...]
    source: ArgumentSlot
    out: ArgumentSlot
    size: int  # bytes of the result

    def kernels(self, memory: Memory) -> tuple[SerialisedKernel, ...]:
        """The launches that compute them."""
        size = rounded(self.size) if len(self.transforms) > 1 else 0
        copy = ArgumentSlot("arena", 0, memory.start)
        source, launched = self.source, []
        for number, transform in enumerate(self.transforms, 1):
            launches = arrange_transform(transform)
            memory.need(size + rounded(launches.workspace), memory.product_scratch, launches.scratch)
            target = self.out if (len(self.transforms) - number) % 2 == 0 else copy
            places = {
                "left": source, "out": target, "workspace": ArgumentSlot("arena", 0, memory.start + size),
                "scratch": ArgumentSlot("scratch", memory.product_scratch, 0),
            }  # fmt: skip
            for launch in launches.steps:
                slots = tuple([_transform_slot(word, places) for word in launch.words])
                library = PREFIX + transform.element
                launched.append(
                    SerialisedKernel(b"", slots, launch.total, launch.grain, False, (), library, launch.kernel)
                )
            source = target
        return tuple(launched)


def _transform_slot(word: Word, slots: Mapping[str, ArgumentSlot]) -> int | ArgumentSlot:
    if isinstance(word, tuple):
        _, length, columns = word
        return ArgumentSlot("table", length, columns)
    return slots[word] if isinstance(word, str) else word


@dataclass(frozen=True)
class OrderingCall:
    """Rows that are sorted, or whose largest numbers are found."""

    ordering: Ordering
    source: ArgumentSlot
    out: ArgumentSlot

    def kernels(self, memory: Memory) -> tuple[SerialisedKernel, ...]:
        """The launch that computes it."""
        launch, scratch = arrange_ordering(self.ordering)
        memory.need(0, memory.product_scratch, scratch)
        places = {
            "left": self.source, "out": self.out, "scratch": ArgumentSlot("scratch", memory.product_scratch, 0),
        }  # fmt: skip
        slots = tuple([places[word] if isinstance(word, str) else word for word in launch.words])
        library = ORDERING + self.ordering.element
        return (SerialisedKernel(b"", slots, launch.total, launch.grain, False, (), library, launch.kernel),)


@dataclass(frozen=True)
class ChainCall:
    """Steps that run tile by tile; what is private to them lies in each worker's own memory."""

    members: tuple[SerialisedKernel | ProductCall, ...]
    private: tuple[tuple[int, int], ...]  # the number of each buffer, and the bytes that a tile of it takes
    tile: int  # rows
    count: int  # tiles
    scratch: int  # the number of the chain's scratch buffer

    def kernels(self, memory: Memory) -> tuple[SerialisedKernel, ...]:
        """What prepares the chain, and the kernel that runs it tile by tile."""
        before: list[SerialisedKernel] = []
        members: list[tuple[SerialisedKernel, int]] = []
        used = 0
        for member in self.members:
            if isinstance(member, SerialisedKernel):
                members.append((member, member.grain))
                continue
            (*ahead, run), used = member.kernels_by_rows(self.tile, memory, used)
            before += ahead
            members.append((run, 1))
        whole, scratch_bytes = self._serialise(members)
        memory.need(used, self.scratch, scratch_bytes)
        return (*before, whole)

    def _serialise(self, members: list[tuple[SerialisedKernel, int]]) -> tuple[SerialisedKernel, int]:
        """The chain as one kernel, from its members with their items of a tile; and the bytes a worker needs."""
        offset, copies = 0, []
        for kernel, _ in members:
            copies.append(offset)
            offset += 8 * len(kernel.slots)
        regions: dict[int, int] = {}
        offset = rounded(offset)
        for number, size in self.private:
            regions[number] = offset
            offset = rounded(offset + size)
        steps = dict(self.private)
        patches = [
            (copy + 8 * index, regions[slot.buffer] + slot.offset, steps[slot.buffer])
            for (kernel, _), copy in zip(members, copies, strict=True)
            for index, slot in enumerate(kernel.slots)
            if isinstance(slot, ArgumentSlot) and slot.kind == "private"
        ]
        slots: list[int | ArgumentSlot] = [len(members), len(patches), ArgumentSlot("scratch", self.scratch, 0), offset]
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
        return SerialisedKernel(b"", tuple(slots), self.count, 1, False, (), LIBRARY, "run_chain", inner), offset


def _without_private(kernel: SerialisedKernel) -> SerialisedKernel:
    """The addresses of private memory are put in by the chain, for each tile."""
    slots = [0 if isinstance(slot, ArgumentSlot) and slot.kind == "private" else slot for slot in kernel.slots]
    return replace(kernel, slots=tuple(slots))


StepCall = SerialisedKernel | ProductCall | TransformCall | OrderingCall | ChainCall

"""Lowers calls whose launches depend on sizes: matrix products, convolutions, transforms, sorts, and row chains.

In: sizes, and the slots of operands. Out: serialised kernels. Called when a plan is serialised or, with symbolic sizes,
when a template is instantiated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.codegen.llvm.matmul.product import Launches, Product
from livegrad.ir.dimension import round_up
from livegrad.runtime.cpu.native.chain_kernel import HEADER, LIBRARY, MEMBER, PATCH
from livegrad.runtime.cpu.native.convolution import Convolution, arrange_convolution
from livegrad.runtime.cpu.native.fourier import PREFIX, Slot, Transform, arrange_transform
from livegrad.runtime.cpu.native.matmul import arrange, arrange_rows
from livegrad.runtime.cpu.native.ordering import PREFIX as ORDERING
from livegrad.runtime.cpu.native.ordering import Ordering, arrange_ordering
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel
from livegrad.schedule.plan import ALIGNMENT


def whole_lines(size: int) -> int:
    """Rounds a size up to whole cache lines."""
    return round_up(size, ALIGNMENT)


@dataclass
class Workspace:
    """Temporary memory that calls share, because they run in sequence. It grows as calls are serialised."""

    start: int  # its offset in the arena, behind the buffers
    library_scratch: int  # the number of the scratch buffer of library kernels
    bytes: int = 0
    scratch: dict[int, int] | None = None  # bytes for each thread, by the number of the buffer

    def reserve(self, size: int, number: int, scratch: int) -> None:
        """Reserves at least `size` bytes of the workspace, and `scratch` bytes in scratch buffer `number`."""
        self.bytes = max(self.bytes, size)
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

    def kernels(self, workspace: Workspace) -> tuple[SerialisedKernel, ...]:
        """The launches that compute it."""
        launches = arrange_convolution(self.sizes) if isinstance(self.sizes, Convolution) else arrange(self.sizes)
        workspace.reserve(_workspace_of(launches), workspace.library_scratch, launches.scratch)
        return self._launch(launches, workspace, 0)

    def kernels_by_rows(self, block: int, workspace: Workspace, used: int) -> tuple[tuple[SerialisedKernel, ...], int]:
        """The launches for blocks of rows, and the bytes of the workspace in use, which were `used` before."""
        assert isinstance(self.sizes, Product)
        launches = arrange_rows(self.sizes, block)
        used_with_call = used + _workspace_of(launches)
        workspace.reserve(used_with_call, workspace.library_scratch, launches.scratch)
        return self._launch(launches, workspace, used), used_with_call

    def _launch(self, launches: Launches, workspace: Workspace, used: int) -> tuple[SerialisedKernel, ...]:
        start = workspace.start + used
        operands = {
            "left": self.left, "right": self.right, "out": self.out,
            "workspace": ArgumentSlot("arena", 0, start),
            "between": ArgumentSlot("arena", 0, start + whole_lines(launches.workspace)),
            "scratch": ArgumentSlot("scratch", workspace.library_scratch, 0) if launches.scratch else 0,
        }  # fmt: skip
        return tuple(
            SerialisedKernel(
                b"", tuple([operands.get(s, 0) if isinstance(s, str) else s for s in launch.slots]),
                launch.total, launch.grain, False, (), self.sizes.element, launch.kernel,
            )
            for launch in launches.steps
        )  # fmt: skip


def _workspace_of(launches: Launches) -> int:
    return whole_lines(launches.workspace) + whole_lines(launches.between)


@dataclass(frozen=True)
class TransformCall:
    """A sequence of Fourier transforms, which alternate between the step's result and a copy of it.

    Transforms are out of place, because groups of rows that run concurrently may overlap in memory.
    """

    transforms: tuple[Transform, ...]
    source: ArgumentSlot
    out: ArgumentSlot
    size: int  # bytes of the result

    def kernels(self, workspace: Workspace) -> tuple[SerialisedKernel, ...]:
        """The launches that compute them."""
        size = whole_lines(self.size) if len(self.transforms) > 1 else 0
        copy = ArgumentSlot("arena", 0, workspace.start)
        source, kernels = self.source, []
        for number, transform in enumerate(self.transforms, 1):
            launches = arrange_transform(transform)
            workspace.reserve(size + whole_lines(launches.workspace), workspace.library_scratch, launches.scratch)
            target = self.out if (len(self.transforms) - number) % 2 == 0 else copy
            operands = {
                "left": source, "out": target, "workspace": ArgumentSlot("arena", 0, workspace.start + size),
                "scratch": ArgumentSlot("scratch", workspace.library_scratch, 0),
            }  # fmt: skip
            for launch in launches.steps:
                slots = tuple([_transform_slot(slot, operands) for slot in launch.slots])
                library = PREFIX + transform.element
                kernels.append(
                    SerialisedKernel(b"", slots, launch.total, launch.grain, False, (), library, launch.kernel)
                )
            source = target
        return tuple(kernels)


def _transform_slot(slot: Slot, operands: Mapping[str, ArgumentSlot]) -> int | ArgumentSlot:
    if isinstance(slot, tuple):
        _, length, columns = slot
        return ArgumentSlot("table", length, columns)
    return operands[slot] if isinstance(slot, str) else slot


@dataclass(frozen=True)
class OrderingCall:
    """A sort of rows, or the selection of their largest elements."""

    ordering: Ordering
    source: ArgumentSlot
    out: ArgumentSlot

    def kernels(self, workspace: Workspace) -> tuple[SerialisedKernel, ...]:
        """The launch that computes it."""
        launch, scratch = arrange_ordering(self.ordering)
        workspace.reserve(0, workspace.library_scratch, scratch)
        operands = {
            "left": self.source, "out": self.out, "scratch": ArgumentSlot("scratch", workspace.library_scratch, 0),
        }  # fmt: skip
        slots = tuple([operands[slot] if isinstance(slot, str) else slot for slot in launch.slots])
        library = ORDERING + self.ordering.element
        return (SerialisedKernel(b"", slots, launch.total, launch.grain, False, (), library, launch.kernel),)


@dataclass(frozen=True)
class ChainCall:
    """Steps that run tile by tile. Buffers that only they use are private to each worker."""

    members: tuple[SerialisedKernel | ProductCall, ...]
    private: tuple[tuple[int, int], ...]  # the number of each private buffer, and the bytes of a tile of it
    tile: int  # rows
    count: int  # tiles
    scratch: int  # the number of the chain's scratch buffer

    def kernels(self, workspace: Workspace) -> tuple[SerialisedKernel, ...]:
        """The launches that prepare the chain, and the kernel that runs it tile by tile."""
        before: list[SerialisedKernel] = []
        members: list[tuple[SerialisedKernel, int]] = []
        used = 0
        for member in self.members:
            if isinstance(member, SerialisedKernel):
                members.append((member, member.grain))
                continue
            (*packing, run), used = member.kernels_by_rows(self.tile, workspace, used)
            before += packing
            members.append((run, 1))
        chain, scratch_bytes = self._serialise(members)
        workspace.reserve(used, self.scratch, scratch_bytes)
        return (*before, chain)

    def _serialise(self, members: list[tuple[SerialisedKernel, int]]) -> tuple[SerialisedKernel, int]:
        """The chain as one kernel, and the scratch bytes of a worker. Members come with their work items in a tile."""
        offset, copies = 0, []
        for kernel, _ in members:
            copies.append(offset)
            offset += 8 * len(kernel.slots)
        regions: dict[int, int] = {}
        offset = whole_lines(offset)
        for number, size in self.private:
            regions[number] = offset
            offset = whole_lines(offset + size)
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
    """A member with 0 in the slots of private buffers, whose addresses the chain sets for each tile."""
    slots = [0 if isinstance(slot, ArgumentSlot) and slot.kind == "private" else slot for slot in kernel.slots]
    return replace(kernel, slots=tuple(slots))


StepCall = SerialisedKernel | ProductCall | TransformCall | OrderingCall | ChainCall

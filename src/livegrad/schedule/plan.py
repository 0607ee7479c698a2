"""The plan: ordered steps over buffers with stable identity. What the scheduler makes and backends run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from livegrad.diagnostics import Place
from livegrad.ir.node import Function
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar
from livegrad.schedule.kernel import Kernel

Lifetime = Literal["external", "graph", "region"]
ALIGNMENT = 64


@dataclass(frozen=True)
class Buffer:
    """Memory for a tensor (or a scalar, with the shape ()): dense, in row-major order."""

    number: int
    name: str
    element: Scalar
    shape: tuple[int, ...]
    lifetime: Lifetime
    alias_of: Buffer | None = None  # the same memory under another shape

    @property
    def base(self) -> Buffer:
        """The buffer that owns the memory."""
        return self if self.alias_of is None else self.alias_of

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.element.dtype.itemsize

    @property
    def reserved_bytes(self) -> int:
        """What the buffer takes of an arena: whole cache lines, and never none."""
        return -(-max(self.bytes, 1) // ALIGNMENT) * ALIGNMENT

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    def __hash__(self) -> int:
        return self.number  # one plan's buffers have numbers of their own; views of one share its number

    def __str__(self) -> str:
        return f"b{self.number}:{self.name}"


@dataclass(frozen=True)
class View:
    """A buffer seen from a kernel's dimensions: where it starts, and what a step along each moves, in elements."""

    buffer: Buffer
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class KernelStep:
    """One launch of a kernel over concrete extents."""

    kernel: Kernel
    domain: tuple[int, ...]
    inner: tuple[int, ...]
    reads: tuple[View, ...]
    wholes: tuple[Buffer, ...]
    uniforms: tuple[View, ...]
    outputs: tuple[View, ...]
    chunk: int = 0  # inner elements a chunk, when the kernel is split

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        views = (*self.reads, *self.uniforms)
        return (*(view.buffer.base for view in views), *(whole.base for whole in self.wholes))

    @property
    def results(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(view.buffer.base for view in self.outputs))


@dataclass(frozen=True)
class ObjectSlot:
    """A place for a value that is no array: a tuple of tensors, or what a loop over tensors remembers."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"o{self.number}:{self.name}"


Slot = Buffer | ObjectSlot


@dataclass(frozen=True)
class HostStep:
    """One op on whole values, called from the host: a library routine, or control flow around plans of its own."""

    op: Op
    function: Function  # of the operands, with that one op in it
    operands: tuple[Slot, ...]
    result: Slot
    origin: Place | None = None

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        return tuple(slot.base for slot in self.operands if isinstance(slot, Buffer))

    @property
    def results(self) -> tuple[Buffer, ...]:
        return (self.result.base,) if isinstance(self.result, Buffer) else ()


Step = KernelStep | HostStep


@dataclass(frozen=True)
class Plan:
    """Steps in order, the buffers they use, and which of those are arguments and results of the function."""

    name: str
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    arguments: tuple[Slot, ...]
    results: tuple[Slot, ...]
    places: Mapping[Buffer, int]  # byte offsets in the arena, for buffers that live within the plan
    arena_bytes: int
    function: Function

    @property
    def kernels(self) -> int:
        return sum(isinstance(step, KernelStep) for step in self.steps)

    @property
    def naive_bytes(self) -> int:
        """What the arena would take if no two buffers shared memory."""
        return sum(buffer.reserved_bytes for buffer in self.places)

    @property
    def bytes_moved(self) -> int:
        """What the steps read and write if each touches each of its buffers once; scratch stays in the cache."""
        touched = [b for step in self.steps for b in (*dict.fromkeys(step.inputs), *step.results)]
        return sum(buffer.bytes for buffer in touched if buffer.lifetime != "region")

    def __str__(self) -> str:
        lines = [
            f"plan {self.name}: {_counted(len(self.steps), 'step')}, {_counted(self.kernels, 'kernel')}, "
            f"{self.bytes_moved} bytes moved, "
            f"peak {self.arena_bytes} bytes of {self.naive_bytes} without reuse"
        ]
        for number, step in enumerate(self.steps):
            reads, writes = ", ".join(map(str, reads_of(step))), ", ".join(map(str, writes_of(step)))
            lines.append(f"  {number}: {_describe(step)}({reads}) -> {writes}")
        return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def reads_of(step: Step) -> tuple[Slot, ...]:
    """What a step reads of what others wrote: buffers and objects, not its own scratch."""
    slots = step.operands if isinstance(step, HostStep) else step.inputs
    return tuple(slot for slot in dict.fromkeys(slots) if not _is_scratch(slot))


def writes_of(step: Step) -> tuple[Slot, ...]:
    """What a step writes for others to read."""
    return (step.result,) if isinstance(step, HostStep) else tuple(b for b in step.results if not _is_scratch(b))


def _is_scratch(slot: Slot) -> bool:
    return isinstance(slot, Buffer) and slot.lifetime == "region"


def _describe(step: Step) -> str:
    if not isinstance(step, KernelStep):
        return step.op.name
    domain = "x".join(map(str, step.domain)) or "1"
    inner = f" over {'x'.join(map(str, step.inner))}" if step.inner else ""
    return f"kernel {step.kernel.name} [{domain}{inner}]"

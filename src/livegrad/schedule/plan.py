"""The plan: ordered steps over buffers with stable identity. Built by the scheduler, run by backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

from livegrad.diagnostics import CompileError, SourceLocation
from livegrad.ir.node import Function
from livegrad.ir.op import Op
from livegrad.ir.text import print_function
from livegrad.ir.types import Scalar, Type, array_form
from livegrad.schedule.kernel import Kernel

Lifetime = Literal["external", "graph", "region"]
Axis = Literal["domain", "inner"]  # the rows of a kernel, or the points of a row
ALIGNMENT = 64


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory for a tensor (or a scalar, with the shape ()): dense, in row-major order. Each equals itself alone."""

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

    @cached_property
    def bytes(self) -> int:
        return self.size * self.element.dtype.itemsize

    @property
    def reserved_bytes(self) -> int:
        """The bytes of the buffer in an arena: a positive multiple of the cache line size."""
        return reserved_bytes(self.bytes)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    def __str__(self) -> str:
        return f"b{self.number}:{self.name}"


def reserved_bytes(size: int) -> int:
    """The bytes of a buffer of this size in an arena."""
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def storage(type: Type) -> tuple[Scalar, tuple[int, ...]]:
    """The element and shape of the memory for a value."""
    form = array_form(type)
    if form is None:
        raise CompileError(f"a buffer cannot hold a {type}")
    return form  # type: ignore[return-value]  # sizes are bound by now


class View(NamedTuple):
    """A strided view of a buffer: its offset, and its stride along each kernel dimension, in elements."""

    buffer: Buffer
    offset: int
    strides: tuple[int, ...]


def reached(offset: int, strides: Sequence[int], extents: Sequence[int]) -> tuple[int, int]:
    """The first and the last element that is touched from an offset on, by steps along extents of one and more.

    >>> reached(7, (-2, 1), (3, 2))
    (3, 8)
    """
    first = last = offset
    for stride, extent in zip(strides, extents, strict=True):
        move = stride * (extent - 1)
        if move < 0:
            first += move
        else:
            last += move
    return first, last


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
    # Inner elements of a chunk, where the first domain dimension numbers chunks of the first inner one; 0: unsplit.
    chunk: int = 0
    vector_axis: Axis = "domain"  # lanes run across the last domain dimension, or along the last inner one
    note: str = field(default="", compare=False)  # for people: why there is such a step

    inputs: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)
    results: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        read, changed = list(self.wholes), []
        if self.kernel.written:
            read = [buffer for number, buffer in enumerate(read) if number not in self.kernel.written]
            changed = [self.wholes[number] for number in sorted(self.kernel.written)]
        touched = [*[view.buffer for view in self.reads], *[view.buffer for view in self.uniforms], *read]
        results = [*[view.buffer for view in self.outputs], *changed]
        object.__setattr__(self, "inputs", tuple([buffer.base for buffer in touched]))
        object.__setattr__(self, "results", tuple(dict.fromkeys([buffer.base for buffer in results])))


@dataclass(frozen=True)
class ObjectSlot:
    """A slot for a value that is not an array: a tuple of tensors, or the tape of a loop over tensors."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"o{self.number}:{self.name}"


Slot = Buffer | ObjectSlot


@dataclass(frozen=True)
class RowTape:
    """A tape for which each iteration reads or writes the row at its index."""

    leaf: int  # its position among the leaves of the loop's operands
    element: Type
    reads: tuple[int, ...]  # the leaves of the element that the body takes
    writes: bool  # whether the body returns all of them

    def __str__(self) -> str:
        read = [f"reads {', '.join(map(str, self.reads))}"] if self.reads else []
        return f"tape {self.leaf} by row: {' and '.join([*read, *(['writes'] if self.writes else [])]) or 'unused'}"


@dataclass(frozen=True)
class RowLoop:
    """A loop over the leaves of its operands, the carried ones first: each is state, invariant, or a tape by row.

    `body` takes the index, then state, invariant leaves and rows read; it returns state, rows written, and for a
    `while_loop` whether to continue. `plan` is the plan of the body.
    """

    body: Function
    carried: int  # leaves
    state: tuple[int, ...]
    fixed: tuple[int, ...]
    rows: tuple[RowTape, ...]
    plan: Plan | None = field(default=None, compare=False, repr=False)

    def lines(self) -> list[str]:
        state, fixed = (", ".join(map(str, leaves)) or "none" for leaves in (self.state, self.fixed))
        body = print_function(self.body).rstrip() if self.plan is None else str(self.plan)
        return [*self._how_it_runs(), f"state: {state}; invariant: {fixed}", *map(str, self.rows), *body.splitlines()]

    def _how_it_runs(self) -> list[str]:
        """A line for people: what an iteration consists of."""
        if self.plan is None:
            return []
        called = dict.fromkeys(step.op.name for step in self.plan.steps if isinstance(step, HostStep))
        calls = f" and calls {', '.join(called)}" if called else ""
        return [f"each iteration runs {_counted(self.plan.kernels, 'kernel')}{calls}"]


@dataclass(frozen=True)
class HostStep:
    """An op on whole values that the host runs: a library routine, or control flow around nested plans."""

    op: Op
    function: Function  # of the operands, with that one op in it
    operands: tuple[Slot, ...]
    result: Slot
    origin: SourceLocation | None = None
    loop: RowLoop | None = field(default=None, compare=False, repr=False)  # how a loop runs natively
    # The components of a tuple that the step stores itself, by their index; nothing takes those from `result`.
    stored: tuple[tuple[int, Buffer], ...] = ()

    inputs: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)
    results: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inputs = tuple([slot.base for slot in self.operands if isinstance(slot, Buffer)])
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "results", tuple([slot.base for slot in self.written if isinstance(slot, Buffer)]))

    @property
    def written(self) -> tuple[Slot, ...]:
        """What the step writes for others."""
        return (*[buffer for _, buffer in self.stored], self.result)


Step = KernelStep | HostStep


@dataclass(frozen=True, eq=False)
class RowChain:
    """Steps of a plan that may run tile by tile over the rows of their results."""

    numbers: tuple[int, ...]  # of the steps: others may lie between them, which can wait until the chain is over
    steps: tuple[Step, ...]
    rows: tuple[int, ...]  # the leading dimensions that number the rows
    private: frozenset[Buffer]  # what no other step reads: it needs memory for one tile only
    tile: int = 0  # rows that go through all steps together

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        return tuple(b for step in self.steps for b in step.inputs if b not in self.private)

    @property
    def results(self) -> tuple[Buffer, ...]:
        return tuple(b for step in self.steps for b in step.results if b not in self.private)

    @property
    def longest_row(self) -> int:
        """The most elements of a row that a step writes."""
        return max(prod(buffer.shape[len(self.rows) :]) for step in self.steps for buffer in step.results)

    @property
    def row_bytes(self) -> int:
        """The bytes of one row of everything that the chain writes."""
        return sum(buffer.bytes for buffer in {b for step in self.steps for b in step.results}) // max(
            1, prod(self.rows)
        )


@dataclass(frozen=True)
class Plan:
    """Steps in order, the buffers they use, and which of those are arguments and results of the function."""

    name: str
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    arguments: tuple[Slot, ...]
    results: tuple[Slot, ...]
    arena_offsets: Mapping[Buffer, int]  # byte offsets in the arena, for buffers that live within the plan
    arena_bytes: int
    function: Function
    chains: tuple[RowChain, ...] = ()  # steps that run tile by tile; those of a chain follow each other

    @property
    def kernels(self) -> int:
        return sum(isinstance(step, KernelStep) for step in self.steps)

    @property
    def naive_bytes(self) -> int:
        """The size of the arena without memory sharing."""
        return sum(buffer.reserved_bytes for buffer in self.arena_offsets)

    @property
    def bytes_moved(self) -> int:
        """The bytes that the steps read and write if each accesses each buffer once, without scratch memory."""
        touched = [b for step in self.steps for b in (*dict.fromkeys(step.inputs), *step.results)]
        return sum(buffer.bytes for buffer in touched if buffer.lifetime != "region")

    def __str__(self) -> str:
        lines = [
            f"plan {self.name}: {_counted(len(self.steps), 'step')}, {_counted(self.kernels, 'kernel')}, "
            f"{self.bytes_moved} bytes moved, "
            f"peak {self.arena_bytes} bytes of {self.naive_bytes} without reuse"
        ]
        return "\n".join([*lines, *step_lines(self.steps, self.chains)])


def step_lines(steps: Sequence[Step], chains: Sequence[RowChain] = ()) -> list[str]:
    """Steps as people read them, those of a chain under a line of their own."""
    tiled = {id(step): chain for chain in chains for step in chain.steps}
    lines: list[str] = []
    for number, step in enumerate(steps):
        chain = tiled.get(id(step))
        if chain is not None and step is chain.steps[0]:
            lines.append(f"  by tiles of {chain.tile} of {prod(chain.rows)} rows:")
        reads, writes = ", ".join(map(str, reads_of(step))), ", ".join(map(str, writes_of(step)))
        note = f"  # {step.note}" if isinstance(step, KernelStep) and step.note else ""
        lines.append(f"{'  ' if chain is None else '    '}{number}: {_describe(step)}({reads}) -> {writes}{note}")
        if isinstance(step, HostStep) and step.loop is not None:
            lines += [f"      {line}" for line in step.loop.lines()]
    return lines


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def reads_of(step: Step) -> tuple[Slot, ...]:
    """The buffers and objects that a step reads, without its own scratch memory."""
    slots = step.operands if isinstance(step, HostStep) else step.inputs
    return tuple([slot for slot in dict.fromkeys(slots) if not _is_scratch(slot)])


def writes_of(step: Step) -> tuple[Slot, ...]:
    """The buffers and objects that a step writes for others."""
    return step.written if isinstance(step, HostStep) else tuple([b for b in step.results if b.lifetime != "region"])


def _is_scratch(slot: Slot) -> bool:
    return isinstance(slot, Buffer) and slot.lifetime == "region"


def _describe(step: Step) -> str:
    if not isinstance(step, KernelStep):
        return step.op.name
    domain = "x".join(map(str, step.domain)) or "1"
    inner = f" over {'x'.join(map(str, step.inner))}" if step.inner else ""
    return f"kernel {step.kernel.name or 'copy'} [{domain}{inner}]"

"""The plan data model: ordered steps over buffers. The scheduler builds plans and backends run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple

from livegrad.diagnostics import CompileError, SourceLocation
from livegrad.ir.cached_property import cached_property
from livegrad.ir.dimension import round_up
from livegrad.ir.node import Function
from livegrad.ir.op import Op
from livegrad.ir.text import print_function
from livegrad.ir.types import Scalar, Type, array_form
from livegrad.schedule.kernel import Kernel

Lifetime = Literal["external", "graph", "region"]
Axis = Literal["domain", "inner"]  # over the rows of a kernel, or over the points of a row
ALIGNMENT = 64


@dataclass(frozen=True, eq=False)
class Buffer:
    """Dense row-major memory for a tensor, or for a scalar with the shape (). Buffers compare by identity."""

    number: int
    name: str
    element: Scalar
    shape: tuple[int, ...]
    lifetime: Lifetime
    alias_of: Buffer | None = None  # the buffer that owns the memory, for a view with another shape

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
        """The row-major strides, in elements."""
        strides, step = [], 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    def __str__(self) -> str:
        return f"b{self.number}:{self.name}"


def reserved_bytes(size: int) -> int:
    """The bytes that a buffer of this size takes in an arena."""
    return round_up(max(size, 1), ALIGNMENT)


def storage(type: Type) -> tuple[Scalar, tuple[int, ...]]:
    """The element type and the shape of the memory for a value."""
    form = array_form(type)
    if form is None:
        raise CompileError(f"a buffer cannot hold a {type}")
    return form  # type: ignore[return-value]  # sizes are bound by now


class View(NamedTuple):
    """A strided view of a buffer: its offset, and its stride along each kernel dimension, in elements."""

    buffer: Buffer
    offset: int
    strides: tuple[int, ...]


def element_range(offset: int, strides: Sequence[int], extents: Sequence[int]) -> tuple[int, int]:
    """The first and the last element of a strided access, for extents of at least one.

    >>> element_range(7, (-2, 1), (3, 2))
    (3, 8)
    """
    first = last = offset
    for stride, extent in zip(strides, extents, strict=True):
        span = stride * (extent - 1)
        if span < 0:
            first += span
        else:
            last += span
    return first, last


@dataclass(frozen=True)
class KernelStep:
    """A launch of a kernel over concrete extents."""

    kernel: Kernel
    domain: tuple[int, ...]
    inner: tuple[int, ...]
    reads: tuple[View, ...]
    indexed_buffers: tuple[Buffer, ...]
    scalar_arguments: tuple[View, ...]
    outputs: tuple[View, ...]
    # If the first domain dimension counts chunks of the first inner dimension, the size of a chunk; 0: not split.
    chunk: int = 0
    vector_axis: Axis = "domain"  # lanes run over the last domain dimension, or over the last inner dimension
    note: str = field(default="", compare=False)  # for display: why the step exists

    inputs: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)
    results: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        read, written = list(self.indexed_buffers), []
        if self.kernel.written:
            read = [buffer for index, buffer in enumerate(read) if index not in self.kernel.written]
            written = [self.indexed_buffers[index] for index in sorted(self.kernel.written)]
        inputs = [*[view.buffer for view in self.reads], *[view.buffer for view in self.scalar_arguments], *read]
        results = [*[view.buffer for view in self.outputs], *written]
        object.__setattr__(self, "inputs", tuple([buffer.base for buffer in inputs]))
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
    """A tape of which each iteration reads or writes the row at its index."""

    leaf: int  # the position among the leaves of the loop's operands
    element: Type
    reads: tuple[int, ...]  # the leaves of the element that the body reads
    writes: bool  # whether the body returns all leaves of the element

    def __str__(self) -> str:
        read = [f"reads {', '.join(map(str, self.reads))}"] if self.reads else []
        return f"tape {self.leaf} by row: {' and '.join([*read, *(['writes'] if self.writes else [])]) or 'unused'}"


@dataclass(frozen=True)
class RowLoop:
    """A loop over the leaves of its operands, the carried leaves first: each is state, invariant, or a tape by row.

    `body` takes the index, the state, the invariants and the rows that it reads. It returns the state, the rows that it
    writes, and for a `while_loop` whether to continue. `plan` is the plan of the body.
    """

    body: Function
    carried: int  # the number of carried leaves
    state: tuple[int, ...]
    invariants: tuple[int, ...]
    rows: tuple[RowTape, ...]
    plan: Plan | None = field(default=None, compare=False, repr=False)

    def lines(self) -> list[str]:
        state, invariants = (", ".join(map(str, leaves)) or "none" for leaves in (self.state, self.invariants))
        body = print_function(self.body).rstrip() if self.plan is None else str(self.plan)
        return [
            *self._summary_lines(),
            f"state: {state}; invariant: {invariants}",
            *map(str, self.rows),
            *body.splitlines(),
        ]

    def _summary_lines(self) -> list[str]:
        """Describes what an iteration runs."""
        if self.plan is None:
            return []
        host_ops = dict.fromkeys(step.op.name for step in self.plan.steps if isinstance(step, HostStep))
        calls = f" and calls {', '.join(host_ops)}" if host_ops else ""
        return [f"each iteration runs {_count_text(self.plan.kernels, 'kernel')}{calls}"]


@dataclass(frozen=True)
class HostStep:
    """An op that the host runs: a library routine, or control flow around nested plans."""

    op: Op
    function: Function  # a function of the operands that applies the op
    operands: tuple[Slot, ...]
    result: Slot
    origin: SourceLocation | None = None
    loop: RowLoop | None = field(default=None, compare=False, repr=False)  # the native form of a loop
    # (index, buffer) of results that the step stores directly in a buffer, instead of in the tuple `result`.
    stored: tuple[tuple[int, Buffer], ...] = ()

    inputs: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)
    results: tuple[Buffer, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inputs = tuple([slot.base for slot in self.operands if isinstance(slot, Buffer)])
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "results", tuple([slot.base for slot in self.written if isinstance(slot, Buffer)]))

    @property
    def written(self) -> tuple[Slot, ...]:
        """The slots that the step writes."""
        return (*[buffer for _, buffer in self.stored], self.result)


Step = KernelStep | HostStep


@dataclass(frozen=True, eq=False)
class RowChain:
    """Steps of a plan that can run tile by tile over the rows of their results."""

    numbers: tuple[int, ...]  # the indices of the steps; steps between them can wait for the end of the chain
    steps: tuple[Step, ...]
    rows: tuple[int, ...]  # the leading dimensions, over which the rows are counted
    private: frozenset[Buffer]  # buffers that no other step uses: they need memory for one tile only
    tile: int = 0  # the number of rows that pass through all steps together

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
        """The bytes that the chain writes for one row."""
        return sum(buffer.bytes for buffer in {b for step in self.steps for b in step.results}) // max(
            1, prod(self.rows)
        )


@dataclass(frozen=True)
class Plan:
    """Ordered steps, the buffers they use, and the slots of the function's arguments and results."""

    name: str
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    arguments: tuple[Slot, ...]
    results: tuple[Slot, ...]
    arena_offsets: Mapping[Buffer, int]  # byte offsets of temporary buffers
    arena_bytes: int
    function: Function
    chains: tuple[RowChain, ...] = ()  # steps that run tile by tile; the steps of a chain are consecutive

    @property
    def kernels(self) -> int:
        return sum(isinstance(step, KernelStep) for step in self.steps)

    @property
    def naive_bytes(self) -> int:
        """The size of the arena if buffers did not share memory."""
        return sum(buffer.reserved_bytes for buffer in self.arena_offsets)

    @property
    def bytes_moved(self) -> int:
        """The bytes that the steps read and write if each accesses each buffer once, without scratch memory."""
        accessed = [b for step in self.steps for b in (*dict.fromkeys(step.inputs), *step.results)]
        return sum(buffer.bytes for buffer in accessed if buffer.lifetime != "region")

    def __str__(self) -> str:
        lines = [
            f"plan {self.name}: {_count_text(len(self.steps), 'step')}, {_count_text(self.kernels, 'kernel')}, "
            f"{self.bytes_moved} bytes moved, "
            f"peak {self.arena_bytes} bytes of {self.naive_bytes} without reuse"
        ]
        return "\n".join([*lines, *describe_steps(self.steps, self.chains)])


def describe_steps(steps: Sequence[Step], chains: Sequence[RowChain] = ()) -> list[str]:
    """Lines of text for steps. The steps of a chain are indented under a heading."""
    chain_of_step = {id(step): chain for chain in chains for step in chain.steps}
    lines: list[str] = []
    for index, step in enumerate(steps):
        chain = chain_of_step.get(id(step))
        if chain is not None and step is chain.steps[0]:
            lines.append(f"  by tiles of {chain.tile} of {prod(chain.rows)} rows:")
        reads, writes = ", ".join(map(str, reads_of(step))), ", ".join(map(str, writes_of(step)))
        note = f"  # {step.note}" if isinstance(step, KernelStep) and step.note else ""
        lines.append(f"{'  ' if chain is None else '    '}{index}: {_describe_step(step)}({reads}) -> {writes}{note}")
        if isinstance(step, HostStep) and step.loop is not None:
            lines += [f"      {line}" for line in step.loop.lines()]
    return lines


def _count_text(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def reads_of(step: Step) -> tuple[Slot, ...]:
    """The buffers and objects that a step reads, except scratch memory."""
    slots = step.operands if isinstance(step, HostStep) else step.inputs
    return tuple([slot for slot in dict.fromkeys(slots) if not _is_scratch(slot)])


def writes_of(step: Step) -> tuple[Slot, ...]:
    """The buffers and objects that a step writes, except scratch memory."""
    return step.written if isinstance(step, HostStep) else tuple([b for b in step.results if b.lifetime != "region"])


def _is_scratch(slot: Slot) -> bool:
    return isinstance(slot, Buffer) and slot.lifetime == "region"


def _describe_step(step: Step) -> str:
    if not isinstance(step, KernelStep):
        return step.op.name
    domain = "x".join(map(str, step.domain)) or "1"
    inner = f" over {'x'.join(map(str, step.inner))}" if step.inner else ""
    return f"kernel {step.kernel.name or 'copy'} [{domain}{inner}]"

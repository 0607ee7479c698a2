"""The plan of a live graph: ordered steps over named buffers. Built by the graph compiler, run by executors.

A step is one block's function (`BlockStep`), a call of a library (`CapturedStep`), an append buffer with the memset of
its counter (`AppendStep`), or control flow around further steps (`RegionStep`). Names are stable: the same block has
the same step and the same buffers in every plan, which is what plans are compared by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal

from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, Tensor, Type
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.sources import ExternalBuffer, Numbers
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.ops.context import FeatureLevel

BufferLifetime = Literal["external", "graph", "region"]


@dataclass(frozen=True)
class BufferSpec:
    """A buffer: its name, what it holds, and whose it is."""

    key: str
    element: Scalar
    shape: tuple[int, ...]
    lifetime: BufferLifetime

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.element.dtype.itemsize

    @property
    def type(self) -> Tensor:
        return Tensor(self.element, self.shape)


@dataclass(frozen=True)
class ParameterOperand:
    """A live number, passed by value. Setting it is a hot update."""

    key: str
    type: Type


@dataclass(frozen=True)
class FeatureOperand:
    """A feature of the engine's context, passed by value."""

    feature: FeatureLevel
    type: Type


@dataclass(frozen=True)
class BufferOperand:
    """A buffer that the step reads; `type` is what the function sees there."""

    key: str
    type: Type


Operand = ParameterOperand | FeatureOperand | BufferOperand


class _Leaf:
    """What a step that is no region says of itself."""

    def leaf_steps(self) -> Iterator[LeafStep]:
        """Itself; a region gives the steps inside."""
        yield self  # type: ignore[misc]

    def block_steps(self) -> Iterator[BlockStep]:
        """What has to be compiled: nothing but the function of a block."""
        return iter(())


@dataclass(frozen=True)
class BlockStep(_Leaf):
    """One call of a function: operands in the order of its parameters, a buffer for each result.

    `body` is what the function was specialised from, for the types that reach it.
    """

    key: str
    function: Function | CudaKernel
    sizes: tuple[tuple[str, int], ...]
    operands: tuple[Operand, ...]
    results: tuple[str, ...]
    body: object = field(compare=False, repr=False)

    def all_operands(self) -> Iterator[Operand]:
        """Everything that it reads."""
        return iter(self.operands)

    def block_steps(self) -> Iterator[BlockStep]:
        """What has to be compiled: itself."""
        yield self


@dataclass(frozen=True)
class CapturedStep(_Leaf):
    """A call of a library, with the operands that it was captured with. Other operands mean another capture.

    Numbers that the call wants in memory are buffers here: writing one needs no capture.
    """

    key: str
    call: CapturedCall
    operands: tuple[Operand, ...]
    results: tuple[str, ...]

    def all_operands(self) -> Iterator[Operand]:
        """Everything that it reads."""
        return iter(self.operands)


@dataclass(frozen=True)
class AppendStep(_Leaf):
    """An append buffer: its counter `total` is set to zero (a memset), then each writer's rows follow one another.

    A writer is a buffer of rows and a number of how many it emitted, which may be more than it has rows. What is beyond
    `capacity` is counted and not kept; rows after the last are zeros; `count` is the number of rows that are there.
    """

    key: str
    writers: tuple[tuple[BufferOperand, BufferOperand], ...]
    capacity: int
    results: tuple[str, str, str]  # values, count, total

    def all_operands(self) -> Iterator[Operand]:
        """Everything that it reads."""
        return (operand for writer in self.writers for operand in writer)


LeafStep = BlockStep | CapturedStep | AppendStep


@dataclass(frozen=True)
class Carried:
    """A loop's variable: `carry := initial` before the loop, `carry := result` after each iteration."""

    initial: Operand
    carry: str
    result: str


RegionKind = Literal["if", "if_else", "switch", "while", "for"]


@dataclass(frozen=True)
class RegionStep:
    """Control flow over nested steps.

    `control` is the condition (if, if_else, while: not zero), the number of the body (switch) or the number of
    iterations (for). Before anything runs, `results` are filled with zeros, or with the initial values of what is
    carried. A while loop goes on while `condition`, one of the results, is not zero. `index` holds the iteration.
    """

    key: str
    kind: RegionKind
    control: Operand
    bodies: tuple[tuple[Step, ...], ...]
    results: tuple[str, ...]
    carried: tuple[Carried, ...]
    condition: str | None
    index: str | None

    def all_operands(self) -> Iterator[Operand]:
        """Everything that it reads from outside."""
        inside = {key for step in self.inner_steps() for key in step.results}
        inside |= {carried.carry for carried in self.carried} | {self.index or ""}
        yield self.control
        yield from (carried.initial for carried in self.carried)
        for step in self.inner_steps():
            for operand in step.all_operands():
                if not (isinstance(operand, BufferOperand) and operand.key in inside):
                    yield operand

    def operands_of_taken(self, taken: Collection[tuple[str, int]]) -> Iterator[Operand]:
        """What it read in a run that took these bodies, its own and those of regions inside, as (region, number)."""
        yield self.control
        yield from (carried.initial for carried in self.carried)
        for number, body in enumerate(self.bodies):
            if (self.key, number) in taken:
                for step in body:
                    yield from step.operands_of_taken(taken) if isinstance(step, RegionStep) else step.all_operands()

    def inner_steps(self) -> Iterator[Step]:
        """The steps of its bodies."""
        return (step for body in self.bodies for step in body)

    def leaf_steps(self) -> Iterator[LeafStep]:
        """The calls inside, of regions inside too."""
        for step in self.inner_steps():
            yield from step.leaf_steps()

    def block_steps(self) -> Iterator[BlockStep]:
        """Those of them that have to be compiled."""
        return (step for step in self.leaf_steps() if isinstance(step, BlockStep))


Step = LeafStep | RegionStep


@dataclass(frozen=True)
class StateSpec:
    """What lasts: after a frame `value := next`. `initial` is its content in the first.

    `owner` is whose it is: a state that takes the name of another begins anew.
    """

    key: str
    value: str
    next: str
    initial: Numbers = field(compare=False)
    owner: object = None


@dataclass(frozen=True)
class LivePlan:
    """Steps with an order in which they can be run, the buffers they use, and what is in those from the start.

    The order is that of `position`; the steps of a plan that edits have changed lie in any. The mappings are the
    engine's: it puts numbers, contents and steps into the plan that runs. `slots` and `places` say which buffers share
    memory: a place is the number of a slot, a slot a number of bytes. Buffers without a place have memory of their own.
    """

    steps: MutableMapping[str, Step]
    buffers: MutableMapping[str, BufferSpec]
    states: tuple[StateSpec, ...] = ()
    parameters: MutableMapping[str, Any] = field(default_factory=dict)
    contents: MutableMapping[str, Numbers] = field(default_factory=dict)  # of arrays that were set, and of constants
    bindings: MutableMapping[str, ExternalBuffer] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    slots: tuple[int, ...] = ()
    reuses_memory: bool = False  # whether buffers may share memory, even if none of this plan's do

    def __repr__(self) -> str:
        return f"<live {self._summary()}; print it>"

    def _summary(self) -> str:
        counts = ((len(self.steps), "step"), (len(self.buffers), "buffer"))
        return "plan: " + ", ".join(f"{number} {noun}{'s' * (number != 1)}" for number, noun in counts)

    @cached_property
    def position(self) -> MutableMapping[str, int]:
        """Numbers that put the steps in order: one that reads what another writes has the higher one."""
        return {key: index for index, key in enumerate(self.steps)}

    @cached_property
    def end(self) -> int:
        """A number that is higher than any position."""
        return len(self.steps)

    @cached_property
    def connections(self) -> object:
        """The same object for as long as what reads what, and in which order, is the same."""
        return object()

    def in_order(self) -> list[str]:
        """The steps' keys in an order that can be run."""
        return sorted(self.steps, key=self.position.__getitem__)

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """For each step one more than the highest level among those that it reads from."""
        found: dict[str, int] = {}
        for key in self.in_order():
            sources = (self.producer.get(str(operand_key(one))) for one in self.steps[key].all_operands())
            found[key] = 1 + max((found[source] for source in sources if source is not None), default=-1)
        return found

    @cached_property
    def producer(self) -> MutableMapping[str, str]:
        """The step that writes each buffer."""
        return {buffer: key for key, step in self.steps.items() for buffer in step.results}

    @cached_property
    def readers(self) -> MutableMapping[str | FeatureLevel, tuple[str, ...]]:
        """The steps that read each parameter, feature or buffer, by its key: a step's needs, inverted."""
        found: dict[str | FeatureLevel, list[str]] = {}
        for key, step in self.steps.items():
            for operand in step.operands if isinstance(step, BlockStep) else step.all_operands():
                root = operand.feature if isinstance(operand, FeatureOperand) else operand.key
                known = found.get(root)
                if known is None:
                    found[root] = [key]
                elif known[-1] is not key:
                    known.append(key)
        return {root: tuple(keys) for root, keys in found.items()}

    @cached_property
    def captured(self) -> MutableMapping[str, frozenset[object]]:
        """The parameters and buffers that library calls were captured with, by step."""
        found = {key: captured_keys(step) for key, step in self.steps.items()}
        return {key: keys for key, keys in found.items() if keys}

    def is_captured(self, key: str) -> bool:
        """Whether a library call was captured with this parameter or buffer."""
        around = (*self.readers.get(key, ()), self.producer.get(key, ""))
        return any(key in self.captured.get(step, ()) for step in around)

    @cached_property
    def consumers(self) -> MutableMapping[str, tuple[str, ...]]:
        """The steps that read what a step writes."""
        return {key: consumers_of(step, self.readers) for key, step in self.steps.items()}

    @cached_property
    def _types_of_numbers(self) -> dict[str | FeatureLevel, tuple[Type, ...]]:
        return {}

    def types_of_number(self, key: str | FeatureLevel) -> tuple[Type, ...]:
        """As what its readers take a number; remembered, for it is asked in every frame that changes one."""
        found = self._types_of_numbers.get(key)
        if found is None:
            operands = (operand for reader in self.readers[key] for operand in self.steps[reader].all_operands())
            found = tuple(dict.fromkeys(operand.type for operand in operands if operand_key(operand) == key))
            self._types_of_numbers[key] = found
        return found

    def forget_types(self) -> None:
        """Steps have changed in place, and may take their numbers as other types."""
        self.__dict__.pop("_types_of_numbers", None)

    def __str__(self) -> str:
        lines = [self._summary()]
        lines += [f"  {self.describe(key)}" for key in self.in_order()]
        lines += [f"  state {state.key}: {state.value} := {state.next}" for state in self.states]
        return "\n".join(lines)

    def describe(self, key: str) -> str:
        """One step on one line."""
        step = self.steps[key]
        reads = ", ".join(dict.fromkeys(str(operand_key(operand)) for operand in step.all_operands()))
        kind = f"{step.kind} " if isinstance(step, RegionStep) else _KINDS[type(step)]
        writes = ", ".join(f"{buffer}: {self.buffers[buffer].type}" for buffer in step.results)
        level = self.levels[key]
        line = f"{level}: {kind}{key}({reads}) -> {writes}"
        return f"{level}: memset {step.results[2]} := 0\n  {line}" if isinstance(step, AppendStep) else line


# Of a plan, from its connections alone.
DERIVED = ("position", "end", "connections", "producer", "readers", "captured", "consumers", "levels")

_KINDS: dict[type, str] = {BlockStep: "", CapturedStep: "captured ", AppendStep: "append "}


def roots_of(step: Step) -> set[str | FeatureLevel]:
    """The keys of the parameters, features and buffers that a step reads."""
    return {operand_key(operand) for operand in step.all_operands()}


def consumers_of(step: Step, readers: Mapping[str | FeatureLevel, tuple[str, ...]]) -> tuple[str, ...]:
    """The steps that read what a step writes."""
    if len(step.results) == 1:
        return readers.get(step.results[0], ())
    return tuple(dict.fromkeys(reader for buffer in step.results for reader in readers.get(buffer, ())))


def buffers_around(step: Step) -> Iterator[str]:
    """Every buffer that a step, or a step inside it, touches."""
    yield from (operand.key for operand in step.all_operands() if isinstance(operand, BufferOperand))
    yield from buffers_written(step)


def buffers_written(step: Step) -> Iterator[str]:
    """The buffers that are there because of a step: what it, or a step inside it, writes."""
    yield from step.results
    if isinstance(step, RegionStep):
        yield from (carried.carry for carried in step.carried)
        if step.index is not None:
            yield step.index
        for inner in step.inner_steps():
            yield from buffers_written(inner)


def renewed_buffers(before: LivePlan, plan: LivePlan) -> set[str]:
    """Buffers that begin with other contents than those which a plan before has there, though they may look the same.

    They get memory of their own, so that the plan before can still run.
    """
    old, new = ({(state.value, state.owner) for state in own.states} for own in (before, plan))
    changed = {key for key, contents in plan.contents.items() if before.contents.get(key) is not contents}
    return changed | {value for value, _ in old ^ new}


def captured_keys(step: Step) -> frozenset[object]:
    """The parameters and buffers that library calls in a step were captured with."""
    if isinstance(step, BlockStep):
        return frozenset()
    calls = [leaf for leaf in step.leaf_steps() if isinstance(leaf, CapturedStep)]
    if not calls:
        return frozenset()
    return frozenset(key for call in calls for key in (*map(operand_key, call.operands), *call.results))


def reads_the_same(one: Step, other: Step) -> bool:
    """Whether two steps have the same kinds of operands under the same names, in the same order."""
    mine, theirs = list(one.all_operands()), list(other.all_operands())
    if len(mine) != len(theirs):
        return False
    for own, their in zip(mine, theirs, strict=True):
        if own.__class__ is not their.__class__ or operand_key(own) != operand_key(their):
            return False
    return True


def operand_key(operand: Operand) -> str | FeatureLevel:
    """What an operand is called among the needs of a step."""
    return operand.feature if isinstance(operand, FeatureOperand) else operand.key

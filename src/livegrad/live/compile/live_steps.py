"""The steps of a live plan, and the operands that they read.

A step is one block's function (`BlockStep`), a call of a library (`CapturedStep`), an append buffer with the memset of
its counter (`AppendStep`), or control flow around further steps (`RegionStep`). Keys are stable: a block has the same
step and buffer keys in every plan, and plans are compared by them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from livegrad.ir.node import Function
from livegrad.ir.types import Type
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.ops.context import FeatureLevel


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
    """The methods shared by all steps other than regions."""

    def leaf_steps(self) -> Iterator[LeafStep]:
        """The step itself; of a region, the steps inside."""
        yield self  # type: ignore[misc]

    def block_steps(self) -> Iterator[BlockStep]:
        """The steps with a function to compile: none."""
        return iter(())


@dataclass(frozen=True)
class BlockStep(_Leaf):
    """One call of a function: operands in the order of its parameters, a buffer for each result.

    `body` is what the function was specialised from.
    """

    key: str
    function: Function | CudaKernel
    sizes: tuple[tuple[str, int], ...]
    operands: tuple[Operand, ...]
    results: tuple[str, ...]
    body: object = field(compare=False, repr=False)

    def all_operands(self) -> Iterator[Operand]:
        """All operands that it reads."""
        return iter(self.operands)

    def block_steps(self) -> Iterator[BlockStep]:
        """The steps with a function to compile: this one."""
        yield self


@dataclass(frozen=True)
class CapturedStep(_Leaf):
    """A library call with the operands that it was captured with. Other operands require another capture.

    Numbers that the call reads from memory are buffers here; writing one requires no capture.
    """

    key: str
    call: CapturedCall
    operands: tuple[Operand, ...]
    results: tuple[str, ...]

    def all_operands(self) -> Iterator[Operand]:
        """All operands that it reads."""
        return iter(self.operands)


@dataclass(frozen=True)
class AppendStep(_Leaf):
    """An append buffer: a memset of the counter `total`, then the rows of each writer in order.

    A writer is a buffer of rows and the number of emitted rows, which may exceed the rows of the buffer. Rows beyond
    `capacity` are counted but not stored; unused rows are zeros; `count` is the number of stored rows.
    """

    key: str
    writers: tuple[tuple[BufferOperand, BufferOperand], ...]
    capacity: int
    results: tuple[str, str, str]  # values, count, total

    def all_operands(self) -> Iterator[Operand]:
        """All operands that it reads."""
        return (operand for writer in self.writers for operand in writer)


LeafStep = BlockStep | CapturedStep | AppendStep


@dataclass(frozen=True)
class Carried:
    """A loop variable: `carry := initial` before the loop, `carry := result` after each iteration."""

    initial: Operand
    carry: str
    result: str


RegionKind = Literal["if", "if_else", "switch", "while", "for"]


@dataclass(frozen=True)
class RegionStep:
    """Control flow over nested steps.

    `control` is the condition (if, if_else, while: not zero), the index of the body (switch) or the number of
    iterations (for). First, `results` are filled with zeros, or with the initial values of carried variables. A while
    loop continues while `condition`, one of the results, is not zero. `index` holds the iteration index.
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
        """The operands that it reads from outside of the region."""
        inside = {key for step in self.inner_steps() for key in step.results}
        inside |= {carried.carry for carried in self.carried} | {self.index or ""}
        yield self.control
        yield from (carried.initial for carried in self.carried)
        for step in self.inner_steps():
            for operand in step.all_operands():
                if not (isinstance(operand, BufferOperand) and operand.key in inside):
                    yield operand

    def operands_of_bodies(self, taken: Collection[tuple[str, int]]) -> Iterator[Operand]:
        """The operands of a run that took these bodies: (region, index), including inner regions."""
        yield self.control
        yield from (carried.initial for carried in self.carried)
        for index, body in enumerate(self.bodies):
            if (self.key, index) in taken:
                for step in body:
                    yield from step.operands_of_bodies(taken) if isinstance(step, RegionStep) else step.all_operands()

    def inner_steps(self) -> Iterator[Step]:
        """The steps of its bodies."""
        return (step for body in self.bodies for step in body)

    def leaf_steps(self) -> Iterator[LeafStep]:
        """The leaf steps of its bodies, including those of inner regions."""
        for step in self.inner_steps():
            yield from step.leaf_steps()

    def block_steps(self) -> Iterator[BlockStep]:
        """The leaf steps with a function to compile."""
        return (step for step in self.leaf_steps() if isinstance(step, BlockStep))


Step = LeafStep | RegionStep


def roots_of(step: Step) -> set[str | FeatureLevel]:
    """The keys of the parameters, features and buffers that a step reads."""
    return {operand_key(operand) for operand in step.all_operands()}


def consumers_of(step: Step, readers: Mapping[str | FeatureLevel, tuple[str, ...]]) -> tuple[str, ...]:
    """The steps that read what a step writes."""
    if len(step.results) == 1:
        return readers.get(step.results[0], ())
    return tuple(dict.fromkeys(reader for buffer in step.results for reader in readers.get(buffer, ())))


def buffers_around(step: Step) -> Iterator[str]:
    """Every buffer that a step, or a step inside it, reads or writes."""
    yield from (operand.key for operand in step.all_operands() if isinstance(operand, BufferOperand))
    yield from buffers_written(step)


def buffers_written(step: Step) -> Iterator[str]:
    """The buffers that a step, or a step inside it, writes."""
    yield from step.results
    if isinstance(step, RegionStep):
        yield from (carried.carry for carried in step.carried)
        if step.index is not None:
            yield step.index
        for inner in step.inner_steps():
            yield from buffers_written(inner)


def captured_keys(step: Step) -> frozenset[object]:
    """The parameters and buffers that the library calls in a step were captured with."""
    if isinstance(step, BlockStep):
        return frozenset()
    calls = [leaf for leaf in step.leaf_steps() if isinstance(leaf, CapturedStep)]
    if not calls:
        return frozenset()
    return frozenset(key for call in calls for key in (*map(operand_key, call.operands), *call.results))


def reads_the_same(step: Step, other: Step) -> bool:
    """Whether two steps have operands of the same kinds and keys, in the same order."""
    operands, other_operands = list(step.all_operands()), list(other.all_operands())
    if len(operands) != len(other_operands):
        return False
    for operand, other_operand in zip(operands, other_operands, strict=True):
        if operand.__class__ is not other_operand.__class__ or operand_key(operand) != operand_key(other_operand):
            return False
    return True


def operand_key(operand: Operand) -> str | FeatureLevel:
    """The key of an operand: a feature, a parameter or a buffer."""
    return operand.feature if isinstance(operand, FeatureOperand) else operand.key

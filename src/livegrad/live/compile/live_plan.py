"""The plan of a live graph: ordered steps over named buffers. Built by the graph compiler, run by executors.

A step is one block's function (`BlockStep`), a call of a library (`CapturedStep`), an append buffer with the memset of
its counter (`AppendStep`), or control flow around further steps (`RegionStep`). Keys are stable: a block has the same
step and buffer keys in every plan, and plans are compared by them.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal

from livegrad.ir.types import Scalar, Tensor, Type
from livegrad.live.compile.live_steps import (
    AppendStep,
    BlockStep,
    CapturedStep,
    FeatureOperand,
    RegionStep,
    Step,
    captured_keys,
    consumers_of,
    operand_key,
)
from livegrad.live.graph.sources import ExternalBuffer, Numbers
from livegrad.ops.context import FeatureLevel

BufferLifetime = Literal["external", "graph", "region"]


@dataclass(frozen=True)
class BufferSpec:
    """A buffer: its key, element type, shape, and owner."""

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
class StateSpec:
    """A state: after each frame `value := next`; `initial` is its value in the first frame.

    `owner` is its block. A new state that takes the name of another starts from its own initial value.
    """

    key: str
    value: str
    next: str
    initial: Numbers = field(compare=False)
    owner: object = None


@dataclass(frozen=True)
class LivePlan:
    """Ordered steps, the buffers they use, and the initial contents of buffers.

    `position` defines the order; after edits, `steps` may be in any order. The engine updates the mappings of the
    running plan in place: numbers, contents and steps. `slots` has the sizes of shared memory slots in bytes, and
    `slot_of` the index of a buffer's slot. Buffers without a slot have their own memory.
    """

    steps: MutableMapping[str, Step]
    buffers: MutableMapping[str, BufferSpec]
    states: tuple[StateSpec, ...] = ()
    parameters: MutableMapping[str, Any] = field(default_factory=dict)
    contents: MutableMapping[str, Numbers] = field(default_factory=dict)  # of arrays that were set, and of constants
    bindings: MutableMapping[str, ExternalBuffer] = field(default_factory=dict)
    slot_of: Mapping[str, int] = field(default_factory=dict)
    slots: tuple[int, ...] = ()
    reuses_memory: bool = False  # whether buffers may share memory, even if none in this plan do

    def __post_init__(self) -> None:
        # Cached properties need a dictionary of attributes. CPython reads attributes four times as fast from one that
        # does not share its keys with other plans.
        object.__setattr__(self, "__dict__", dict(self.__dict__))

    def __repr__(self) -> str:
        return f"<live {self._summary()}; print it>"

    def _summary(self) -> str:
        counts = ((len(self.steps), "step"), (len(self.buffers), "buffer"))
        return "plan: " + ", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts)

    @cached_property
    def position(self) -> MutableMapping[str, int]:
        """The position of each step: a step that reads a result comes after the step that writes it."""
        return {key: index for index, key in enumerate(self.steps)}

    @cached_property
    def end(self) -> int:
        """An upper bound of all positions."""
        return len(self.steps)

    @cached_property
    def connections(self) -> object:
        """An object that stays the same as long as the dependencies and the order of steps do."""
        return object()

    def in_order(self) -> list[str]:
        """The keys of the steps in execution order."""
        return sorted(self.steps, key=self.position.__getitem__)

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """For each step, one more than the highest level among the steps that it reads from."""
        levels: dict[str, int] = {}
        for key in self.in_order():
            sources = (self.producer.get(str(operand_key(operand))) for operand in self.steps[key].all_operands())
            levels[key] = 1 + max((levels[source] for source in sources if source is not None), default=-1)
        return levels

    @cached_property
    def producer(self) -> MutableMapping[str, str]:
        """The step that writes each buffer."""
        return {buffer: key for key, step in self.steps.items() for buffer in step.results}

    @cached_property
    def readers(self) -> MutableMapping[str | FeatureLevel, tuple[str, ...]]:
        """The steps that read each parameter, feature or buffer, by its key."""
        readers: dict[str | FeatureLevel, list[str]] = {}
        for key, step in self.steps.items():
            for operand in step.operands if isinstance(step, BlockStep) else step.all_operands():
                root = operand.feature if isinstance(operand, FeatureOperand) else operand.key
                steps = readers.get(root)
                if steps is None:
                    readers[root] = [key]
                elif steps[-1] is not key:
                    steps.append(key)
        return {root: tuple(keys) for root, keys in readers.items()}

    @cached_property
    def captured(self) -> MutableMapping[str, frozenset[object]]:
        """The parameters and buffers that the library calls of a step were captured with, by step."""
        captured = {key: captured_keys(step) for key, step in self.steps.items()}
        return {key: keys for key, keys in captured.items() if keys}

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
        """The types as which steps read a number. Cached, because every frame that changes a number needs them."""
        types = self._types_of_numbers.get(key)
        if types is None:
            operands = (operand for reader in self.readers[key] for operand in self.steps[reader].all_operands())
            types = tuple(dict.fromkeys(operand.type for operand in operands if operand_key(operand) == key))
            self._types_of_numbers[key] = types
        return types

    def forget_types(self) -> None:
        """Clears the cache of `types_of_number` after steps were replaced in place."""
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


# The properties of a plan that depend only on its connections.
DERIVED = ("position", "end", "connections", "producer", "readers", "captured", "consumers", "levels")

_KINDS: dict[type, str] = {BlockStep: "", CapturedStep: "captured ", AppendStep: "append "}


def renewed_buffers(before: LivePlan, plan: LivePlan) -> set[str]:
    """The buffers whose initial contents differ from the previous plan, though their specs may be equal.

    They get new memory, so that the previous plan can still run.
    """
    old, new = ({(state.value, state.owner) for state in version.states} for version in (before, plan))
    changed = {key for key, contents in plan.contents.items() if before.contents.get(key) is not contents}
    return changed | {value for value, _ in old ^ new}

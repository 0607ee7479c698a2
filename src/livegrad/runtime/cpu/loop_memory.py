"""Assigns memory to the state of a counted loop. In: a loop step and its number of iterations. Out: a `LoopMemory`.

The first iteration reads buffers of the enclosing plan, and the last one writes the buffers of its results. Between
them, state is double-buffered. State that is other state delayed by one iteration (`before, now = now, after`) needs no
memory: the values of `now` rotate through a ring with one more buffer, and nothing is copied. State that is updated in
place is copied once, before the first iteration. `native_loops.py` binds kernels to the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import numpy as np

from livegrad.runtime.cpu.loop_body import key_of
from livegrad.runtime.cpu.memory_pool import plan_memory
from livegrad.schedule.kept_parts import whole_copies
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, Plan, RowLoop

Location = Buffer | int  # a buffer of the enclosing plan, or the address of memory of the loop
Copy = tuple[Location, Location, int]  # to, from, bytes
_MAX_TABLES = 16  # each binds all kernels of the body; a loop that would need more tables copies delayed state


@dataclass
class LoopMemory:
    """The locations that each iteration of a loop reads and writes."""

    inputs: Sequence[Buffer]  # of the body's plan, for each leaf of the state
    outputs: Sequence[Buffer]
    initial: Sequence[Buffer]  # of the enclosing plan
    targets: Sequence[Buffer | None]
    invariants: Mapping[int | ObjectSlot, Buffer]  # of the enclosing plan, by the key of the body's argument
    sources: Mapping[int, int]  # for each delayed leaf, the leaf whose previous value it has
    dropped: frozenset[int]  # the steps of the body that copied delayed state
    iterations: int
    copies_before: list[Copy] = field(default_factory=list)
    copies_after: list[Copy] = field(default_factory=list)
    _rings: dict[int, list[Location]] = field(default_factory=dict)  # the locations of each computed leaf
    _allocations: list[np.ndarray[Any, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        leaves = range(len(self.inputs))
        self._origin = [self._origin_of(leaf) for leaf in leaves]  # the computed leaf, and the delay in iterations
        delays = {leaf: max(d for h, d in self._origin if h == leaf) for leaf, d in self._origin if d == 0}
        for leaf, delay in delays.items():
            if self._updates_in_place(leaf):
                self._update_in_place(leaf)
            else:
                self._arrange_ring(leaf, delay + 2)
        self.lead = 1 + max(delays.values(), default=0)
        self.period = lcm(*map(len, self._rings.values()))
        self.copies_per_part = max(map(len, self._rings.values()), default=1)
        for leaf, target in enumerate(self.targets):
            final = self._location(leaf, self.iterations)
            if target is not None and final is not target:
                self.copies_after.append((target, final, target.bytes))

    def _origin_of(self, leaf: int) -> tuple[int, int]:
        delay = 0
        while leaf in self.sources:
            leaf, delay = self.sources[leaf], delay + 1
        return leaf, delay

    def _updates_in_place(self, leaf: int) -> bool:
        return self.inputs[leaf] is self.outputs[leaf]

    @property
    def double_buffered(self) -> dict[Buffer, Buffer]:
        """The argument and the result of the body, for each leaf that iterations compute out of place."""
        return {self.inputs[leaf]: self.outputs[leaf] for leaf in self._rings if not self._updates_in_place(leaf)}

    def _new_memory(self, leaf: int) -> int:
        self._allocations.append(plan_memory(self.inputs[leaf].bytes))
        return self._allocations[-1].ctypes.data

    def _update_in_place(self, leaf: int) -> None:
        location = self.targets[leaf] or self._new_memory(leaf)
        self._rings[leaf] = [location]
        self.copies_before.append((location, self.initial[leaf], self.inputs[leaf].bytes))

    def _arrange_ring(self, leaf: int, size: int) -> None:
        """Assigns a ring of locations to the latest values of a leaf, so that final values end up in their targets."""
        locations: dict[int, Location] = {}
        for other, (origin, delay) in enumerate(self._origin):
            target, iterations_done = self.targets[other], self.iterations - delay
            if origin == leaf and target is not None and iterations_done > 0:
                locations.setdefault(iterations_done % size, target)
        self._rings[leaf] = [locations[n] if n in locations else self._new_memory(leaf) for n in range(size)]

    def _location(self, leaf: int, iteration: int) -> Location:
        """The location of a leaf's value before an iteration."""
        origin, delay = self._origin[leaf]
        ring = self._rings[origin]
        if iteration > delay or len(ring) == 1:
            return ring[(iteration - delay) % len(ring)]
        for _ in range(iteration):
            leaf = self.sources[leaf]
        return self.initial[leaf]

    def locations(self, iteration: int) -> dict[Any, Location]:
        """The locations of the body's arguments and results in an iteration, by the key of their buffer."""
        locations: dict[Any, Location] = dict(self.invariants)
        for leaf, (into, out) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            if leaf not in self.sources:
                locations[key_of(out)] = self._location(leaf, iteration + 1)
            locations[key_of(into)] = self._location(leaf, iteration)
        return locations


def has_buffers(step: HostStep, loop: RowLoop) -> bool:
    """Whether each result of the body has its own buffer, or that of the argument which it updates in place."""
    assert loop.plan is not None
    _, *arguments = loop.plan.arguments
    inputs, outputs = arguments[: len(loop.state)], loop.plan.results[: len(loop.state)]
    others = [out for into, out in zip(inputs, outputs, strict=True) if into is not out]
    if len(set(outputs)) < len(outputs) or not set(others).isdisjoint(arguments):
        return False
    initial = [_loop_operands(step)[leaf] for leaf in loop.state]
    return all(buffer.bytes == into.bytes for buffer, into in zip(initial, _buffers(inputs), strict=True))


def _loop_operands(step: HostStep) -> list[Buffer]:
    """The operands of a loop over arrays, without the number of iterations."""
    operands = step.function.results[0].operands[1:]
    return _buffers([step.operands[operand.attribute("index")] for operand in operands])


def arrange_memory(step: HostStep, loop: RowLoop, iterations: int) -> LoopMemory:
    """The memory of a loop that has buffers."""
    assert loop.plan is not None
    _, *arguments = loop.plan.arguments
    states = len(loop.state)
    inputs, outputs = _buffers(arguments[:states]), _buffers(loop.plan.results[:states])
    leaves, targets = _loop_operands(step), dict(step.stored)
    initial, state_targets = [leaves[leaf] for leaf in loop.state], [targets.get(leaf) for leaf in loop.state]
    invariants = {key_of(slot): leaves[leaf] for leaf, slot in zip(loop.invariants, arguments[states:], strict=True)}
    sources, dropped = _delayed_state(loop.plan, inputs, outputs)
    memory = LoopMemory(inputs, outputs, initial, state_targets, invariants, sources, dropped, iterations)
    if memory.lead + memory.period > _MAX_TABLES:
        memory = LoopMemory(inputs, outputs, initial, state_targets, invariants, {}, frozenset(), iterations)
    for leaf in loop.invariants:  # returned unchanged
        if leaf in targets:
            memory.copies_after.append((targets[leaf], leaves[leaf], leaves[leaf].bytes))
    return memory


def _buffers(slots: Sequence[Buffer | ObjectSlot]) -> list[Buffer]:
    assert all(isinstance(slot, Buffer) for slot in slots)
    return list(slots)  # type: ignore[arg-type]


def _delayed_state(
    plan: Plan, inputs: Sequence[Buffer], outputs: Sequence[Buffer]
) -> tuple[dict[int, int], frozenset[int]]:
    """The leaves that a body only copies from other leaves, with their sources, and the steps that copy them."""
    sources: dict[int, int] = {}
    dropped: set[int] = set()
    buffered = [leaf for leaf, into in enumerate(inputs) if into is not outputs[leaf]]
    leaf_of_input = {inputs[leaf]: leaf for leaf in buffered}
    leaf_of_output = {outputs[leaf]: leaf for leaf in buffered}
    for number, step in enumerate(plan.steps):
        pairs = [(leaf_of_output.get(out), leaf_of_input.get(into)) for out, into in whole_copies(step)]
        others = {base for other in plan.steps if other is not step for base in (*other.inputs, *other.results)}
        copies = {leaf: source for leaf, source in pairs if leaf is not None and source is not None and leaf != source}
        if copies and len(copies) == len(pairs) and others.isdisjoint(step.results):
            sources |= copies
            dropped.add(number)
    for leaf in sources:
        chain = [leaf]
        while chain[-1] in sources and len(chain) <= len(inputs):
            chain.append(sources[chain[-1]])
        if len(chain) > len(inputs):  # a cycle: the body exchanges leaves, and computes none of them
            return {}, frozenset()
    return sources, frozenset(dropped)

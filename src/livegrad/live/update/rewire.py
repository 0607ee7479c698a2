"""Rewires a running plan: replaces the affected steps, and updates buffers, values, readers and producers.

`replan` calls it after specialising the affected nodes. All results are overlays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.live_plan import DERIVED, LivePlan
from livegrad.live.compile.live_steps import (
    BufferOperand,
    ParameterOperand,
    Step,
    buffers_written,
    captured_keys,
    consumers_of,
    operand_key,
    reads_the_same,
    roots_of,
)
from livegrad.live.compile.network import NetworkNode, RootRef
from livegrad.live.compile.overlay import Overlay
from livegrad.live.compile.wire import Wiring, wire_node, wire_state
from livegrad.live.graph.block import State


def rewire(
    compilation: Compilation,
    running: LivePlan,
    touched: Iterable[str],
    edited: Mapping[str, NetworkNode],
    removed: Iterable[str],
) -> LivePlan:
    """The running plan with new steps and states for the touched nodes, and without removed nodes."""
    nodes, wiring = compilation.network.nodes, Wiring(compilation.shapes, previous_buffers=running.buffers)
    states = {state.key: state for state in running.states}
    before = {key: running.steps[key] for key in (*touched, *removed) if key in running.steps}
    for key in removed:
        states.pop(key, None)
    for key in touched:
        if isinstance(nodes[key].block, State):
            states[key] = wire_state(nodes[key], wiring)
        else:
            states.pop(key, None)
            wiring.steps[key] = wire_node(nodes[key], wiring)
    _keep_numbers(wiring, running, nodes, edited)
    removed_values = {state.value for state in running.states} - {state.value for state in states.values()}
    unused = _UnusedEntries(running, before, wiring)
    return LivePlan(
        Overlay(running.steps, wiring.steps, before.keys() - wiring.steps.keys()),
        Overlay(running.buffers, wiring.buffers, (unused.buffers | removed_values) - wiring.buffers.keys()),
        tuple(states.values()),
        Overlay(running.parameters, wiring.parameters, unused.parameters),
        Overlay(running.contents, wiring.contents, unused.contents),
        Overlay(running.bindings, wiring.bindings, unused.bindings),
        running.slot_of,
        running.slots,
    )


def _keep_numbers(
    wiring: Wiring,
    running: LivePlan,
    nodes: Mapping[str, NetworkNode],
    edited: Mapping[str, NetworkNode],
) -> None:
    """Keeps the values of the running plan that no edit has set.

    A node has the sources from the time when it was flattened; the plan has the current values. If other steps read a
    value too, its change reaches all of them as the change of a number.
    """
    roots = {ref.key for key in wiring.steps for ref in _roots_inside(nodes[key])}
    set_by_edits = {ref.key for node in edited.values() for ref in _roots_inside(node)}
    values: tuple[tuple[dict[str, Any], Mapping[str, Any]], ...] = (
        (wiring.parameters, running.parameters), (wiring.contents, running.contents),
    )  # fmt: skip
    for wired, current in values:
        for key in wired.keys() & roots:
            has_other_readers = any(reader not in edited and reader in nodes for reader in running.readers.get(key, ()))
            if key in current and (has_other_readers or key not in set_by_edits):
                wired[key] = current[key]


def _roots_inside(node: NetworkNode) -> Iterable[RootRef]:
    worklist = [node]
    while worklist:
        inner_node = worklist.pop()
        yield from (ref for ref in inner_node.feeds.values() if isinstance(ref, RootRef))
        worklist += [inner for body in inner_node.bodies for inner in body.nodes.values()]


class _UnusedEntries:
    """The entries to remove from a plan, because their steps were removed or no longer use them."""

    def __init__(self, running: LivePlan, before: Mapping[str, Step], wiring: Wiring) -> None:
        self._running, self._before = running, before
        self.parameters: set[str] = set()
        self.contents: set[str] = set()
        self.bindings: set[str] = set()
        self.buffers: set[str] = set()
        for step in before.values():
            self.buffers.update(buffers_written(step))
            for operand in step.all_operands():
                if isinstance(operand, ParameterOperand):
                    if operand.key not in wiring.parameters and not self._is_read(operand):
                        self.parameters.add(operand.key)
                elif isinstance(operand, BufferOperand) and operand.key not in wiring.buffers:
                    is_root = operand.key in running.contents or operand.key in running.bindings
                    if is_root and not self._is_read(operand):
                        self.buffers.add(operand.key)
        self.contents = {key for key in self.buffers if key in running.contents}
        self.bindings = {key for key in self.buffers if key in running.bindings}
        # Inputs that changed from contents to a binding, or from a binding to contents.
        self.contents |= {key for key in wiring.bindings if key in running.contents}
        self.bindings |= {key for key in wiring.contents if key in running.bindings}

    def _is_read(self, operand: ParameterOperand | BufferOperand) -> bool:
        """Whether an unchanged step reads an operand of this kind and key: one key may be a number and a buffer."""
        steps, readers = self._running.steps, self._running.readers.get(operand.key, ())
        unchanged = (steps[reader] for reader in readers if reader not in self._before)
        operands = (read for step in unchanged for read in step.all_operands())
        return any(read.__class__ is operand.__class__ and operand_key(read) == operand.key for read in operands)


def patch_connections(
    plan: LivePlan, running: LivePlan, changed: Iterable[str], position: Overlay[str, int], end: int
) -> None:
    """Updates readers and producers for a plan that differs from the running one in some steps."""
    before = {key: running.steps[key] for key in changed if key in running.steps}
    after = {key: plan.steps[key] for key in changed if key in plan.steps}
    same = before.keys() == after.keys() and not position.is_changed
    if same and all(_has_same_connections(before[key], step) for key, step in after.items()):
        for name in DERIVED:  # they all stay valid
            plan.__dict__[name] = getattr(running, name)
        return
    readers, producer, captured = Overlay(running.readers), Overlay(running.producer), Overlay(running.captured)
    roots: set[object] = set()
    for key, step in before.items():
        roots |= _drop_reader(readers, key, roots_of(step))
        for buffer in step.results:
            producer.pop(buffer, None)
        captured.pop(key, None)
    for key, step in after.items():
        roots |= _add_reader(readers, key, roots_of(step))
        producer.update(dict.fromkeys(step.results, key))
        if keys := captured_keys(step):
            captured[key] = keys
    consumers = Overlay(running.consumers)
    for key in before.keys() - after.keys():
        consumers.pop(key, None)
    for key in {*after, *(producer[root] for root in roots if root in producer)}:  # type: ignore[index]
        consumers[key] = consumers_of(plan.steps[key], readers)
    plan.__dict__.update(
        position=position, end=end, connections=object(), producer=producer, readers=readers, captured=captured,
        consumers=consumers,
    )  # fmt: skip


def _has_same_connections(before: Step, after: Step) -> bool:
    if before.results != after.results or not reads_the_same(before, after):
        return False
    return captured_keys(before) == captured_keys(after)


def _drop_reader(readers: MutableMapping[Any, tuple[str, ...]], key: str, roots: set[Any]) -> set[Any]:
    for root in roots:
        remaining = list(readers[root])
        remaining.remove(key)
        if remaining:
            readers[root] = tuple(remaining)
        else:
            del readers[root]
    return roots


def _add_reader(readers: MutableMapping[Any, tuple[str, ...]], key: str, roots: set[Any]) -> set[Any]:
    for root in roots:
        readers[root] = (*readers.get(root, ()), key)
    return roots

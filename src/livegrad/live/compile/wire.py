"""Wires a specialised network to a plan: steps with operands, buffers, and initial contents. A compiler phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.ir.types import Tensor, Type, i64
from livegrad.live.compile.live_plan import BufferSpec, LivePlan, StateSpec
from livegrad.live.compile.live_steps import (
    AppendStep,
    BlockStep,
    BufferOperand,
    CapturedStep,
    Carried,
    FeatureOperand,
    Operand,
    ParameterOperand,
    RegionStep,
    Step,
)
from livegrad.live.compile.network import CarryRef, Network, NetworkNode, OutputRef, Ref, RootRef
from livegrad.live.compile.propagate import Shapes, input_type_of, tensor_of
from livegrad.live.graph.append_buffer import AppendBuffer
from livegrad.live.graph.block import State
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.keys import carry_key, item_key, pin_key
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import Binding, Numbers, Setting, same_value


@dataclass
class Wiring:
    """The parts of a plan under construction."""

    shapes: Shapes
    steps: dict[str, Step] = field(default_factory=dict)
    buffers: dict[str, BufferSpec] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    contents: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    bindings: dict[str, Any] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # buffers of a body that are results of its region
    previous_buffers: Mapping[str, BufferSpec] = field(default_factory=dict)  # equal specs are reused

    def buffer(self, key: str, type: Tensor, lifetime: Any = "graph") -> str:
        """Adds a buffer to the plan, unless it has it already. Returns its key."""
        key = self.renamed.get(key, key)
        if key not in self.buffers:
            spec = self.previous_buffers.get(key)
            if spec is None or (spec.element, spec.shape, spec.lifetime) != (type.element, type.shape, lifetime):
                spec = BufferSpec(key, type.element, type.shape, lifetime)  # type: ignore[arg-type]
            self.buffers[key] = spec
        return key


def wire(
    network: Network, order: Iterable[tuple[str, int]], shapes: Shapes, previous: PreviousWiring | None = None
) -> LivePlan:
    """Builds the plan. Reuses unchanged steps of the previous plan."""
    wiring = Wiring(shapes, previous_buffers={} if previous is None else previous.plan.buffers)
    states = []
    for key, _ in order:
        node = network.nodes[key]
        if isinstance(node.block, State):
            states.append(wire_state(node, wiring))
        else:
            is_same = previous is not None and previous.has(node, shapes)
            wiring.steps[key] = _reuse_step(node, previous.plan, wiring) if is_same else wire_node(node, wiring)  # type: ignore[union-attr]
    return LivePlan(wiring.steps, wiring.buffers, tuple(states), wiring.parameters, wiring.contents, wiring.bindings)


@dataclass
class PreviousWiring:
    """The previous network, shapes and plan, and the steps that are unchanged."""

    network: Network
    shapes: Shapes
    plan: LivePlan
    same: set[str] = field(default_factory=set)

    def has(self, node: NetworkNode, shapes: Shapes) -> bool:
        """Whether the step of a node is unchanged: specialised for the same types, with the same sources."""
        key = node.key
        inputs, step = shapes.inputs.get(key), self.plan.steps.get(key)
        if inputs is None or inputs is not self.shapes.inputs.get(key) or step is None:
            return False
        previous_node = self.network.nodes[key]
        if previous_node is not node:
            # Specialisation has compared the values and bindings of inputs; this compares their connections.
            old, new = ([ref and ref.key for ref in version.feeds.values()] for version in (previous_node, node))
            if old != new:
                return False
        # If a number was changed and then changed back, the plan may still have the intermediate value.
        if not all(_holds(self.plan, ref) for ref in node.feeds.values() if ref.__class__ is RootRef):
            return False
        self.same.add(key)
        return True


def _holds(plan: LivePlan, ref: Any) -> bool:
    """Whether a plan holds the value or binding of a pin."""
    key, source = ref.key, ref.source
    if isinstance(source, Binding):
        return plan.bindings.get(key) is source.external
    if not source.is_number:
        return plan.contents.get(key) is source.value
    current = plan.parameters.get(key)
    if current is None:  # a number in memory
        return key in plan.contents and same_value(
            plan.contents[key], number_in_memory(source.value, plan.buffers[key].type)
        )
    if current is source.value:
        return True
    return current.__class__ is source.value.__class__ and same_value(current, source.value)


def _reuse_step(node: NetworkNode, plan: LivePlan, wiring: Wiring) -> Step:
    """Returns the unchanged step of a node; copies its parameters, contents and buffers to the new plan."""
    step = plan.steps[node.key]
    for operand in step.all_operands():
        if isinstance(operand, ParameterOperand):
            wiring.parameters[operand.key] = plan.parameters[operand.key]
        elif isinstance(operand, BufferOperand):
            key = operand.key
            if key in plan.contents:
                wiring.contents[key] = plan.contents[key]
                wiring.buffers[key] = plan.buffers[key]
            elif key in plan.bindings:
                wiring.bindings[key] = plan.bindings[key]
                wiring.buffers[key] = plan.buffers[key]
    for key in step.results:
        wiring.buffers[key] = plan.buffers[key]
    return step


def wire_state(node: NetworkNode, wiring: Wiring) -> StateSpec:
    """The state of a node."""
    next_ref, value = node.feeds["next"], pin_key(node.key, "value")
    assert isinstance(node.block, State)
    assert isinstance(next_ref, OutputRef)
    buffer = wiring.buffer(value, wiring.shapes.types[value])
    return StateSpec(node.key, buffer, next_ref.key, node.block.initial, node.block)


def wire_node(node: NetworkNode, wiring: Wiring, inside: bool = False) -> Step:
    """The step of one node."""
    if isinstance(node.block, Region):
        return _wire_region(node, node.block, wiring, inside)
    if isinstance(node.block, AppendBuffer):
        return _wire_append(node, node.block, wiring, inside)
    specialized = wiring.shapes.bodies[node.key]
    if isinstance(specialized.function, CapturedCall):
        return _wire_captured(node, specialized.function, wiring, inside)
    types = specialized.function.parameter_types
    refs = [ref for ref in node.feeds.values() if ref is not None]
    operands: list[Operand] = [operand_of(ref, type, wiring) for ref, type in zip(refs, types, strict=False)]
    feature_types = types[len(operands) :]
    operands += [
        FeatureOperand(feature, type) for feature, type in zip(specialized.features, feature_types, strict=False)
    ]
    for index, array in enumerate(specialized.constants):
        key = item_key(node.key, index)
        wiring.buffer(key, tensor_of(array))
        wiring.contents[key] = array
        operands.append(BufferOperand(key, types[len(operands)]))
    results = _results_of(node, wiring, inside)
    return BlockStep(node.key, specialized.function, specialized.sizes, tuple(operands), results, node.body)


def _results_of(node: NetworkNode, wiring: Wiring, inside: bool) -> tuple[str, ...]:
    lifetime = "region" if inside else "graph"
    return tuple(wiring.buffer(key, wiring.shapes.types[key], lifetime) for key in node.output_keys)


def _wire_captured(node: NetworkNode, call: CapturedCall, wiring: Wiring, inside: bool) -> CapturedStep:
    operands: list[Operand] = []
    for ref, type, in_memory in zip(node.feeds.values(), call.parameter_types, call.in_memory, strict=True):
        assert ref is not None
        if in_memory and isinstance(ref, RootRef) and isinstance(ref.source, Setting) and ref.source.is_number:
            assert isinstance(type, Tensor)
            wiring.buffer(ref.key, type)
            wiring.contents[ref.key] = number_in_memory(ref.source.value, type)
            operands.append(BufferOperand(ref.key, type))
        else:
            operands.append(operand_of(ref, type, wiring))
    return CapturedStep(node.key, call, tuple(operands), _results_of(node, wiring, inside))


def number_in_memory(value: Any, type: Tensor) -> Numbers:
    """A number as the contents of a buffer of one element."""
    return np.asarray(value, dtype=type.element.dtype)  # type: ignore[union-attr]


def _wire_append(node: NetworkNode, block: AppendBuffer, wiring: Wiring, inside: bool) -> AppendStep:
    writers = []
    for ref in node.feeds.values():
        assert isinstance(ref, OutputRef)
        keys = (ref.key, pin_key(ref.node, "total"))
        rows, total = (BufferOperand(wiring.renamed.get(key, key), wiring.shapes.types[key]) for key in keys)
        writers.append((rows, total))
    values, count, total = _results_of(node, wiring, inside)
    return AppendStep(node.key, tuple(writers), block.capacity, (values, count, total))


def operand_of(ref: Ref, type: Type, wiring: Wiring) -> Operand:
    """The operand for a source. Adds the value or memory of a root to the plan."""
    if isinstance(ref, OutputRef | CarryRef):
        return BufferOperand(wiring.renamed.get(ref.key, ref.key), type)
    source = ref.source
    if isinstance(source, Binding):
        wiring.buffer(ref.key, tensor_of(source.external.array), "external")
        wiring.bindings[ref.key] = source.external
        return BufferOperand(ref.key, type)
    if source.is_number:
        wiring.parameters[ref.key] = source.value
        return ParameterOperand(ref.key, type)
    wiring.buffer(ref.key, source.input_type.type)
    wiring.contents[ref.key] = source.value
    return BufferOperand(ref.key, type)


def _wire_region(node: NetworkNode, region: Region, wiring: Wiring, inside: bool) -> RegionStep:
    shapes, key, lifetime = wiring.shapes, node.key, "region" if inside else "graph"
    # A result that the enclosing region exposes is written to the buffer of the enclosing region.
    keys = {name: node.result_key(name) for name in node.bodies[0].outputs}
    results = {name: wiring.buffer(result, shapes.types[result], lifetime) for name, result in keys.items()}
    for body in node.bodies:
        wiring.renamed |= {ref.key: results[name] for name, ref in body.outputs.items()}
    carried = []
    for input_name, output_name in region.carried.items():
        ref = node.feeds[input_name]
        assert ref is not None
        type = shapes.types[carry_key(key, input_name)]
        carry = wiring.buffer(carry_key(key, input_name), type, "region")
        carried.append(Carried(operand_of(ref, type, wiring), carry, results[output_name]))
    index = None
    if region.index_name is not None:
        index = wiring.buffer(carry_key(key, region.index_name), Tensor(i64, ()), "region")
    control = node.feeds[region.control_name]
    assert control is not None
    bodies = tuple(
        tuple(wire_node(body.nodes[inner], wiring, inside=True) for inner, _ in body.order) for body in node.bodies
    )
    control_type = input_type_of(control, shapes).type
    return RegionStep(
        key,
        region.kind,
        operand_of(control, control_type, wiring),
        bodies,
        tuple(results.values()),
        tuple(carried),
        results["condition"] if region.kind == "while" else None,
        index,
    )

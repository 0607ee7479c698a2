"""Wiring, a phase of the graph compiler: steps with operands, buffers, and what is in them from the start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.engine.flatten import CarryRef, Network, NetworkNode, OutputRef, Ref
from livegrad.engine.graph import State
from livegrad.engine.live_plan import (
    BlockStep,
    BufferOperand,
    BufferSpec,
    Carried,
    FeatureOperand,
    LivePlan,
    Operand,
    ParameterOperand,
    RegionStep,
    StateSpec,
    Step,
)
from livegrad.engine.propagate import Shapes, given_of, tensor_of
from livegrad.engine.regions import Region
from livegrad.engine.sources import Binding
from livegrad.ir.types import Tensor, Type, i64


@dataclass
class Wiring:
    """The parts of a plan while it is put together."""

    shapes: Shapes
    steps: dict[str, Step] = field(default_factory=dict)
    buffers: dict[str, BufferSpec] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    contents: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    bindings: dict[str, Any] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # a body's buffer that is a region's result

    def buffer(self, key: str, type: Tensor, lifetime: Any = "graph") -> str:
        key = self.renamed.get(key, key)
        known = self.buffers.get(key)
        if known is None:
            self.buffers[key] = BufferSpec(key, type.element, type.shape, lifetime)  # type: ignore[arg-type]
        return key


def wire(network: Network, order: Iterable[tuple[str, int]], shapes: Shapes) -> LivePlan:
    """Steps with their operands and buffers."""
    wiring = Wiring(shapes)
    states = []
    for key, level in order:
        node = network.nodes[key]
        if isinstance(node.block, State):
            following = node.feeds["next"]
            assert isinstance(following, OutputRef)
            value = wiring.buffer(f"{key}.value", shapes.types[f"{key}.value"])
            states.append(StateSpec(key, value, following.key, node.block.initial))
        else:
            wiring.steps[key] = wire_node(node, level, wiring)
    return LivePlan(wiring.steps, wiring.buffers, tuple(states), wiring.parameters, wiring.contents, wiring.bindings)


def wire_node(node: NetworkNode, level: int, wiring: Wiring, inside: bool = False) -> Step:
    """The step of one node."""
    if isinstance(node.block, Region):
        return _wire_region(node, node.block, level, wiring)
    made = wiring.shapes.bodies[node.key]
    types = made.function.parameter_types
    refs = [ref for ref in node.feeds.values() if ref is not None]
    operands: list[Operand] = [operand_of(ref, type, wiring) for ref, type in zip(refs, types, strict=False)]
    rest = types[len(operands) :]
    operands += [FeatureOperand(feature, type) for feature, type in zip(made.features, rest, strict=False)]
    for number, array in enumerate(made.constants):
        key = f"{node.key}!{number}"
        wiring.buffer(key, tensor_of(array))
        wiring.contents[key] = array
        operands.append(BufferOperand(key, types[len(operands)]))
    lifetime = "region" if inside else "graph"
    results = tuple(
        wiring.buffer(f"{node.key}.{name}", wiring.shapes.types[f"{node.key}.{name}"], lifetime)
        for name in node.block.outputs
    )
    return BlockStep(node.key, made.function, made.sizes, tuple(operands), results, level)


def operand_of(ref: Ref, type: Type, wiring: Wiring) -> Operand:
    """How a step reads what feeds it; roots leave their value or memory in the plan."""
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
    wiring.buffer(ref.key, source.given.type)
    wiring.contents[ref.key] = source.value
    return BufferOperand(ref.key, type)


def _wire_region(node: NetworkNode, region: Region, level: int, wiring: Wiring) -> RegionStep:
    shapes, key = wiring.shapes, node.key
    # A region that is itself an output of the region around it writes into that one's buffers.
    results = {name: wiring.buffer(f"{key}.{name}", shapes.types[f"{key}.{name}"]) for name in node.bodies[0].outputs}
    for body in node.bodies:
        wiring.renamed |= {ref.key: results[name] for name, ref in body.outputs.items()}
    carried = []
    for entering, leaving in region.carried.items():
        ref = node.feeds[entering]
        assert ref is not None
        type = shapes.types[f"{key}#{entering}"]
        carry = wiring.buffer(f"{key}#{entering}", type, "region")
        carried.append(Carried(operand_of(ref, type, wiring), carry, results[leaving]))
    index = None
    if region.index_name is not None:
        index = wiring.buffer(f"{key}#{region.index_name}", Tensor(i64, ()), "region")
    control = node.feeds[region.control_name]
    assert control is not None
    bodies = tuple(
        tuple(
            wire_node(body.nodes[inner], depth, wiring, inside=True) for inner, depth in shapes.inner_orders[id(body)]
        )
        for body in node.bodies
    )
    own = given_of(control, shapes).type
    return RegionStep(
        key,
        region.kind,
        operand_of(control, own, wiring),
        bodies,
        tuple(results.values()),
        tuple(carried),
        results["condition"] if region.kind == "while" else None,
        index,
        level,
    )

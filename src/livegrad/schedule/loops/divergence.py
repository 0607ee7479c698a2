"""Divergence analysis: which values of a kernel differ between lanes, and whether control flow diverges.

Only divergent values need vector registers, and determine how many lanes fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, inner_types
from livegrad.ir.walk import functions_in, nodes_of
from livegrad.ops.elementwise import add
from livegrad.schedule.indexed_writes import indices_of
from livegrad.schedule.kernel import Source, Stage
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.loops.uniform_values import varying_types_of


def varying_scalars(nest: LoopNest) -> set[Scalar]:
    """The types of a kernel's numbers that differ between lanes.

    The indices of neighbours do not count: one address serves all lanes.
    """
    kernel, reads, lane, along = nest.kernel, nest.dimensions.reads, nest.lane, not nest.across
    moving = [bool(strides[lane]) if 0 <= lane < len(strides) else False for strides in reads]
    found = {port.element for port in kernel.outputs}
    found |= {port.element for port, moves in zip(kernel.reads, moving, strict=True) if moves}
    for stage in kernel.stages:
        if stage.level == "row" and along:
            continue  # once for all lanes
        for node, operands in _varying_nodes(stage, along, moving, lane):
            types = varying_types_of(node, operands)
            found |= {scalar for type in types for scalar in inner_types(type) if isinstance(scalar, Scalar)}
    return found


def _varying_nodes(stage: Stage, along: bool, moving: Sequence[bool], lane: int) -> list[tuple[Node, tuple[bool, ...]]]:
    """The nodes of which lanes have values of their own, each with which of its operands differ."""
    order = nodes_of(stage.body)
    parameters = stage.body.parameters
    source = dict(zip(parameters[len(parameters) - len(stage.sources) :], stage.sources, strict=True))
    differs: dict[Node, bool] = {}
    for node in order:
        own = source.get(node)
        if own is not None:
            differs[node] = _source_differs(own, along, moving, lane)
        else:
            differs[node] = node in parameters or any(differs[operand] for operand in node.operands)
    places = {node for node, own in source.items() if own == Source("index", lane)}
    for node in order:
        if node.op is add and sum(operand in places for operand in node.operands) == 1:
            places |= {node} if sum(differs[operand] for operand in node.operands) == 1 else set()
    numbers = _used_as_numbers(stage.body, places, differs)
    varying = [node for node in order if differs[node] and node in numbers]
    return [(node, tuple([differs[operand] for operand in node.operands])) for node in varying]


def _used_as_numbers(body: Function, places: set[Node], differs: dict[Node, bool]) -> set[Node]:
    """The nodes of which every lane's value is needed: of places that lanes count up, lane 0's may do."""
    numbers = set(body.results)
    for node in reversed(nodes_of(body)):
        indices = indices_of(node)
        if indices and indices[-1] in places and not any(differs[index] for index in indices[:-1]):
            numbers.update(node.operands[:-1])
        elif node not in places or node in numbers:
            numbers.update(node.operands)
    return numbers


def _source_differs(source: Source, along: bool, moving: Sequence[bool], lane: int) -> bool:
    match source.kind:
        case "index":
            return source.number == lane
        case "read":
            return moving[source.number]
        case "row":
            return not along
    return False


@lru_cache(maxsize=4096)
def has_divergence(function: Function) -> bool:
    """Whether some op checks its operands, as conversions are said to do, or holds functions of its own."""
    return bool(functions_in(function)) or any(node.op.checked for node in nodes_of(function))

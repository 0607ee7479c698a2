"""Divergence analysis: finds the values that differ between lanes, and control flow that may diverge.

In: a function with flags for its divergent parameters, or a loop nest. Only divergent values need vector registers:
`vectorise.py` chooses the number of lanes by their types, and `masked_control.py` generates loops by the values that
diverge. CUDA needs no such analysis, because its lanes are threads. The pass `share_lockstep` is here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Type, inner_types
from livegrad.ir.walk import functions_in, nodes_of
from livegrad.ops.assignment import indices_of
from livegrad.ops.control import call, cond, for_loop, switch, while_loop
from livegrad.ops.elementwise import add
from livegrad.ops.tape import tape_get
from livegrad.passes.regions import carried_flags
from livegrad.schedule.kernel import Source, Stage
from livegrad.schedule.loops.nest import LoopNest


@lru_cache(maxsize=4096)
def may_diverge(function: Function) -> bool:
    """Whether a function has an op that checks its operands (conversions included) or that runs functions."""
    return bool(functions_in(function)) or any(node.op.checked for node in nodes_of(function))


# --- functions --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def divergent_results(function: Function, divergent: tuple[bool, ...]) -> tuple[bool, ...]:
    """The divergence of each result, from that of the parameters."""
    values = _divergent_values(function, divergent)
    return tuple(values[result] for result in function.results)


def _divergent_values(function: Function, divergent: tuple[bool, ...]) -> dict[Node, bool]:
    values: dict[Node, bool] = dict(zip(function.parameters, divergent, strict=True))
    for node in nodes_of(function):
        if node not in values:
            values[node] = _diverges(node, tuple(values[operand] for operand in node.operands))
    return values


def _diverges(node: Node, operands: tuple[bool, ...]) -> bool:
    """Whether a value diverges. An aggregate diverges if any member does."""
    if node.op is tape_get:
        return True
    if node.op is call:
        return any(divergent_results(node.attribute("function"), operands))
    if node.op is for_loop:
        return operands[0] or any(divergent_state(node, operands[1:], operands[0]))
    if node.op is while_loop:
        return any(divergent_while_state(node, operands))
    return any(operands)


def divergent_state(node: Node, operands: tuple[bool, ...], exits_diverge: bool) -> tuple[bool, ...]:
    """The divergence of a loop's carried values. All diverge if lanes leave the loop at different iterations."""
    carried = node.attribute("carried")
    body: Function = node.attribute("body")
    initial = (True,) * carried if exits_diverge else operands[:carried]
    return carried_flags(initial, lambda state: divergent_results(body, (False, *state, *operands[carried:])))


def divergent_while_state(node: Node, operands: tuple[bool, ...]) -> tuple[bool, ...]:
    """`divergent_state` of a while loop, whose condition decides when lanes leave it."""
    carried = node.attribute("carried")
    state = divergent_state(node, operands, False)
    (exits_diverge,) = divergent_results(node.attribute("condition"), (*state, *operands[carried:]))
    return divergent_state(node, operands, exits_diverge)


def lockstep_state(node: Node, operands: tuple[bool, ...]) -> tuple[bool, ...]:
    """The carried values of a while loop that are uniform over the active lanes, but not over lanes that have left.

    An example is a counter: all lanes start with the same value, and each iteration adds the same amount.
    """
    carried = node.attribute("carried")
    condition, body = node.attribute("condition"), node.attribute("body")
    inside = divergent_state(node, operands, False)
    if not any(divergent_results(condition, (*inside, *operands[carried:]))):
        return (False,) * carried
    flags = zip(inside, body.result_types, strict=True)
    return tuple([not diverges and isinstance(type, Scalar) for diverges, type in flags])


def share_lockstep(nest: LoopNest) -> LoopNest:
    """Computes values that are uniform over the active lanes of a while loop, such as a counter, in scalar registers.

    The sum of such a counter and the index of a point is still consecutive over lanes: a load rather than a gather.
    """
    return nest if nest.lanes == 1 else nest.replace(shares_lockstep=True)


# --- types ------------------------------------------------------------------------------------------------------------


def divergent_types(node: Node, operands: tuple[bool, ...]) -> frozenset[Type]:
    """The types of divergent values of a node and in its functions, from the divergence of its operands."""
    if not node.functions:
        return frozenset((node.type,))
    inside = zip(node.functions, _divergent_parameters(node, operands), strict=True)
    types = [_divergent_types_in(function, parameters) for function, parameters in inside]
    return frozenset(_divergent_value_types(node, operands)).union(*types)


@lru_cache(maxsize=4096)
def _divergent_types_in(function: Function, divergent: tuple[bool, ...]) -> frozenset[Type]:
    values = _divergent_values(function, divergent)
    types = [
        divergent_types(node, tuple([values[operand] for operand in node.operands]))
        for node in nodes_of(function)
        if values[node]
    ]
    return frozenset().union(*types)


def _divergent_value_types(node: Node, operands: tuple[bool, ...]) -> list[Type]:
    """The types of a node's divergent values. Carried values of a loop count separately, because each has registers."""
    if node.op not in (for_loop, while_loop):
        return [node.type]
    is_for = node.op is for_loop
    state = divergent_state(node, operands[1:], operands[0]) if is_for else divergent_while_state(node, operands)
    types = node.attribute("body").result_types
    return [type for type, diverges in zip(types, state, strict=True) if diverges]


def _divergent_parameters(node: Node, operands: tuple[bool, ...]) -> list[tuple[bool, ...]]:
    """The divergence of the parameters of each function of a node."""
    if node.op is call:
        return [operands]
    if node.op in (cond, switch):
        return [operands[1:] for _ in node.functions]
    if node.op is for_loop:
        state = divergent_state(node, operands[1:], operands[0])
        return [(False, *state, *operands[1 + len(state) :])]
    if node.op is while_loop:
        state = divergent_while_state(node, operands)
        captured = operands[len(state) :]
        flags = {node.attribute("condition"): (*state, *captured), node.attribute("body"): (False, *state, *captured)}
        return [flags[function] for function in node.functions]
    return [(True,) * len(function.parameters) for function in node.functions]


# --- kernels ----------------------------------------------------------------------------------------------------------


def divergent_scalars(nest: LoopNest) -> set[Scalar]:
    """The types of a kernel's divergent scalars.

    Indices of consecutive elements do not count: one address serves all lanes.
    """
    kernel, reads, lane, along_inner = nest.kernel, nest.dimensions.reads, nest.lane, not nest.across
    moving = [bool(strides[lane]) if 0 <= lane < len(strides) else False for strides in reads]
    scalars = {port.element for port in kernel.outputs}
    scalars |= {port.element for port, moves in zip(kernel.reads, moving, strict=True) if moves}
    for stage in kernel.stages:
        if stage.level == "row" and along_inner:
            continue  # computed once for all lanes
        for node, operands in _divergent_nodes(stage, along_inner, moving, lane):
            types = divergent_types(node, operands)
            scalars |= {scalar for type in types for scalar in inner_types(type) if isinstance(scalar, Scalar)}
    return scalars


def _divergent_nodes(
    stage: Stage, along_inner: bool, moving: Sequence[bool], lane: int
) -> list[tuple[Node, tuple[bool, ...]]]:
    """The divergent nodes, each with flags for its divergent operands."""
    body, order = stage.body, nodes_of(stage.body)
    carried = len(body.parameters) - len(stage.sources)
    sources = [_source_diverges(source, along_inner, moving, lane) for source in stage.sources]
    diverges = _divergent_values(body, (*[True] * carried, *sources))
    indices = {
        node
        for node, source in zip(body.parameters[carried:], stage.sources, strict=True)
        if source == Source("index", lane)
    }
    for node in order:
        if node.op is add and sum(operand in indices for operand in node.operands) == 1:
            indices |= {node} if sum(diverges[operand] for operand in node.operands) == 1 else set()
    needed = _find_needed_in_lanes(body, indices, diverges)
    nodes = [node for node in order if diverges[node] and node in needed]
    return [(node, tuple([diverges[operand] for operand in node.operands])) for node in nodes]


def _find_needed_in_lanes(body: Function, indices: set[Node], diverges: dict[Node, bool]) -> set[Node]:
    """The nodes whose value is needed for every lane; of consecutive indices, the value of lane 0 may suffice."""
    needed = set(body.results)
    for node in reversed(nodes_of(body)):
        access_indices = indices_of(node)
        if (
            access_indices
            and access_indices[-1] in indices
            and not any(diverges[index] for index in access_indices[:-1])
        ):
            needed.update(node.operands[:-1])
        elif node not in indices or node in needed:
            needed.update(node.operands)
    return needed


def _source_diverges(source: Source, along_inner: bool, moving: Sequence[bool], lane: int) -> bool:
    match source.kind:
        case "index":
            return source.number == lane
        case "read":
            return moving[source.number]
        case "row":
            return not along_inner
    return False

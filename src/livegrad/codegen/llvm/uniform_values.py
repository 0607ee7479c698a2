"""Which values are the same for all lanes: decided before a loop is written, because its registers need a width."""

from __future__ import annotations

from functools import lru_cache

from livegrad.ir.node import Function, Node
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import call, cond, for_loop, switch, while_loop
from livegrad.ops.trace import trace_get


@lru_cache(maxsize=4096)
def varying_results(function: Function, varying: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which results differ between lanes, given which parameters do."""
    found: dict[Node, bool] = dict(zip(function.parameters, varying, strict=True))
    for node in nodes_of(function):
        if node not in found:
            found[node] = _varies(node, tuple(found[operand] for operand in node.operands))
    return tuple(found[result] for result in function.results)


def _varies(node: Node, operands: tuple[bool, ...]) -> bool:
    """One answer for a whole aggregate: a tuple of which any member varies varies."""
    if node.op is trace_get:
        return True
    if node.op is call:
        return any(varying_results(node.attribute("function"), operands))
    if node.op in (cond, switch):
        return any(operands)
    if node.op is for_loop:
        return operands[0] or any(carried_variation(node, operands[1:], operands[0]))
    if node.op is while_loop:
        return any(while_variation(node, operands))
    return any(operands)


def carried_variation(node: Node, operands: tuple[bool, ...], diverges: bool) -> tuple[bool, ...]:
    """Which carried values of a loop differ between lanes; all of them when lanes leave it at different trips."""
    carried = node.attribute("carried")
    body: Function = node.attribute("body")
    state = (True,) * carried if diverges else operands[:carried]
    while True:
        results = varying_results(body, (False, *state, *operands[carried:]))
        grown = tuple(a or b for a, b in zip(state, results, strict=True))
        if grown == state:
            return state
        state = grown


def while_variation(node: Node, operands: tuple[bool, ...]) -> tuple[bool, ...]:
    carried = node.attribute("carried")
    state = carried_variation(node, operands, False)
    (diverges,) = varying_results(node.attribute("condition"), (*state, *operands[carried:]))
    return carried_variation(node, operands, diverges)

"""Which values are the same for all lanes: decided before a loop is written, because its registers need a width.

`divergence.py` asks which numbers take vectors, to choose how many lanes there are, and code generators the same of
each loop.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import call, cond, for_loop, switch, while_loop
from livegrad.ops.tape import tape_get
from livegrad.passes.regions import carried_flags


@lru_cache(maxsize=4096)
def varying_results(function: Function, varying: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which results differ between lanes, given which parameters do."""
    found = _variation(function, varying)
    return tuple(found[result] for result in function.results)


def varying_types_of(node: Node, operands: tuple[bool, ...]) -> frozenset[Type]:
    """The types of what differs between lanes of a node's value, given which operands do, and in its functions."""
    if not node.functions:
        return frozenset((node.type,))
    inside = zip(node.functions, _flags_inside(node, operands), strict=True)
    types = [_varying_types_in(function, flags) for function, flags in inside]
    return frozenset(_own_types(node, operands)).union(*types)


@lru_cache(maxsize=4096)
def _varying_types_in(function: Function, varying: tuple[bool, ...]) -> frozenset[Type]:
    found = _variation(function, varying)
    types = [
        varying_types_of(node, tuple([found[operand] for operand in node.operands]))
        for node in nodes_of(function)
        if found[node]
    ]
    return frozenset().union(*types)


def _own_types(node: Node, operands: tuple[bool, ...]) -> list[Type]:
    """Of a loop, the types of those carried values that differ; they are in registers of their own."""
    if node.op not in (for_loop, while_loop):
        return [node.type]
    counted = node.op is for_loop
    state = carried_variation(node, operands[1:], operands[0]) if counted else while_variation(node, operands)
    types = node.attribute("body").result_types
    return [type for type, varies in zip(types, state, strict=True) if varies]


def _flags_inside(node: Node, operands: tuple[bool, ...]) -> list[tuple[bool, ...]]:
    """Which parameters of each function of a node differ between lanes."""
    if node.op is call:
        return [operands]
    if node.op in (cond, switch):
        return [operands[1:] for _ in node.functions]
    if node.op is for_loop:
        state = carried_variation(node, operands[1:], operands[0])
        return [(False, *state, *operands[1 + len(state) :])]
    if node.op is while_loop:
        state = while_variation(node, operands)
        captured = operands[len(state) :]
        both = {node.attribute("condition"): (*state, *captured), node.attribute("body"): (False, *state, *captured)}
        return [both[function] for function in node.functions]
    return [(True,) * len(function.parameters) for function in node.functions]


def _variation(function: Function, varying: tuple[bool, ...]) -> dict[Node, bool]:
    found: dict[Node, bool] = dict(zip(function.parameters, varying, strict=True))
    for node in nodes_of(function):
        if node not in found:
            found[node] = _varies(node, tuple(found[operand] for operand in node.operands))
    return found


def _varies(node: Node, operands: tuple[bool, ...]) -> bool:
    """One answer for a whole aggregate: a tuple of which any member varies varies."""
    if node.op is tape_get:
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
    """Which carried values of a loop differ between lanes; all of them when lanes leave it at different iterations."""
    carried = node.attribute("carried")
    body: Function = node.attribute("body")
    initial = (True,) * carried if diverges else operands[:carried]
    return carried_flags(initial, lambda state: varying_results(body, (False, *state, *operands[carried:])))


def while_variation(node: Node, operands: tuple[bool, ...]) -> tuple[bool, ...]:
    carried = node.attribute("carried")
    state = carried_variation(node, operands, False)
    (diverges,) = varying_results(node.attribute("condition"), (*state, *operands[carried:]))
    return carried_variation(node, operands, diverges)

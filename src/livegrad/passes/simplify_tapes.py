"""The `simplify_tapes` pass: the cotangents of a scan are read where they are, and its own rows are written once.

The transpose of a scan clears each row of cotangents that it has read, and adds to rows of an empty tape. Nobody sees
what is cleared, and what is added to nothing is written: then `lower_tapes` makes tensors of both.
"""

from __future__ import annotations

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tape
from livegrad.ir.walk import nodes_of, ops_below, substitute
from livegrad.ops.aggregate import get
from livegrad.ops.control import for_loop
from livegrad.ops.tape import tape_add, tape_get, tape_new, tape_set
from livegrad.passes.functions import count_uses, exchange_attributes, rewrite_functions, rewrite_to_fixpoint
from livegrad.passes.regions import region_of


def simplify_tapes(function: Function) -> Function:
    """The function, and those inside it, with loops that only read the tapes of cotangents and write their own."""
    if for_loop not in (ops := ops_below(function)) or ops.isdisjoint((tape_add, tape_set)):
        return function
    simplified = rewrite_functions(Module((function,)), lambda each: rewrite_to_fixpoint(each, _next_change))
    return simplified.functions[0]


def _next_change(function: Function) -> dict[Node, Node] | None:
    """A loop and what to put in its place; None where there is none left to change."""
    nodes = nodes_of(function)
    for loop in nodes:
        if loop.op is not for_loop or not any(isinstance(operand.type, Tape) for operand in loop.operands):
            continue
        with originating_from(loop.origins):
            written = _with_rows_written(loop)
            change = {loop: written} if written is not None else _without_cleared_tapes(loop, function, nodes)
        if change is not None:
            return change
    return None


def _with_rows_written(loop: Node) -> Node | None:
    """The loop with writes in the place of additions to the rows of a tape that starts empty."""
    body: Function = loop.attribute("body")
    uses = count_uses(body)
    exchanged: dict[Node, Node] = {}
    for place, result in enumerate(body.results):
        tape, index = body.parameters[1 + place], body.parameters[0]
        adds = result.op is tape_add and result.operands[:2] == (tape, index)
        if adds and loop.operands[1 + place].op is tape_new and uses[tape] == 1 and uses[result] == 1:
            exchanged[result] = tape_set(tape, index, result.operands[2])
    if not exchanged:
        return None
    changed = Function(body.name, body.parameters, substitute(body.results, exchanged, body.source_locations))
    return exchange_attributes(loop, {body: changed})


def _without_cleared_tapes(loop: Node, function: Function, nodes: tuple[Node, ...]) -> dict[Node, Node] | None:
    """The results of a loop that captures the tapes which it reads and clears row by row."""
    users = [node for node in nodes if loop in node.operands]
    if loop in function.results or any(user.op is not get for user in users):
        return None
    taken = {user.attribute("index") for user in users}
    carried = loop.attribute("carried")
    cleared = [place for place in range(carried) if place not in taken and _is_cleared(loop, place)]
    region = region_of(loop)
    if not cleared or region is None:
        return None
    kept = [place for place in range(carried) if place not in cleared]
    captured = range(carried, len(region.arguments))
    changed = region.narrow([*kept, *captured, *cleared], kept)
    return {user: get(changed, index=kept.index(user.attribute("index"))) for user in users}


def _is_cleared(loop: Node, place: int) -> bool:
    """Whether an iteration reads one row of a tape, its own, and overwrites it: as if it were never written."""
    body: Function = loop.attribute("body")
    if loop.operands[1 + place].op is tape_new:
        return False  # a tape that starts empty belongs to the loop that carries it
    index, tape, result = body.parameters[0], body.parameters[1 + place], body.results[place]
    if result.op is not tape_set or result.operands[:2] != (tape, index) or count_uses(body)[result] != 1:
        return False
    users = [node for node in nodes_of(body) if tape in node.operands and node is not result]
    return tape not in body.results and all(user.op is tape_get and user.operands[1] is index for user in users)

"""The `simplify_tapes` pass: removes dead clears of tape rows, and turns additions to empty rows into writes.

The transpose of a scan clears each row of cotangents that it has read, and adds to the rows of an empty tape. Without
such clears, the loop captures the cotangents read-only; with writes, `lower_tapes` can turn both tapes into tensors.
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
    """Simplifies the tapes of loops in a function and in its nested functions."""
    if for_loop not in (ops := ops_below(function)) or ops.isdisjoint((tape_add, tape_set)):
        return function
    simplified = rewrite_functions(Module((function,)), lambda inner: rewrite_to_fixpoint(inner, _next_change))
    return simplified.functions[0]


def _next_change(function: Function) -> dict[Node, Node] | None:
    """The replacements of the next loop to simplify; None if there is none."""
    nodes = nodes_of(function)
    for loop in nodes:
        if loop.op is not for_loop or not any(isinstance(operand.type, Tape) for operand in loop.operands):
            continue
        with originating_from(loop.origins):
            replacement = _write_empty_rows(loop)
            change = {loop: replacement} if replacement is not None else _capture_cleared_tapes(loop, function, nodes)
        if change is not None:
            return change
    return None


def _write_empty_rows(loop: Node) -> Node | None:
    """Turns additions to the rows of a tape that starts empty into writes; None if there are none."""
    body: Function = loop.attribute("body")
    uses = count_uses(body)
    replacements: dict[Node, Node] = {}
    for position, result in enumerate(body.results):
        tape, row_index = body.parameters[1 + position], body.parameters[0]
        adds = result.op is tape_add and result.operands[:2] == (tape, row_index)
        if adds and loop.operands[1 + position].op is tape_new and uses[tape] == 1 and uses[result] == 1:
            replacements[result] = tape_set(tape, row_index, result.operands[2])
    if not replacements:
        return None
    changed = Function(body.name, body.parameters, substitute(body.results, replacements, body.source_locations))
    return exchange_attributes(loop, {body: changed})


def _capture_cleared_tapes(loop: Node, function: Function, nodes: tuple[Node, ...]) -> dict[Node, Node] | None:
    """Captures the tapes that a loop reads and clears row by row; returns the loop's replaced results, or None."""
    users = [node for node in nodes if loop in node.operands]
    if loop in function.results or any(user.op is not get for user in users):
        return None
    read_results = {user.attribute("index") for user in users}
    carried = loop.attribute("carried")
    cleared = [position for position in range(carried) if position not in read_results and _is_cleared(loop, position)]
    region = region_of(loop)
    if not cleared or region is None:
        return None
    remaining = [position for position in range(carried) if position not in cleared]
    captured = range(carried, len(region.arguments))
    changed = region.narrow([*remaining, *captured, *cleared], remaining)
    return {user: get(changed, index=remaining.index(user.attribute("index"))) for user in users}


def _is_cleared(loop: Node, position: int) -> bool:
    """Whether each iteration reads and overwrites only its own row of a tape, so that no write is ever read."""
    body: Function = loop.attribute("body")
    if loop.operands[1 + position].op is tape_new:
        return False  # the loop creates this tape
    row_index, tape, result = body.parameters[0], body.parameters[1 + position], body.results[position]
    if result.op is not tape_set or result.operands[:2] != (tape, row_index) or count_uses(body)[result] != 1:
        return False
    users = [node for node in nodes_of(body) if tape in node.operands and node is not result]
    return tape not in body.results and all(user.op is tape_get and user.operands[1] is row_index for user in users)

"""The `thread_accumulators` pass: a sum made from zeros by a loop, and then added to another, starts from that one.

The backward pass through nested loops gives each inner loop an accumulator of its own. Threaded through, there is one
for all of them, and no tensor is added to another in every iteration.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Tensor, components
from livegrad.ir.walk import nodes_of, reachable_functions, substitute, toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import for_loop
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import scatter_add
from livegrad.ops.rules import is_zero_node
from livegrad.passes.functions import rewrite_functions, uses_any


def thread_accumulators(function: Function) -> Function:
    """The function, and those inside it, with totals of tensors handed to the loops that add to them."""
    if not uses_any(reachable_functions([function]), (for_loop,)):
        return function
    return rewrite_functions(Module((function,)), _threaded).functions[0]


def _sums_tensors(node: Node) -> bool:
    return node.op is for_loop and any(isinstance(type, Tensor) for type in components(node.type))


def _threaded(function: Function) -> Function:
    while (found := _next_change(function)) is not None:
        changed = Function(function.name, function.parameters, substitute(function.results, found))
        changed.places.update(function.places)
        function = changed
    return function


def _next_change(function: Function) -> dict[Node, Node] | None:
    """What to put in the place of a sum with something that was added to zeros; None where there is none left."""
    order = nodes_of(function)
    uses = Counter(operand for node in order for operand in node.operands)
    uses.update(function.results)
    for node in order:
        if node.op is add and isinstance(node.type, Tensor):
            for share, start in (node.operands, node.operands[::-1]):
                if _comes_from_nothing(share, start, uses):
                    return _from_start(node, share, start)
    return None


def _comes_from_nothing(share: Node, start: Node, uses: Counter[Node]) -> bool:
    """Whether a summand is made by additions to zeros, and is nobody else's business."""
    if is_zero_node(share):
        return True
    if uses[share] != 1:
        return False
    if share.op is scatter_add:
        return _comes_from_nothing(share.operands[0], start, uses)
    if share.op is not get or not _sums_tensors(share.operands[0]):
        return False
    loop, place = share.operands[0], share.attribute("index")
    from_zeros = is_zero_node(loop.operands[1 + place])
    return from_zeros and _only_adds(loop.attribute("body"), place) and loop not in toposort([start])


def _from_start(total: Node, share: Node, start: Node) -> dict[Node, Node]:
    """One step towards the summand made by additions to the start: each has one addition less above it."""
    if is_zero_node(share):
        return {total: start}
    if share.op is scatter_add:
        return {total: scatter_add(add(start, share.operands[0]), *share.operands[1:])}
    loop, place = share.operands[0], share.attribute("index")
    operands = list(loop.operands)
    operands[1 + place] = start
    made = for_loop(*operands, **dict(loop.attributes))
    return {loop: made, total: get(made, index=place)}


@lru_cache(maxsize=1024)
def _only_adds(body: Function, place: int) -> bool:
    """Whether a carried value is, after a trip, what it was before plus something that does not depend on it."""
    versions = {body.parameters[1 + place]}
    through: dict[Node, int] = {}  # loops inside that a version goes through, and which of their results it is then
    uses = Counter(body.results)
    for node in nodes_of(body):
        taken = [position for position, operand in enumerate(node.operands) if operand in versions]
        uses.update(node.operands[position] for position in taken)
        if node.op is get and through.get(node.operands[0]) == node.attribute("index"):
            versions.add(node)
        if not taken:
            continue
        if len(taken) > 1 or not (node.op is add or (node.op is scatter_add and taken == [0])):
            inner = taken[0] - 1
            if node.op is not for_loop or not 0 <= inner < node.attribute("carried") or len(taken) > 1:
                return False
            if not _only_adds(node.attribute("body"), inner):
                return False
            through[node] = inner
        else:
            versions.add(node)
    return body.results[place] in versions and all(uses[version] == 1 for version in versions)

"""The `thread_accumulators` pass: a sum that a loop or branch builds from zero, and that is then added to another sum,
starts from the latter.

The backward pass through nested loops and branches has a separate accumulator for each of them. Threading one
accumulator through all of them avoids adding tensors in every iteration.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.types import Tensor
from livegrad.ir.walk import exchanged_functions, nodes_of, toposort
from livegrad.ops.aggregate import get
from livegrad.ops.control import cond, for_loop, switch
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import scatter_add
from livegrad.ops.rules import is_zero_node
from livegrad.passes.functions import count_uses, rewrite_functions, rewrite_to_fixpoint, uses_any

_BRANCHES = (cond, switch)


def thread_accumulators(function: Function) -> Function:
    """The function, and those inside it, with totals of tensors handed to the loops and branches that add to them."""
    if not uses_any([function], (for_loop,)):
        return function
    threaded = rewrite_functions(Module((function,)), lambda inner: rewrite_to_fixpoint(inner, _next_change))
    return threaded.functions[0]


def _next_change(function: Function) -> dict[Node, Node] | None:
    """The replacement of a sum whose operand accumulates from zeros; None if there is none left."""
    uses = count_uses(function)
    for node in nodes_of(function):
        if node.op is add and isinstance(node.type, Tensor):
            for share, start in (node.operands, node.operands[::-1]):
                if _comes_from_nothing(share, uses) and not _needs(start, share):
                    return _from_start(node, share, start)
    return None


def _result_of(share: Node) -> tuple[Node, int]:
    """The node that computes a value, and which of its results it is."""
    return (share.operands[0], share.attribute("index")) if share.op is get else (share, 0)


def _added_to(share: Node) -> tuple[Node, int] | None:
    """The addition by index, loop or branches that made a value by adding to one of its operands, and which that is."""
    source, index = _result_of(share)
    if source.op is scatter_add:
        return source, 0
    if source.op is for_loop:
        return (source, 1 + index) if _sum_through(source, 1 + index) == index else None
    if source.op in _BRANCHES:
        for position, operand in enumerate(source.operands):
            if operand.type is share.type and _sum_through(source, position) == index:
                return source, position
    return None


def _comes_from_nothing(share: Node, uses: Counter[Node]) -> bool:
    """Whether a summand accumulates from zeros and has no other use."""
    while not is_zero_node(share):
        if uses[share] != 1:
            return False
        added = _added_to(share)
        if added is None:
            source, index = _result_of(share)
            return source.op in _BRANCHES and all(
                _result_comes_from_nothing(branch, index) for branch in source.functions
            )
        source, position = added
        share = source.operands[position]
    return True


@lru_cache(maxsize=1024)
def _result_comes_from_nothing(branch: Function, index: int) -> bool:
    return _comes_from_nothing(branch.results[index], count_uses(branch))


def _needs(start: Node, share: Node) -> bool:
    """Whether the value to start from is computed from the loop or branches that would start from it."""
    source = _result_of(share)[0]
    return (source.op is for_loop or source.op in _BRANCHES) and source in toposort([start])


def _from_start(total: Node, share: Node, start: Node) -> dict[Node, Node]:
    """One step towards the summand made by additions to the start: each has one addition less above it."""
    if is_zero_node(share):
        return {total: start}
    added = _added_to(share)
    if added is not None:
        source, position = added
        operands = list(source.operands)
        operands[position] = add(start, operands[position])
        threaded = make_node(source.op, tuple(operands), source.attributes)
    else:
        source, index = _result_of(share)
        begun = {branch: _begin_with_parameter(branch, index) for branch in source.functions}
        threaded = make_node(source.op, (*source.operands, start), exchanged_functions(source.attributes, begun))
    return {source: threaded, total: threaded if share is source else get(threaded, index=share.attribute("index"))}


def _begin_with_parameter(branch: Function, index: int) -> Function:
    """A branch whose result starts from one parameter more, instead of zeros."""
    results = list(branch.results)
    start = parameter(len(branch.parameters), results[index].type)
    results[index] = add(start, results[index])
    changed = Function(branch.name, (*branch.parameters, start), tuple(results))
    changed.source_locations.update(branch.source_locations)
    return rewrite_to_fixpoint(changed, _next_change)


@lru_cache(maxsize=1024)
def _sum_of(function: Function, result_index: int) -> int | None:
    """The result that is a parameter plus something that does not depend on it; None if it is used otherwise."""
    versions = {function.parameters[result_index]}
    through: dict[Node, int] = {}  # loops and branches that a version goes through, and which of their results it is
    uses = Counter(function.results)
    for node in nodes_of(function):
        taken = [position for position, operand in enumerate(node.operands) if operand in versions]
        uses.update(node.operands[position] for position in taken)
        if node.op is get and through.get(node.operands[0]) == node.attribute("index"):
            versions.add(node)
        elif len(taken) > 1:
            return None
        elif taken and (node.op is add or (node.op is scatter_add and taken == [0])):
            versions.add(node)
        elif taken:
            inner = _sum_through(node, taken[0])
            if inner is None:
                return None
            through[node] = inner
            versions |= {node} if isinstance(node.type, Tensor) else set()
    results = [index for index, result in enumerate(function.results) if result in versions]
    return results[0] if len(results) == 1 and all(uses[version] == 1 for version in versions) else None


def _sum_through(node: Node, position: int) -> int | None:
    """The result of a loop or of branches that is an operand plus something; None where it is used otherwise."""
    if node.op is for_loop:
        inner = position - 1
        carried = 0 <= inner < node.attribute("carried")
        return inner if carried and _sum_of(node.attribute("body"), position) == inner else None
    if node.op not in _BRANCHES or not position:
        return None
    first, *others = [_sum_of(branch, position - 1) for branch in node.functions]
    return first if all(other == first for other in others) else None

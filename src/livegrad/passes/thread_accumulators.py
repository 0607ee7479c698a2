"""The `thread_accumulators` pass: replaces accumulators that start from zero by the sum that they are added to.

The backward pass through nested loops and branches has a separate accumulator for each of them. Threading one
accumulator through all of them avoids adding whole tensors in every iteration.
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
from livegrad.passes.functions import count_uses, rewrite_functions, rewrite_to_fixpoint

_BRANCHES = (cond, switch)


def thread_accumulators(function: Function) -> Function:
    """Threads tensor accumulators through the loops and branches of a function and of its nested functions."""
    threaded = rewrite_functions(Module((function,)), lambda inner: rewrite_to_fixpoint(inner, _next_change))
    return threaded.functions[0]


def _next_change(function: Function) -> dict[Node, Node] | None:
    """The replacements for the next sum with an operand that accumulates from zeros; None if there is none."""
    uses = count_uses(function)
    for node in nodes_of(function):
        if node.op is add and isinstance(node.type, Tensor):
            for addend, start in (node.operands, node.operands[::-1]):
                if _accumulates_from_zero(addend, uses) and not _depends_on(start, addend):
                    return _thread_start(node, addend, start)
    return None


def _source_of(addend: Node) -> tuple[Node, int]:
    """The node that computes a value, and the index of the value among its results."""
    return (addend.operands[0], addend.attribute("index")) if addend.op is get else (addend, 0)


def _find_accumulation(addend: Node) -> tuple[Node, int] | None:
    """The addition, loop or branch that computes a value by adding to one operand, and the position of that operand."""
    source, index = _source_of(addend)
    if source.op is scatter_add:
        return source, 0
    if source.op is for_loop:
        return (source, 1 + index) if find_threaded_result(source, 1 + index) == index else None
    if source.op in _BRANCHES:
        for position, operand in enumerate(source.operands):
            if operand.type is addend.type and find_threaded_result(source, position) == index:
                return source, position
    return None


def _accumulates_from_zero(addend: Node, uses: Counter[Node]) -> bool:
    """Whether an addend accumulates from zeros and has no other use."""
    while not is_zero_node(addend):
        if uses[addend] != 1:
            return False
        accumulation = _find_accumulation(addend)
        if accumulation is None:
            source, index = _source_of(addend)
            return source.op in _BRANCHES and all(accumulates_from_zero(branch, index) for branch in source.functions)
        source, position = accumulation
        addend = source.operands[position]
    return True


@lru_cache(maxsize=1024)
def accumulates_from_zero(function: Function, index: int) -> bool:
    """Whether a result of a function accumulates from zeros."""
    return _accumulates_from_zero(function.results[index], count_uses(function))


def _depends_on(start: Node, addend: Node) -> bool:
    """Whether `start` depends on the loop or branch that would start from it."""
    source = _source_of(addend)[0]
    return (source.op is for_loop or source.op in _BRANCHES) and source in toposort([start])


def _thread_start(total: Node, addend: Node, start: Node) -> dict[Node, Node]:
    """Moves `start` one step down: from the sum into the operand that the addend accumulates from."""
    if is_zero_node(addend):
        return {total: start}
    accumulation = _find_accumulation(addend)
    if accumulation is not None:
        source, position = accumulation
        operands = list(source.operands)
        operands[position] = add(start, operands[position])
        threaded = make_node(source.op, tuple(operands), source.attributes)
    else:
        source, index = _source_of(addend)
        threaded_branches = {branch: start_from_parameter(branch, index) for branch in source.functions}
        attributes = exchanged_functions(source.attributes, threaded_branches)
        threaded = make_node(source.op, (*source.operands, start), attributes)
    return {source: threaded, total: threaded if addend is source else get(threaded, index=addend.attribute("index"))}


def start_from_parameter(branch: Function, index: int) -> Function:
    """The branch with a result that starts from an additional parameter instead of zeros."""
    results = list(branch.results)
    start = parameter(len(branch.parameters), results[index].type)
    results[index] = add(start, results[index])
    changed = Function(branch.name, (*branch.parameters, start), tuple(results))
    changed.source_locations.update(branch.source_locations)
    return rewrite_to_fixpoint(changed, _next_change)


@lru_cache(maxsize=1024)
def _find_accumulated_result(function: Function, parameter_index: int) -> int | None:
    """The index of the result that is a parameter plus independent terms; None if the parameter has other uses."""
    versions = {function.parameters[parameter_index]}
    through: dict[Node, int] = {}  # loops and branches that pass a version on → the index of that result
    uses = Counter(function.results)
    for node in nodes_of(function):
        positions = [position for position, operand in enumerate(node.operands) if operand in versions]
        uses.update(node.operands[position] for position in positions)
        if node.op is get and through.get(node.operands[0]) == node.attribute("index"):
            versions.add(node)
        elif len(positions) > 1:
            return None
        elif positions and (node.op is add or (node.op is scatter_add and positions == [0])):
            versions.add(node)
        elif positions:
            inner = find_threaded_result(node, positions[0])
            if inner is None:
                return None
            through[node] = inner
            versions |= {node} if isinstance(node.type, Tensor) else set()
    results = [index for index, result in enumerate(function.results) if result in versions]
    return results[0] if len(results) == 1 and all(uses[version] == 1 for version in versions) else None


def find_threaded_result(node: Node, position: int) -> int | None:
    """The index of the result of a loop or branch that is an operand plus independent terms; None if there is none."""
    if node.op is for_loop:
        inner = position - 1
        carried = 0 <= inner < node.attribute("carried")
        return inner if carried and _find_accumulated_result(node.attribute("body"), position) == inner else None
    if node.op not in _BRANCHES or not position:
        return None
    first, *remaining = [_find_accumulated_result(branch, position - 1) for branch in node.functions]
    return first if all(index == first for index in remaining) else None

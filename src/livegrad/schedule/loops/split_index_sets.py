"""The loop pass `split_index_sets`: splits a loop where a comparison of its index changes, so that each part knows it.

`where(columns > k, a - b, a)` in a loop over columns needs no comparison from column k + 1 on, and does nothing before.
A part leaves out what only the other part needs: loads, inner loops, or everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from livegrad.ir.function import map_results
from livegrad.ir.leaves import constant, is_constant, parameter_op
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.types import Scalar, Tape, bool_, i64
from livegrad.ir.walk import functions_in, nodes_of, reachable_functions, substitute, toposort
from livegrad.ops.affine import affine_form
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.assignment import assign, indices_of
from livegrad.ops.comparison import greater, greater_equal, less, less_equal
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.elementwise import add, floor_div, maximum, minimum, select, sub
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.functions import rewrite_functions, uses_any
from livegrad.passes.simplify import simplify_function
from livegrad.schedule.loops.bounds_checks import prove_in_range
from livegrad.schedule.loops.nest import LoopNest

_MOST_NODES = 600  # of a body: each part is a copy of it
_MOST_SPLITS = 2  # of one loop, one after the other
_LEAST_SAVED = 0.25  # the share of a body's cost that one of the parts must leave out
_GUESSED_ITERATIONS = 32
_LONG_REDUCTION = 64  # terms, with which it does not matter that lanes are combined once for each part
_ACCESS = 3.0  # what a read or write costs, in additions
_MOST_OFFSET, _MOST_STEP = 1 << 31, 1 << 15  # no index plus such an offset, times such a step, overflows

# What a comparison of a growing value with a fixed one is called from the other side.
_MIRRORED = {less: greater, less_equal: greater_equal, greater: less, greater_equal: less_equal}


def split_index_sets(nest: LoopNest) -> LoopNest:
    """Splits loops of a kernel without lanes where a comparison of the index decides what an iteration computes."""
    stages = nest.kernel.stages
    if nest.lanes > 1 or not nest.kernel.indexed_buffers:
        return nest
    proves = nest.target.uses("eliminate_bounds_checks")
    bodies = [_with_split_loops(stage.body, proves) for stage in stages]
    return nest.with_stages(tuple([replace(s, body=body) for s, body in zip(stages, bodies, strict=True)]))


@lru_cache(maxsize=1024)
def _with_split_loops(function: Function, proves: bool) -> Function:
    if not uses_any([function], _MIRRORED):
        return function
    (changed,) = rewrite_functions(Module((function,)), lambda inner: map_results(inner, _rewrite_loop)).functions
    return prove_in_range(changed) if proves and changed is not function else changed


def _rewrite_loop(node: Node) -> Node | None:
    if node.op is not for_loop:
        return get_of_make(node)
    parts = _split(node, _MOST_SPLITS)
    return None if parts is None else make_tuple(*parts)


# --- comparisons ------------------------------------------------------------------------------------------------------


class _Comparison(NamedTuple):
    """`offset + step * index` against a value that the loop does not change.

    From some iteration on it holds (`holds_later`), or it does until then: the first with `offset + step * index >=
    value`."""

    node: Node
    offset: int
    step: int
    value: Node
    holds_later: bool


def _comparisons(body: Function, carried: int) -> Iterator[_Comparison]:
    invariant = _Invariants(body, carried)
    for node in nodes_of(body):
        if node.op not in _MIRRORED or node.operands[0].type is not i64:
            continue
        for op, moving, value in ((node.op, *node.operands), (_MIRRORED[node.op], *node.operands[::-1])):
            form = _growing(moving, body.parameters[0])
            if form is not None and invariant.holds(value):
                # a > v is a - 1 >= v, and its negation a <= v
                strict = op in (greater, less_equal)
                yield _Comparison(node, form[0] - strict, form[1], value, op in (greater, greater_equal))


def _growing(node: Node, index: Node) -> tuple[int, int] | None:
    """A value as `offset + step * index` with a positive step; None if it is none."""
    form = affine_form(node)
    step = form.coefficients.get(index, 0)
    if len(form.coefficients) != 1 or not 0 < step < _MOST_STEP or abs(form.constant) >= _MOST_OFFSET:
        return None
    return form.constant, step


class _Invariants:
    """Which values of a body are the same in all iterations and can be computed before the loop."""

    def __init__(self, body: Function, carried: int) -> None:
        self._changing = frozenset(body.parameters[: 1 + carried])

    def holds(self, value: Node) -> bool:
        for node in toposort([value]):
            if node in self._changing or node.may_fail or (node.operands and not node.op.elementwise):
                return False
        return True


def _groups(body: Function, carried: int) -> list[list[_Comparison]]:
    """Comparisons with one value that change within an iteration or two of each other."""
    groups: dict[tuple[Node, int], list[_Comparison]] = {}
    for comparison in _comparisons(body, carried):
        groups.setdefault((comparison.value, comparison.step), []).append(comparison)
    return [
        comparisons
        for comparisons in groups.values()
        if max(c.offset for c in comparisons) - min(c.offset for c in comparisons) <= comparisons[0].step
    ]


# --- parts ------------------------------------------------------------------------------------------------------------


def _split(loop: Node, splits: int) -> list[Node] | None:
    """The results of the loops that a loop is split into; None if splitting does not pay."""
    body, carried = loop.attribute("body"), loop.attribute("carried")
    if not splits or len(nodes_of(body)) > _MOST_NODES or any(isinstance(type, Tape) for type in body.result_types):
        return None
    groups = [(cost, _decided(body, cost, False), _decided(body, cost, True)) for cost in _groups(body, carried)]
    groups = [(cost, early, late) for cost, early, late in groups if early.checks_all and late.checks_all]
    before = _cost(body)
    costs = [[_cost(part.body) for part in parts] for _, *parts in groups]
    gain, best = max([(before - min(cost), best) for best, cost in enumerate(costs)], default=(0.0, 0))
    if gain <= _LEAST_SAVED * before:
        return None
    group, (early, _), (late, _) = groups[best]
    few = (constant_integer(loop.operands[0]) or 0) < _LONG_REDUCTION
    if _lanes_of(loop) > 1 and few and not (_is_trivial(early) or _is_trivial(late)):
        return None  # two reductions in lanes would be combined twice
    return _run_parts(loop, group, early, late, splits - 1)


class _Part(NamedTuple):
    """The body of iterations in which some comparisons are decided, and whether it checks all that the body checks."""

    body: Function
    checks_all: bool


def _decided(body: Function, group: list[_Comparison], later: bool) -> _Part:
    """The body of iterations in which all comparisons of a group are decided."""
    decided = {c.node: constant(c.holds_later is later, bool_) for c in group}
    checks = tuple([node for node in nodes_of(body) if node.may_fail])
    results = substitute((*body.results, *checks), decided, body.source_locations)
    simplified = simplify_function(Function(body.name, body.parameters, results))
    simplified = map_results(simplified, _without_needless_write)
    number = len(body.results)
    part = Function(body.name, body.parameters, simplified.results[:number])
    kept = set(nodes_of(part))
    checks_all = all(check in kept or not check.may_fail for check in simplified.results[number:])
    return _Part(part, checks_all and _nested_checks(body) <= _nested_checks(part))


def _nested_checks(function: Function) -> set[Node]:
    """What the functions that a function runs may find wrong."""
    nested = reachable_functions(functions_in(function))
    return {node for inner in nested for node in nodes_of(inner) if node.may_fail}


def _without_needless_write(node: Node) -> Node | None:
    """A write of the value that is already there is removed."""
    if node.op is not assign or node.may_fail or node.operands[1].op is not lookup:
        return None
    target, value = node.operands[:2]
    return target if value.operands[0] is target and indices_of(value) == indices_of(node) else None


def _cost(function: Function) -> float:
    """About how many additions the body of a loop is worth."""
    total = 0.0
    for node in nodes_of(function):
        if node.functions:
            count = constant_integer(node.operands[0]) if node.op is for_loop else 1
            total += (_GUESSED_ITERATIONS if count is None else count) * max(map(_cost, node.functions))
        elif indices_of(node):
            total += _ACCESS
        elif node.op is not parameter_op and isinstance(node.type, Scalar):
            total += node.op.cost
    return total


def _run_parts(loop: Node, group: list[_Comparison], early: Function, late: Function, splits: int) -> list[Node]:
    """Three loops: before any of the comparisons changes, while they change, and after all have changed."""
    count, carried = _folded(maximum(loop.operands[0], constant(0, i64))), loop.attribute("carried")
    arguments = dict(zip(loop.attribute("body").parameters[1:], loop.operands[1:], strict=True))
    ends = [_first_above(c, substitute([c.value], arguments)[0], count) for c in _extremes(group)]
    bounds = [constant(0, i64), *ends, count]
    bodies = [early, loop.attribute("body"), late] if len(ends) == 2 else [early, late]
    parts = [(low, high, body) for low, high, body in zip(bounds, bounds[1:], bodies, strict=False)]
    state = list(loop.operands[1 : 1 + carried])
    for low, high, body in reversed(parts) if loop.attribute("reverse") else parts:
        state = _run_part(loop, state, low, high, body, splits)
    return state


def _extremes(group: list[_Comparison]) -> list[_Comparison]:
    """The comparison that changes first and the one that changes last, if they are different."""
    first, last = (choose(group, key=lambda c: c.offset) for choose in (max, min))
    return [first] if first.offset == last.offset else [first, last]


def _first_above(comparison: _Comparison, value: Node, count: Node) -> Node:
    """The first iteration whose index times the step, plus the offset, is not below a value; at most their number."""
    offset, step = comparison.offset, comparison.step
    within = minimum(maximum(value, constant(offset, i64)), _plus(count * step if step > 1 else count, offset))
    distance = _plus(within, -offset)
    return _folded(distance if step == 1 else floor_div(_plus(distance, step - 1), constant(step, i64)))


def _plus(node: Node, number: int) -> Node:
    return node + constant(number, i64) if number else node


def _folded(node: Node) -> Node:
    """The number that an expression of numbers is."""
    return simplify_function(Function("bound", (), (node,))).results[0] if not _open(node) else node


def _open(node: Node) -> bool:
    return any(inner.op is parameter_op for inner in toposort([node]))


def _run_part(loop: Node, state: list[Node], low: Node, high: Node, body: Function, splits: int) -> list[Node]:
    """The state after the iterations from `low` to `high`."""
    carried = loop.attribute("carried")
    count = high if is_constant(low, 0) else sub(high, low)
    last = _after_last(body, state, count)
    if last is not None:
        return last
    captured = loop.operands[1 + carried :]
    shifted = _shifted(body) if not is_constant(low, 0) else body
    operands = (count, *state, *captured, *([low] if shifted is not body else []))
    changes = {"body": shifted}
    again = make_node(for_loop, operands, tuple([(k, changes.get(k, v)) for k, v in loop.attributes]))
    parts = _split(again, splits)
    return [get(again, index=index) for index in range(carried)] if parts is None else parts


def _shifted(body: Function) -> Function:
    """The body for iterations from a further argument on."""
    parameters = parameters_of([*body.parameter_types, i64])
    index = add(parameters[0], parameters[-1])
    replacements = dict(zip(body.parameters, (index, *parameters[1:-1]), strict=True))
    return Function(body.name, parameters, substitute(body.results, replacements, body.source_locations))


def _lanes_of(loop: Node) -> int:
    return dict(loop.attributes).get("lanes", 1)


def _is_trivial(body: Function) -> bool:
    return _after_last(body, list(body.parameters[1 : 1 + len(body.results)]), constant(1, i64)) is not None


def _after_last(body: Function, state: list[Node], count: Node) -> list[Node] | None:
    """The state after iterations that change nothing, or add zero; None after others.

    To add zero once is to add it any number of times: it only makes 0.0 of -0.0."""
    after: list[Node] = []
    for result, parameter, value in zip(body.results, body.parameters[1:], state, strict=False):
        if result is parameter:
            after.append(value)
        elif result.op is add and parameter in result.operands and any(is_constant(o, 0.0) for o in result.operands):
            added = substitute([result], {parameter: value})[0]
            after.append(select(count > constant(0, i64), added, value))
        else:
            return None
    return after

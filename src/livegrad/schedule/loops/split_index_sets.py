"""Index-set splitting: splits a loop where a comparison of its index changes, so that the parts need no comparison.

`where(columns > k, a - b, a)` in a loop over columns needs no comparison from column k + 1 on, and changes nothing
before. A part omits what only the other part needs: loads, inner loops, or everything.
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

_MOST_NODES = 600  # in a body, because each part is a copy of it
_MOST_SPLITS = 2  # successive splits of one loop
_LEAST_SAVED = 0.25  # the share of a body's cost that one of the parts must save
_GUESSED_ITERATIONS = 32
_LONG_REDUCTION = 64  # terms; combining the lanes once for each part is negligible for longer reductions
_ACCESS = 3.0  # the cost of a read or write, in additions
_MOST_OFFSET, _MOST_STEP = 1 << 31, 1 << 15  # an index plus such an offset, times such a step, does not overflow

# The comparison with swapped operands.
_MIRRORED = {less: greater, less_equal: greater_equal, greater: less, greater_equal: less_equal}


def split_index_sets(nest: LoopNest) -> LoopNest:
    """Splits loops of a kernel without lanes at comparisons of the index with an invariant value."""
    stages = nest.kernel.stages
    if nest.lanes > 1 or not nest.kernel.indexed_buffers:
        return nest
    proves = nest.target.uses("eliminate_bounds_checks")
    bodies = [_split_loops(stage.body, proves) for stage in stages]
    return nest.with_stages(tuple([replace(s, body=body) for s, body in zip(stages, bodies, strict=True)]))


@lru_cache(maxsize=1024)
def _split_loops(function: Function, proves: bool) -> Function:
    if not uses_any([function], _MIRRORED):
        return function
    (split,) = rewrite_functions(Module((function,)), lambda inner: map_results(inner, _rewrite_loop)).functions
    return prove_in_range(split) if proves and split is not function else split


def _rewrite_loop(node: Node) -> Node | None:
    if node.op is not for_loop:
        return get_of_make(node)
    parts = _split(node, _MOST_SPLITS)
    return None if parts is None else make_tuple(*parts)


# --- comparisons ------------------------------------------------------------------------------------------------------


class _Comparison(NamedTuple):
    """A comparison of `offset + step * index` with a loop-invariant value.

    It changes at the first iteration with `offset + step * index >= value`: it holds from there on (`holds_later`), or
    until then.
    """

    node: Node
    offset: int
    step: int
    value: Node
    holds_later: bool


def _find_comparisons(body: Function, carried: int) -> Iterator[_Comparison]:
    invariant = _Invariants(body, carried)
    for node in nodes_of(body):
        if node.op not in _MIRRORED or node.operands[0].type is not i64:
            continue
        for op, varying, value in ((node.op, *node.operands), (_MIRRORED[node.op], *node.operands[::-1])):
            form = _match_affine(varying, body.parameters[0])
            if form is not None and invariant.holds(value):
                # a > v is a - 1 >= v, and its negation a <= v
                strict = op in (greater, less_equal)
                yield _Comparison(node, form[0] - strict, form[1], value, op in (greater, greater_equal))


def _match_affine(node: Node, index: Node) -> tuple[int, int] | None:
    """The (offset, step) of a value `offset + step * index` with a positive step; None for other values."""
    form = affine_form(node)
    step = form.coefficients.get(index, 0)
    if len(form.coefficients) != 1 or not 0 < step < _MOST_STEP or abs(form.constant) >= _MOST_OFFSET:
        return None
    return form.constant, step


class _Invariants:
    """Decides which values of a body are loop-invariant and can be computed before the loop."""

    def __init__(self, body: Function, carried: int) -> None:
        self._varying = frozenset(body.parameters[: 1 + carried])

    def holds(self, value: Node) -> bool:
        for node in toposort([value]):
            if node in self._varying or node.may_fail or (node.operands and not node.op.elementwise):
                return False
        return True


def _group_comparisons(body: Function, carried: int) -> list[list[_Comparison]]:
    """Groups comparisons with the same value that change within two iterations of each other."""
    groups: dict[tuple[Node, int], list[_Comparison]] = {}
    for comparison in _find_comparisons(body, carried):
        groups.setdefault((comparison.value, comparison.step), []).append(comparison)
    return [
        comparisons
        for comparisons in groups.values()
        if max(c.offset for c in comparisons) - min(c.offset for c in comparisons) <= comparisons[0].step
    ]


# --- parts ------------------------------------------------------------------------------------------------------------


def _split(loop: Node, splits: int) -> list[Node] | None:
    """The results of the parts of a split loop; None if splitting does not pay off."""
    body, carried = loop.attribute("body"), loop.attribute("carried")
    if not splits or len(nodes_of(body)) > _MOST_NODES or any(isinstance(type, Tape) for type in body.result_types):
        return None
    splits_of_group = [
        (group, _specialise(body, group, False), _specialise(body, group, True))
        for group in _group_comparisons(body, carried)
    ]
    valid = [(group, early, late) for group, early, late in splits_of_group if early.checks_all and late.checks_all]
    total = _cost(body)
    costs = [[_cost(part.body) for part in parts] for _, *parts in valid]
    gain, best = max([(total - min(cost), index) for index, cost in enumerate(costs)], default=(0.0, 0))
    if gain <= _LEAST_SAVED * total:
        return None
    group, (early, _), (late, _) = valid[best]
    is_short = (constant_integer(loop.operands[0]) or 0) < _LONG_REDUCTION
    if _lanes_of(loop) > 1 and is_short and not (_is_trivial(early) or _is_trivial(late)):
        return None  # the lanes of two reductions would be combined twice
    return _run_parts(loop, group, early, late, splits - 1)


class _Part(NamedTuple):
    """A body specialised to the results of some comparisons, and whether it retains all checks of the original body."""

    body: Function
    checks_all: bool


def _specialise(body: Function, group: list[_Comparison], later: bool) -> _Part:
    """Specialises a body to the iterations before, or after, all comparisons of a group change."""
    constants = {c.node: constant(c.holds_later is later, bool_) for c in group}
    checks = tuple([node for node in nodes_of(body) if node.may_fail])
    results = substitute((*body.results, *checks), constants, body.source_locations)
    simplified = simplify_function(Function(body.name, body.parameters, results))
    simplified = map_results(simplified, _drop_redundant_write)
    result_count = len(body.results)
    part = Function(body.name, body.parameters, simplified.results[:result_count])
    remaining = set(nodes_of(part))
    checks_all = all(check in remaining or not check.may_fail for check in simplified.results[result_count:])
    return _Part(part, checks_all and _nested_checks(body) <= _nested_checks(part))


def _nested_checks(function: Function) -> set[Node]:
    """The nodes that may fail in the nested functions of a function."""
    nested = reachable_functions(functions_in(function))
    return {node for inner in nested for node in nodes_of(inner) if node.may_fail}


def _drop_redundant_write(node: Node) -> Node | None:
    """Removes a write of the value that is already there."""
    if node.op is not assign or node.may_fail or node.operands[1].op is not lookup:
        return None
    target, value = node.operands[:2]
    return target if value.operands[0] is target and indices_of(value) == indices_of(node) else None


def _cost(function: Function) -> float:
    """Estimates the cost of the body of a loop, in additions."""
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
    """Runs up to three loops: before any of the comparisons changes, while they change, and after all have changed."""
    count, carried = _fold(maximum(loop.operands[0], constant(0, i64))), loop.attribute("carried")
    arguments = dict(zip(loop.attribute("body").parameters[1:], loop.operands[1:], strict=True))
    ends = [_first_iteration_above(c, substitute([c.value], arguments)[0], count) for c in _first_and_last(group)]
    bounds = [constant(0, i64), *ends, count]
    bodies = [early, loop.attribute("body"), late] if len(ends) == 2 else [early, late]
    parts = [(low, high, body) for low, high, body in zip(bounds, bounds[1:], bodies, strict=False)]
    state = list(loop.operands[1 : 1 + carried])
    for low, high, body in reversed(parts) if loop.attribute("reverse") else parts:
        state = _run_part(loop, state, low, high, body, splits)
    return state


def _first_and_last(group: list[_Comparison]) -> list[_Comparison]:
    """The comparison that changes first and the one that changes last, if they are different."""
    first, last = (choose(group, key=lambda c: c.offset) for choose in (max, min))
    return [first] if first.offset == last.offset else [first, last]


def _first_iteration_above(comparison: _Comparison, value: Node, count: Node) -> Node:
    """The first iteration with `offset + step * index >= value`, at most `count`."""
    offset, step = comparison.offset, comparison.step
    clamped = minimum(maximum(value, constant(offset, i64)), _plus(count * step if step > 1 else count, offset))
    distance = _plus(clamped, -offset)
    return _fold(distance if step == 1 else floor_div(_plus(distance, step - 1), constant(step, i64)))


def _plus(node: Node, value: int) -> Node:
    return node + constant(value, i64) if value else node


def _fold(node: Node) -> Node:
    """Folds an expression of constants."""
    return simplify_function(Function("bound", (), (node,))).results[0] if not _has_parameters(node) else node


def _has_parameters(node: Node) -> bool:
    return any(inner.op is parameter_op for inner in toposort([node]))


def _run_part(loop: Node, state: list[Node], low: Node, high: Node, body: Function, splits: int) -> list[Node]:
    """The state after the iterations from `low` to `high`."""
    carried = loop.attribute("carried")
    count = high if is_constant(low, 0) else sub(high, low)
    final = _state_after(body, state, count)
    if final is not None:
        return final
    captured = loop.operands[1 + carried :]
    shifted_body = _shift_iterations(body) if not is_constant(low, 0) else body
    operands = (count, *state, *captured, *([low] if shifted_body is not body else []))
    changes = {"body": shifted_body}
    part = make_node(for_loop, operands, tuple([(k, changes.get(k, v)) for k, v in loop.attributes]))
    parts = _split(part, splits)
    return [get(part, index=index) for index in range(carried)] if parts is None else parts


def _shift_iterations(body: Function) -> Function:
    """A body whose index starts at an additional argument."""
    parameters = parameters_of([*body.parameter_types, i64])
    index = add(parameters[0], parameters[-1])
    replacements = dict(zip(body.parameters, (index, *parameters[1:-1]), strict=True))
    return Function(body.name, parameters, substitute(body.results, replacements, body.source_locations))


def _lanes_of(loop: Node) -> int:
    return dict(loop.attributes).get("lanes", 1)


def _is_trivial(body: Function) -> bool:
    """Whether iterations change nothing, or only add zero."""
    return _state_after(body, list(body.parameters[1 : 1 + len(body.results)]), constant(1, i64)) is not None


def _state_after(body: Function, state: list[Node], count: Node) -> list[Node] | None:
    """The state after iterations that change nothing or add zero; None for other bodies.

    Adding zero once is the same as adding it repeatedly: it only turns -0.0 into 0.0.
    """
    after: list[Node] = []
    for result, parameter, value in zip(body.results, body.parameters[1:], state, strict=False):
        if result is parameter:
            after.append(value)
        elif result.op is add and parameter in result.operands and any(is_constant(o, 0.0) for o in result.operands):
            total = substitute([result], {parameter: value})[0]
            after.append(select(count > constant(0, i64), total, value))
        else:
            return None
    return after

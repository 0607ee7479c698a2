"""Loop versioning: checks the indices of an innermost loop once before it runs.

An index that changes by a constant in each iteration is in range if its first and its last value are. In that case, a
version of the loop without checks runs; otherwise the original loop runs and reports the index out of range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, reduce
from typing import NamedTuple

from livegrad.ir.function import map_results
from livegrad.ir.leaves import constant, constant_op, is_constant, parameter_op
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.types import Tape, Tensor, i64
from livegrad.ir.walk import functions_in, nodes_of, ops_below, reachable_functions, substitute, toposort
from livegrad.ops.affine import AffineForm, linear_form
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.assignment import indices_of
from livegrad.ops.comparison import bit_and, bit_or, bit_xor, greater, greater_equal, less
from livegrad.ops.control import call, cond, for_loop, parameters_of
from livegrad.ops.elementwise import add, mul, select
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.functions import rewrite_functions, uses_any
from livegrad.passes.regions import LOOPS
from livegrad.schedule.loops.nest import LoopNest

# With steps, factors and iterations below these limits, no index overflows between two values in range.
_MOST_STEP, _MOST_ITERATIONS = 1 << 15, 1 << 32


def version_loops(nest: LoopNest) -> LoopNest:
    """Lets innermost loops of a kernel without lanes check indices once, before they run."""
    stages = nest.kernel.stages
    if nest.lanes > 1 or not nest.kernel.indexed_buffers:
        return nest
    bodies = [_version_function(stage.body) for stage in stages]
    return nest.with_stages(tuple([replace(s, body=body) for s, body in zip(stages, bodies, strict=True)]))


@lru_cache(maxsize=1024)
def _version_function(function: Function) -> Function:
    if not uses_any([function], (for_loop,)):
        return function
    (versioned,) = rewrite_functions(Module((function,)), lambda inner: map_results(inner, _version_loop)).functions
    return versioned


def _version_loop(node: Node) -> Node | None:
    if node.op is not for_loop:
        return get_of_make(node)
    body, carried = node.attribute("body"), node.attribute("carried")
    # Empty tapes are one node. A loop that writes several of them needs copies, which a branch does not create.
    writes_tapes = any(isinstance(type, Tape) for type in body.result_types)
    proof = None if writes_tapes or ops_below(body) & {*LOOPS, call} else _find_proof(body, carried)
    if not proof:
        return None
    then, otherwise = (_wrap_loop(node, version) for version in (_remove_checks(body, proof), body))
    result = cond(_build_range_test(node, proof), *node.operands, then=then, otherwise=otherwise)
    return result if len(body.results) > 1 else make_tuple(result)


def _wrap_loop(loop: Node, body: Function) -> Function:
    """A function of the loop's operands that runs the loop with another body."""
    parameters = parameters_of([operand.type for operand in loop.operands])
    version = make_node(for_loop, parameters, tuple([(k, body if k == "body" else v) for k, v in loop.attributes]))
    return Function("loop", parameters, tuple([get(version, index=index) for index in range(len(body.results))]))


# --- which indices can be checked before the loop --------------------------------------------------------------------


# The change of an index in one iteration: a constant, or a multiple of a loop-invariant value.
_Slope = AffineForm[Node]
_CONSTANT = _Slope()


class _InRange(NamedTuple):
    """An index, with the values that prove it in range if their first and last values are in [0, size)."""

    value: Node  # the index without wrap-around of negative values
    ends: tuple[tuple[Node, int, _Slope], ...]


_Proof = Mapping[Node, _InRange]


def _find_proof(body: Function, carried: int) -> _Proof | None:
    """The indices to check before the loop; None if some index cannot be checked before the loop."""
    proof: dict[Node, _InRange] = {}
    nested = [node for function in reachable_functions(functions_in(body)) for node in nodes_of(function)]
    if any(_unproved_indices(node) for node in nested):
        return None
    for node in nodes_of(body):
        for index, size in _unproved_indices(node):
            value = _strip_wrap(index, size)
            ends = _find_ends(value, size, body, carried)
            checked = proof.get(index)
            if ends is None or (checked is not None and checked.value is not value):
                return None
            proof[index] = _InRange(value, ends if checked is None else (*checked.ends, *ends))
    return proof


def _find_ends(value: Node, size: int, body: Function, carried: int) -> tuple[tuple[Node, int, _Slope], ...] | None:
    """The (value, size, slope) to check so that a value is below a size: the value itself, or operands of bitwise ops.

    If two integers are below a power of two, so are their `|` and `^`: partners in a butterfly are `i ^ distance`.
    """
    if value.op in (bit_xor, bit_or) and size > 0:
        power = 1 << (size.bit_length() - 1)
        ends = [_find_ends(operand, power, body, carried) for operand in value.operands]
        return None if None in ends else tuple([end for operand in ends if operand is not None for end in operand])
    slope = _slope(value, body, carried)
    return None if slope is None else ((value, size, slope),)


def _unproved_indices(node: Node) -> list[tuple[Node, int]]:
    """The indices of a read or write that are checked, each with the size of its axis."""
    indices = indices_of(node) if node.op.checked else ()
    if not indices:
        return []
    shape, in_range = _shape(node), dict(node.attributes).get("in_range", ())
    return [(index, shape[axis]) for axis, index in enumerate(indices) if axis not in in_range]


def _shape(access: Node) -> tuple[int, ...]:
    tensor = access.operands[0].type
    assert isinstance(tensor, Tensor)
    return tensor.shape  # type: ignore[return-value]  # sizes are bound


def _strip_wrap(index: Node, size: int) -> Node:
    """The index without the wrap-around that counts negative values from the end."""
    if index.op is not select:
        return index
    test, wrapped, value = index.operands
    is_wrap = test.op is less and test.operands[0] is value and is_constant(test.operands[1], 0) and wrapped.op is add
    return value if is_wrap and value in wrapped.operands else index


def _slope(index: Node, body: Function, carried: int) -> _Slope | None:
    """The slope of an index, if it is a single small term; None if the slope varies or is unknown."""
    varying = {body.parameters[0]: _Slope(1), **dict.fromkeys(body.parameters[1 : 1 + carried])}
    slopes: dict[Node, _Slope | None] = {}
    for node in toposort([index]):
        if node.may_fail or (node.operands and not node.op.elementwise):
            return None
        slopes[node] = varying.get(node, _CONSTANT) if node.op is parameter_op else _combine_slopes(node, slopes)
    slope = slopes[index]
    if slope is None:
        return None
    terms = [term for term in (slope.constant, *slope.coefficients.values()) if term]
    return slope if len(terms) <= 1 and all(abs(term) < _MOST_STEP for term in terms) else None


def _combine_slopes(node: Node, slopes: Mapping[Node, _Slope | None]) -> _Slope | None:
    operand_slopes = [slopes[operand] for operand in node.operands]
    if all(slope == _CONSTANT for slope in operand_slopes):
        return _CONSTANT
    if node.type is not i64:
        return None
    if node.op is mul:
        first, second = operand_slopes
        if first == _CONSTANT:
            return _scale_slope(second, node.operands[0])
        return _scale_slope(first, node.operands[1]) if second == _CONSTANT else None
    return linear_form(node, operand_slopes)


def _scale_slope(slope: _Slope | None, value: Node) -> _Slope | None:
    """The slope of an index multiplied by an invariant value."""
    if slope is None:
        return None
    if value.op is constant_op:
        return slope.times(value.attribute("value"))
    return None if slope.coefficients else _Slope(0, {value: slope.constant})


# --- the check, and the loop without checks --------------------------------------------------------------------------


def _build_range_test(loop: Node, proof: _Proof) -> Node:
    """Builds the test that the first and the last value of each index are in range."""
    body: Function = loop.attribute("body")
    iterations = loop.operands[0]
    zero, last = constant(0, i64), iterations - constant(1, i64)
    ends = {(value, size): slope for index in proof.values() for value, size, slope in index.ends}
    is_steep = any(abs(slope.constant) > 1 or slope.coefficients for slope in ends.values())
    tests = [less(iterations, constant(_MOST_ITERATIONS, i64))] if is_steep else []

    def before_loop(value: Node, position: Node) -> Node:
        replacements = dict(zip(body.parameters, (position, *loop.operands[1:]), strict=True))
        return substitute([value], replacements)[0]

    for factor in dict.fromkeys(factor for slope in ends.values() for factor in slope.coefficients):
        value = before_loop(factor, zero)
        tests += [greater(value, constant(-_MOST_STEP, i64)), less(value, constant(_MOST_STEP, i64))]
    for (value, size), slope in ends.items():
        for position in (zero, last) if slope != _CONSTANT else (zero,):
            end = before_loop(value, position)
            tests += [greater_equal(end, zero), less(end, constant(size, i64))]
    return reduce(bit_and, tests)


def _remove_checks(body: Function, proof: _Proof) -> Function:
    """The body without checks, for iterations in which all indices are in range."""
    values = {index: checked.value for index, checked in proof.items()}

    def remove_check(node: Node) -> Node | None:
        if node in values and values[node] is not node:
            return values[node]
        if not _unproved_indices(node):
            return None
        return make_node(node.op, node.operands, (("in_range", tuple(range(len(indices_of(node))))),))

    return map_results(body, remove_check)

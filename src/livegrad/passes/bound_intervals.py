"""The `bound_intervals` pass: turns a function into one that computes bounds of its results by interval arithmetic.

Meshers, slicers and renderers evaluate it over boxes to exclude those that no surface can cross. The result is an
ordinary function: it is compiled once and runs over all boxes of a level at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from livegrad import ops
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Type
from livegrad.ir.walk import nodes_of
from livegrad.ops.control import parameters_of
from livegrad.passes.expand import expand_ops
from livegrad.passes.interval_rules import KEEP_INFINITY, RULES
from livegrad.passes.intervals import Interval, entire_interval, entire_where

__all__ = ["Interval", "bound_intervals", "intervals_of"]

CallRule = Callable[[Function, Sequence[Interval]], tuple[Interval, ...]]
_Properties = tuple[tuple[bool, bool, bool], ...]  # of each argument: whether it is a point, unbounded, never negative


@propagates_lines
def bound_intervals(
    function: Function, ranged: Sequence[bool], rules: Mapping[Function, CallRule] | None = None
) -> Function:
    """(low and high of each ranged parameter, other parameters unchanged) → low and high of each result.

    Every value that the function computes for arguments within the bounds lies within the bounds of the result,
    including rounding. `rules` contains bounds for calls of particular functions.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> square = bound_intervals(trace(lambda x: x * x - 1.0, f32), (True,))
    >>> square
    <function <lambda>.bounds(f32, f32) -> (f32, f32)>
    """
    parameters, results = intervals_of(function, ranged, rules)
    flat = tuple(bound for result in results for bound in (result.low, result.high))
    return Function(f"{function.name}.bounds", parameters, flat)


def intervals_of(
    function: Function, ranged: Sequence[bool], rules: Mapping[Function, CallRule] | None = None
) -> tuple[tuple[Node, ...], tuple[Interval, ...]]:
    """The parameters of the function that `bound_intervals` builds, and the interval of each result."""
    types = [t for type, flag in zip(function.parameter_types, ranged, strict=True) for t in ((type,) * (1 + flag))]
    parameters = parameters_of(types)
    fresh = iter(parameters)
    arguments = [Interval(next(fresh), next(fresh)) if flag else _point(next(fresh)) for flag in ranged]
    return parameters, _Bounds(dict(rules or {})).call(function, arguments)


def _point(node: Node) -> Interval:
    return Interval(node, node)


@dataclass
class _Bounds:
    """Computes the bounds of nodes. Callees get one bounding function for each combination of argument properties."""

    rules: dict[Function, CallRule]
    _bounding_functions: dict[tuple[Function, _Properties], tuple[Function, tuple[Interval, ...]]] = field(
        default_factory=dict
    )

    def call(self, function: Function, arguments: Sequence[Interval]) -> tuple[Interval, ...]:
        rule = self.rules.get(function)
        if rule is not None:
            return rule(function, arguments)
        plain = expand_ops(function, lambda node: node.op.name not in _OPS_WITH_RULES and node.op.expand is not None)
        values: dict[Node, Interval] = {}
        for node in nodes_of(plain):
            with originating_from(node.origins):
                values[node] = self._bound_node(node, values, arguments)
        return tuple(values[result] for result in plain.results)

    def _bound_node(self, node: Node, values: dict[Node, Interval], arguments: Sequence[Interval]) -> Interval:
        if node.op is parameter_op:
            return arguments[node.attribute("index")]
        if node.op is constant_op:
            return _point(node)
        operands = [values[operand] for operand in node.operands]
        if node.op is ops.call and node.attribute("function") in self.rules:
            return _pack_results(node.type, self.call(node.attribute("function"), operands))
        if node.op is ops.call and not all(operand.is_point for operand in operands):
            return _pack_results(node.type, self._bound_call(node.attribute("function"), operands))
        if all(operand.is_point for operand in operands):
            # The value is the same for the whole box. This covers loops and reads of tensors too.
            return _point(node.op(*[operand.low for operand in operands], **dict(node.attributes)))
        rule = RULES.get(node.op.name)
        if rule is None:
            return entire_interval(node.type)
        bounds, unbounded = rule(node, *operands), [operand for operand in operands if operand.unbounded]
        if unbounded and node.op.name not in KEEP_INFINITY:
            finite = reduce(ops.bit_and, [ops.is_finite(end) for operand in unbounded for end in operand.ends])
            bounds = entire_where(~finite, bounds)
        return replace(bounds, unbounded=True) if unbounded or bounds.unbounded else bounds

    def _bound_call(self, function: Function, operands: Sequence[Interval]) -> tuple[Interval, ...]:
        """Bounds a call by a call of the callee's bounding function."""
        properties = tuple((operand.is_point, operand.unbounded, operand.nonnegative) for operand in operands)
        if (function, properties) not in self._bounding_functions:
            self._bounding_functions[function, properties] = self._build_bounding_function(function, operands)
        bounding, results = self._bounding_functions[function, properties]
        ends = [end for operand in operands for end in operand.ends]
        value = ops.call(*ends, function=bounding)
        count = len(bounding.results)
        supply = iter([value] if count == 1 else [ops.get(value, index=index) for index in range(count)])

        def move_to_caller(result: Interval) -> Interval:
            if result.is_point:
                point = result.low if result.low.op is constant_op else next(supply)
                return replace(result, low=point, high=point)
            return replace(result, low=next(supply), high=next(supply))

        return tuple(map(move_to_caller, results))

    def _build_bounding_function(
        self, function: Function, operands: Sequence[Interval]
    ) -> tuple[Function, tuple[Interval, ...]]:
        """Builds (ends of each operand) → ends of each result that is not constant; also returns its intervals."""
        parameters = parameters_of([end.type for operand in operands for end in operand.ends])
        fresh = iter(parameters)
        arguments = []
        for operand in operands:
            low = next(fresh)
            arguments.append(replace(operand, low=low, high=low if operand.is_point else next(fresh)))
        results = self.call(function, arguments)
        ends = [end for result in results for end in result.ends if end.op is not constant_op or not result.is_point]
        return Function(f"{function.name}.bounds", parameters, tuple(ends or parameters[:1])), results


_OPS_WITH_RULES = frozenset(RULES)


def _pack_results(type: Type, results: tuple[Interval, ...]) -> Interval:
    if len(results) == 1:
        return results[0]
    return Interval(
        ops.make(*[result.low for result in results], type=type),
        ops.make(*[result.high for result in results], type=type),
    )

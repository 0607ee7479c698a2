"""Marks calls of distance functions. They are 1-Lipschitz, which gives their bounds over a box for free.

`to_ir` calls distances to meshes and lattices through this module; `pruning` recognises these calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakSet

from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Vector
from livegrad.ir.walk import reachable_functions
from livegrad.ops.aggregate import members_of
from livegrad.passes.interval_rules import Interval

_ROUNDING = 1e-5
_distances: WeakSet[Function] = WeakSet()  # equal functions are the same distance


def distance_call(rule: Callable[..., Node], position: Node, tables: Sequence[Node]) -> Node:
    """Calls the function that `rule` traces to, and registers it as a distance."""
    types = [position.type, *[table.type for table in tables]]
    call = ops.call(position, *tables, function=trace(rule, *types, name=rule.__name__))
    _distances.add(call.attribute("function"))
    return call


def distance_rules(
    function: Function,
) -> dict[Function, Callable[[Function, Sequence[Interval]], tuple[Interval, ...]]]:
    """Bounds for the distances that a function calls."""
    return {inner: _bounds for inner in reachable_functions([function]) if inner in _distances}


def _bounds(function: Function, arguments: Sequence[Interval]) -> tuple[Interval, ...]:
    """The distance at the box's centre, plus or minus half its diagonal."""
    position, *tables = arguments
    assert isinstance(position.low.type, Vector)
    half = ops.length(position.high - position.low) * 0.5
    centre = position.low + (position.high - position.low) * 0.5
    distance = ops.call(centre, *[table.low for table in tables], function=function)
    size = ops.abs(members_of(centre)[0])
    for coordinate in members_of(centre)[1:]:
        size = ops.max(size, ops.abs(coordinate))
    reach = half * (1.0 + _ROUNDING) + (size + ops.abs(distance)) * _ROUNDING
    return (Interval(distance - reach, distance + reach),)

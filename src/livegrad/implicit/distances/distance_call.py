"""Registers distance functions. They are 1-Lipschitz, so one value bounds them over a box.

`to_ir` calls distances to meshes and lattices through this module; `pruning` uses their interval rule.
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
    """Traces `rule`, registers the function as a distance and calls it."""
    types = [position.type, *[table.type for table in tables]]
    call = ops.call(position, *tables, function=trace(rule, *types, name=rule.__name__))
    _distances.add(call.attribute("function"))
    return call


def distance_rules(
    function: Function,
) -> dict[Function, Callable[[Function, Sequence[Interval]], tuple[Interval, ...]]]:
    """The interval rules of the distances that a function calls."""
    return {callee: _bound_distance for callee in reachable_functions([function]) if callee in _distances}


def _bound_distance(function: Function, arguments: Sequence[Interval]) -> tuple[Interval, ...]:
    """The distance at the centre of the box, plus or minus half of its diagonal and a rounding margin."""
    position, *tables = arguments
    assert isinstance(position.low.type, Vector)
    half_diagonal = ops.length(position.high - position.low) * 0.5
    centre = position.low + (position.high - position.low) * 0.5
    distance = ops.call(centre, *[table.low for table in tables], function=function)
    magnitude = ops.abs(members_of(centre)[0])
    for coordinate in members_of(centre)[1:]:
        magnitude = ops.max(magnitude, ops.abs(coordinate))
    radius = half_diagonal * (1.0 + _ROUNDING) + (magnitude + ops.abs(distance)) * _ROUNDING
    return (Interval(distance - radius, distance + radius),)

"""A part's function as native code over arrays of x, y and z: values, and exact gradients.

`Part` evaluates points with it; pruning and min/max pruning start from the function of three coordinates.
"""

from __future__ import annotations

from typing import Any

from livegrad import ops
from livegrad.implicit.nodes.exact_gradient import exact_gradient
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ir.types import scalar_of
from livegrad.ops.aggregate import make_vector
from livegrad.ops.control import map_over
from livegrad.runtime.cpu import DerivedFunction
from livegrad.state import memo


@memo(256)
def over_points(function: Function) -> Any:
    """A function of a position as native code over arrays of x, y and z; the other arguments are shared."""
    return DerivedFunction(function, "points", _over_points)


@memo(256)
def gradients_over_points(function: Function) -> Any:
    """A function's normal, gradient and its length, as native code over arrays of x, y and z."""
    return DerivedFunction(function, "gradients", lambda source: _over_points(_gradient_function(source)))


def _over_points(function: Function) -> Function:
    return map_over(by_coordinates(function), (True, True, True, *[False] * (len(function.parameters) - 1)))


def by_coordinates(function: Function) -> Function:
    """Converts a function of position to a function of three coordinates: separate arrays load faster than triples."""
    element = scalar_of(function.parameter_types[0])
    assert element is not None
    coordinates = [input_node(Key(axis), element) for axis in "xyz"]
    others = [input_node(Key("argument"), type) for type in function.parameter_types[1:]]
    value = ops.call(make_vector(*coordinates), *others, function=function)
    result_count = len(function.results)
    results = [value] if result_count == 1 else [ops.get(value, index=index) for index in range(result_count)]
    return make_function(function.name, [*coordinates, *others], results)


def _gradient_function(function: Function) -> Function:
    inputs = [input_node(Key("argument"), type) for type in function.parameter_types]
    return make_function(f"{function.name}.gradient", inputs, exact_gradient(function, inputs, 0))

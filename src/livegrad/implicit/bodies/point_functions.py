"""Compiles functions of position for arrays of x, y and z: values, gradients, and derivatives by parameters.

`Part` evaluates points with them. `pruning` and `masking` start from the function of three coordinates.
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
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import DerivedFunction, compile_function
from livegrad.state import memo


@memo(256)
def compile_over_points(function: Function) -> Any:
    """Native code: (x, y, z, arguments) → values of a function of position. All points share the arguments."""
    return DerivedFunction(function, "points", _map_over_points)


@memo(256)
def compile_gradients(function: Function) -> Any:
    """Native code: (x, y, z, arguments) → normals, gradients and gradient lengths of a function of position."""
    return DerivedFunction(function, "gradients", lambda source: _map_over_points(_gradient_function(source)))


def _map_over_points(function: Function) -> Function:
    return map_over(separate_coordinates(function), (True, True, True, *[False] * (len(function.parameters) - 1)))


def separate_coordinates(function: Function) -> Function:
    """Converts a function of position to a function of x, y and z: separate arrays load faster than triples."""
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


@memo(64)
def compile_parameter_gradients(function: Function, parameters: int) -> Any:
    """Native code: (x, y, z, weight, arguments) → weighted derivatives with respect to the parameters, at each point.

    `function` takes three coordinates and its arguments; the first `parameters` arguments are the parameters.
    """
    inputs = [input_node(Key("input"), type) for type in function.parameter_types]
    weight = input_node(Key("weight"), function.result_types[0])
    cotangents = ops.bwd_diff(*inputs, weight, function=function)
    results = [ops.get(cotangents, index=3 + index) for index in range(parameters)]
    weighted = make_function(f"{function.name}.slopes", [*inputs[:3], weight, *inputs[3:]], results)
    return compile_function(map_over(weighted, (*[True] * 4, *[False] * (len(inputs) - 3))))

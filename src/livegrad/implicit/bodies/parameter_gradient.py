"""Derivatives with respect to the parameters of a part, for `Part.parameter_gradient`."""

from __future__ import annotations

from typing import Any

from livegrad import ops
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ops.control import map_over
from livegrad.runtime.cpu import compile_function
from livegrad.state import memo


@memo(64)
def slopes_over_points(function: Function, parameters: int) -> Any:
    """Native code: (x, y, z, weight, arguments) → weighted derivatives with respect to the parameters, at every point.

    `function` takes three coordinates and its arguments; the first `parameters` arguments are the parameters.
    """
    inputs = [input_node(Key("input"), type) for type in function.parameter_types]
    weight = input_node(Key("weight"), function.result_types[0])
    slopes = ops.bwd_diff(*inputs, weight, function=function)
    results = [ops.get(slopes, index=3 + index) for index in range(parameters)]
    weighted = make_function(f"{function.name}.slopes", [*inputs[:3], weight, *inputs[3:]], results)
    return compile_function(map_over(weighted, (*[True] * 4, *[False] * (len(inputs) - 3))))

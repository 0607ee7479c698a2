"""Analytic gradients of functions of position: the limit of the central differences of gradient nodes.

`to_ir` calls these for gradient nodes in exact mode; parts use them for normals. The `differentiate` pass expands the
derivative ops.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad import ops
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, differential_of
from livegrad.ops.aggregate import get, make_vector
from livegrad.ops.rules import filled, zero
from livegrad.passes.inline_calls import grows_when_inlined

SMALLEST_LENGTH = 1e-8  # gradients shorter than this have no direction


def exact_gradient(function: Function, arguments: Sequence[Node], position: int) -> tuple[Node, Node, Node]:
    """The normalised gradient, the gradient and its length of a scalar function with respect to one vector argument."""
    element = function.results[0].type
    assert isinstance(element, Scalar)
    gradient = _differentiate(function, arguments, position, element)
    magnitude = ops.length(gradient)
    has_direction = magnitude > SMALLEST_LENGTH
    divisor = ops.select(has_direction, magnitude, filled(1.0, element))
    normalized = ops.select(has_direction, gradient / ops.splat(divisor, type=gradient.type), zero(gradient.type))
    return normalized, gradient, magnitude


def _differentiate(function: Function, arguments: Sequence[Node], position: int, element: Scalar) -> Node:
    if not grows_when_inlined(function):
        cotangents = ops.bwd_diff(*arguments, filled(1.0, element), function=function)
        return get(cotangents, index=position) if len(function.parameters) > 1 else cotangents
    # In reverse mode, a function passes the residuals of its callees to its caller, so residuals double at each level
    # of calls. Forward mode along each axis has no residuals and differentiates each function once.
    derivatives = []
    for axis in range(3):
        direction = make_vector(*[filled(float(axis == column), element) for column in range(3)])
        tangents = [zero(differential_of(argument.type)) for argument in arguments]
        tangents[position] = direction
        derivatives.append(get(ops.fwd_diff(*arguments, *tangents, function=function), index=1))
    return make_vector(*derivatives)


def exact_normalized_distance(function: Function, arguments: Sequence[Node], position: int) -> Node:
    """The value of a function divided by the length of its gradient, or the value where the gradient vanishes."""
    _, _, magnitude = exact_gradient(function, arguments, position)
    value = ops.call(*arguments, function=function)
    has_direction = magnitude > SMALLEST_LENGTH
    return ops.select(has_direction, value / ops.select(has_direction, magnitude, filled(1.0, value.type)), value)

"""Gradients, Jacobian products and Hessians of captured functions, as functions of Python values.

`fwd_diff` and `bwd_diff` are what these are made of; use those inside captured functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegrad.authoring.differentiable.operators import (
    Derivative,
    Resolved,
    backward_of,
    bwd_diff,
    expected_types,
    fwd_diff,
    resolve,
)
from livegrad.authoring.differentiable.pair import pair
from livegrad.authoring.function.captured import CapturedFunction
from livegrad.authoring.function.problems import FunctionError
from livegrad.authoring.function.running import abstract_argument, call_span, is_lifted, run_prepared
from livegrad.authoring.function.signature import Default
from livegrad.authoring.function.types import FrontType, TupleType, ir_of
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ops.aggregate import make
from livegrad.ops.control import call


def _one(type: FrontType, name: str) -> Node:
    if not isinstance(type, ir.Scalar) or type.kind != "float":
        raise FunctionError(
            "LG306",
            f"`{name}` must give one float for a gradient",
            call_span(),
            found=str(type),
            help="use bwd_diff with a differential of the result",
        )
    return constant(1.0, type)


def function_value_and_grad(
    function: CapturedFunction, argnums: int | Sequence[int] = 0
) -> Callable[..., tuple[Any, Any]]:
    """The value and the gradient of a function with one float for a result, in one run.

    >>> from livegrad.authoring.differentiable import differentiable
    >>> from livegrad.authoring.function.source import run_source
    >>> f = differentiable(run_source("def f(x: float, y: float): return x * x * y")["f"])
    >>> function_value_and_grad(f, (0, 1))(3.0, 2.0)
    (18.0, (12.0, 9.0))
    """

    chosen = [argnums] if isinstance(argnums, int) else list(argnums)

    def run(*arguments: Any) -> tuple[Any, Any]:
        expected = expected_types(function)
        values = [
            abstract_argument(value, expected[index] if index < len(expected) else None)
            for index, value in enumerate(arguments)
        ]
        found, given = resolve(function, values, call_span())
        kept = [place.value if isinstance(place, Default) else arguments[place] for place in given]
        types = [argument.type for argument in found.arguments]
        lifted = [is_lifted(type, value) for type, value in zip(types, kept, strict=True)]
        made, result = _with_gradient(function, found)
        value, gradient = run_prepared(made, kept, lifted, types, result)
        for index in chosen:
            if gradient[index] is None:
                raise FunctionError("LG306", f"argument {index} of `{found.name}` has no derivative", call_span())
        parts = tuple(gradient[index] for index in chosen)
        return value, parts[0] if isinstance(argnums, int) else parts

    return run


def _with_gradient(function: CapturedFunction, found: Resolved) -> tuple[Function, TupleType]:
    """(arguments) → (value, differentials), as one function, so that both share what they have in common."""
    derivative = bwd_diff(function)
    backward = backward_of(derivative, found, call_span())
    inputs = [input_node(Key(argument.name), ir_of(argument.type)) for argument in found.arguments]
    value = call(*inputs, function=found.function)
    gradient = call(*inputs, _one(found.result, found.name), function=backward.function)
    result = TupleType((found.result, backward.result))
    return make_function(f"{found.name}.gradient", inputs, [make(value, gradient, type=result.ir)]), result


def function_grad(function: CapturedFunction, argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The gradient of a function with one float for a result.

    >>> from livegrad.authoring.differentiable import differentiable
    >>> from livegrad.authoring.function.source import run_source
    >>> f = differentiable(run_source("def f(x: float): return x * x")["f"])
    >>> function_grad(f)(3.0)
    6.0
    """
    both = function_value_and_grad(function, argnums)
    return lambda *arguments: both(*arguments)[1]


def function_jvp(function: CapturedFunction | Derivative, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """(value, derivative along the tangents); a tangent of None stands for an argument without a derivative.

    >>> from livegrad.authoring.differentiable import differentiable
    >>> from livegrad.authoring.function.source import run_source
    >>> f = differentiable(run_source("def f(x: float, n: int): return x * n")["f"])
    >>> function_jvp(f, (3.0, 2), (1.0, None))
    (6.0, 2.0)
    """
    given = [p if t is None else pair(p, t) for p, t in zip(primals, tangents, strict=True)]
    both = fwd_diff(function)(*given)
    return both.primal, both.differential


def function_vjp(function: CapturedFunction, *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The value, and the function from a differential of the result to the arguments' differentials.

    >>> from livegrad.authoring.differentiable import differentiable
    >>> from livegrad.authoring.function.source import run_source
    >>> f = differentiable(run_source("def f(x: float, y: float): return x * y")["f"])
    >>> value, pull = function_vjp(f, 3.0, 5.0)
    >>> value, pull(1.0)
    (15.0, (5.0, 3.0))
    """
    return function(*primals), lambda differential: bwd_diff(function)(*primals, differential)


def function_hessian(function: CapturedFunction) -> Callable[..., Any]:
    """The matrix of second derivatives of a function of floats with one float for a result.

    >>> from livegrad.authoring.differentiable import differentiable
    >>> from livegrad.authoring.function.source import run_source
    >>> f = differentiable(run_source("def f(x: float, y: float): return x * x * y")["f"])
    >>> function_hessian(f)(3.0, 2.0).tolist()
    [[4.0, 6.0], [6.0, 0.0]]
    """

    def run(*arguments: Any) -> Any:
        rows = []
        backward = fwd_diff(bwd_diff(function))
        count = len(arguments)
        for row in range(count):
            pairs = [pair(float(x), 1.0 if k == row else 0.0) for k, x in enumerate(arguments)]
            rows.append(backward(*pairs, pair(1.0, 0.0)).differential)
        return np.array(rows)

    return run

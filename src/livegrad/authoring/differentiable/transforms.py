"""Gradients, Jacobian products and Hessians of captured functions, as functions of Python values.

`fwd_diff` and `bwd_diff` are what these are made of; use those inside captured functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegrad.authoring.differentiable.operators import Derivative, bwd_diff, fwd_diff
from livegrad.authoring.differentiable.pair import pair
from livegrad.authoring.function.captured import CapturedFunction
from livegrad.authoring.function.problems import FunctionError
from livegrad.authoring.function.running import call_span, prepare
from livegrad.authoring.function.types import FrontType, differential_type, from_result, to_argument
from livegrad.backends.cpu import compile_function
from livegrad.ir import types as ir
from livegrad.passes.differentiate.reverse import vjp as vjp_of_function


def _one(type: FrontType, name: str) -> Any:
    if not isinstance(type, ir.Scalar) or type.kind != "float":
        raise FunctionError(
            "LG306",
            f"`{name}` must give one float for a gradient",
            call_span(),
            found=str(type),
            help="use bwd_diff with a differential of the result",
        )
    return type.dtype.type(1)


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

    def run(*arguments: Any, **keywords: Any) -> tuple[Any, Any]:
        prepared = prepare(function, arguments, keywords)
        made = prepared.made
        if not made.owner.differentiable:
            raise FunctionError("LG305", f"`{function.__name__}` is not differentiable", call_span())
        types = [slot.type for slot in made.runtime_slots if slot.type is not None]
        given = [to_argument(type, value) for type, value in zip(types, prepared.arguments, strict=True)]
        seed = _one(made.result_type, function.__name__)
        value, *gradient = compile_function(vjp_of_function(made.function, with_value=True))(*given, seed)
        chosen = [argnums] if isinstance(argnums, int) else list(argnums)
        parts = tuple(_gradient_value(types[index], gradient[index]) for index in chosen)
        return from_result(made.result_type, value), parts[0] if isinstance(argnums, int) else parts

    return run


def _gradient_value(type: FrontType, value: Any) -> Any:
    own = differential_type(type)
    if own is None:
        raise FunctionError("LG306", f"{type!r} is not differentiable", call_span())
    return from_result(own, value)


def function_grad(function: CapturedFunction, argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The gradient of a function with one float for a result.

    >>> from livegrad.authoring.differentiable import differentiable
    >>> from livegrad.authoring.function.source import run_source
    >>> f = differentiable(run_source("def f(x: float): return x * x")["f"])
    >>> function_grad(f)(3.0)
    6.0
    """
    both = function_value_and_grad(function, argnums)
    return lambda *arguments, **keywords: both(*arguments, **keywords)[1]


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

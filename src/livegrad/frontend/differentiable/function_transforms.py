"""Gradients, Jacobian-vector products and Hessians of captured functions at Python values: `lg.grad(f)(3.0)`.

The transforms of tensor code dispatch to a function's `__livegrad_transform__`; this module implements it for captured
functions. If an argument contains a lazy tensor, the transform of tensor code is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.frontend.differentiable.components import component_shapes, flatten_differential, unflatten_differential
from livegrad.frontend.differentiable.derivative_operators import (
    Derivative,
    abstract_arguments,
    as_target,
    bwd_diff,
    fwd_diff,
)
from livegrad.frontend.differentiable.pair import pair
from livegrad.frontend.differentiable.protocol import OPERATIONS
from livegrad.frontend.differentiable.resolution import resolve
from livegrad.frontend.differentiable.resolved import Argument
from livegrad.frontend.differentiable.scalar_gradient import Argnums, Gradient
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.dispatch import call_span
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import FrontType, TensorType, describe, differential_type
from livegrad.frontend.function.lazy_calls import contains_tensor

Target = CapturedFunction | Derivative


def transform(function: Any, name: str, lazily: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A transform of a captured function; `lazily` is the same transform by tensor code."""
    return _TRANSFORMS[name](as_target(function), lazily, **options)


def _gradient(with_value: bool) -> Callable[..., Any]:
    def make(
        function: Target, lazily: Callable[..., Any], *, argnums: int | Sequence[int], has_aux: bool
    ) -> Callable[..., Any]:
        if has_aux:
            raise UsageError(
                "a captured function has no auxiliary results",
                where=caller_origin(),
                help="omit has_aux, or use bwd_diff with a differential for each result",
            )
        positions: Argnums = argnums if isinstance(argnums, int) else tuple(argnums)
        return Gradient(function, positions, with_value=with_value, lazily=lazily)

    return make


def _jvp(function: Target, lazily: Callable[..., Any]) -> Callable[..., Any]:
    def run(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """(value, derivative along the tangents); a tangent of None stands for an argument without a derivative."""
        if any(map(contains_tensor, (*primals, *tangents))):
            return lazily(primals, tangents)
        if len(primals) != len(tangents):
            raise UsageError(f"got {len(tangents)} tangents for {len(primals)} primals", where=caller_origin())
        pairs = [p if t is None else pair(p, t) for p, t in zip(primals, tangents, strict=True)]
        result = fwd_diff(function)(*pairs)
        return result.primal, result.differential

    return run


def _vjp(function: Target, lazily: Callable[..., Any]) -> Callable[..., Any]:
    def run(*primals: Any) -> tuple[Any, Callable[[Any], Any]]:
        """The value, and the function from a differential of the result to the differentials of the arguments."""
        if any(map(contains_tensor, primals)):
            return lazily(*primals)
        return function(*primals), lambda differential: bwd_diff(function)(*primals, differential)

    return run


# --- second derivatives ----------------------------------------------------------------------------------------------


def _hessian(function: Target, lazily: Callable[..., Any], *, argnums: int | Sequence[int]) -> Callable[..., Any]:
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def run(*arguments: Any) -> Any:
        """The blocks of second derivatives, one for each pair of the selected arguments."""
        if any(map(contains_tensor, arguments)):
            return lazily(*arguments)
        active = _arguments_of(function, arguments)
        selected = [position % len(arguments) for position in positions]
        blocks = [[_block(function, arguments, active, row, column) for column in selected] for row in selected]
        return blocks[0][0] if isinstance(argnums, int) else tuple(map(tuple, blocks))

    return run


def _arguments_of(function: Target, arguments: Sequence[Any]) -> dict[int, Argument]:
    """The differentiable arguments by position."""
    resolved, sources = resolve(function, abstract_arguments(function, arguments), call_span())
    pairs = zip(resolved.arguments, sources, strict=True)
    return {source: argument for argument, source in pairs if isinstance(source, int) and argument.active}


def _block(function: Target, arguments: Sequence[Any], active: dict[int, Argument], row: int, column: int) -> Any:
    """The derivatives of the gradient by argument `row`, along each component of argument `column`."""
    (row_type, _), (column_type, shapes) = _components(active, row), _components(active, column)
    forward = fwd_diff(Gradient(function, row))
    at_rest = {
        position: pair(arguments[position], _zero_differential(argument.type)) for position, argument in active.items()
    }
    columns: list[list[Any]] = []  # for each array of the column's differential, derivatives of the row's arrays
    for index, shape in enumerate(shapes):
        derivatives: list[list[Any]] = []
        for component in range(int(np.prod(shape))):
            inputs = dict(enumerate(arguments)) | at_rest
            parts = [_unit_array(part_shape, component if k == index else None) for k, part_shape in enumerate(shapes)]
            inputs[column] = pair(arguments[column], unflatten_differential(column_type, parts))
            derivatives.append(flatten_differential(row_type, forward(*inputs.values()).differential))
        columns.append([_stack_components(arrays, shape) for arrays in zip(*derivatives, strict=True)])
    return unflatten_differential(
        row_type, [unflatten_differential(column_type, parts) for parts in zip(*columns, strict=True)]
    )


def _stack_components(arrays: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Stacks the derivatives along all components of an array of this shape; returns a number if there is only one."""
    stacked = np.stack(arrays, axis=-1)
    joined = stacked.reshape(stacked.shape[:-1] + shape)
    return joined if joined.ndim else joined.item()


def _unit_array(shape: tuple[int, ...], component: int | None) -> Any:
    unit = np.zeros(shape)
    if component is not None:
        unit.reshape(-1)[component] = 1.0
    return unit if shape else unit.item()


def _zero_differential(type: FrontType) -> Any:
    """The zero differential of an argument."""
    return np.zeros(type.shape) if isinstance(type, TensorType) else OPERATIONS["dzero"](type)


def _components(active: dict[int, Argument], position: int) -> tuple[FrontType, list[tuple[int, ...]]]:
    """The Differential of an argument, and the shapes of the arrays that it flattens to."""
    argument = active.get(position)
    differential = None if argument is None else differential_type(argument.type)
    shapes = None if differential is None else component_shapes(differential)
    if argument is None or differential is None or shapes is None:
        what = "has no derivative" if argument is None else f"is a {describe(argument.type)}"
        raise FunctionError(
            "LG306",
            f"argument {position} {what}",
            call_span(),
            expected="numbers, vectors, tensors, or lists, tuples and structs of them",
            help="use fwd_diff(bwd_diff(f)) for second derivatives of optionals and interfaces",
        )
    return differential, shapes


_TRANSFORMS: dict[str, Callable[..., Callable[..., Any]]] = {
    "grad": _gradient(with_value=False),
    "value_and_grad": _gradient(with_value=True),
    "jvp": _jvp,
    "vjp": _vjp,
    "hessian": _hessian,
}

"""What `lg.optim` requires of optimizers, their settings, gradients and arguments; the errors say what to write."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import Tensor
from livegrad.tensors.pytrees import flatten


def require_same_shapes(parameters: Any, gradients: Any) -> None:
    """Requires that each gradient has the shape of its parameter: broadcasting would change the parameter's shape."""
    for parameter, gradient in zip(flatten(parameters)[0], flatten(gradients)[0], strict=False):
        if _shape(parameter) != _shape(gradient):
            raise ShapeError(
                "a gradient must have the shape of its parameter",
                where=caller_origin(),
                expected=f"shape {_shape(parameter)}",
                found=f"shape {_shape(gradient)}",
            )


def _shape(leaf: Any) -> tuple[Any, ...]:
    return leaf.shape if isinstance(leaf, Tensor) else np.shape(leaf)


def require_settings(**settings: Any) -> None:
    """Requires finite, non-negative numbers. Tensors and schedules are not checked: they change from step to step."""
    for name, value in settings.items():
        if isinstance(value, Tensor) or (name == "learning_rate" and callable(value)):
            continue
        if not (_is_number(value) and 0.0 <= value < np.inf):
            raise UsageError(
                f"`{name}` cannot be {value!r}", where=caller_origin(), expected="a finite number that is not negative"
            )


def require_decays(**settings: Any) -> None:
    """Requires decay rates of averages that are at least 0 and below 1."""
    for name, value in settings.items():
        if not isinstance(value, Tensor) and not (_is_number(value) and 0.0 <= value < 1.0):
            raise UsageError(f"`{name}` cannot be {value!r}", where=caller_origin(), expected="at least 0 and below 1")


def require_count(value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(
            "invalid number of steps", where=caller_origin(), expected="a non-negative integer", found=repr(value)
        )


def require_optimizer(optimizer: Any) -> Any:
    is_class = isinstance(optimizer, type)
    if not is_class and callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return optimizer
    raise UsageError(
        "not an optimizer",
        where=caller_origin(),
        expected="an object with `init` and `update`, such as lg.optim.Adam()",
        found=f"the class {optimizer.__name__}" if is_class else shown(optimizer),
        help=f"call it to create one: {optimizer.__name__}()" if is_class else None,
    )


def require_arguments(arguments: Any) -> None:
    if not isinstance(arguments, tuple | list):
        raise UsageError(
            "the arguments of a loss must be a tuple",
            where=caller_origin(),
            found=type(arguments).__name__,
            help="write arguments=(x,) for one argument",
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def require_pair(name: str, values: Any) -> None:
    """Requires two decay rates."""
    if not isinstance(values, tuple | list) or len(values) != 2:
        expected = "two numbers, such as (0.9, 0.999)"
        raise UsageError(f"`{name}` cannot be {values!r}", where=caller_origin(), expected=expected)
    require_decays(**{name: values[0]})
    require_decays(**{name: values[1]})

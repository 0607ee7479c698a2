"""Converts arguments to annotated types: parameters annotated `float` take float64, `complex` complex128.

Transforms, loops and blocks do this before they call a function. All other Python numbers are weakly typed (see
`weak_types`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from livegrad.ir.types import Scalar, c128, f64
from livegrad.tensors.handle import Tensor, number_node, wrap
from livegrad.tensors.weak_types import cast_number, is_weak, make_strong

_ANNOTATION_TYPES: dict[Any, Scalar] = {float: f64, complex: c128, "float": f64, "complex": c128}
_ANNOTATED_TEXT = re.compile(r"(?:\w+\.)*Annotated\[\s*(\w+)\s*,")  # in modules whose annotations are strings
_KINDS = {"float": (int, float), "complex": (int, float, complex)}
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def convert_declared_numbers(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, traced_only: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Converts number arguments to the types that a function declares; with `traced_only`, only traced numbers.

    >>> import livegrad as lg
    >>> def scaled(x, by: float): return x * by
    >>> convert_declared_numbers(scaled, (1.0, 2.0), {})[0]
    (1.0, Tensor(2., dtype=float64))
    """
    annotations = getattr(function, "__annotations__", None)
    if not annotations or not any(_declared_type(annotation) for annotation in annotations.values()):
        return tuple(args), dict(kwargs)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return tuple(args), dict(kwargs)
    types = {name: _declared_type(parameter.annotation) for name, parameter in parameters.items()}
    positional_types = [types[name] for name, parameter in parameters.items() if parameter.kind in _POSITIONAL]
    positional_types += [None] * (len(args) - len(positional_types))
    positional = tuple(
        _convert_argument(arg, type, traced_only) for arg, type in zip(args, positional_types, strict=False)
    )
    return positional, {name: _convert_argument(arg, types.get(name), traced_only) for name, arg in kwargs.items()}


def convert_declared_number(function: Callable[..., Any], index: int, value: Any) -> Any:
    """Converts one argument to the type that the function declares for it."""
    return convert_declared_numbers(function, [None] * index + [value], {})[0][index]


def _declared_type(annotation: Any) -> Scalar | None:
    if annotation.__class__ is str:
        match = _ANNOTATED_TEXT.match(annotation)
        annotation = annotation if match is None else match[1]
    elif get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    try:
        return _ANNOTATION_TYPES.get(annotation)
    except TypeError:  # not hashable
        return None


def _convert_argument(value: Any, type: Scalar | None, traced_only: bool) -> Any:
    if type is None:
        return value
    if isinstance(value, Tensor):
        return wrap(make_strong(cast_number(value.node, type))) if is_weak(value.node) else value
    return wrap(number_node(value, type)) if value.__class__ in _KINDS[type.kind] and not traced_only else value

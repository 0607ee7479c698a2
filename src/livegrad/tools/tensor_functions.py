"""Traces Python functions for the command line, given the types of their parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.text import parse_type
from livegrad.ir.types import Tensor, Type
from livegrad.tensors.tracing import name_of, trace_call

_SHAPED = re.compile(r"(\w+)\s*(\[.*\])")


def parse_shaped_type(text: str) -> Type:
    """Parses a type in the IR's syntax, or an element type followed by the shape of a tensor.

    >>> parse_shaped_type("f32[4, 5]"), parse_shaped_type("vec<f32, 3>")
    (tensor<f32, [4, 5]>, vec<f32, 3>)
    """
    shaped = _SHAPED.fullmatch(text)
    return parse_type(f"tensor<{shaped[1]}, {shaped[2]}>" if shaped else text)


def trace_python_function(function: Callable[..., Any], types: Sequence[Type]) -> Function:
    """The value IR of a Python function.

    The function is called with lazy tensors if a parameter is a tensor, and with nodes otherwise, or if that fails.
    """
    if not any(isinstance(type, Tensor) for type in types):
        return trace(function, *types)
    try:
        return trace_call(function, types, name_of(function)).function
    except (LivegradError, TypeError, AttributeError) as error:
        try:
            return trace(function, *types)
        except (LivegradError, TypeError, AttributeError):
            raise error from None

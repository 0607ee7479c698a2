"""The pure-Python fallback: runs captured source as plain Python, with functions of numbers for tensor functions.

`CapturedFunction.python` runs the result of `to_plain_python`: the user's code object, so that debuggers work, with
globals in which `lg.sin` and other tensor functions are replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from livegrad.frontend.function import function_library
from livegrad.frontend.function.intrinsics import TENSOR_FUNCTIONS
from livegrad.frontend.function.vectors import VectorValue


def _scalar_version(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapts a NumPy function to Python numbers; undefined results are NaN, as in compiled code."""

    def run(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            result = function(*[np.asarray(value) if isinstance(value, list | tuple) else value for value in values])
        plain = not any(isinstance(value, np.generic | np.ndarray | list | tuple) for value in values)
        if plain and np.ndim(result) == 0:
            return result.item() if isinstance(result, np.generic | np.ndarray) else result
        return result.view(VectorValue) if isinstance(result, np.ndarray) and result.ndim else result

    run.__name__ = getattr(function, "__name__", "function")
    return run


_SAME_NAME = [
    "sqrt", "cbrt", "exp", "exp2", "expm1", "log2", "log10", "log1p", "log", "sin", "cos", "tan", "sinh", "cosh",
    "tanh", "floor", "ceil", "trunc", "abs", "hypot", "copysign", "fmod", "mod", "where", "minimum", "maximum",
    "sum", "prod", "sign", "square", "any", "all", "real", "imag", "conj",
]  # fmt: skip
_OTHER_NAME = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power, "round": np.rint, "is_nan": np.isnan,
    "is_infinite": np.isinf, "is_finite": np.isfinite, "erf": np.vectorize(math.erf, otypes=[float]),
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "matmul": np.matmul,
}  # fmt: skip

# The implementation of each intrinsic on Python numbers.
PLAIN: dict[str, Callable[..., Any]] = {name: _scalar_version(getattr(np, name)) for name in _SAME_NAME}
PLAIN |= {name: _scalar_version(function) for name, function in _OTHER_NAME.items()}
_MAKERS = ("arange", "zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like")
PLAIN |= {name: getattr(np, name) for name in _MAKERS}
PLAIN |= {
    "max": function_library.max,
    "min": function_library.min,
    "clamp": function_library.clamp,
    "transpose": function_library.transpose,
}


Replacements = dict[FunctionType, FunctionType]
_PACKAGE = __name__.partition(".")[0]


class _PlainModule:
    """A module of livegrad whose tensor functions are replaced by functions of numbers."""

    def __init__(self, module: ModuleType, replacements: Replacements) -> None:
        self._module, self._replacements = module, replacements

    def __getattr__(self, name: str) -> Any:
        return _replace_tensor_functions(getattr(self._module, name), self._replacements)


def _replace_tensor_functions(value: Any, replacements: Replacements) -> Any:
    if isinstance(value, ModuleType):
        return _PlainModule(value, replacements) if value.__name__.partition(".")[0] == _PACKAGE else value
    if not isinstance(value, FunctionType):
        return value
    name = TENSOR_FUNCTIONS.get(value)
    if name is not None:
        return PLAIN.get(name, value)
    return value if value.__module__.partition(".")[0] == _PACKAGE else to_plain_python(value, replacements)


def to_plain_python(function: FunctionType, replacements: Replacements | None = None) -> FunctionType:
    """A copy of the function, and of the plain functions that it calls, in which tensor functions are replaced.

    `replacements` has the copies so far, for functions that call each other.
    """
    replacements = {} if replacements is None else replacements
    if function in replacements:
        return replacements[function]
    namespace = function.__globals__
    names = {key: value for key, value in namespace.items() if key.startswith("__")}
    cells = None if function.__closure__ is None else tuple(CellType() for _ in function.__closure__)
    plain = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    plain.__kwdefaults__, plain.__qualname__ = function.__kwdefaults__, function.__qualname__
    replacements[function] = plain
    names.update(
        {
            name: _replace_tensor_functions(namespace[name], replacements)
            for name in _outer_names(function.__code__)
            if name in namespace
        }
    )
    for cell, original in zip(cells or (), function.__closure__ or (), strict=True):
        if original != CellType():  # skip unassigned cells
            cell.cell_contents = _replace_tensor_functions(original.cell_contents, replacements)
    return plain


def _outer_names(code: CodeType) -> set[str]:
    """The names that a function and its nested functions look up in enclosing scopes."""
    names = set(code.co_names)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            names |= _outer_names(part)
    return names

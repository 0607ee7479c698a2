"""The same source under plain Python: functions of tensor code, such as `lg.sin`, become functions of plain numbers.

`CapturedFunction.python` runs what `plainly` gives: the user's own code object, so that a debugger stops at its lines,
among names of which those that would make tensors are exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from livegrad.authoring.function import library
from livegrad.authoring.function.types import VectorValue


def _number(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy as one of Python's numbers; what has no value is NaN, as in compiled code."""

    def run(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            found = function(*[np.asarray(value) if isinstance(value, list | tuple) else value for value in values])
        plain = not any(isinstance(value, np.generic | np.ndarray | list | tuple) for value in values)
        if plain and np.ndim(found) == 0:
            return found.item() if isinstance(found, np.generic | np.ndarray) else found
        return found.view(VectorValue) if isinstance(found, np.ndarray) and found.ndim else found

    run.__name__ = getattr(function, "__name__", "function")
    return run


_SAME_NAME = (
    "sqrt cbrt exp exp2 expm1 log2 log10 log1p log sin cos tan sinh cosh tanh floor ceil trunc abs hypot "
    "copysign fmod mod where minimum maximum sum prod sign square any all"
).split()
_OTHER_NAME = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power, "round": np.rint, "is_nan": np.isnan,
    "is_infinite": np.isinf, "is_finite": np.isfinite, "erf": np.vectorize(math.erf, otypes=[float]),
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "matmul": np.matmul,
}  # fmt: skip

# What a function that the compiler knows by a name does to plain numbers.
PLAIN: dict[str, Callable[..., Any]] = {name: _number(getattr(np, name)) for name in _SAME_NAME}
PLAIN |= {name: _number(function) for name, function in _OTHER_NAME.items()}
PLAIN |= {"max": library.max, "min": library.min, "clamp": library.clamp, "transpose": library.transpose}

# Functions of tensor code that are to be exchanged, with the name that the compiler knows each by.
TENSOR_FUNCTIONS: dict[Callable[..., Any], str] = {}


class _PlainModule:
    """A module seen from plain Python: its functions on tensors are functions on numbers."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return _exchanged(getattr(self._module, name))


def _exchanged(value: Any) -> Any:
    if isinstance(value, ModuleType):
        return _PlainModule(value) if value.__name__.partition(".")[0] == _PACKAGE else value
    if isinstance(value, FunctionType):
        name = TENSOR_FUNCTIONS.get(value)
        if name is not None:
            return PLAIN.get(name, value)
        return value if value.__module__.partition(".")[0] == _PACKAGE else plainly(value)
    return value


_PACKAGE = __name__.partition(".")[0]
_made: dict[FunctionType, FunctionType] = {}


def plainly(function: FunctionType) -> FunctionType:
    """The function, and the plain functions that it calls, without tensors for plain numbers."""
    names = _names(function.__code__)
    own = function.__globals__
    # What the names stand for is looked at in each call: they may have changed since.
    made = _made.get(function)
    if made is None:
        closure = function.__closure__
        cells = None if closure is None else tuple(CellType() for _ in closure)
        made = FunctionType(function.__code__, {}, function.__name__, function.__defaults__, cells)
        made.__kwdefaults__ = function.__kwdefaults__
        made.__qualname__ = function.__qualname__
        _made[function] = made
        first = True
    else:
        first = False
    if first or not _busy.get(made):
        _busy[made] = True
        made.__globals__.update({key: value for key, value in own.items() if key.startswith("__")})
        made.__globals__.update({name: _exchanged(own[name]) for name in names if name in own})
        for mine, theirs in zip(made.__closure__ or (), function.__closure__ or (), strict=True):
            mine.cell_contents = _exchanged(theirs.cell_contents)
        _busy[made] = False
    return made


_busy: dict[FunctionType, bool] = {}  # those whose names are being looked at: functions may call each other


def _names(code: CodeType) -> set[str]:
    """The names that a function, and those inside it, look up outside."""
    found = set(code.co_names)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            found |= _names(part)
    return found

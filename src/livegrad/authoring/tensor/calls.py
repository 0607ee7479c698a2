"""Calls that do not fit a function's parameters: an error with the user's line and what to write, not Python's own.

`namespace.py` has all public functions on tensors explained, and the methods of tensors.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any

from livegrad.authoring.tensor.errors import CallError
from livegrad.diagnostics import LivegradError, caller_origin

# Parameters of NumPy and PyTorch, and ours.
_OTHER_NAMES = {
    "a_max": ("max",),
    "a_min": ("min",),
    "axes": ("axis", "permutation"),
    "ddof": ("correction",),
    "dim": ("axis",),
    "keepdim": ("keepdims",),
    "newshape": ("shape",),
    "size": ("shape",),
}
_WITHOUT = {
    "out": "results are tensors of their own: assign them",
    "where": "choose elements before: lg.where(condition, x, 0.0)",
    "initial": "combine the result with it",
    "order": "elements are in row-major order",
}


def explain_calls(owner: ModuleType | type, names: Iterable[str]) -> None:
    """Has wrong calls of an owner's functions explained."""
    for name in names:
        function = vars(owner).get(name)
        if isinstance(function, FunctionType):
            explained = _explained(function)
            setattr(owner, name, explained)
            home = sys.modules[function.__module__]
            if vars(home).get(name) is function:  # where pickle looks for it
                setattr(home, name, explained)


def _explained(function: FunctionType) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if inside or isinstance(error, LivegradError):
                raise
            raise _wrong_call(function, args, kwargs) from None

    return called


def _wrong_call(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallError:
    name, parameters = function.__name__, list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == "self":
        parameters, args = parameters[1:], args[1:]
    by_name = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    unknown = next((key for key in kwargs if key not in by_name), None)
    if unknown is not None:
        found = f"the argument `{unknown}`"
        instead = [own for own in _OTHER_NAMES.get(unknown, ()) if own in by_name]
        help = f"write {instead[0]}=..." if instead else _WITHOUT.get(unknown)
        if any(p.name == unknown for p in parameters):
            help = "pass it by position"
    else:
        found = f"{len(args)} positional arguments" if len(args) != 1 else "one positional argument"
        help = _by_keyword(name, parameters, args)
    expected = f"{name}({', '.join(map(_written, parameters))})"
    return CallError(
        f"`{name}` does not take these arguments", where=caller_origin(), expected=expected, found=found, help=help
    )


def _by_keyword(name: str, parameters: list[inspect.Parameter], args: tuple[Any, ...]) -> str | None:
    """How to write a call with too many positional arguments."""
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    extra = args[len(positional) :]
    if not extra or len(extra) > len(named):
        return None
    given = [f"{own}={_shown(value)}" for own, value in zip(named, extra, strict=False)]
    return f"write {name}({', '.join([*positional, *given])})"


def _shown(value: Any) -> str:
    simple = value is None or isinstance(value, bool | int | float | str | tuple | list)
    return repr(value) if simple and len(repr(value)) < 30 else "..."


def _written(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}=..."

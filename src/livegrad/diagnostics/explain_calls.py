"""Turns failures inside public functions into errors with the user's line and a fix, instead of Python's or NumPy's.

Most arguments are checked where they are used. Failures that no check anticipated are explained here, with the original
error as the cause. Errors raised by the user's own functions pass through.

`livegrad.__getattr__` wraps public functions, `tensors/namespace.py` wraps methods of tensors.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import FunctionType, MappingProxyType, ModuleType, TracebackType
from typing import Any, Protocol

from livegrad.diagnostics import CallError, LivegradError, caller_origin, shown

_PYTHON = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib"))

# Parameter names of NumPy and PyTorch, and the names here.
_OTHER_NAMES = {
    "a_max": ("max",),
    "a_min": ("min",),
    "axes": ("axis", "permutation"),
    "ddof": ("correction",),
    "dim": ("axis",),
    "lr": ("learning_rate",),
    "rate": ("learning_rate",),
    "betas": ("decay", "square_decay"),
    "eps": ("epsilon",),
    "keepdim": ("keepdims",),
    "newshape": ("shape",),
    "size": ("shape",),
}
_WITHOUT = {
    "out": "operations return new tensors: assign the result",
    "initial": "combine it with the result",
    "order": "elements are in row-major order",
}
# What takes the place of elements that a reduction leaves out. Others, such as means, need to know how many there are.
_NEUTRAL = {"sum": "0.0", "prod": "1.0", "max": "-lg.inf", "min": "lg.inf", "any": "False", "all": "True"}


class Shortcut(Protocol):
    """Knows the results of some calls of a function."""

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> tuple[Any, Any]:
        """The result of a call, or what `learn` is called with after it; neither if the call is just made."""
        ...

    def learn(self, call_key: Any, result: Any, /) -> None:
        """Notes the result of a call."""
        ...


def explain_calls(
    owner: ModuleType | type, names: Iterable[str], shortcuts: Mapping[str, Shortcut] = MappingProxyType({})
) -> None:
    """Wraps an owner's functions so that failing calls are explained; those with a shortcut ask that first."""
    for name in names:
        function = inspect.getattr_static(owner, name, None)
        if not isinstance(function, FunctionType) or not function.__module__.startswith("livegrad."):
            continue  # inherited from Python
        if not hasattr(function, "__livegrad_explained__"):
            shortcut = shortcuts.get(name)
            explained = _explain(function) if shortcut is None else with_shortcut(_explain(function), shortcut)
            setattr(owner, name, explained)
            home = sys.modules[function.__module__]
            if vars(home).get(function.__name__) is function:  # pickle looks it up there
                setattr(home, function.__name__, explained)


def _explain(function: FunctionType) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LivegradError as error:
            if error.where is None:
                error.move_to(caller_origin())
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            below = None if error.__traceback__ is None else error.__traceback__.tb_next
            if below is None and isinstance(error, TypeError):
                raise _wrong_call(function, args, kwargs) from None
            if below is None or not _is_below_us(below):
                raise
            raise _failed_call(function, args, kwargs, error) from error

    called.__livegrad_explained__ = True  # type: ignore[attr-defined]
    return called


def with_shortcut(function: Callable[..., Any], shortcut: Shortcut) -> Callable[..., Any]:
    """A function that asks a shortcut first."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        result, found = shortcut.find(args, kwargs)
        if result is None:
            result = function(*args, **kwargs)
            if found is not None:
                shortcut.learn(found, result)
        return result

    called.__livegrad_explained__ = True  # type: ignore[attr-defined]
    return called


def call_users(function: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a function that the user passed. Arguments that it does not accept are the caller's mistake."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None or isinstance(error, LivegradError):
            raise
        raise CallError(str(error), where=caller_origin()) from None


def _is_below_us(traceback: TracebackType | None) -> bool:
    """Whether an error comes from our files or from what they call in NumPy and Python, not from a user's function."""
    while traceback is not None:
        frame = traceback.tb_frame
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
        is_pythons = file.startswith(_PYTHON) and "site-packages" not in file
        if not (module.startswith(("livegrad.", "numpy.")) or file.startswith("<frozen ") or is_pythons):
            return False
        traceback = traceback.tb_next
    return True


def _failed_call(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], error: BaseException
) -> CallError:
    positional = args[1:] if function.__name__ == "__init__" else args  # without `self`
    arguments = [*map(_describe, positional), *(f"{name}={_describe(value)}" for name, value in kwargs.items())]
    return CallError(
        f"`{_public_name(function)}` does not accept these arguments",
        where=caller_origin(),
        found=", ".join(arguments),
        help=f"{type(error).__name__}: {error}",
    )


def _describe(value: Any) -> str:
    """An argument in a message: its value if it is short and plain. Tensors are not shown, because that could compute
    them."""
    if isinstance(value, list | tuple):
        if all(item is None or isinstance(item, bool | int | float | complex | str) for item in value):
            return shown(value, 40)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | type):
        return shown(value, 40)
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {shape}" if isinstance(shape, tuple) else "")


def _public_name(function: FunctionType) -> str:
    """The name that users call: the class for `__init__`."""
    return function.__qualname__.split(".")[-2] if function.__name__ == "__init__" else function.__name__


def _wrong_call(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallError:
    name, parameters = _public_name(function), list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == "self":
        parameters, args = parameters[1:], args[1:]
    by_name = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    unknown = next((key for key in kwargs if key not in by_name), None)
    if unknown is not None:
        problem = f"the argument `{unknown}`"
        instead = [name_here for name_here in _OTHER_NAMES.get(unknown, ()) if name_here in by_name]
        help = f"write {instead[0]}=..." if instead else _without(name, unknown)
        if any(p.name == unknown for p in parameters):
            help = "pass it by position"
    else:
        problem = f"{len(args)} positional arguments" if len(args) != 1 else "one positional argument"
        help = _by_keyword(name, parameters, args)
    expected = f"{name}({', '.join(map(_write_parameter, parameters))})"
    return CallError(
        f"`{name}` does not accept these arguments", where=caller_origin(), expected=expected, found=problem, help=help
    )


def _without(function: str, argument: str) -> str | None:
    """How to do without an argument of NumPy."""
    if argument != "where":
        return _WITHOUT.get(argument)
    neutral = _NEUTRAL.get(function)
    return (
        f"replace the others: lg.where(condition, x, {neutral})" if neutral else "select elements first: x[condition]"
    )


def _by_keyword(name: str, parameters: list[inspect.Parameter], args: tuple[Any, ...]) -> str | None:
    """How to write a call with too many positional arguments."""
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    extra = args[len(positional) :]
    if positional[-1:] == ["shape"] and extra and all(isinstance(size, int) for size in args[len(positional) - 1 :]):
        return f"write {name}({', '.join([*positional[:-1], repr(args[len(positional) - 1 :])])})"
    if not extra or len(extra) > len(named):
        return None
    keywords = [f"{keyword}={_show(value)}" for keyword, value in zip(named, extra, strict=False)]
    return f"write {name}({', '.join([*positional, *keywords])})"


def _show(value: Any) -> str:
    simple = value is None or isinstance(value, bool | int | float | str | tuple | list)
    return repr(value) if simple and len(repr(value)) < 30 else "..."


def _write_parameter(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}=..."

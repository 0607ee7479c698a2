"""Wraps public functions so that an invalid call raises a `CallError` with the user's line and a fix.

Most arguments are validated where they are used. The wrapper handles the exceptions that no check anticipated, and
keeps the original exception as the cause. Exceptions from the user's own functions pass through unchanged.

`livegrad.__getattr__` wraps public functions; `tensors/namespace.py` wraps methods of tensors.
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

# Parameter names of NumPy and PyTorch, with livegrad's names.
_OTHER_NAMES = {
    "a_max": ("max",),
    "a_min": ("min",),
    "axes": ("axis", "permutation"),
    "ddof": ("correction",),
    "dim": ("axis",),
    "lr": ("learning_rate",),
    "rate": ("learning_rate",),
    "b1": ("betas",),
    "b2": ("betas",),
    "beta1": ("betas",),
    "decay": ("betas", "alpha", "momentum"),
    "eps": ("epsilon",),
    "epsilon": ("eps",),
    "keepdim": ("keepdims",),
    "newshape": ("shape",),
    "size": ("shape",),
}
_UNSUPPORTED_ARGUMENTS = {
    "out": "operations return new tensors: assign the result",
    "initial": "combine it with the result",
    "order": "elements are in row-major order",
}
# The neutral element that replaces masked elements of a reduction. Reductions that depend on the count, such as means,
# have none.
_NEUTRAL = {"sum": "0.0", "prod": "1.0", "max": "-lg.inf", "min": "lg.inf", "any": "False", "all": "True"}


class Shortcut(Protocol):
    """A cache of results of a function's calls."""

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> tuple[Any, Any]:
        """Returns (result, None), (None, key for `call_and_learn`), or (None, None) for a call that is not cached."""
        ...

    def call_and_learn(
        self, call_key: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any:
        """Calls the function, and stores how to repeat the call."""
        ...


def explain_calls(
    owner: ModuleType | type, names: Iterable[str], shortcuts: Mapping[str, Shortcut] = MappingProxyType({})
) -> None:
    """Wraps an owner's functions so that invalid calls raise a `CallError`; `shortcuts` are consulted before a call."""
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
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except LivegradError as error:
            if error.where is None:
                error.move_to(caller_origin())
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            inner = None if error.__traceback__ is None else error.__traceback__.tb_next
            if inner is None and isinstance(error, TypeError):
                raise _signature_error(function, args, kwargs) from None
            if inner is None or not _is_internal(inner):
                raise
            raise _argument_error(function, args, kwargs, error) from error

    wrapper.__livegrad_explained__ = True  # type: ignore[attr-defined]
    return wrapper


def with_shortcut(function: Callable[..., Any], shortcut: Shortcut) -> Callable[..., Any]:
    """Wraps a function so that it consults a shortcut first."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result, call_key = shortcut.find(args, kwargs)
        if result is not None:
            return result
        if call_key is not None:
            return shortcut.call_and_learn(call_key, function, args, kwargs)
        return function(*args, **kwargs)

    wrapper.__livegrad_explained__ = True  # type: ignore[attr-defined]
    return wrapper


def call_users(function: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a function that the user passed; raises a `CallError` if it does not accept the arguments."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None or isinstance(error, LivegradError):
            raise
        raise CallError(str(error), where=caller_origin()) from None


def _is_internal(traceback: TracebackType | None) -> bool:
    """Whether all frames belong to livegrad, NumPy or the standard library, so that no function of the user raised."""
    while traceback is not None:
        frame = traceback.tb_frame
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
        is_standard_library = file.startswith(_PYTHON) and "site-packages" not in file
        if not (module.startswith(("livegrad.", "numpy.")) or file.startswith("<frozen ") or is_standard_library):
            return False
        traceback = traceback.tb_next
    return True


def _argument_error(
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
    """Describes an argument: its value if it is a short literal, else its type and shape. Reading the values of a
    tensor could compute it.
    """
    if isinstance(value, list | tuple):
        if all(item is None or isinstance(item, bool | int | float | complex | str) for item in value):
            return shown(value, 40)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | type):
        return shown(value, 40)
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {shape}" if isinstance(shape, tuple) else "")


def _public_name(function: FunctionType) -> str:
    """The name in the user's call: the class name for `__init__`."""
    return function.__qualname__.split(".")[-2] if function.__name__ == "__init__" else function.__name__


def _signature_error(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallError:
    name, parameters = _public_name(function), list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name == "self":
        parameters, args = parameters[1:], args[1:]
    keywords = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    unknown = next((key for key in kwargs if key not in keywords), None)
    if unknown is not None:
        problem = f"the argument `{unknown}`"
        replacements = [keyword for keyword in _OTHER_NAMES.get(unknown, ()) if keyword in keywords]
        help = f"write {replacements[0]}=..." if replacements else _advise_without(name, unknown)
        if any(p.name == unknown for p in parameters):
            help = "pass it by position"
    else:
        problem = f"{len(args)} positional arguments" if len(args) != 1 else "one positional argument"
        help = _advise_keywords(name, parameters, args)
    expected = f"{name}({', '.join(map(_write_parameter, parameters))})"
    return CallError(
        f"`{name}` does not accept these arguments", where=caller_origin(), expected=expected, found=problem, help=help
    )


def _advise_without(function: str, argument: str) -> str | None:
    """How to express a NumPy call without an argument that livegrad does not have."""
    if argument != "where":
        return _UNSUPPORTED_ARGUMENTS.get(argument)
    neutral = _NEUTRAL.get(function)
    return (
        f"replace the other elements: lg.where(condition, x, {neutral})"
        if neutral
        else "select elements first: x[condition]"
    )


def _advise_keywords(name: str, parameters: list[inspect.Parameter], args: tuple[Any, ...]) -> str | None:
    """How to write a call that has too many positional arguments: with a shape tuple, or with keywords."""
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keyword_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    extra = args[len(positional) :]
    if positional[-1:] == ["shape"] and extra and all(isinstance(size, int) for size in args[len(positional) - 1 :]):
        return f"write {name}({', '.join([*positional[:-1], repr(args[len(positional) - 1 :])])})"
    if not extra or len(extra) > len(keyword_only):
        return None
    keywords = [f"{keyword}={_show(value)}" for keyword, value in zip(keyword_only, extra, strict=False)]
    return f"write {name}({', '.join([*positional, *keywords])})"


def _show(value: Any) -> str:
    simple = value is None or isinstance(value, bool | int | float | str | tuple | list)
    return repr(value) if simple and len(repr(value)) < 30 else "..."


def _write_parameter(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}=..."

"""Resolves objects in Python programs for the command line: `module:name` and `file.py:name`.

`name` may contain dots (`Material.shade`). If it ends in `()`, the function is called and its result is used.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from livegrad.contexts.context_program import Program
from livegrad.diagnostics import LivegradError, UsageError
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.bodies.shapes import Shape
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.ir.node import Function
from livegrad.ir.text import parse_function
from livegrad.ir.types import Type
from livegrad.live.engine import Engine
from livegrad.live.graph.problems import origin_of_exception
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.tensors.handle import Tensor
from livegrad.tensors.jit import Jitted
from livegrad.tensors.tensor_graph import Graph
from livegrad.tools.tensor_functions import parse_shaped_type, trace_python_function

_LISTED = (Function, CapturedFunction, Part, Shape, Assembly, Program, Engine, Tensor, Graph, Jitted, CpuFunction)


def open_object(text: str) -> Any:
    """The object that text names."""
    source, name = (text, "") if text.endswith(".py") else (text.rpartition(":")[0], text.rpartition(":")[2])
    names = _names_of(source)
    calls, path = name.endswith("()"), name.removesuffix("()").split(".")
    if path[0] not in names:
        listed = sorted(key for key, value in names.items() if isinstance(value, _LISTED) and not key.startswith("_"))
        what = f"`{source}` has no `{name}`" if name else f"`{source}` does not name an object"
        raise UsageError(what, expected=f"{source}:NAME with one of " + (", ".join(listed[:12]) or "nothing"))
    target = names[path[0]]
    for part in path[1:]:
        if not hasattr(target, part):
            raise UsageError(f"`{source}` has no `{name}`", found=f"{type(target).__name__} without `{part}`")
        target = getattr(target, part)
    if calls and not callable(target):
        raise UsageError(f"`{name}` of `{source}` cannot be called", found=type(target).__name__)
    if calls and not _takes_no_arguments(target):
        raise UsageError(f"`{name}` of `{source}` takes arguments", help="omit () to inspect the function itself")
    return _run_user_code(f"{name}` of `{source}", "called", target) if calls else target


def _takes_no_arguments(function: Callable[..., Any]) -> bool:
    """Whether a function can be called without arguments; True if Python cannot tell."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _names_of(source: str) -> dict[str, Any]:
    """The names of a module, or of a file after running it."""
    if source.endswith(".py"):
        path = Path(source)
        if not path.is_file():
            raise UsageError(f"there is no file `{source}`")
        sys.path.insert(0, str(path.absolute().parent))
        linecache.checkcache()
        return _run_user_code(source, "loaded", lambda: runpy.run_path(str(path), run_name=path.stem))
    sys.path.insert(0, str(Path.cwd()))
    return _run_user_code(source, "loaded", lambda: vars(importlib.import_module(source)))


def _run_user_code(source: str, action: str, run: Callable[[], Any]) -> Any:
    """Runs the user's code, and converts exceptions to one-line errors with the source location."""
    try:
        return run()
    except LivegradError:
        raise
    except SystemExit as error:
        raise UsageError(
            f"`{source}` cannot be {action}: it exited the program", where=origin_of_exception(error)
        ) from error
    except ModuleNotFoundError as error:
        if error.name is not None and (source == error.name or source.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module `{source}`", help="name a file: path/to/file.py:name") from None
        raise UsageError(f"`{source}` cannot be {action}: {error}", where=origin_of_exception(error)) from error
    except Exception as error:
        what = f"`{source}` cannot be {action}: {type(error).__name__}: {error}"
        raise UsageError(what, where=origin_of_exception(error)) from error


def parse_types(text: str | None) -> tuple[Type, ...]:
    """Parses types in the IR's syntax, separated by semicolons.

    >>> parse_types("f32; f32[4, 5]; vec<f32, 3>")
    (f32, tensor<f32, [4, 5]>, vec<f32, 3>)
    """
    return tuple(parse_shaped_type(part.strip()) for part in text.split(";") if part.strip()) if text else ()


def function_of(value: Any, types: Sequence[Type] = ()) -> Function:
    """The value IR of an object: a traced, captured or compiled function, a derivative, a tensor, or a part."""
    if isinstance(value, Function):
        return value
    if isinstance(value, Part):
        return value.function
    if isinstance(value, CpuFunction):
        return value.function
    if isinstance(value, Tensor):
        return value.graph.function()
    if isinstance(value, Jitted):
        return trace_python_function(value.function, types) if types else _single_trace(value)
    if isinstance(value, CapturedFunction):
        return value.specialization_for(*types).function
    if callable(getattr(value, "ir", None)):  # derivatives of captured functions
        return parse_function(value.ir(*types))
    if callable(value) and types:
        return trace_python_function(value, types)
    raise UsageError(
        f"there is no function of the value IR in an object of type `{type(value).__name__}`",
        expected="a traced, captured or compiled function, a derivative, a tensor, or a part",
        help="a Python function needs the types of its parameters: --types 'f64[100, 3]; f32; vec<f32, 3>'"
        if callable(value)
        else None,
    )


def _single_trace(jitted: Jitted) -> Function:
    """The trace of a jitted function that the program called with one signature."""
    traced = jitted.functions
    if len(traced) == 1:
        return traced[0]
    raise UsageError(
        "a jitted function has one function of the value IR per signature",
        expected="one signature",
        found=str(len(traced)),
        help="pass the types of its parameters, --types 'f64[100, 3]; f32', or call it once in the program",
    )

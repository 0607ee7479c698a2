"""Resolves objects of Python programs on the command line: `module:name` and `file.py:name`.

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
from livegrad.live.graph.problems import raised_at
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.tensors.handle import Tensor
from livegrad.tensors.jit import Jitted
from livegrad.tensors.tensor_graph import Graph
from livegrad.tools.tensor_functions import parse_shaped_type, trace_python_function

_SHOWN = (Function, CapturedFunction, Part, Shape, Assembly, Program, Engine, Tensor, Graph, Jitted, CpuFunction)


def open_object(text: str) -> Any:
    """The object that text names."""
    place, name = (text, "") if text.endswith(".py") else (text.rpartition(":")[0], text.rpartition(":")[2])
    names = _names_of(place)
    called, path = name.endswith("()"), name.removesuffix("()").split(".")
    if path[0] not in names:
        shown = sorted(key for key, value in names.items() if isinstance(value, _SHOWN) and not key.startswith("_"))
        what = f"`{place}` has no `{name}`" if name else f"which object of `{place}` is meant?"
        raise UsageError(what, expected=f"{place}:NAME with one of " + (", ".join(shown[:12]) or "nothing"))
    found = names[path[0]]
    for part in path[1:]:
        if not hasattr(found, part):
            raise UsageError(f"`{place}` has no `{name}`", found=f"{type(found).__name__} without `{part}`")
        found = getattr(found, part)
    if called and not callable(found):
        raise UsageError(f"`{name}` of `{place}` cannot be called", found=type(found).__name__)
    if called and not _takes_nothing(found):
        raise UsageError(f"`{name}` of `{place}` takes arguments", help="leave out () to look at the function itself")
    return _running(f"{name}` of `{place}", "called", found) if called else found


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function can be called as it is; True where Python cannot tell."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _names_of(place: str) -> dict[str, Any]:
    """The names of a module, or of a file that is run."""
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise UsageError(f"there is no file `{place}`")
        sys.path.insert(0, str(path.absolute().parent))
        linecache.checkcache()
        return _running(place, "loaded", lambda: runpy.run_path(str(path), run_name=path.stem))
    sys.path.insert(0, str(Path.cwd()))
    return _running(place, "loaded", lambda: vars(importlib.import_module(place)))


def _running(place: str, done: str, run: Callable[[], Any]) -> Any:
    """What the user's code gives; whatever it raises is said in a line, with the place in the code."""
    try:
        return run()
    except LivegradError:
        raise
    except SystemExit as error:
        raise UsageError(f"`{place}` cannot be {done}: it ended the program", where=raised_at(error)) from error
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module `{place}`", help="name a file: path/to/file.py:name") from None
        raise UsageError(f"`{place}` cannot be {done}: {error}", where=raised_at(error)) from error
    except Exception as error:
        what = f"`{place}` cannot be {done}: {type(error).__name__}: {error}"
        raise UsageError(what, where=raised_at(error)) from error


def parse_types(text: str | None) -> tuple[Type, ...]:
    """Types as the IR writes them, with semicolons between them.

    >>> parse_types("f32; f32[4, 5]; vec<f32, 3>")
    (f32, tensor<f32, [4, 5]>, vec<f32, 3>)
    """
    return tuple(parse_shaped_type(word.strip()) for word in text.split(";") if word.strip()) if text else ()


def function_of(value: Any, types: Sequence[Type] = ()) -> Function:
    """The function of the value IR behind an object: traced, captured, a derivative, compiled, a tensor, or a part."""
    if isinstance(value, Function):
        return value
    if isinstance(value, Part):
        return value.function
    if isinstance(value, CpuFunction):
        return value.function
    if isinstance(value, Tensor):
        return value.graph.function()
    if isinstance(value, Jitted):
        return trace_python_function(value.function, types) if types else _only_signature(value)
    if callable(getattr(value, "ir", None)):  # captured functions and their derivatives
        return parse_function(value.ir(*types))
    if callable(value) and types:
        return trace_python_function(value, types)
    raise UsageError(
        f"there is no function of the value IR in an object of type `{type(value).__name__}`",
        expected="a traced, captured or compiled function, a derivative, a tensor, a part",
        help="a Python function needs the types of its parameters: --types 'f64[100, 3]; f32; vec<f32, 3>'"
        if callable(value)
        else None,
    )


def _only_signature(jitted: Jitted) -> Function:
    """What a function of `jit` was traced to by the program that was run, if that is one function."""
    traced = jitted.functions
    if len(traced) == 1:
        return traced[0]
    raise UsageError(
        "a jitted function has one function of the value IR per signature",
        expected="one signature",
        found=str(len(traced)),
        help="name the types of its parameters, --types 'f64[100, 3]; f32', or call it once in the program",
    )

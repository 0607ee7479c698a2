"""Serialises Python functions as source text with the values of the names that they use, and recreates them.

Numbers and arrays are recorded by value, functions by their source, and modules and their members by name. Other values
are an error.
"""

from __future__ import annotations

import ast
import copy
import importlib
import sys
import textwrap
from collections.abc import Callable, Hashable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import livegrad
from livegrad.diagnostics import LivegradError
from livegrad.frontend.differentiable.differentiable_function import DifferentiableFunction, differentiable
from livegrad.frontend.differentiable.plain_function import function
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.python_source import MISSING, Source, capture, run_source
from livegrad.live.graph.control import Control, control_table
from livegrad.live.recording.exact_values import NotRecordable, decode_value, encode_value

_LIBRARIES = {"livegrad", "numpy", *sys.stdlib_module_names}
_HELP = "use numbers, arrays, modules, and functions with source code; or make it a pin"


class FunctionWriter:
    """Writes each function once, and assigns it an id in the file."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self.ids: dict[int, Hashable] = {}  # by the identity of the object
        self._functions: list[Any] = []  # kept alive, so that identities are not reused

    def new_id(self, target: Any) -> Hashable:
        """An id that no other function has."""
        return len(self.ids)

    def id_of(self, target: Any) -> Hashable:
        """The id of a function, which is written to the file with the functions that it calls."""
        function_id = self.ids.get(id(target))
        if function_id is None:
            function_id = self.ids[id(target)] = self.new_id(target)
            self._functions.append(target)
            try:
                self._write({"function": function_id, **self._describe(target)})
            except BaseException:
                del self.ids[id(target)]
                raise
        return function_id

    def _describe(self, target: Any) -> dict[str, Any]:
        imported = _import_name(target)
        if imported is not None:
            return {"import": imported}
        python = target.python_function if isinstance(target, CapturedFunction) else target
        if not isinstance(python, FunctionType):
            raise NotRecordable(f"`{target!r}` cannot be recorded", expected="a Python function", help=_HELP)
        try:
            source = capture(python)
        except LivegradError as error:
            raise NotRecordable(
                f"`{python.__name__}` cannot be recorded: its source cannot be found", help=error.help or _HELP
            ) from error
        described: dict[str, Any] = {"name": python.__name__, "text": text_of(source)}
        if isinstance(target, CapturedFunction):
            described["decorator"] = "differentiable" if isinstance(target, DifferentiableFunction) else "function"
        defaults = {"defaults": python.__defaults__, "keyword_defaults": python.__kwdefaults__}
        described |= {key: encode_value(value) for key, value in defaults.items() if value}
        described["names"] = {name: self._encode(source, name) for name in sorted(_names_of(source))}
        return described

    def _encode(self, source: Source, name: str) -> dict[str, Any]:
        value = source.lookup(name)
        if isinstance(value, ModuleType):
            return {"module": value.__name__}
        imported = _import_name(value)
        if imported is not None:
            return {"import": imported}
        if isinstance(value, FunctionType | CapturedFunction):
            return {"function": self.id_of(value)}
        if isinstance(value, Control):
            return {"control": control_table(value)}
        try:
            return {"value": encode_value(value)}
        except NotRecordable:
            raise NotRecordable(
                f"`{name}`, which `{source.name}` uses, cannot be recorded", found=type(value).__name__, help=_HELP
            ) from None


def text_of(source: Source) -> str:
    """The definition without its decorators, which are recorded separately.

    Returns the user's text, with comments, unless a default is computed: computed defaults are recorded separately too.
    """
    arguments = source.definition.args
    defaults = [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]
    if isinstance(source.definition, ast.FunctionDef) and all(map(_is_literal, defaults)):
        first, last = source.definition.lineno, source.definition.end_lineno
        text = textwrap.dedent("".join(source.lines[first - 1 : last]).rstrip()) + "\n"
        if _defines(text, source.definition):
            return text
    return _without_defaults(source)


def _is_literal(default: ast.expr) -> bool:
    return isinstance(default.operand if isinstance(default, ast.UnaryOp) else default, ast.Constant)


def _defines(text: str, definition: ast.FunctionDef) -> bool:
    """Whether a text parses to a definition. Removing indentation may change multi-line strings."""
    try:
        (parsed,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    undecorated = copy.copy(definition)
    undecorated.decorator_list = []
    return ast.dump(parsed) == ast.dump(undecorated)


def _without_defaults(source: Source) -> str:
    definition = copy.deepcopy(source.definition)
    arguments = definition.args
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [None if default is None else ast.Constant(None) for default in arguments.kw_defaults]
    if isinstance(definition, ast.FunctionDef):
        definition.decorator_list = []
        return ast.unparse(ast.fix_missing_locations(definition))
    return "recorded = " + ast.unparse(ast.fix_missing_locations(definition))


def _names_of(source: Source) -> Iterator[str]:
    """The names that a function reads from its closure and globals."""
    used = {node.id for node in ast.walk(source.definition) if isinstance(node, ast.Name)}
    codes = [source.function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    outer = {name for code in codes for name in (*code.co_names, *code.co_freevars)}
    annotations = {str(text) for text in source.function.__annotations__.values()}
    arguments = source.definition.args
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    annotations |= {ast.unparse(parameter.annotation) for parameter in parameters if parameter.annotation is not None}
    for name in used:
        is_defined = name in source.closure or name in source.function.__globals__
        if (
            is_defined
            and (name in outer or any(name in text for text in annotations))
            and source.lookup(name) is not MISSING
        ):
            yield name


def _import_name(value: Any) -> str | None:
    """`module:name` of a member of a library; None for other objects."""
    for name in (getattr(value, "__name__", None), repr(value) if _is_ir_type(value) else None):
        if isinstance(name, str) and getattr(livegrad, name, MISSING) is value:
            return f"livegrad:{name}"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module.partition(".")[0] not in _LIBRARIES:
        return None
    member = getattr(sys.modules.get(module), name, MISSING)
    return f"{module}:{name}" if member is value else None


def _is_ir_type(value: Any) -> bool:
    return type(value).__module__.startswith("livegrad.ir.")


class FunctionReader:
    """Recreates the functions of a file on first use."""

    def __init__(self) -> None:
        self._described: dict[Hashable, dict[str, Any]] = {}
        self._functions: dict[Hashable, Any] = {}

    def note(self, line: dict[str, Any]) -> None:
        """Stores the line of a function."""
        self._described[line["function"]] = line

    def get(self, function_id: Hashable) -> Any:
        """The function with an id."""
        if function_id not in self._functions:
            self._make(function_id, self._described[function_id])
        return self._functions[function_id]

    def _make(self, function_id: Hashable, line: dict[str, Any]) -> None:
        if "import" in line:
            self._functions[function_id] = _import(line["import"])
            return
        names: dict[str, Any] = {"__name__": "recording"}
        run_source("from __future__ import annotations\n" + line["text"], names)
        python = names.get(line["name"]) or names["recorded"]
        python.__name__ = line["name"]
        if "defaults" in line:
            python.__defaults__ = decode_value(line["defaults"])
        if "keyword_defaults" in line:
            python.__kwdefaults__ = decode_value(line["keyword_defaults"])
        self._functions[function_id] = python  # before its names are read, because functions may call each other
        names.update({name: self._value(text) for name, text in line["names"].items()})
        decorate = {"function": function, "differentiable": differentiable}.get(line.get("decorator", ""))
        if decorate is not None:
            self._functions[function_id] = decorate(python)
            recursive_names = [name for name, text in line["names"].items() if text.get("function") == function_id]
            names.update(dict.fromkeys(recursive_names, self._functions[function_id]))

    def _value(self, text: dict[str, Any]) -> Any:
        if "module" in text:
            return importlib.import_module(text["module"])
        if "import" in text:
            return _import(text["import"])
        if "control" in text:
            return Control(**text["control"])
        return self.get(text["function"]) if "function" in text else decode_value(text["value"])


def _import(text: str) -> Any:
    module, _, name = text.partition(":")
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value

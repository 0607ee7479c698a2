"""Finds the source of a Python function as a syntax tree: in files, notebooks, the prompt, `exec` and `run_source`.

In: a function object. Out: its `Source` (tree, source locations, visible names). Called by `captured`.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import dis
import inspect
import itertools
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from livegrad.frontend.function.desugaring import UnsupportedPattern, desugar
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import MISSING
from livegrad.ir.lru import LruCache

Definition = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, eq=False)
class Source:
    """The syntax tree of a function, its source locations, and the names that are visible to it."""

    function: Any  # a FunctionType; Any, because type checkers would treat it as a method
    definition: Definition
    file: str
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def body(self) -> list[ast.stmt]:
        """The statements; the body of a lambda is a `return` of its expression."""
        if isinstance(self.definition, ast.Lambda):
            expression = self.definition.body
            returned = ast.Return(value=expression)
            return [ast.copy_location(returned, expression)]
        return self.definition.body

    def as_interface_method(self) -> Source:
        """The method with a new body, which calls the method of this name on its first argument."""
        definition = self.definition
        assert isinstance(definition, ast.FunctionDef)
        arguments = definition.args
        first, *others = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        names: list[ast.expr] = [ast.Name(name, ast.Load()) for name in others]
        keywords = [ast.keyword(argument.arg, ast.Name(argument.arg, ast.Load())) for argument in arguments.kwonlyargs]
        method = ast.Attribute(ast.Name(first, ast.Load()), definition.name, ast.Load())
        returned = ast.Return(ast.Call(method, names, keywords))
        renamed = copy.copy(definition)
        renamed.body = [ast.fix_missing_locations(ast.copy_location(returned, definition))]
        return replace(self, definition=renamed)

    def span(self, node: ast.AST) -> Span:
        """The source location of a node of the tree."""
        line = getattr(node, "lineno", self.definition.lineno)
        column = getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        last = getattr(node, "end_lineno", line)
        raw = text.encode()
        end = getattr(node, "end_col_offset", column + 1) if last == line else len(raw.rstrip())
        # `ast` counts columns in UTF-8 bytes.
        start_character, end_character = len(raw[:column].decode()), len(raw[:end].decode())
        return Span(self.file, line, start_character + 1, end_character + 1, text, self.name)

    def lookup(self, name: str) -> Any:
        """The value of a name in the closure, the module or the builtins; `MISSING` if there is none."""
        cell = self._cells.get(name)
        if cell is not None:
            try:
                return cell.cell_contents
            except ValueError:  # not assigned yet
                pass
        value = self.function.__globals__.get(name, MISSING)
        return getattr(builtins, name, MISSING) if value is MISSING else value

    @cached_property
    def _cells(self) -> Mapping[str, CellType]:
        return dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))

    @property
    def closure(self) -> Mapping[str, Any]:
        contents = {}
        for name, cell in self._cells.items():
            try:
                contents[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        return contents


def capture(function: FunctionType) -> Source:
    """Finds the source of a function.

    >>> namespace = run_source("def double(x):\\n    return 2 * x")
    >>> source = capture(namespace["double"])
    >>> source.name, source.span(source.body[0]).line
    ('double', 2)
    """
    code = function.__code__
    if code.co_flags & inspect.CO_COROUTINE:
        raise FunctionError("LG102", f"`{function.__name__}` is asynchronous", help="write it as a plain function")
    linecache.checkcache(code.co_filename)
    lines = _remembered_lines(code) or tuple(linecache.getlines(code.co_filename, function.__globals__))
    if not lines and code.co_filename in ("<stdin>", "<console>"):
        lines = _lines_from_history(function)
    if not lines:
        remember_exec_source(function)
        lines = _remembered_lines(code)
    if lines:
        definition = _find_definition(lines, code)
        if definition is not None:
            return _desugared(Source(function, definition, code.co_filename, lines))
    raise FunctionError(
        "LG101",
        f"the source of `{function.__name__}` cannot be found",
        found=f"code from {code.co_filename}" + (", which has changed since" if lines else ""),
        help="define it in a file or notebook, or run its text with run_source(text)",
    )


def _desugared(source: Source) -> Source:
    try:
        return replace(source, definition=desugar(source.definition))
    except UnsupportedPattern as problem:
        raise FunctionError(
            "LG102", str(problem), source.span(problem.node), help="write it with if and elif"
        ) from None


def _find_definition(lines: tuple[str, ...], code: CodeType) -> Definition | None:
    """The definition that the code object was compiled from."""
    candidates = [
        node for node in _definitions(lines) if _first_line(node) == code.co_firstlineno and _name(node) == code.co_name
    ]
    if len(candidates) > 1:
        candidates = _definitions_enclosing(candidates, code) or [node for node in candidates if _same_code(node, code)]
    return candidates[0] if len(candidates) >= 1 else None


def _definitions_enclosing(candidates: list[Definition], code: CodeType) -> list[Definition]:
    """The definitions whose bodies contain all instructions of the code, innermost first. The code of an outer function
    has at least one instruction outside the inner body: the one that creates the inner function. Empty without column
    information (`-X no_debug_ranges`).
    """
    positions = [
        (position.lineno, position.col_offset, position.end_lineno, position.end_col_offset)
        for instruction in dis.get_instructions(code)
        if (position := instruction.positions) is not None and instruction.opname not in _PROLOGUE_OPCODES
    ]
    if not positions or any(None in position for position in positions):
        return []
    first = min((line, column) for line, column, _, _ in positions)
    last = max((line, column) for _, _, line, column in positions)
    nodes = [node for node in candidates if _start(node) <= first and last <= _end(node)]
    return sorted(nodes, key=lambda node: (_start(node), _end(node)), reverse=True)


# Instructions at the start of a function, whose position is that of the whole definition.
_PROLOGUE_OPCODES = {"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR"}


def _body(node: Definition) -> list[Any]:
    return [node.body] if isinstance(node, ast.Lambda) else node.body


def _start(node: Definition) -> tuple[int, int]:
    first = _body(node)[0]
    return first.lineno, first.col_offset


def _end(node: Definition) -> tuple[int, int]:
    last = _body(node)[-1]
    return last.end_lineno or last.lineno, last.end_col_offset or last.col_offset


@lru_cache(maxsize=64)
def _definitions(lines: tuple[str, ...]) -> tuple[Definition, ...]:
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, Definition))


def _first_line(node: Definition) -> int:
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return node.decorator_list[0].lineno
    return node.lineno


def _name(node: Definition) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _same_code(node: Definition, code: CodeType) -> bool:
    """Whether compiling the definition alone gives this code, judged by names and constants."""
    statement = ast.Expression(node) if isinstance(node, ast.Lambda) else ast.Module([node], [])
    mode = "eval" if isinstance(node, ast.Lambda) else "exec"
    compiled = compile(statement, "<candidate>", mode, dont_inherit=True)
    # Only top-level code objects: an outer lambda must not match because of an inner one.
    return any(
        _outline(constant) == _outline(code) for constant in compiled.co_consts if isinstance(constant, CodeType)
    )


def _outline(code: CodeType) -> tuple[object, ...]:
    """The features that two compilations of one definition share. Compiled alone, a definition reads enclosing
    variables as globals, so global and free names are combined.
    """
    names = sorted({*code.co_names, *code.co_freevars})
    return code.co_name, names, code.co_varnames, [c for c in code.co_consts if not isinstance(c, CodeType)]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _lines_from_history(function: FunctionType) -> tuple[str, ...]:
    """The lines of a definition that was typed at the prompt, from the readline history; empty if none matches."""
    readline = sys.modules.get("readline")
    if readline is None:
        return ()
    total = readline.get_current_history_length()
    typed = [readline.get_history_item(index) or "" for index in range(1, total + 1)]
    code = function.__code__
    for start in reversed(range(len(typed))):
        if not typed[start].lstrip().startswith(("def ", "@")):
            continue
        for end in range(len(typed), start, -1):
            lines = tuple(line + "\n" for line in typed[start:end])
            definitions = [node for node in _definitions(lines) if _name(node) == code.co_name]
            if definitions and _same_code(definitions[0], code):
                return ("\n",) * (code.co_firstlineno - 1) + lines
    return ()


# Source texts that Python itself does not keep, with the names of their files: those that were run by `exec` or
# `python -c`, and those of functions that came from other processes. The most recent are last.
_exec_sources: LruCache[tuple[str, ...], str] = LruCache(64)
_FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


def remember_exec_source(function: FunctionType) -> None:
    """Keeps the source text of a function that was defined by `exec` or `python -c`.

    The caller of `exec(text)` usually holds the text in a variable or constant, so the strings in the calling frames
    are searched. A text is accepted only if it compiles to exactly the function's code object.
    """
    code = function.__code__
    if os.path.exists(code.co_filename) or code.co_filename in linecache.cache:
        return
    mark = "lambda" if code.co_name == "<lambda>" else code.co_name
    for text in _strings_in_scope():
        if mark in text:
            lines = tuple(text.splitlines(keepends=True))
            if _was_compiled_from(lines, code):
                _exec_sources.keep(lines, code.co_filename)
                return


def remember_source(file: str, text: str) -> None:
    """Keeps the source text of functions that come from another process."""
    _exec_sources.keep(tuple(text.splitlines(keepends=True)), file)


@lru_cache(maxsize=64)
def text_of(lines: tuple[str, ...]) -> str:
    """The text of a file, as one object for all of its functions: a pickle then contains it once."""
    return "".join(lines)


def _remembered_lines(code: CodeType) -> tuple[str, ...]:
    texts = (text for text, file in _exec_sources.items() if file == code.co_filename)
    return next((text for text in texts if _was_compiled_from(text, code)), ())


def _strings_in_scope() -> Iterator[str]:
    """Yields the strings in variables and constants of the calling frames, innermost first, and of `python -c`."""
    frame: FrameType | None = sys._getframe(1)
    modules: set[int] = set()
    while frame is not None:
        yield from (value for value in [*frame.f_locals.values(), *frame.f_code.co_consts] if type(value) is str)
        if id(frame.f_globals) not in modules:
            modules.add(id(frame.f_globals))
            yield from (value for value in list(frame.f_globals.values()) if type(value) is str)
        frame = frame.f_back
    arguments = sys.orig_argv
    yield from arguments[arguments.index("-c") + 1 :][:1] if "-c" in arguments else ()


@lru_cache(maxsize=256)
def _was_compiled_from(lines: tuple[str, ...], code: CodeType) -> bool:
    """Whether the text compiles to exactly this code object."""
    for mode in ("exec", "eval"):
        try:
            # `exec` inherits the future statements of the calling module.
            compiled = compile("".join(lines), code.co_filename, mode, code.co_flags & _FUTURE, dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        if any(inner == code for inner in _codes(compiled)):
            return True
    return False


_source_ids = itertools.count(1)


def run_source(text: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Runs Python source text like `exec` and returns the namespace. Functions that it defines can be captured.

    >>> run_source("def half(x):\\n    return x / 2")["half"](3.0)
    1.5
    """
    file = f"<livegrad source {next(_source_ids)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"__name__": "__main__"} if namespace is None else namespace
    exec(compile(text, file, "exec", dont_inherit=True), names)
    return names

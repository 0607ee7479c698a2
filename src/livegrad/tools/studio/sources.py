"""The text of a block's body for the editor, and a new body from edited text.

In: a block. Out: its text, or a function made from text with the names that the old one sees. Running Python needs the
permission to write code; expressions do not.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from inspect import signature
from types import FunctionType
from typing import Any, Literal

import livegrad
from livegrad.diagnostics import LivegradError, TextOrigin, UsageError
from livegrad.frontend.differentiable.differentiable_function import DifferentiableFunction, differentiable
from livegrad.frontend.differentiable.plain_function import function as captured
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.python_source import capture, run_source
from livegrad.ir.text import print_function
from livegrad.live.blocks.bodies import FunctionBody, TracedBody
from livegrad.live.graph.block import Block
from livegrad.live.recording.function_text import text_of
from livegrad.tools.studio.expressions import expression_of, make_expression

SourceKind = Literal["expression", "code", "ir", "none"]


@dataclass(frozen=True)
class BodyText:
    """The text of a body. `ir` is only shown; `code` and `expression` can be edited."""

    kind: SourceKind
    text: str


def _function_of(block: Block) -> Any:
    body = getattr(block, "body", None)
    return body.function if isinstance(body, TracedBody) else None


def body_text(block: Block) -> BodyText:
    """The text of a block's body.

    >>> body_text(livegrad.block(lambda x, gain=2.0: x * gain, name="amplify"))
    BodyText(kind='expression', text='x * gain')
    """
    target = _function_of(block)
    expression = expression_of(target)
    if expression is not None:
        return BodyText("expression", expression)
    python = target.python_function if isinstance(target, CapturedFunction) else target
    if isinstance(python, FunctionType):
        try:
            return BodyText("code", text_of(capture(python)))
        except LivegradError:  # its file has changed, or it was never in one
            return BodyText("none", "")
    body = getattr(block, "body", None)
    return BodyText("ir", print_function(body.source)) if isinstance(body, FunctionBody) else BodyText("none", "")


def python_of(block: Block) -> str:
    """The Python of a block whose body is an expression."""
    return text_of(capture(_function_of(block)))


def make_function(block: Block, text: str) -> Any:
    """Runs the text of a body and returns its function. It sees the names that the old function sees."""
    old = _function_of(block)
    python = old.python_function if isinstance(old, CapturedFunction) else old
    names: dict[str, Any] = {"__name__": "studio", "lg": livegrad}
    if isinstance(python, FunctionType):
        names |= python.__globals__ | _closure(python)
    function = define_function(text, names, block.name)
    _restore_defaults(function, block)
    if isinstance(old, DifferentiableFunction):
        return differentiable(function)
    return captured(function) if isinstance(old, CapturedFunction) else function


def _restore_defaults(function: Any, block: Block) -> None:
    """Puts back computed defaults, which `text_of` writes as None."""
    if not isinstance(function, FunctionType):
        return
    parameters = [key for key, parameter in signature(function).parameters.items() if parameter.default is None]
    restored = {key: block.default_of(key) for key in parameters if key in block.inputs}
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    old = function.__defaults__ or ()
    with_default = positional[len(positional) - len(old) :]
    function.__defaults__ = (
        tuple(restored.get(key, value) for key, value in zip(with_default, old, strict=True)) or None
    )
    named = function.__kwdefaults__ or {}
    function.__kwdefaults__ = {key: restored.get(key, value) for key, value in named.items()} or None


def _closure(function: FunctionType) -> dict[str, Any]:
    try:
        return dict(capture(function).closure)
    except LivegradError:
        return {}


def define_function(text: str, names: dict[str, Any], label: str) -> Any:
    """Runs text that defines one function, or assigns a lambda, and returns it."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        where = TextOrigin(label, getattr(error, "lineno", None) or 1, getattr(error, "offset", None))
        raise UsageError(f"not Python: {getattr(error, 'msg', error)}", where=where) from None
    last = statements[-1] if statements else None
    if isinstance(last, ast.FunctionDef):
        name = last.name
    elif isinstance(last, ast.Assign) and isinstance(last.value, ast.Lambda) and isinstance(last.targets[0], ast.Name):
        name = last.targets[0].id
    else:
        where = TextOrigin(label, 1 if last is None else last.lineno)
        raise UsageError("the text must end with a function", where=where, help="write def shade(x): ...")
    try:
        return run_source(text, names)[name]
    except LivegradError:
        raise
    except Exception as error:
        what = f"`{label}` raised {type(error).__name__}: {error}"
        raise UsageError(what, where=TextOrigin(label, _line_in_source(error))) from error


def _line_in_source(error: BaseException) -> int:
    """The line of the innermost frame in a text that `run_source` ran."""
    line, traceback = 1, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.startswith("<livegrad source"):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def new_expression(block: Block, text: str) -> FunctionType:
    """The function of an expression for a block, whose inputs keep their order and their defaults."""
    defaults = {name: block.default_of(name) for name in block.inputs}
    return make_expression(text, defaults, block.name)

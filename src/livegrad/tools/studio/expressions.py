"""Expressions such as `sin(x) * gain`: a block without code. They are checked, so that they can call nothing else.

In: text. Out: a function of the names that it reads. A page that may not write Python may still write expressions.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import livegrad
from livegrad.diagnostics import LivegradError, TextOrigin, UsageError
from livegrad.frontend.function.python_source import Source, capture, run_source

FUNCTIONS = (
    "abs", "acos", "asarray", "asin", "atan", "atan2", "ceil", "clip", "concat", "cos", "cosh", "cumulative_sum", "dot",
    "exp", "expm1", "floor", "hypot", "log", "log10", "log1p", "log2", "maximum", "max", "mean", "minimum", "min",
    "mix", "pow", "relu", "round", "sigmoid", "sign", "sin", "sinh", "smoothstep", "softmax", "sqrt", "square", "stack",
    "std", "sum", "tan", "tanh", "trunc", "var", "where",
)  # fmt: skip
_CONSTANTS = ("pi", "e")
_MAX_LENGTH = 10_000
_MAX_DEPTH = 100
_NODES = (
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Subscript,
    ast.Slice, ast.Load, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Pow, ast.FloorDiv, ast.USub, ast.UAdd,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.keyword,
)  # fmt: skip


def parse_expression(text: str, name: str = "expression") -> ast.expr:
    """Parses and checks an expression.

    >>> ast.unparse(parse_expression("sin(x) * gain"))
    'sin(x) * gain'
    >>> try:
    ...     parse_expression("open('/etc/passwd')")
    ... except UsageError as error:
    ...     error.what, str(error.where)
    ('an expression cannot call `open`', 'expression:1:1')
    """
    if len(text) > _MAX_LENGTH:
        raise UsageError("the expression is too long", expected=f"at most {_MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None)
        reason = getattr(error, "msg", None) or str(error)
        raise UsageError(f"not an expression: {reason}", where=TextOrigin(name, line, column)) from None
    _require_shallow(tree, name)
    for node in ast.walk(tree):
        _check(node, name)
    return tree


def _require_shallow(tree: ast.AST, name: str) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise UsageError("the expression is nested too deeply", where=TextOrigin(name, 1))


def _check(node: ast.AST, name: str) -> None:
    where = TextOrigin(name, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
    if not isinstance(node, _NODES):
        what = f"an expression cannot contain `{type(node).__name__}`"
        raise UsageError(what, where=where, expected="numbers, names, operators and functions")
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
        what = f"an expression cannot call `{ast.unparse(node.func)}`"
        raise UsageError(what, where=where, expected=f"one of {', '.join(FUNCTIONS[:10])}, ...")
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | bool):
        raise UsageError("an expression has only numbers", where=where, found=repr(node.value))
    # Python itself would compute 9**9**9, for longer than anybody waits.
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _has_names(node.left):
        raise UsageError("the base of a power must contain a name", where=where)
    if isinstance(node, ast.keyword) and node.arg not in ("axis", "keepdims"):
        raise UsageError(f"an expression cannot pass `{node.arg}`", where=where, expected="axis, keepdims")
    if isinstance(node, ast.Name) and node.id.startswith("__"):
        raise UsageError(f"`{node.id}` cannot be the name of an input", where=where)


def _has_names(tree: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) for node in ast.walk(tree))


def names_in(tree: ast.expr) -> list[str]:
    """The inputs of an expression, in the order of the text."""
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in called]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in names if node.id not in _CONSTANTS))


def make_expression(text: str, inputs: Mapping[str, Any] | None = None, name: str = "expression") -> FunctionType:
    """The function of an expression. `inputs` has the inputs so far with their defaults, whose order is kept.

    New inputs have the default 0.

    >>> function = make_expression("sin(x) * gain", {"gain": 2.0})
    >>> import inspect
    >>> str(inspect.signature(function))
    '(*, gain=2.0, x=0.0)'
    """
    tree = parse_expression(text, name)
    names, previous = names_in(tree), inputs or {}
    ordered = [key for key in previous if key in names] + [key for key in names if key not in previous]
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    constants = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in _CONSTANTS}
    namespace: dict[str, Any] = {key: getattr(livegrad, key) for key in (called | constants)}
    namespace |= {"__name__": "expression", "__builtins__": {}}
    # Keyword-only, because any of them may lack a default.
    signature = f"*, {', '.join(ordered)}" if ordered else ""
    run_source(f"expression = lambda {signature}: {ast.unparse(tree)}", namespace)
    function = namespace["expression"]
    function.__name__ = function.__qualname__ = name if name.isidentifier() else "expression"
    defaults = {key: previous.get(key, 0.0) for key in ordered}
    function.__kwdefaults__ = {key: value for key, value in defaults.items() if value is not None}
    return function


class _WithoutPrefix(ast.NodeTransformer):
    """Writes functions of livegrad without `lg.`, as expressions have them."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        is_ours = isinstance(node.value, ast.Name) and self._source.lookup(node.value.id) is livegrad
        return ast.Name(node.attr, ast.Load()) if is_ours and node.attr in FUNCTIONS else node


def expression_of(function: Any) -> str | None:
    """The expression that a function computes, or None if it is not one: a lambda that calls only known functions."""
    if not isinstance(function, FunctionType):
        return None
    try:
        source = capture(function)
        if not isinstance(source.definition, ast.Lambda):
            return None
        body = _WithoutPrefix(source).visit(copy.deepcopy(source.definition.body))
        tree = parse_expression(ast.unparse(body))
    except LivegradError:
        return None
    arguments = source.definition.args
    parameters = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if not set(names_in(tree)) <= parameters:
        return None
    # Names that the function itself reads, such as `sin` imported from elsewhere, must mean what expressions mean.
    read = {node.id for node in ast.walk(source.definition.body) if isinstance(node, ast.Name)} - parameters
    known = all(source.lookup(name) in (livegrad, getattr(livegrad, name, None)) for name in read)
    return ast.unparse(tree) if known else None

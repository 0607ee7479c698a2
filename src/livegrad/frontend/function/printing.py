"""The `print` intrinsic: prints its arguments at run time, in program order.

It compiles to a host step between the kernels of a function.
"""

from __future__ import annotations

import ast
from typing import Any

from livegrad.frontend.function.calls import arguments_of
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, node_of, static
from livegrad.frontend.function.effects import add_print
from livegrad.frontend.function.function_library import named_intrinsic
from livegrad.frontend.function.intrinsics import SPECIAL_FORMS
from livegrad.ir.node import Node


@named_intrinsic("print")
def print_values(*values: Any) -> None:
    """Prints values, inside and outside captured functions.

    >>> print_values("x =", 1.5)
    x = 1.5
    """
    print(*values)


def _print(context: Context, node: ast.Call) -> Value:
    separator = " "
    for keyword in node.keywords:
        separator_value = context.evaluate(keyword.value).static
        if keyword.arg != "sep" or not isinstance(separator_value, str):
            raise context.error("LG108", "`print` in a compiled function takes no keyword except `sep`", keyword.value)
        separator = separator_value
    parts: list[str] = []
    nodes: list[Node] = []
    for argument in node.args:
        if isinstance(argument, ast.JoinedStr):
            parts.append("".join(_format_part(context, part, nodes) for part in argument.values))
        else:
            parts += [
                _format_value(context, value, "", argument, nodes)
                for value in _evaluate_argument(context, node, argument)
            ]
    add_print(context, separator.replace("{", "{{").replace("}", "}}").join(parts), nodes)
    return static(None)


def _evaluate_argument(context: Context, node: ast.Call, argument: ast.expr) -> list[Value]:
    return arguments_of(context, ast.copy_location(ast.Call(node.func, [argument], []), node))[0]


def _format_part(context: Context, part: ast.expr, nodes: list[Node]) -> str:
    """Converts a part of an f-string to a template, and appends its run-time values to the nodes."""
    if not isinstance(part, ast.FormattedValue):
        return _format_value(context, context.evaluate(part), "", part, nodes)
    form = ""
    if part.format_spec is not None:
        spec = context.evaluate(part.format_spec).static
        if not isinstance(spec, str):
            raise context.error("LG102", "a format must be known at compile time", part)
        form = f":{spec}"
    if part.conversion != -1:
        form = f"!{chr(part.conversion)}{form}"
    return _format_value(context, context.evaluate(part.value), form, part, nodes)


def _format_value(context: Context, value: Value, form: str, at: ast.AST, nodes: list[Node]) -> str:
    if value.is_static:
        return f"{{{form}}}".format(value.static).replace("{", "{{").replace("}", "}}")
    nodes.append(node_of(value, context.span(at)))
    return f"{{{form}}}"


SPECIAL_FORMS["print"] = _print

"""`print` inside captured functions: shows its arguments when the program comes to it, in the program's order.

Functions that print run on the reference backend, which goes through the program as it is written.
"""

from __future__ import annotations

import ast
from typing import Any

from livegrad.authoring.function.calls import arguments_of
from livegrad.authoring.function.context import Context
from livegrad.authoring.function.intrinsics import SPECIAL
from livegrad.authoring.function.library import known_as
from livegrad.authoring.function.values import Value, node_of, runtime, static
from livegrad.ir import types as ir
from livegrad.ir.leaves import constant
from livegrad.ops.host import make_print
from livegrad.ops.order import after


@known_as("print")
def print_values(*values: Any) -> None:
    """Prints values, outside of functions as inside.

    >>> print_values("x =", 1.5)
    x = 1.5
    """
    print(*values)


def _print(context: Context, node: ast.Call) -> Value:
    positional, keywords = arguments_of(context, node)
    if keywords:
        raise context.error("LG108", "`print` takes no keywords in a compiled function", node)
    parts, nodes = [], []
    for value in positional:
        if value.is_static:
            parts.append(str(value.static).replace("{", "{{").replace("}", "}}"))
        else:
            parts.append("{}")
            nodes.append(node_of(value, context.span(node)))
    token = context.environment.get("$effects", static(0))
    before = constant(0, ir.i32) if token.node is None else token.node
    shown = make_print(" ".join(parts), *nodes, follows=(before,))
    context.has_effects = True
    context.environment["$effects"] = runtime(ir.i32, after(before, shown))
    return static(None)


SPECIAL["print"] = _print

"""`print` inside captured functions: shows its arguments when the program comes to it, in the program's order.

It is a step of the host between the kernels of a compiled function.
"""

from __future__ import annotations

import ast
from typing import Any

from livegrad.authoring.function.calls import arguments_of
from livegrad.authoring.function.context import Context
from livegrad.authoring.function.effects import add_print
from livegrad.authoring.function.intrinsics import SPECIAL
from livegrad.authoring.function.library import known_as
from livegrad.authoring.function.values import Value, node_of, static


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
    add_print(context, " ".join(parts), nodes)
    return static(None)


SPECIAL["print"] = _print

"""What a page may add to a graph: expressions, states and Python functions.

In: an entry of the list and a name. Out: a block. Called by `edits.py`.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import livegrad
from livegrad.live.blocks.bodies import block
from livegrad.live.graph.block import Block, State
from livegrad.tools.studio.expressions import make_expression
from livegrad.tools.studio.gate import Permission
from livegrad.tools.studio.sources import define_function

_NEW_FUNCTION = '''def function(x=1.0, gain=1.0):
    """Computes the result from the inputs, with tensors."""
    return lg.sin(x) * gain
'''
_NEW_PICTURE = '''def picture(frequency=8.0, phase=0.0, tint=(1.0, 0.6, 0.2)):
    """Red, green and blue from 0 to 1, for each pixel."""
    y, x = lg.meshgrid(lg.linspace(-1, 1, 256), lg.linspace(-1, 1, 256), indexing="ij")
    rings = 0.5 + 0.5 * lg.sin(lg.hypot(x, y) * frequency + phase)
    return lg.expand_dims(rings, axis=-1) * tint
'''


@dataclass(frozen=True)
class Entry:
    """Something to add: an expression, Python code, or the initial value of a state."""

    name: str
    group: str
    help: str
    expression: str = ""
    code: str = ""
    initial: float | None = None
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def permission(self) -> Permission:
        """The permission that adding it needs."""
        return Permission.CODE if self.code else Permission.EDIT


def _expressions(group: str, table: dict[str, tuple[str, str]]) -> list[Entry]:
    return [Entry(name, group, help, expression) for name, (expression, help) in table.items()]


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("number", "values", "a number with a slider", "value", defaults=(("value", 0.5),)),
        Entry("color", "values", "red, green and blue", "color", defaults=(("color", (1.0, 0.6, 0.2)),)),
        Entry("vector", "values", "three numbers", "vector", defaults=(("vector", (0.0, 0.0, 0.0)),)),
        Entry("state", "values", "a value that lasts from frame to frame", initial=0.0),
        Entry("expression", "code", "a formula of its inputs", "a * x + b", defaults=(("a", 1.0), ("x", 0.0))),
        Entry("function", "code", "a Python function on tensors", code=_NEW_FUNCTION),
        Entry("picture", "code", "a Python function that draws a picture", code=_NEW_PICTURE),
        *_expressions(
            "arithmetic",
            {
                "add": ("a + b", "sum"),
                "subtract": ("a - b", "difference"),
                "multiply": ("a * b", "product"),
                "divide": ("a / b", "quotient"),
                "power": ("x ** exponent", "power"),
                "remainder": ("a % b", "remainder"),
                "minimum": ("minimum(a, b)", "the smaller value"),
                "maximum": ("maximum(a, b)", "the larger value"),
                "clip": ("clip(x, low, high)", "limits a value"),
                "mix": ("a + (b - a) * amount", "interpolation from a to b"),
                "where": ("where(condition > 0, a, b)", "one of two values"),
            },
        ),
        *_expressions(
            "functions",
            {
                name: (f"{name}(x)", help)
                for name, help in {
                    "sin": "sine",
                    "cos": "cosine",
                    "exp": "exponential",
                    "log": "natural logarithm",
                    "sqrt": "square root",
                    "abs": "magnitude",
                    "floor": "rounds down",
                    "tanh": "hyperbolic tangent",
                    "sigmoid": "logistic function",
                }.items()
            },
        ),
        *_expressions(
            "arrays",
            {
                name: (f"{name}(x)", help)
                for name, help in {
                    "sum": "the sum of all elements",
                    "mean": "the mean of all elements",
                    "min": "the smallest element",
                    "max": "the largest element",
                    "std": "the standard deviation",
                }.items()
            },
        ),
    )
}


def entries(permission: Permission) -> list[dict[str, str]]:
    """The entries that a page with this permission may add, as JSON."""
    return [
        {"name": entry.name, "group": entry.group, "help": entry.help, "formula": entry.expression}
        for entry in ENTRIES.values()
        if entry.permission <= permission
    ]


def make_block(entry: Entry, name: str) -> Block:
    """A new block.

    >>> make_block(ENTRIES["mix"], "blend")
    <block blend(a, b, amount) -> result>
    """
    if entry.initial is not None:
        return State(name, entry.initial)
    if entry.expression:
        return block(make_expression(entry.expression, dict(entry.defaults), name), name=name)
    return block(define_function(entry.code, {"__name__": "studio", "lg": livegrad}, name), name=name)


def unused_name(name: str, taken: Container[str]) -> str:
    """A name that no other block has.

    >>> unused_name("mix", {"mix", "mix2"}), unused_name("add", {"mix"})
    ('mix3', 'add')
    """
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}{number}"
    return candidate

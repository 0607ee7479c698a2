"""What a test says about a variable: after `x is not None`, `x` has a value.

Branches ask which variables a test narrows on either way; the module of optionals says what they become.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from livegrad.authoring.function.context import Context
from livegrad.authoring.function.values import Value

# What a value is when it is known to be there; added by the module of optionals.
NARROWINGS: list[Callable[[Value], Value | None]] = []


def narrowings(test: ast.expr) -> tuple[set[str], set[str]]:
    """The names that are known to have a value where the test holds, and where it does not."""
    match test:
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=None)]):
            if isinstance(op, ast.IsNot):
                return {name}, set()
            if isinstance(op, ast.Is):
                return set(), {name}
        case ast.Name(id=name):
            return {name}, set()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            then, otherwise = narrowings(operand)
            return otherwise, then
        case ast.BoolOp(op=op, values=values):
            each = [narrowings(value) for value in values]
            if isinstance(op, ast.And):
                return set().union(*(then for then, _ in each)), set()
            return set(), set().union(*(otherwise for _, otherwise in each))
    return set(), set()


def narrow(context: Context, names: set[str]) -> None:
    """Makes variables that are known to have a value plain ones."""
    for name in names:
        value = context.environment.get(name)
        if value is None:
            continue
        for rule in NARROWINGS:
            found = rule(value)
            if found is not None:
                context.environment[name] = found

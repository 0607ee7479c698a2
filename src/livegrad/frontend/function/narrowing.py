"""Type narrowing: after `x is not None`, `x` has a value; after `isinstance(x, C)`, it is a C.

Branches ask which variables a test narrows in either branch; the modules of optionals and interfaces define the new
types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import aliased, aliases_of
from livegrad.frontend.function.type_rules import rules

# Names of which a test says something: the class that they are of, or None where they just have a value.
Known = dict[str, ast.expr | None]


def narrowings(test: ast.expr) -> tuple[Known, Known]:
    """What is known where the test holds, and where it does not."""
    match test:
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=None)]):
            if isinstance(op, ast.IsNot):
                return {name: None}, {}
            if isinstance(op, ast.Is):
                return {}, {name: None}
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), cls], keywords=[]):
            return {name: cls}, {}
        case ast.Name(id=name):
            return {name: None}, {}
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            then, otherwise = narrowings(operand)
            return otherwise, then
        case ast.BoolOp(op=op, values=values):
            each = [narrowings(value) for value in values]
            if isinstance(op, ast.And):
                return _all(then for then, _ in each), {}
            return {}, _all(otherwise for _, otherwise in each)
    return {}, {}


def _all(parts: Iterable[Known]) -> Known:
    return {name: cls for part in parts for name, cls in part.items()}


def narrow(context: Context, facts: Known) -> None:
    """Gives variables of which something is known the types that they have then."""
    for name, cls in facts.items():
        value = context.environment.get(name)
        if value is None:
            continue
        of_class = None if cls is None else context.evaluate(cls).static
        if cls is None:
            results = [rule(value) for rule in rules.narrowing]
        else:
            results = [rule(value, of_class) for rule in rules.class_narrowing]
        for narrowed in results:
            if narrowed is not None:
                context.environment[name] = aliased(narrowed, aliases_of(value))

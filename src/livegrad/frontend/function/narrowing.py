"""Type narrowing by tests: after `x is not None`, `x` is present; after `isinstance(x, C)`, it is a C.

A test narrows variables and fields of variables (`s.b`). Branches query the facts that hold on each path; the modules
of optionals and interfaces define the narrowed types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from livegrad.frontend.function.compile_state import FIELD_FACT, Context
from livegrad.frontend.function.compile_values import Value, aliases_of, with_aliases
from livegrad.frontend.function.type_rules import rules

# The facts that a test establishes: path (`x` or `s.b`) → the class of the value, or None for a value that is present.
Facts = dict[str, ast.expr | None]


def narrowings(test: ast.expr) -> tuple[Facts, Facts]:
    """The facts that hold if a test is true, and those that hold if it is false."""
    match test:
        case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]):
            if isinstance(op, ast.IsNot):
                return _fact(left), {}
            if isinstance(op, ast.Is):
                return {}, _fact(left)
        case ast.Call(func=ast.Name(id="isinstance"), args=[value, cls], keywords=[]):
            return _fact(value, cls), {}
        case ast.Name() | ast.Attribute():
            return _fact(test), {}
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            then, otherwise = narrowings(operand)
            return otherwise, then
        case ast.BoolOp(op=op, values=values):
            each = [narrowings(value) for value in values]
            if isinstance(op, ast.And):
                return _merge(then for then, _ in each), {}
            return {}, _merge(otherwise for _, otherwise in each)
    return {}, {}


def _fact(expression: ast.expr, cls: ast.expr | None = None) -> Facts:
    path = _path_of(expression)
    return {} if path is None else {path: cls}


def _path_of(expression: ast.expr) -> str | None:
    """A variable or a chain of its fields as text; None for anything else."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            path = _path_of(owner)
            return None if path is None else f"{path}.{name}"
    return None


def _merge(parts: Iterable[Facts]) -> Facts:
    return {path: cls for part in parts for path, cls in part.items()}


def environment_name(path: str) -> str:
    """The environment entry that records a fact about a path."""
    return FIELD_FACT + path if "." in path else path


def narrow(context: Context, facts: Facts) -> None:
    """Gives variables their narrowed types, and records facts about fields for `narrow_field`."""
    for path, cls in facts.items():
        root = context.environment.get(path.partition(".")[0])
        if root is None:
            continue
        static_class = None if cls is None else context.evaluate(cls).static
        if "." in path:
            # The fact is tied to this node: assigning the variable, or a part of it, creates another node.
            context.environment[environment_name(path)] = Value(None, root.node, static=static_class)
        else:
            context.environment[path] = _narrowed(root, static_class)


def narrow_field(context: Context, node: ast.Attribute, value: Value) -> Value:
    """The value of a field, with the narrowed type if a test has established one."""
    path = _path_of(node)
    fact = None if path is None else context.environment.get(environment_name(path))
    if path is None or fact is None:
        return value
    root = context.environment[path.partition(".")[0]]
    return _narrowed(value, fact.static) if fact.node is root.node and root.node is not None else value


def _narrowed(value: Value, cls: object) -> Value:
    """The value narrowed to a class, or, if `cls` is None, to a present value; unchanged if no rule applies."""
    candidates = (
        [rule(value) for rule in rules.narrowing]
        if cls is None
        else [rule(value, cls) for rule in rules.class_narrowing]
    )
    narrowed = next((candidate for candidate in candidates if candidate is not None), value)
    return with_aliases(narrowed, aliases_of(value)) if narrowed is not value else value

"""Hooks through which optionals, pairs, type variables and interfaces extend the compiler.

Each module of such types defines one `TypeRules`, and `frontend/differentiable/__init__.py` installs them. The compiler
applies `rules` to types that it does not implement itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

Rule = Callable[..., Any]


@dataclass(frozen=True)
class TypeRules:
    """The rules that a kind of type adds; each rule returns None for types that it does not handle."""

    annotation: Rule | None = None  # (annotation) → the type that it denotes
    # (value, target, span) → the converted value. With span None, any result but None means that a conversion exists.
    conversion: Rule | None = None
    join: Rule | None = None  # (first type, second type) → their common type
    method: Rule | None = None  # (context, value, name) → a method of the value
    type_attribute: Rule | None = None  # (type, name) → an attribute of the type
    narrowing: Rule | None = None  # (value) → the value, given that it is present
    class_narrowing: Rule | None = None  # (value, class) → the value, given that it is of the class
    presence: Rule | None = None  # (value) → (whether the value is present, the value given that it is)
    bound: Rule | None = None  # (type variable, type) → the reason why the type violates the bound
    struct: Callable[[Any], None] | None = None  # called with each new struct
    derivative_target: Rule | None = None  # (object) → a differentiable function


class _InstalledRules:
    """The installed rules by hook."""

    annotation: tuple[Rule, ...]
    conversion: tuple[Rule, ...]
    join: tuple[Rule, ...]
    method: tuple[Rule, ...]
    type_attribute: tuple[Rule, ...]
    narrowing: tuple[Rule, ...]
    class_narrowing: tuple[Rule, ...]
    presence: tuple[Rule, ...]
    bound: tuple[Rule, ...]
    struct: tuple[Rule, ...]
    derivative_target: tuple[Rule, ...]

    def __init__(self) -> None:
        self.install()

    def install(self, *kinds: TypeRules) -> None:
        """Replaces the rules by those of these kinds, in this order."""
        for field in fields(TypeRules):
            values = (getattr(kind, field.name) for kind in kinds)
            setattr(self, field.name, tuple(rule for rule in values if rule is not None))


rules = _InstalledRules()

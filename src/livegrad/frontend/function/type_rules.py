"""Rules that further kinds of types (optionals, pairs, type variables, interfaces) add to the language.

Each module of such types has one `TypeRules`, and `frontend/differentiable/__init__.py` installs all. The compiler asks
`rules` wherever it meets a type that it does not know itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

Rule = Callable[..., Any]


@dataclass(frozen=True)
class TypeRules:
    """The rules that a kind of type adds; each rule returns None for types that it does not handle."""

    annotation: Rule | None = None  # (annotation) → the type that it stands for
    # (value, target, span) → the converted value; without a span, anything but None says that it could be
    conversion: Rule | None = None
    join: Rule | None = None  # (first type, second type) → the type that holds values of both
    method: Rule | None = None  # (context, value, name) → a method of a value
    type_attribute: Rule | None = None  # (type, name) → an attribute of a type
    narrowing: Rule | None = None  # (value) → what a value is where it is known to be there
    class_narrowing: Rule | None = None  # (value, class) → what a value is where it is known to be of a class
    presence: Rule | None = None  # (value) → whether a value that may be missing is there, and what it is then
    bound: Rule | None = None  # (type variable, type) → what is wrong if the type cannot stand for it
    struct: Callable[[Any], None] | None = None  # called with each new struct
    derivative_target: Rule | None = None  # (object) → a function that can be differentiated


class _InstalledRules:
    """The rules of all kinds of types, by hook."""

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
        """Has exactly these rules, in this order."""
        for field in fields(TypeRules):
            values = (getattr(kind, field.name) for kind in kinds)
            setattr(self, field.name, tuple(rule for rule in values if rule is not None))


rules = _InstalledRules()

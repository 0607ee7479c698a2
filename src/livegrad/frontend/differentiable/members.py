"""`derivative_member`, which maps a field of a struct to a member of its custom Differential."""

from __future__ import annotations

from typing import Any

from livegrad.diagnostics import UsageError, caller_origin


class derivative_member:
    """`Annotated[float, derivative_member("db")]`: names the member of a custom Differential that belongs to a field.

    The name may include the Differential: `derivative_member("MyDiffType.db")`, `derivative_member(MyDiffType.db)`.

    >>> derivative_member("slope").name
    'slope'
    """

    def __init__(self, name: str | FieldReference) -> None:
        if not isinstance(name, str | FieldReference):
            raise UsageError(
                "derivative_member takes the name of a field",
                where=caller_origin(),
                found=repr(name),
                help='write derivative_member("db")',
            )
        self.owner, _, self.name = str(name).rpartition(".")


class FieldReference:
    """`MyDiffType.db`: a reference to a field, read from its class."""

    def __init__(self, owner: str, name: str) -> None:
        self._text = f"{owner}.{name}"

    def __get__(self, instance: Any, owner: Any = None) -> FieldReference:
        if instance is not None:
            raise AttributeError(f"`{self._text}` has no value yet")
        return self

    def __repr__(self) -> str:
        return self._text

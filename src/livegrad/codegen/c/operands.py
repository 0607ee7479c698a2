"""Values of nodes in C: expressions, decomposed aggregates, tensors read by index, and tapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from livegrad.ir.types import Scalar, Type


@dataclass(frozen=True, slots=True)
class Text:
    """A value as a C expression. A plain one is a name or a constant, which can be repeated.

    An aggregate composed of plain values has them as its `parts`.
    """

    text: str
    type: Type
    plain: bool = True
    parts: tuple[Value, ...] | None = None

    @property
    def scalar(self) -> Scalar:
        """The type, which must be a scalar type."""
        assert isinstance(self.type, Scalar)
        return self.type


@dataclass(frozen=True, slots=True)
class TensorReference:
    """A tensor that is read by index: its pointer, and the names of its extents and strides."""

    pointer: str
    element: Scalar
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    short: bool = False  # whether extents and offsets have 32 bits


@dataclass(frozen=True, slots=True)
class TapeReference:
    """A tape: the name of the offset of its header in thread-private memory."""

    header: str
    element: Type


Value: TypeAlias = "Text | TensorReference | TapeReference | tuple[Value, ...]"


def leaves_of(value: Value) -> Iterator[Text | TapeReference]:
    """The scalars and tapes of a value, in order."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves_of(part)
    elif not isinstance(value, TensorReference):
        yield value


def rebuild_value(value: Value, leaves: Iterator[Text | TapeReference]) -> Value:
    """A value of the same structure with other leaves; tensors stay as they are."""
    if isinstance(value, tuple):
        return tuple(rebuild_value(part, leaves) for part in value)
    return value if isinstance(value, TensorReference) else next(leaves)

"""Tapes as arrays with a row for each iteration.

`tensor_loops.py` writes and reads the rows in place. For other host steps, they are mappings from index to value, like
all tapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from livegrad.ir.persistent_array import PersistentArray
from livegrad.ir.types import Scalar, Type
from livegrad.ops.tape import zero_value
from livegrad.passes.flatten_signature import assemble_value, flatten_value, leaf_types
from livegrad.runtime.cpu.memory_pool import result_maker
from livegrad.schedule.plan import storage
from livegrad.schedule.step_kinds import is_storable

Column = np.ndarray[Any, Any] | list[Any]  # the rows of one leaf: an array, or a list if the leaf is a tape


class TapeValues(Mapping[int, Any]):
    """Values for the indices below `count`, with a column for each leaf of the element."""

    __slots__ = ("columns", "count", "element")

    def __init__(self, element: Type, columns: Sequence[Column], count: int) -> None:
        self.element, self.columns, self.count = element, columns, count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise KeyError(index)
        return assemble_value(iter([column[index] for column in self.columns]), self.element)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count

    def with_item(self, index: int, value: Any) -> PersistentArray:
        """The values with one entry replaced, as a persistent array."""
        return PersistentArray(dict(self)).with_item(index, value)


def new_column(type: Type, count: int) -> Column:
    """An uninitialised column for one leaf of `count` rows."""
    layout = _layout_of(type)
    if layout is None:
        return [None] * count
    element, shape, size = layout
    return result_maker(element, (count, *shape), count * size)()


@lru_cache(maxsize=1024)
def _layout_of(type: Type) -> tuple[Scalar, tuple[int, ...], int] | None:
    """The element type, shape and bytes of a row; None if rows are no arrays."""
    if not is_storable(type):
        return None
    element, shape = storage(type)
    return element, shape, prod(shape) * element.dtype.itemsize


def extend_column(column: Column, type: Type, count: int) -> Column:
    """Copies a column to a new one of `count` rows; the added rows are uninitialised."""
    extended = new_column(type, count)
    extended[: len(column)] = column  # type: ignore[call-overload]
    return extended


def pad_column(column: Column, type: Type, count: int, capacity: int) -> Column:
    """Copies the first `count` rows of a column to a new one of `capacity` rows, and fills the others with zeros."""
    padded = new_column(type, capacity)
    padded[:count] = column[:count]  # type: ignore[call-overload]
    if isinstance(padded, list):
        padded[count:] = [zero_value(type)] * (capacity - count)
    else:
        padded[count:] = np.zeros((), padded.dtype)
    return padded


def as_rows(tape: Mapping[int, Any], element: Type) -> TapeValues:
    """Any tape as rows; entries that were never set are zero."""
    if isinstance(tape, TapeValues):
        return tape
    types = leaf_types(element)
    count = max(tape, default=-1) + 1
    missing = flatten_value(zero_value(element), element) if len(tape) < count else []
    columns = [new_column(type, count) for type in types]
    for index in range(count):
        leaves = flatten_value(tape[index], element) if index in tape else missing
        for column, leaf in zip(columns, leaves, strict=True):
            column[index] = leaf
    return TapeValues(element, columns, count)

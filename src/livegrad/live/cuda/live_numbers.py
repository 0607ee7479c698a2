"""Stores live numbers in argument slots of launches and in memory cells on the device.

`set` does a hot update, except for updating the launches. Its cost does not depend on the size of the plan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, scalar_of
from livegrad.live.compile.live_steps import Operand, operand_key
from livegrad.live.cuda.buffers import DeviceBuffer, allocate_zeroed, write_array
from livegrad.live.cuda.live_graph import notify
from livegrad.runtime.cuda.cuda_graph import Launch

# Formats of `struct`; NumPy packs the other types.
_FORMATS = {"f32": "<f", "f64": "<d", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
            "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "bool": "<?"}  # fmt: skip
_PACKERS = {name: struct.Struct(form).pack_into for name, form in _FORMATS.items()}


def dense_number(value: Any, type: Type) -> np.ndarray[Any, Any]:
    """A number, or a vector feature, as a dense array."""
    element = scalar_of(type)
    assert element is not None
    shape: tuple[int, ...] = ()
    match type:
        case Vector(size=size):
            shape = (size,)
        case Matrix(rows=rows, columns=columns):
            shape = (rows, columns)
        case Tensor(shape=sizes):
            shape = sizes  # type: ignore[assignment]
    return np.ascontiguousarray(np.broadcast_to(np.asarray(value, element.dtype), shape))


@dataclass(eq=False)
class NumberSlot:
    """An argument slot of a launch that holds a number."""

    launch: Launch
    offset: int
    put: Callable[[Any], None]


def make_number_slot(launch: Launch, index: int, type: Type) -> NumberSlot:
    """The argument slot of a launch for a number of this type."""
    element = scalar_of(type)
    assert isinstance(element, Scalar)
    offset, target = 8 * index, launch.bytes
    pack = _PACKERS.get(element.name)
    if pack is not None:
        return NumberSlot(launch, offset, partial(pack, target, offset))
    size = element.dtype.itemsize

    def put(value: Any) -> None:
        target[offset : offset + size] = np.asarray(value, element.dtype).tobytes()

    return NumberSlot(launch, offset, put)


@dataclass(eq=False)
class Number:
    """A parameter or feature: the argument slots that hold it, by owner (a step), and its cells in memory."""

    slots: dict[str, list[NumberSlot]] = field(default_factory=dict)
    cells: dict[Type, DeviceBuffer] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    puts: tuple[Callable[[Any], None], ...] | None = ()  # of all slots; None: outdated

    def add(self, owner: str, slot: NumberSlot) -> None:
        self.slots.setdefault(owner, []).append(slot)
        self.puts = None

    def copy(self) -> Number:
        """A copy with the same slots, to which other slots can be added."""
        return Number({owner: list(slots) for owner, slots in self.slots.items()}, puts=None)

    def forget(self, owner: str) -> None:
        if self.slots.pop(owner, None) is not None:
            self.puts = None

    def _collect_puts(self) -> tuple[Callable[[Any], None], ...]:
        all_slots = [slot for slots in self.slots.values() for slot in slots]
        self.launches = tuple(dict.fromkeys(slot.launch for slot in all_slots))
        return tuple(slot.put for slot in all_slots)

    def cell(self, type: Type, value: Any) -> DeviceBuffer:
        """Memory that holds the number as this type."""
        if type not in self.cells:
            array = dense_number(0 if value is None else value, type)
            memory = allocate_zeroed(array.nbytes)
            self.cells[type] = DeviceBuffer(memory.address, array.nbytes, memory)
            write_array(memory.address, array)
        return self.cells[type]

    def set(self, value: Any) -> None:
        """Hot: writes the new value to every slot and cell, and notifies the graphs."""
        if self.puts is None:
            self.puts = self._collect_puts()
        for put in self.puts:
            put(value)
        notify(self.launches)
        for type, cell in self.cells.items():
            write_array(cell.address, dense_number(value, type))


class LiveNumbers:
    """The parameters and features of an executable, by key."""

    def __init__(self) -> None:
        self._numbers: dict[Any, Number] = {}
        self._borrowed: dict[Any, Number] = {}  # numbers that the previous executable still owns

    def of(self, operand: Operand) -> Number:
        """The number of an operand, created on first use."""
        key = operand_key(operand)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = Number()
        return number

    def add(self, owner: str, slots: Iterable[tuple[Operand, NumberSlot]]) -> None:
        """Adds the slots in which a step holds numbers."""
        for operand, slot in slots:
            key = operand_key(operand)
            if key in self._borrowed:
                if owner in self._borrowed[key].slots:
                    continue  # the borrowed number has its slots
                self._numbers[key] = self._borrowed.pop(key).copy()  # the previous executable keeps the original
            self.of(operand).add(owner, slot)

    def forget(self, owner: str, slots: Iterable[tuple[Operand, NumberSlot]]) -> None:
        """Removes the slots of a step."""
        for operand, _ in slots:
            self._numbers[operand_key(operand)].forget(owner)

    def borrow(self, previous: LiveNumbers, shared: Iterable[str]) -> None:
        """Borrows the numbers of the previous executable that only steps with reused launches read."""
        owners = set(shared)
        self._borrowed = {
            key: number
            for key, number in previous._numbers.items()
            if not number.cells and number.slots and number.slots.keys() <= owners
        }
        self._numbers.update(self._borrowed)

    def keep_borrowed(self) -> None:
        """Takes ownership of the borrowed numbers, because the previous executable is gone."""
        self._borrowed = {}

    def set(self, key: Any, value: Any) -> None:
        """Hot: sets a number, if any step holds it."""
        number = self._numbers.get(key)
        if number is not None:
            number.set(value)

    def set_changed(self, before: Mapping[Any, Any], now: Mapping[Any, Any]) -> None:
        """Sets the numbers that changed."""
        for key, value in now.items():
            if before.get(key) is not value:
                self.set(key, value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value)

    def setter(self, key: Any) -> Callable[[Any], None]:
        """A function that sets one number. The number of a region gets its cell later, when its graph is built."""
        return self._numbers.setdefault(key, Number()).set

    def clear(self) -> None:
        """Drops all numbers."""
        self._numbers.clear()
        self._borrowed = {}

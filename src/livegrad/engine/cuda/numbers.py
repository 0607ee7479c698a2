"""Live numbers on the device: packed into the words of launches, or held in cells of memory.

`set` is the whole of a hot update but for handing the launches over; nothing here grows with the plan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.backends.cuda.graph import Launch
from livegrad.backends.cuda.live_graph import notify
from livegrad.engine.cuda.buffers import HeldBuffer, write_array, zeroed
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector, scalar_of

# What `struct` calls a number; other types go by NumPy.
_FORMATS = {"f32": "<f", "f64": "<d", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
            "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "bool": "<?"}  # fmt: skip


def dense_number(value: Any, type: Type) -> np.ndarray[Any, Any]:
    """A number, or a vector among the features, as memory that a step reads."""
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
class Place:
    """A word of a launch that holds a number."""

    launch: Launch
    offset: int
    put: Callable[[Any], None]


def place_for(launch: Launch, index: int, type: Type) -> Place:
    """The place of a number in the words of a launch."""
    element = scalar_of(type)
    assert isinstance(element, Scalar)
    offset, target = 8 * index, launch.bytes
    form = _FORMATS.get(element.name)
    if form is not None:
        pack = struct.Struct(form).pack_into
        return Place(launch, offset, lambda value: pack(target, offset, value))
    size = element.dtype.itemsize

    def put(value: Any) -> None:
        target[offset : offset + size] = np.asarray(value, element.dtype).tobytes()

    return Place(launch, offset, put)


@dataclass(eq=False)
class Number:
    """A parameter or feature: by owner (a step), the words that hold it; and its cells in memory."""

    places: dict[str, list[Place]] = field(default_factory=dict)
    cells: dict[Type, HeldBuffer] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    all_places: tuple[Place, ...] = ()

    def add(self, owner: str, place: Place) -> None:
        self.places.setdefault(owner, []).append(place)
        self._gather()

    def forget(self, owner: str) -> None:
        if self.places.pop(owner, None) is not None:
            self._gather()

    def _gather(self) -> None:
        self.all_places = tuple(place for places in self.places.values() for place in places)
        self.launches = tuple(dict.fromkeys(place.launch for place in self.all_places))

    def cell(self, type: Type, value: Any) -> HeldBuffer:
        """Memory that holds it as a type."""
        if type not in self.cells:
            array = dense_number(0 if value is None else value, type)
            memory = zeroed(array.nbytes)
            self.cells[type] = HeldBuffer(memory.address, array.nbytes, memory)
            write_array(memory.address, array)
        return self.cells[type]

    def set(self, value: Any) -> None:
        """Hot: every word and cell gets the new value, and the graphs learn of it."""
        for place in self.all_places:
            place.put(value)
        notify(self.launches)
        for type, held in self.cells.items():
            write_array(held.address, dense_number(value, type))

"""Typed values in LLVM IR: registers, uniform or with one value per lane, and the values of nodes made of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from livegrad.ir.bfloat16 import narrow
from livegrad.ir.types import Scalar, Type, bf16

_LLVM = {"bool": "i1", "f16": "half", "f32": "float", "f64": "double", "ptr": "ptr"}


class _Pointer(Scalar):
    """The type of addresses; LLVM pointers are opaque."""

    __hash__ = object.__hash__  # not that of a NumPy type, and not a call of Python


pointer = _Pointer("ptr", "pointer", 64)


def llvm_element(type: Scalar) -> str:
    """The LLVM type of one lane."""
    return _LLVM.get(type.name) or f"i{type.bits}"


def llvm_memory(type: Scalar) -> str:
    """The LLVM type of an element in memory: booleans take a byte."""
    return "i8" if type.kind == "bool" else llvm_element(type)


@lru_cache(maxsize=256)
def llvm_type(type: Scalar, lanes: int) -> str:
    element = llvm_element(type)
    return element if lanes == 1 else f"<{lanes} x {element}>"


def literal_text(value: Any, type: Scalar) -> str:
    """A scalar constant in LLVM IR; floats are written as their bits, so that they are exact."""
    kind = type.kind
    if kind == "signed" or kind == "unsigned":
        return str(int(value))
    if kind == "bool":
        return "true" if value else "false"
    if type is bf16:
        return str(int(narrow(value).view(np.uint16)))
    if type.bits == 16:
        return "0xH" + format(struct.unpack("<H", np.float16(value).tobytes())[0], "04X")
    wide = float(np.float32(value)) if type.bits == 32 else float(value)
    return f"0x{struct.pack('>d', wide).hex().upper()}"


@dataclass(slots=True, unsafe_hash=True)  # never mutated, but not frozen: that halves the time to create one
class Register:
    """A scalar value in LLVM IR: the same for all lanes (`lanes` is 1), or one value per lane.

    The index of a point also has its `dimension`. If it increases by one from lane to lane, `first` is the index of
    lane 0; if it decreases by one, `last` is the index of the last lane.
    """

    text: str
    type: Scalar
    lanes: int
    literal: bool = False
    dimension: int | None = None
    first: Register | None = None
    last: Register | None = None

    @property
    def uniform(self) -> bool:
        return self.lanes == 1

    @property
    def typed(self) -> str:
        return f"{llvm_type(self.type, self.lanes)} {self.text}"


@dataclass(frozen=True, slots=True)
class TensorReference:
    """A tensor accessed by computed index: its address, and its extents and strides (in elements) as registers."""

    pointer: Register
    element: Scalar
    extents: tuple[Register, ...]
    strides: tuple[Register, ...]
    covered: frozenset[tuple[int, int]] = frozenset()  # (axis, dimension): the axis is at least as long
    chunk_rank: int = 0  # leading axes that the user does not see
    flags: str = ""  # alias metadata of its loads and stores


@dataclass(frozen=True, slots=True)
class TapeRows:
    """The slots of a tape that was given room for all iterations of a loop.

    They belong to loops of so many iterations. Inside such a loop, `index` is the name of the index.
    """

    data: Register
    stride: Register
    iterations: str
    index: str | None = None


@dataclass(frozen=True, slots=True)
class TapeReference:
    """A tape: the address of its header, the same for all lanes."""

    header: Register
    element: Type
    rows: TapeRows | None = None  # where the slots are, if that is known: not across branches


@dataclass(frozen=True, slots=True)
class Product:
    """Two factors that are not multiplied yet, so that adding the product rounds once."""

    first: Register
    second: Register


NodeValue: TypeAlias = "Register | TensorReference | TapeReference | tuple[NodeValue, ...]"


def registers_of(value: NodeValue) -> list[Register]:
    """All registers of a value, in order; a tape is represented by its header."""
    if isinstance(value, Register):
        return [value]
    if isinstance(value, TapeReference):
        return [value.header]
    if isinstance(value, TensorReference):
        return []
    return [register for part in value for register in registers_of(part)]


def as_register(value: NodeValue) -> Register:
    """A value that is known to be a scalar."""
    assert isinstance(value, Register)
    return value


def rebuild_value(value: NodeValue, registers: list[Register]) -> NodeValue:
    """A value of the same structure over other registers, which are taken from the front of the list."""
    if isinstance(value, Register):
        return registers.pop(0)
    if isinstance(value, TapeReference):
        return TapeReference(registers.pop(0), value.element)
    if isinstance(value, TensorReference):
        return value
    return tuple(rebuild_value(part, registers) for part in value)

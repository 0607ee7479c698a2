"""Typed values in LLVM IR: registers, which are uniform or have one value per lane, and what a node becomes."""

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
    """The type of addresses: LLVM has one for all of them."""

    def __hash__(self) -> int:
        return id(self)


pointer = _Pointer("ptr", "pointer", 64)


def llvm_element(type: Scalar) -> str:
    """The LLVM type of one lane."""
    return _LLVM.get(type.name) or f"i{type.bits}"


def llvm_memory(type: Scalar) -> str:
    """The LLVM type of an element in memory: truth values take a byte."""
    return "i8" if type.kind == "bool" else llvm_element(type)


@lru_cache(maxsize=256)
def llvm_type(type: Scalar, lanes: int) -> str:
    element = llvm_element(type)
    return element if lanes == 1 else f"<{lanes} x {element}>"


def literal_text(value: Any, type: Scalar) -> str:
    """A scalar constant as LLVM writes it: floats by their bits, so that nothing is rounded on the way."""
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
    """A scalar value in LLVM IR: the same for all lanes (`lanes` is 1), or one for each.

    The index of a point has its dimension and, where it increases by one from lane to lane, the index of lane 0; where
    it decreases by one, that of the last lane.
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
    """A tensor that is accessed by index: its address, and its extents and strides (in elements) as registers."""

    pointer: Register
    element: Scalar
    extents: tuple[Register, ...]
    strides: tuple[Register, ...]
    covered: frozenset[tuple[int, int]] = frozenset()  # axes that have room for every index along a dimension
    chunk_rank: int = 0  # axes in front of those that the user sees
    flags: str = ""  # of loads and stores: metadata that tells its memory from that of other tensors


@dataclass(frozen=True, slots=True)
class TapeReference:
    """A tape: the address of its header, the same for all lanes."""

    header: Register
    element: Type


@dataclass(frozen=True, slots=True)
class Product:
    """Two factors that are not multiplied yet, so that an addition of the product rounds once."""

    first: Register
    second: Register


NodeValue: TypeAlias = "Register | TensorReference | TapeReference | tuple[NodeValue, ...]"


def registers_of(value: NodeValue) -> list[Register]:
    """All registers of a value, in order; a tape counts by its header."""
    if isinstance(value, Register):
        return [value]
    if isinstance(value, TapeReference):
        return [value.header]
    if isinstance(value, TensorReference):
        return []
    return [register for part in value for register in registers_of(part)]

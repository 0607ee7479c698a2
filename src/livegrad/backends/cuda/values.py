"""What a node is while CUDA C is written: text of scalars by component, tensors read by index, and traces.

A half is held as a float that is rounded after every operation; a bfloat16, which is only moved and cast, by its bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from livegrad.diagnostics import CompileError
from livegrad.ir.bfloat16 import narrow
from livegrad.ir.types import Scalar, Type, bf16, f16

_HELD = {
    "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long",
    "f16": "float", "bf16": "unsigned short", "f32": "float", "f64": "double",
    "c64": "unsigned long long", "c128": "ulonglong2",  # only moved: NumPy computes with complex numbers
}  # fmt: skip
_IN_MEMORY = {"bool": "unsigned char", "f16": "unsigned short"}


def held_type(type: Scalar) -> str:
    """The C type of a value.

    >>> from livegrad.ir.types import f16, i64
    >>> held_type(i64), held_type(f16)
    ('long long', 'float')
    """
    if type.name not in _HELD:
        raise CompileError(f"CUDA kernels have no {type}")
    return _HELD[type.name]


def memory_type(type: Scalar) -> str:
    """The C type of an element in memory."""
    return _IN_MEMORY.get(type.name) or held_type(type)


def loaded(text: str, type: Scalar) -> str:
    """What an element in memory is as a value."""
    if type is f16:
        return f"lg_from_half({text})"
    return f"({text} != 0)" if type.kind == "bool" else text


def stored(text: str, type: Scalar) -> str:
    """What a value is as an element in memory."""
    return f"lg_to_half({text})" if type is f16 else text


def literal(value: Any, type: Scalar) -> str:
    """A constant as C writes it; floats by their bits, so that nothing is rounded on the way.

    >>> from livegrad.ir.types import f32, i64, bool_
    >>> literal(0.5, f32), literal(-1, i64), literal(True, bool_)
    ('0x1.0000000000000p-1f', '(-1LL)', 'true')
    """
    if type.kind == "bool":
        return "true" if value else "false"
    if type.kind in ("signed", "unsigned"):
        return _integer(int(value), type)
    if type.kind == "complex" and value == 0:
        return f"{held_type(type)}{{}}" if type.bits == 128 else "0ULL"
    if type.kind == "complex":
        raise CompileError(f"CUDA kernels have no constant {value!r}")
    if type is bf16:
        return f"((unsigned short){int(narrow(value).view(np.uint16))})"
    number = float(np.float16(value)) if type is f16 else float(type.dtype.type(value))
    kind = "double" if type.bits == 64 else "float"
    if math.isnan(number):
        return f"lg_nan_{kind}()"
    if math.isinf(number):
        return f"lg_infinity_{kind}()" if number > 0 else f"(-lg_infinity_{kind}())"
    text = number.hex() + ("" if type.bits == 64 else "f")
    return f"({text})" if text.startswith("-") else text


def _integer(value: int, type: Scalar) -> str:
    if type.kind == "unsigned":
        return f"{value}ULL" if type.bits == 64 else f"(({held_type(type)}){value}u)"
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    text = f"{value}LL" if type.bits == 64 else (f"({held_type(type)})({value}LL)" if type.bits < 64 else str(value))
    return f"({text})" if text.startswith(("-", "(")) else text


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar value: a name or a constant in C."""

    text: str
    type: Scalar


@dataclass(frozen=True, slots=True)
class TensorReference:
    """A whole tensor that is read by index: its pointer, and the names of its extents and strides."""

    pointer: str
    element: Scalar
    extents: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TraceReference:
    """A trace: the name of the offset of its header in the thread's own memory."""

    header: str
    element: Type


Value: TypeAlias = "Text | TensorReference | TraceReference | tuple[Value, ...]"


def leaves_of(value: Value) -> Iterator[Text | TraceReference]:
    """The scalars and traces of a value, in order."""
    if isinstance(value, tuple):
        for part in value:
            yield from leaves_of(part)
    elif not isinstance(value, TensorReference):
        yield value


def rebuilt(value: Value, leaves: Iterator[Text | TraceReference]) -> Value:
    """A value of the same shape with other leaves; tensors stay as they are."""
    if isinstance(value, tuple):
        return tuple(rebuilt(part, leaves) for part in value)
    return value if isinstance(value, TensorReference) else next(leaves)

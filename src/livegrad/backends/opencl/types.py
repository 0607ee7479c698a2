"""The types of the value IR in OpenCL C: how values are declared, made and taken apart."""

from __future__ import annotations

import math
import re

from livegrad.diagnostics import CompileError
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tensor, Tuple, Type, Vector, components

_SCALARS = {
    "bool": "int", "i8": "char", "i16": "short", "i32": "int", "i64": "long",
    "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong", "f32": "float", "f64": "double",
}  # fmt: skip
_WIDTHS = (2, 3, 4, 8, 16)
# Words of C and functions of OpenCL C that a user's function must not hide.
_RESERVED_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    main kernel global local constant private bool half uchar ushort uint ulong size_t true false image2d_t
    image3d_t sampler_t event_t acos acosh acospi asin asinh asinpi atan atan2 atanh atanpi atan2pi cbrt ceil
    copysign cos cosh cospi erfc erf exp exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hypot ilogb
    ldexp lgamma log log2 log10 log1p logb mad maxmag minmag modf nan nextafter pow pown powr remainder remquo rint
    rootn round rsqrt sin sincos sinh sinpi sqrt tan tanh tanpi tgamma trunc abs abs_diff add_sat hadd rhadd clz
    mad_hi mad_sat max min mul_hi rotate sub_sat upsample popcount mad24 mul24 clamp degrees mix radians step
    smoothstep sign cross dot distance length normalize fast_distance fast_length fast_normalize isequal isnotequal
    isgreater isless isfinite isinf isnan isnormal signbit any all bitselect select vload2 vload3 vload4 vstore2
    vstore3 vstore4 shuffle printf barrier prefetch
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())


def identifier(name: str) -> str:
    """A name as C has them.

    >>> identifier("my gyroid.bwd"), identifier("2d"), identifier("mix")
    ('my_gyroid_bwd', '_2d', 'mix_')
    """
    text = re.sub(r"[^0-9A-Za-z_]", "_", name) or "_"
    if text[0].isdigit():
        return f"_{text}"
    return f"{text}_" if text in _RESERVED or text.startswith(("lg_", "__")) else text


class Types:
    """Names types, and collects the structs that they need, in order."""

    def __init__(self) -> None:
        self.structs: dict[Type, str] = {}
        self.declarations: list[str] = []

    def name(self, type: Type) -> str:
        """The C type of a value."""
        match type:
            case Scalar():
                return self._scalar(type)
            case Vector(element=element, size=size):
                return self._vector(type, element, size)
            case Matrix(element=element, rows=rows, columns=columns):
                return self._vector(type, element, rows * columns)
            case Tuple() | Struct() | Array():
                return self._struct(type)
            case Tensor(element=element):
                return f"__global const {self._scalar(element)}*"
        raise CompileError(f"OpenCL C has no {type}")

    def _scalar(self, type: Scalar) -> str:
        if type.name not in _SCALARS:
            raise CompileError(f"OpenCL C has no {type}")
        return _SCALARS[type.name]

    def _vector(self, type: Type, element: Scalar, size: int) -> str:
        if size == 1:
            return self._scalar(element)
        if size not in _WIDTHS:
            raise CompileError(f"OpenCL C has no {type}", expected="2, 3, 4, 8 or 16 components")
        if element.kind == "bool":
            return f"int{size}"
        return f"{self._scalar(element)}{size}"

    def _struct(self, type: Type) -> str:
        if type not in self.structs:
            members = " ".join(f"{self.name(member)} r{i};" for i, member in enumerate(components(type)))
            name = f"lg_tuple{len(self.structs)}"
            self.structs[type] = name
            self.declarations.append(f"typedef struct {{ {members} }} {name};")
        return self.structs[type]

    def make(self, type: Type, members: list[str]) -> str:
        """An expression that makes an aggregate of its members."""
        if isinstance(type, Vector | Matrix):
            return members[0] if len(members) == 1 else f"({self.name(type)})({', '.join(members)})"
        return f"({self.name(type)}){{{', '.join(members)}}}"

    def member(self, value: str, type: Type, index: int) -> str:
        """An expression for one member of an aggregate."""
        match type:
            case Vector(size=1):
                return value
            case Vector(size=size) if size <= 4:
                return f"{value}.{'xyzw'[index]}"
            case Vector() | Matrix():
                return f"{value}.s{index:x}"
        return f"{value}.r{index}"


def literal(value: bool | int | float | complex, type: Scalar) -> str:
    """A constant as C writes it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return f"{value}{'L' if type.bits == 64 else ''}"
    if not isinstance(value, float):
        raise CompileError(f"OpenCL C has no constant {value!r}")
    suffix = "f" if type.bits == 32 else ""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"{value!r}{suffix}"
    return f"({text})" if text.startswith("-") else text

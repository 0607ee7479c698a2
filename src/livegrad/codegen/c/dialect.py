"""Dialects of C: names of types, constants, constructors, function qualifiers and statements.

The emitter writes every declaration, conversion and choice through a method of `Dialect`. OpenCL C and CUDA C differ
only in its fields; the languages of shaders (`shader_dialects.py`) have a subclass each. The kernels of plans have a
dialect too, in `codegen/cuda/kernel_values.py`: CUDA C with its own support library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.diagnostics import CompileError
from livegrad.ir.bfloat16 import narrow
from livegrad.ir.types import Scalar, Type, bf16


@dataclass(frozen=True, eq=False)
class Dialect:
    """One language of the C family.

    `scalars` has the names of scalar types. `vector_stems` has the stems of vector types by element, such as `float`
    for `float3`, whose sizes are in `widths`. `overrides` replaces the code in op records, by op and scalar.
    """

    name: str
    scalars: Mapping[str, str]
    index: str  # the type of loop counters and of offsets
    long_suffix: str
    vector_stems: Mapping[str, str]
    widths: tuple[int, ...]
    make_vector: str  # with {type} and {members}
    make_struct: str
    function_prefix: str
    pointer: str  # to global memory, with {type}
    kernel_head: str
    thread: str  # the index of a thread's work item
    not_a_number: Mapping[bool, str]  # by whether the type is double
    infinity: Mapping[bool, str]
    float_suffix: str  # of the names of single-precision math functions
    memory: Mapping[str, str]  # types of elements in memory, where they differ from those of values
    loads: Mapping[str, str]  # conversions of such elements to values
    stores: Mapping[str, str] = field(default_factory=dict)  # conversions of values to such elements
    exact_constants: bool = False  # hexadecimal float constants instead of readable decimals
    whole_vectors: bool = False  # whether scalar operators and functions also take vectors
    geometry: frozenset[str] = frozenset()  # ops on vectors for which the dialect has functions
    overrides: Mapping[tuple[str, str], str] = field(default_factory=dict)
    casts: Mapping[tuple[str, str], str] = field(default_factory=dict)  # by source and target, where C has none
    double_pragma: str = ""
    kernel_pragma: str = ""  # makes kernels round like the reference
    needs_braces: bool = False  # whether a branch of one statement needs braces
    is_complete: bool = False  # whether `overrides` lists all ops that have code, and op records are not read
    helpers: Mapping[str, Mapping[str, str]] | None = None  # by kind of scalar; None: those of C
    words: Mapping[str, str] = field(default_factory=dict)  # what else the texts of helpers mention; {T} is the type
    prelude: Mapping[str, str] = field(default_factory=dict)  # functions without an op, by how their calls begin

    def scalar(self, type: Scalar) -> str:
        """The C type of a scalar.

        >>> from livegrad.ir.types import u8
        >>> OPENCL.scalar(u8), CUDA.scalar(u8)
        ('uchar', 'unsigned char')
        """
        if type.name not in self.scalars:
            raise CompileError(f"{self.name} has no {type}")
        return self.scalars[type.name]

    def unsigned(self, bits: int) -> str:
        """The unsigned integer type, which wraps round."""
        return self.scalars[f"u{bits}"]

    def declare(self, type: str, name: str, value: str | None = None, *, constant: bool = False) -> str:
        """The declaration of a local name; without a value, of a variable that is assigned later.

        >>> OPENCL.declare("float", "v0", "x", constant=True), OPENCL.declare("int", "c1")
        ('const float v0 = x;', 'int c1;')
        """
        return f"{'const ' if constant else ''}{type} {name}{'' if value is None else f' = {value}'};"

    def choose(self, type: str, condition: str, first: str, second: str) -> str:
        """The first value where the condition holds, and the second elsewhere."""
        return f"({condition} ? {first} : {second})"

    def convert(self, value: str, type: Scalar) -> str:
        """A value as another scalar type."""
        return f"({value} != 0)" if type.kind == "bool" else f"(({self.scalar(type)}){value})"

    def vector(self, element: Scalar, size: int) -> str:
        """The name of a vector type."""
        return f"{self.vector_stems[element.name]}{size}"

    def position(self, value: int, type: Type) -> str:
        """A constant that is compared with an index of some type."""
        return str(value)

    def count_up(self, index: str, count: str | None) -> str:
        """The head of a loop over the integers from 0; without a count, of one without end."""
        return f"for ({self.index} {index} = 0;{'' if count is None else f' {index} < {count}'}; ++{index})"

    def count_down(self, index: str, count: str) -> str:
        """The head of a loop over the integers from `count - 1` down to 0."""
        return f"for ({self.index} {index} = {count} - 1; {index} >= 0; --{index})"

    def function_head(self, result: str, name: str, parameters: Sequence[tuple[str, str]]) -> str:
        """The head of a function; parameters are pairs of type and name."""
        listed = ", ".join(f"{type} {parameter}" for type, parameter in parameters)
        return f"{self.function_prefix}{result} {name}({listed or 'void'})"

    def struct(self, name: str, members: Sequence[tuple[str, str]]) -> str:
        """The declaration of a struct; members are pairs of type and name."""
        listed = " ".join(f"{type} {member};" for type, member in members)
        return f"typedef struct {{ {listed} }} {name};"

    def struct_choice(self, name: str) -> str:
        """The function that chooses between two values of a struct; none if `choose` needs no function."""
        return ""

    def table(self, element: Scalar) -> str:
        """The type of a table of elements that a function reads by index."""
        return self.pointer.format(type=f"const {self.in_memory(element)}")

    def read(self, table: str, index: str, element: Scalar) -> str:
        """The element of a table at an index."""
        return self.load_expression(f"{table}[{index}]", element)

    def in_memory(self, type: Scalar) -> str:
        """The C type of an element in memory."""
        return self.memory.get(type.name) or self.scalar(type)

    def load_expression(self, lvalue: str, type: Scalar) -> str:
        """The value of an element in memory."""
        return self.loads.get(type.name, "{0}").format(lvalue)

    def store_expression(self, value: str, type: Scalar) -> str:
        """The element in memory that represents a value."""
        return self.stores.get(type.name, "{0}").format(value)

    def literal(self, value: Any, type: Scalar) -> str:
        """A constant in C; floats as the shortest decimal that reads as the same number, or in exact hexadecimal.

        >>> from livegrad.ir.types import bool_, f32, i64
        >>> OPENCL.literal(0.5, f32), CUDA.literal(-1, i64), OPENCL.literal(True, bool_), CUDA.literal(True, bool_)
        ('0.5f', '(-1LL)', '1', 'true')
        """
        c_type = self.scalar(type)
        if type.kind == "bool":
            return {"bool": ("false", "true")}.get(c_type, ("0", "1"))[bool(value)]
        if type.kind in ("signed", "unsigned"):
            return self._integer(int(value), type)
        if type is bf16:
            return f"(({c_type}){int(narrow(value).view(np.uint16))})"
        if type.kind == "float":
            return self._float(value, type)
        if value == 0:  # kernels only copy complex numbers
            return f"{c_type}{{}}" if type.bits == 128 else "0ULL"
        raise CompileError(f"{self.name} has no constant {value!r}")

    def _integer(self, value: int, type: Scalar) -> str:
        suffix = self.long_suffix if type.bits == 64 else ""
        if type.kind == "unsigned":
            return f"{value}U{suffix}"
        if value == -(2 ** (type.bits - 1)) and type.bits >= 32:
            return f"({value + 1}{suffix} - 1)"  # C has no literal for the least integer, only for its negation
        return _parenthesise(f"{value}{suffix}")

    def _float(self, value: Any, type: Scalar) -> str:
        number, is_double = type.dtype.type(value), type.bits == 64
        if math.isnan(number):
            return self.not_a_number[is_double]
        if math.isinf(number):
            return self.infinity[is_double] if number > 0 else f"(-{self.infinity[is_double]})"
        text = float(number).hex() if self.exact_constants else str(number)
        text = text if "." in text or "e" in text else f"{text}.0"
        return _parenthesise(text + ("" if is_double else "f"))


def _parenthesise(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


_OPENCL_SCALARS = {
    "bool": "int", "i8": "char", "i16": "short", "i32": "int", "i64": "long",
    "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong", "f32": "float", "f64": "double",
}  # fmt: skip
OPENCL = Dialect(
    name="OpenCL C",
    scalars=_OPENCL_SCALARS,
    index="long",
    long_suffix="L",
    vector_stems=_OPENCL_SCALARS,
    widths=(2, 3, 4, 8, 16),
    make_vector="({type})({members})",
    make_struct="({type}){{{members}}}",
    function_prefix="",
    pointer="__global {type}*",
    kernel_head="__kernel void",
    thread="get_global_id(0)",
    not_a_number={False: "NAN", True: "(double)NAN"},
    infinity={False: "INFINITY", True: "(double)INFINITY"},
    float_suffix="",
    memory={"bool": "uchar"},
    loads={"bool": "({0} != 0)"},
    whole_vectors=True,
    geometry=frozenset({"dot", "cross", "length"}),
    double_pragma="#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
    kernel_pragma="#pragma OPENCL FP_CONTRACT OFF",
)

CUDA = Dialect(
    name="CUDA C",
    scalars={
        "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
        "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long",
        "f32": "float", "f64": "double",
    },
    index="long long",
    long_suffix="LL",
    vector_stems={
        "i8": "char", "i16": "short", "i32": "int", "i64": "longlong",
        "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulonglong", "f32": "float", "f64": "double",
    },
    widths=(2, 3, 4),
    make_vector="make_{type}({members})",
    make_struct="{type}{{{members}}}",
    function_prefix="__device__ inline ",
    pointer="{type}*",
    kernel_head='extern "C" __global__ void',
    thread="(long long)blockIdx.x * blockDim.x + threadIdx.x",
    not_a_number={False: "__int_as_float(0x7fc00000)", True: "__longlong_as_double(0x7ff8000000000000LL)"},
    infinity={False: "__int_as_float(0x7f800000)", True: "__longlong_as_double(0x7ff0000000000000LL)"},
    float_suffix="f",
    memory={"bool": "unsigned char"},
    loads={"bool": "({0} != 0)"},
    overrides={("hypot", "f64"): "lg_hypot({0}, {1})"},  # CUDA's hypot of doubles overflows near the largest number
    kernel_pragma="",  # NVRTC takes --fmad=false instead
)  # fmt: skip

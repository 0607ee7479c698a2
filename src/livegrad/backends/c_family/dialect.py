"""What the C languages differ in: names of types, how values are made, and what a function and a kernel begin with.

`types`, `expressions` and `source` write C for any of them; only what stands in a `Dialect` may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """One language of the C family.

    `scalars` names the types of numbers, `condition` that of a truth value, `unsigned` by bits what wraps round.
    `vector_names` gives by element the stem of vector types, such as `float` for `float3`, of the sizes in `widths`.
    """

    name: str
    scalars: Mapping[str, str]
    unsigned: Mapping[int, str]
    index: str  # the type of loop counters and of places in memory
    long_suffix: str
    vector_names: Mapping[str, str]
    widths: tuple[int, ...]
    make_vector: str  # with {type} and {members}
    make_struct: str
    function_prefix: str
    pointer: str  # with {type}: memory that all threads see
    kernel_head: str
    thread: str  # which work item a thread is
    not_a_number: Mapping[int, str]  # by bits
    infinity: Mapping[int, str]
    float_suffix: str  # of the names of mathematical functions of single precision
    whole_vectors: bool  # whether operators and functions of numbers take vectors of them
    geometry: frozenset[str]  # ops on vectors that the language has functions for
    double_pragma: str
    kernel_pragma: str  # what keeps a kernel from rounding otherwise than the reference does


OPENCL = Dialect(
    name="OpenCL C",
    scalars={
        "bool": "int", "i8": "char", "i16": "short", "i32": "int", "i64": "long",
        "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong", "f32": "float", "f64": "double",
    },
    unsigned={8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"},
    index="long",
    long_suffix="L",
    vector_names={
        "bool": "int", "i8": "char", "i16": "short", "i32": "int", "i64": "long",
        "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong", "f32": "float", "f64": "double",
    },
    widths=(2, 3, 4, 8, 16),
    make_vector="({type})({members})",
    make_struct="({type}){{{members}}}",
    function_prefix="",
    pointer="__global {type}*",
    kernel_head="__kernel void",
    thread="get_global_id(0)",
    not_a_number={32: "NAN", 64: "(double)NAN"},
    infinity={32: "INFINITY", 64: "(double)INFINITY"},
    float_suffix="",
    whole_vectors=True,
    geometry=frozenset({"dot", "cross", "length"}),
    double_pragma="#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
    kernel_pragma="#pragma OPENCL FP_CONTRACT OFF",
)  # fmt: skip

CUDA = Dialect(
    name="CUDA C",
    scalars={
        "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
        "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long",
        "f32": "float", "f64": "double",
    },
    unsigned={8: "unsigned char", 16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"},
    index="long long",
    long_suffix="LL",
    vector_names={
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
    not_a_number={32: "__int_as_float(0x7fc00000)", 64: "__longlong_as_double(0x7ff8000000000000LL)"},
    infinity={32: "__int_as_float(0x7f800000)", 64: "__longlong_as_double(0x7ff0000000000000LL)"},
    float_suffix="f",
    whole_vectors=False,
    geometry=frozenset(),
    double_pragma="",
    kernel_pragma="",  # NVRTC takes --fmad=false instead
)  # fmt: skip

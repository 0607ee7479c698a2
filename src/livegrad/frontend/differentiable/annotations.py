"""The public names for annotations: `lg.f32`, `lg.vec3`, `lg.array[float, 3]`, `lg.no_diff[lg.vec3]`.

Type checkers read the stub file beside this module, which declares them as classes, so that they are valid annotations.
"""

from livegrad.frontend.differentiable.no_diff import no_diff
from livegrad.frontend.differentiable.pair import Pair, pair
from livegrad.frontend.function.signature import inout
from livegrad.frontend.function.type_reading import array, mat, tensor, vec
from livegrad.frontend.function.vectors import (
    dmat2,
    dmat3,
    dmat4,
    dvec2,
    dvec3,
    dvec4,
    ivec2,
    ivec3,
    ivec4,
    mat2,
    mat3,
    mat4,
    vec2,
    vec3,
    vec4,
)
from livegrad.ir.types import bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__all__ = [
    "Pair",
    "array",
    "bool_",
    "c64",
    "c128",
    "dmat2",
    "dmat3",
    "dmat4",
    "dvec2",
    "dvec3",
    "dvec4",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "inout",
    "ivec2",
    "ivec3",
    "ivec4",
    "mat",
    "mat2",
    "mat3",
    "mat4",
    "no_diff",
    "pair",
    "tensor",
    "u8",
    "u16",
    "u32",
    "u64",
    "vec",
    "vec2",
    "vec3",
    "vec4",
]

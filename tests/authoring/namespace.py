"""The public names as programs write them: `lg.differentiable`, `lg.vec3`, `lg.f32`, `lg.dot`."""

from livegrad.authoring.differentiable import *  # noqa: F403
from livegrad.authoring.function.captured import function  # noqa: F401
from livegrad.authoring.function.library import *  # noqa: F403
from livegrad.authoring.function.problems import FunctionError  # noqa: F401
from livegrad.authoring.function.source import run_source  # noqa: F401
from livegrad.authoring.function.types import (  # noqa: F401
    array,
    dmat2,
    dmat3,
    dmat4,
    dvec2,
    dvec3,
    dvec4,
    ivec2,
    ivec3,
    ivec4,
    mat,
    mat2,
    mat3,
    mat4,
    tensor,
    vec,
    vec2,
    vec3,
    vec4,
)
from livegrad.ir.types import bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64  # noqa: F401

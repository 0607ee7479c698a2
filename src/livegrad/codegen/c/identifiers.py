"""Identifiers for user functions, without collisions with keywords, library functions and generated names.

One set of reserved words serves all dialects, so a function has the same name in each.
"""

from __future__ import annotations

import re

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    main kernel global local constant private bool half uchar ushort uint ulong size_t true false image2d_t
    image3d_t sampler_t event_t
    alignas alignof and and_eq asm bitand bitor catch class compl concept const_cast constexpr consteval constinit
    char8_t char16_t char32_t co_await co_return co_yield decltype delete dynamic_cast explicit export friend mutable
    namespace new noexcept not not_eq nullptr operator or or_eq protected public reinterpret_cast requires
    static_assert static_cast template this thread_local throw try typeid typename using virtual wchar_t xor xor_eq
"""
_FUNCTIONS = """
    acos acosh acospi asin asinh asinpi atan atan2 atanh atanpi atan2pi cbrt ceil copysign cos cosh cospi erfc erf exp
    exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hypot ilogb ldexp lgamma log log2 log10 log1p logb
    mad maxmag minmag modf nan nextafter pow pown powr remainder remquo rint rootn round rsqrt sin sincos sinh sinpi
    sqrt tan tanh tanpi tgamma trunc abs abs_diff add_sat hadd rhadd clz mad_hi mad_sat max min mul_hi rotate sub_sat
    upsample popcount mad24 mul24 clamp degrees mix radians step smoothstep sign cross dot distance length normalize
    fast_distance fast_length fast_normalize isequal isnotequal isgreater isless isfinite isinf isnan isnormal signbit
    any all bitselect select vload2 vload3 vload4 vstore2 vstore3 vstore4 shuffle printf barrier prefetch
    rhypot norm3d norm4d rnorm3d rcbrt erfcx erfinv erfcinv normcdf normcdfinv j0 j1 jn y0 y1 yn scalbn scalbln
    nearbyint lrint llrint lround llround labs llabs finite isunordered malloc free memcpy memset assert clock
    threadIdx blockIdx blockDim gridDim warpSize dim3 surface texture
"""
_GLSL = """
    attribute uniform varying layout centroid flat smooth in out inout discard invariant precise precision lowp mediump
    highp coherent resource atomic_uint noperspective patch sample subroutine superp input output hvec2 fixed common
    partition active filter buffer shared readonly writeonly inverse transpose determinant outerProduct matrixCompMult
    inversesqrt roundEven mod intBitsToFloat uintBitsToFloat floatBitsToInt floatBitsToUint texture texelFetch
    textureSize textureLod textureGrad dFdx dFdy fwidth faceforward reflect refract lessThan lessThanEqual greaterThan
    greaterThanEqual equal notEqual packSnorm2x16 sampler2D isampler2D usampler2D sampler3D samplerCube
"""
_WGSL = """
    alias array atomic bitcast const_assert continuing diagnostic enable fallthrough fn let loop mat2x2 override ptr
    requires sampler texture_2d var vec2 vec3 vec4 f16 f32 i32 u32 workgroup storage_barrier NULL Self abstract as async
    await become binding_array cast co_await crate debugger delegate demote do dynamic_cast final finally from get goto
    handle impl implements import instanceof interface is item lowp macro macro_rules match meta mod module move mut
    native nil noncoherent null of package pass pixelfragment ref regardless self set snorm static std super target
    trait type unless unorm unsafe use wgsl where with yield absf arrayLength fma inverseSqrt saturate textureLoad
    workgroupBarrier quantizeToF16 dpdx dpdy countOneBits firstLeadingBit reverseBits extractBits insertBits
"""
_GENERATED = "evaluate i count value status"  # names in the kernel around a function
_RESERVED = frozenset((_KEYWORDS + _FUNCTIONS + _GLSL + _WGSL + _GENERATED).split())
# Vector types of both languages, and the names of values in generated code.
_PATTERN = re.compile(
    r"(?:make_)?u?(?:char|short|int|long|longlong|float|double|half)\d+|[a-z]\d+|[biud]?(?:vec|mat)\d\w*"
)


def identifier(name: str) -> str:
    """A name as a C identifier.

    >>> identifier("my gyroid.bwd"), identifier("2d"), identifier("mix"), identifier("sinf"), identifier("v0")
    ('my_gyroid_bwd', '_2d', 'mix_', 'sinf_', 'v0_')
    """
    text = re.sub(r"_{2,}", "_", re.sub(r"[^0-9A-Za-z_]", "_", name)) or "_"  # GLSL reserves two underscores in a row
    if text[0].isdigit():
        return f"_{text}"
    collides = text in _RESERVED or (text.endswith("f") and text[:-1] in _RESERVED) or _PATTERN.fullmatch(text)
    starts = ("lg_", "cl_", "CL_", "gl_")
    return f"{text}_" if collides or text == "_" or text.startswith(starts) else text

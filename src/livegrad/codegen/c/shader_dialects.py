"""The languages of shaders as dialects: GLSL ES 3.00, for WebGL 2, and WGSL, for WebGPU.

Both have booleans, 32-bit integers and 32-bit floats. 64-bit integers, which count iterations and index tensors, become
32-bit ones; every other type raises. Tensors are textures of one channel, read without filtering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.codegen.c.dialect import Dialect
from livegrad.codegen.c.shader_helpers import SHADER_HELPERS
from livegrad.diagnostics import CompileError
from livegrad.ir.types import Scalar, Type, i64, scalar_of

TABLE_WIDTH = 2048  # elements in a row of a texture; every implementation of WebGL 2 has textures of this size
TABLE_SIZE = TABLE_WIDTH * 2048

_COMPARISONS = {
    "equal": "({0} == {1})", "not_equal": "({0} != {1})", "less": "({0} < {1})", "less_equal": "({0} <= {1})",
    "greater": "({0} > {1})", "greater_equal": "({0} >= {1})",
}  # fmt: skip
_ARITHMETIC = {"add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})"}
_BITS = {
    "bit_and": "({0} & {1})", "bit_or": "({0} | {1})", "bit_xor": "({0} ^ {1})", "bit_not": "(~{0})",
    "shift_left": "lg_shift_left({0}, {1})", "shift_right": "lg_shift_right({0}, {1})",
}  # fmt: skip
_SMALLER = dict.fromkeys(("min", "minimum"), "min({0}, {1})") | dict.fromkeys(("max", "maximum"), "max({0}, {1})")
_SIGNED = {"neg": "(-{0})", "abs": "abs({0})", "floor_div": "lg_floor_div({0}, {1})", "mod": "lg_mod({0}, {1})"}
_UNSIGNED = {"neg": "(0u - {0})", "abs": "{0}", "floor_div": "({0} / {1})", "mod": "({0} % {1})"}
_BOOLEANS = {
    "equal": "({0} == {1})", "not_equal": "({0} != {1})", "bit_and": "({0} && {1})", "bit_or": "({0} || {1})",
    "bit_xor": "({0} != {1})", "bit_not": "(!{0})", "minimum": "({0} && {1})", "maximum": "({0} || {1})",
    "min": "({0} && {1})", "max": "({0} || {1})",
}  # fmt: skip
_BUILT_IN = ("sqrt", "exp", "exp2", "sin", "cos", "tan", "floor", "ceil", "trunc", "abs")
_HELPERS = (
    "cbrt", "expm1", "log1p", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "asin", "acos", "atan", "atan2", "erf",
    "log", "log2", "log10", "pow", "hypot", "fmod", "floor_div", "minimum", "maximum", "sign", "nextafter",
)  # fmt: skip
_BINARY = {"atan2", "pow", "hypot", "fmod", "floor_div", "minimum", "maximum", "nextafter"}
_FLOATS = {
    "div": "({0} / {1})", "neg": "(-{0})", "fract": "({0} - floor({0}))",
    **{name: f"{name}({{0}})" for name in _BUILT_IN},
    **{name: f"lg_{name}({'{0}, {1}' if name in _BINARY else '{0}'})" for name in _HELPERS},
    "dot": "dot({0}, {1})", "cross": "cross({0}, {1})", "length": "length({0})",
}  # fmt: skip


def _codes(float_codes: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The code of every op with code, by op and scalar. Bits of integers that are not 64 bits wide would differ."""
    integers = _COMPARISONS | _ARITHMETIC | _SMALLER
    kinds = {
        "f32": _COMPARISONS | _ARITHMETIC | _FLOATS | dict(float_codes),
        "i32": integers | _BITS | _SIGNED,
        "u32": integers | _BITS | _UNSIGNED,
        "i64": integers | _SIGNED,
        "bool": _BOOLEANS,
    }
    codes = {(op, scalar): text for scalar, texts in kinds.items() for op, text in texts.items()}
    return codes | {("detach", scalar): "{0}" for scalar in kinds}


@dataclass(frozen=True, eq=False)
class ShaderDialect(Dialect):
    """What GLSL and WGSL share."""

    def unsigned(self, bits: int) -> str:
        return self.scalars["u32"]

    def scalar(self, type: Scalar) -> str:
        if type.name not in self.scalars:
            raise CompileError(f"{self.name} has no {type}", help="compute with lg.f32, lg.i32, lg.u32 or lg.bool")
        return super().scalar(type)

    def literal(self, value: Any, type: Scalar) -> str:
        if type is i64 and not -(2**31) <= int(value) < 2**31:
            raise CompileError(f"{self.name} has no 64-bit integers", found=str(int(value)))
        return super().literal(value, type)

    def _integer(self, value: int, type: Scalar) -> str:
        if value == -(2**31):
            return f"({value + 1} - 1)"
        text = f"{value}u" if type.kind == "unsigned" else str(value)
        return f"({text})" if value < 0 else text

    def convert(self, value: str, type: Scalar) -> str:
        return f"{self.scalar(type)}({value})"

    def _float(self, value: Any, type: Scalar) -> str:
        if abs(value) > 3.4028234e38 and np.isfinite(value):  # compilers read the largest number as infinity
            return f"{'(-' if value < 0 else '('}{self.words['real']}(0x7f7fffffu))"
        return super()._float(value, type)

    def choose(self, type: str, condition: str, first: str, second: str) -> str:
        """Structs have a function: neither `select` nor WebGL's ternary operator takes them."""
        return f"{choice_of(type)}({second}, {first}, {condition})"

    def struct_choice(self, name: str) -> str:
        head = self.function_head(name, choice_of(name), [(name, "second"), (name, "first"), ("bool", "condition")])
        return f"{head} {{ if (condition) {{ return first; }} return second; }}"

    def position(self, value: int, type: Type) -> str:
        scalar = scalar_of(type)
        return f"{value}u" if scalar is not None and scalar.kind == "unsigned" else str(value)


def choice_of(struct: str) -> str:
    """The name of the function that chooses between two values of a struct."""
    return f"lg_select_{struct}"


@dataclass(frozen=True, eq=False)
class Glsl(ShaderDialect):
    """GLSL ES 3.00. Only constant expressions may be `const`."""

    def declare(self, type: str, name: str, value: str | None = None, *, constant: bool = False) -> str:
        return super().declare(type, name, value)

    def choose(self, type: str, condition: str, first: str, second: str) -> str:
        is_struct = type.startswith("lg_")
        return super().choose(type, condition, first, second) if is_struct else f"({condition} ? {first} : {second})"

    def struct(self, name: str, members: Sequence[tuple[str, str]]) -> str:
        listed = " ".join(f"{type} {member};" for type, member in members)
        return f"struct {name} {{ {listed} }};"

    def table(self, element: Scalar) -> str:
        self.scalar(element)
        return {"float": "sampler2D", "signed": "isampler2D"}.get(element.kind, "usampler2D")

    def read(self, table: str, index: str, element: Scalar) -> str:
        text = f"texelFetch({table}, lg_texel({index}), 0).x"
        return f"({text} != 0u)" if element.kind == "bool" else text


@dataclass(frozen=True, eq=False)
class Wgsl(ShaderDialect):
    """WGSL. Names are declared with `let` or `var`, and a function chooses between values."""

    def declare(self, type: str, name: str, value: str | None = None, *, constant: bool = False) -> str:
        return f"{'let' if constant else 'var'} {name}: {type}{'' if value is None else f' = {value}'};"

    def choose(self, type: str, condition: str, first: str, second: str) -> str:
        is_struct = type.startswith("lg_")
        return (
            super().choose(type, condition, first, second) if is_struct else f"select({second}, {first}, {condition})"
        )

    def count_up(self, index: str, count: str | None) -> str:
        return f"for (var {index}: i32 = 0;{'' if count is None else f' {index} < {count}'}; {index}++)"

    def count_down(self, index: str, count: str) -> str:
        return f"for (var {index}: i32 = {count} - 1; {index} >= 0; {index}--)"

    def function_head(self, result: str, name: str, parameters: Sequence[tuple[str, str]]) -> str:
        return f"fn {name}({', '.join(f'{parameter}: {type}' for type, parameter in parameters)}) -> {result}"

    def struct(self, name: str, members: Sequence[tuple[str, str]]) -> str:
        listed = ", ".join(f"{member}: {type}" for type, member in members)
        return f"struct {name} {{ {listed} }}"

    def vector(self, element: Scalar, size: int) -> str:
        return f"vec{size}<{self.scalar(element)}>"

    def table(self, element: Scalar) -> str:
        self.scalar(element)
        return f"texture_2d<{ {'float': 'f32', 'signed': 'i32'}.get(element.kind, 'u32') }>"

    def read(self, table: str, index: str, element: Scalar) -> str:
        text = f"textureLoad({table}, lg_texel({index}), 0).x"
        return f"({text} != 0u)" if element.kind == "bool" else text


_NOTHING: dict[str, Any] = {
    "index": "int", "long_suffix": "", "widths": (2, 3, 4), "make_vector": "{type}({members})",
    "make_struct": "{type}({members})", "function_prefix": "", "pointer": "", "kernel_head": "", "thread": "",
    "float_suffix": "", "memory": {}, "loads": {}, "whole_vectors": True,
    "geometry": frozenset({"dot", "cross", "length"}), "is_complete": True, "helpers": SHADER_HELPERS,
}  # fmt: skip
_TEXEL = f"{TABLE_WIDTH - 1}, index >> {TABLE_WIDTH.bit_length() - 1}"

GLSL = Glsl(
    name="GLSL",
    scalars={"bool": "bool", "i32": "int", "i64": "int", "u32": "uint", "f32": "float"},
    vector_stems={"bool": "bvec", "i32": "ivec", "i64": "ivec", "u32": "uvec", "f32": "vec"},
    not_a_number={False: "uintBitsToFloat(0x7fc00000u)"},
    infinity={False: "uintBitsToFloat(0x7f800000u)"},
    overrides=_codes({
        "round": "roundEven({0})",
        "is_nan": "((floatBitsToUint({0}) & 0x7fffffffu) > 0x7f800000u)",
        "copysign": "uintBitsToFloat((floatBitsToUint({0}) & 0x7fffffffu) | (floatBitsToUint({1}) & 0x80000000u))",
        "min": "({1} < {0} ? {1} : {0})",
        "max": "({1} > {0} ? {1} : {0})",
    }),
    words={
        "let": "{T}", "var": "{T}", "word": "floatBitsToUint", "real": "uintBitsToFloat",
        "nan": "uintBitsToFloat(0x7fc00000u)",
    },
    prelude={"lg_texel(": f"ivec2 lg_texel(int index) {{ return ivec2(index & {_TEXEL}); }}"},
    **_NOTHING,
)  # fmt: skip

WGSL = Wgsl(
    name="WGSL",
    scalars={"bool": "bool", "i32": "i32", "i64": "i32", "u32": "u32", "f32": "f32"},
    vector_stems={"bool": "", "i32": "", "i64": "", "u32": "", "f32": ""},
    not_a_number={False: "lg_nan()"},
    infinity={False: "lg_infinity()"},
    overrides=_codes({
        "round": "round({0})",
        "is_nan": "((bitcast<u32>({0}) & 0x7fffffffu) > 0x7f800000u)",
        "copysign": "bitcast<f32>((bitcast<u32>({0}) & 0x7fffffffu) | (bitcast<u32>({1}) & 0x80000000u))",
        "min": "select({0}, {1}, ({1} < {0}))",
        "max": "select({0}, {1}, ({1} > {0}))",
    }),
    words={"let": "let", "var": "var", "word": "bitcast<u32>", "real": "bitcast<f32>", "nan": "lg_nan()"},
    # Constant expressions must not be infinite or NaN; the value of a variable is no constant expression.
    prelude={
        "lg_texel(": f"fn lg_texel(index: i32) -> vec2<i32> {{ return vec2<i32>(index & {_TEXEL}u); }}",
        "lg_nan(": "fn lg_nan() -> f32 { var bits = 0x7fc00000u; return bitcast<f32>(bits); }",
        "lg_infinity(": "fn lg_infinity() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }",
    },
    needs_braces=True,
    **_NOTHING,
)  # fmt: skip

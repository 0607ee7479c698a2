"""Writes shaders: the functions of a source, and entry functions that pass uniforms and textures to them.

`to_shader.py` and `viewport_shader.py` call `write_shader`. A parameter is an argument, a uniform or a texture; structs
and matrices become several uniforms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from livegrad.codegen.c import GLSL, WGSL
from livegrad.codegen.c.function_source import FunctionText
from livegrad.codegen.c.identifiers import identifier
from livegrad.codegen.c.shader_dialects import TABLE_SIZE, ShaderDialect
from livegrad.diagnostics import CompileError, caller_origin
from livegrad.implicit.shaders.shader import Shader, Texture, Uniform
from livegrad.ir.node import Function
from livegrad.ir.propagate_lines import propagating_lines
from livegrad.ir.types import Matrix, Scalar, Struct, Tensor, Type, Vector, components, scalar_of

DIALECTS = {"GLSL": GLSL, "WGSL": WGSL}
_KINDS = {"f32": "float", "i32": "int", "i64": "int", "u32": "uint", "bool": "bool"}
_WORDS = {
    "float": "bitcast<f32>({0})",
    "int": "bitcast<i32>({0})",
    "uint": "{0}",
    "bool": "({0} != 0u)",
}


@dataclass(frozen=True)
class ShaderParameter:
    """A parameter of a function, and whether it is an argument of the shader's function or read from outside of it."""

    name: str
    type: Type
    is_argument: bool
    value: Any = None


@dataclass
class ShaderWriter:
    """The declarations and entry functions of one shader."""

    dialect: ShaderDialect
    reserved: set[str] = field(default_factory=set)
    uniforms: list[Uniform] = field(default_factory=list)
    textures: list[Texture] = field(default_factory=list)

    def unused(self, name: str) -> str:
        """A name in the shader that nothing else has."""
        base, suffix = identifier(name), 1
        text = base
        while text in self.reserved:
            suffix += 1
            text = f"{base.rstrip('_')}_{suffix}"
        self.reserved.add(text)
        return text

    def read_parameter(self, source: FunctionText, name: str, type: Type, value: Any) -> str:
        """The expression of a parameter that is read from outside; declares its uniforms or its texture."""
        if isinstance(type, Tensor):
            return self._read_texture(name, type, value)
        flat = None if value is None else iter(_numbers(type, value))
        return self._read_uniform(source, name, type, flat)

    def _read_texture(self, name: str, type: Tensor, value: Any) -> str:
        sizes = [size for size in type.shape if isinstance(size, int)]
        if len(sizes) != len(type.shape) or int(np.prod(sizes)) > TABLE_SIZE:
            raise CompileError(
                f"`{name}` does not fit a texture",
                where=caller_origin(),
                expected=f"a tensor of known sizes with at most {TABLE_SIZE:,} elements",
                found=str(type),
            )
        self.dialect.scalar(type.element)
        kind = "uint" if type.element.name == "bool" else _KINDS[type.element.name]
        array = None if value is None else np.asarray(value)
        self.textures.append(Texture(name, self.unused(name), kind, tuple(sizes), array))
        return self.textures[-1].identifier

    def _read_uniform(self, source: FunctionText, name: str, type: Type, numbers: Iterator[float] | None) -> str:
        if isinstance(type, Struct):
            fields = [self._read_uniform(source, f"{name}.{part}", inner, numbers) for part, inner in type.fields]
            return source.types.make(type, fields)
        scalar = scalar_of(type)
        if not isinstance(type, Scalar | Vector | Matrix) or scalar is None:
            parts = enumerate(components(type))
            members = [self._read_uniform(source, f"{name}.{index}", part, numbers) for index, part in parts]
            return source.types.make(type, members)
        self.dialect.scalar(scalar)
        size = len(components(type)) or 1
        value = None if numbers is None else tuple(next(numbers) for _ in range(size))
        is_list = size > 1 and not source.types.is_vector(type)
        offset = sum(uniform.size for uniform in self.uniforms)
        uniform = Uniform(name, self.unused(name), _KINDS[scalar.name], size, offset, value, is_list)
        self.uniforms.append(uniform)
        if self.dialect is GLSL and not is_list:
            return uniform.identifier
        parts = [self._word(uniform, index) for index in range(size)]
        return parts[0] if size == 1 else source.types.make(type, parts)

    def _word(self, uniform: Uniform, index: int) -> str:
        if self.dialect is GLSL:
            return f"{uniform.identifier}[{index}]"
        word = uniform.offset + index
        return _WORDS[uniform.kind].format(f"lg_uniforms[{word // 4}].{'xyzw'[word % 4]}")

    def declarations(self) -> str:
        """The declarations of uniforms and textures."""
        return "".join(self._glsl_declarations() if self.dialect is GLSL else self._wgsl_declarations())

    def _glsl_declarations(self) -> Iterator[str]:
        vectors = {"float": "vec", "int": "ivec", "uint": "uvec", "bool": "bvec"}
        for uniform in self.uniforms:
            is_vector = uniform.size > 1 and not uniform.is_list
            type = f"{vectors[uniform.kind]}{uniform.size}" if is_vector else uniform.kind
            precision = "" if uniform.kind == "bool" else "highp "
            count = f"[{uniform.size}]" if uniform.is_list else ""
            yield f"uniform {precision}{type} {uniform.identifier}{count};\n"
        samplers = {"float": "sampler2D", "int": "isampler2D", "uint": "usampler2D"}
        for texture in self.textures:
            yield f"uniform highp {samplers[texture.kind]} {texture.identifier};\n"

    def _wgsl_declarations(self) -> Iterator[str]:
        if self.uniforms:
            count = -(-sum(uniform.size for uniform in self.uniforms) // 4)
            yield f"@group(0) @binding(0) var<uniform> lg_uniforms: array<vec4<u32>, {count}>;\n"
        formats = {"float": "f32", "int": "i32", "uint": "u32"}
        for index, texture in enumerate(self.textures):
            type = f"texture_2d<{formats[texture.kind]}>"
            yield f"@group(0) @binding({index + 1}) var {texture.identifier}: {type};\n"


def _numbers(type: Type, value: Any) -> Iterator[float]:
    """The numbers of a value, in the order of the uniforms of its type."""
    if isinstance(type, Struct):
        for name, part in type.fields:
            yield from _numbers(part, getattr(value, name))
    else:
        yield from (float(number) for number in np.asarray(value).reshape(-1))


def write_shader(
    language: str,
    entries: Sequence[tuple[str, str, Function]],
    parameters: Sequence[ShaderParameter],
    reserved: Sequence[str] = (),
) -> Shader:
    """A shader with an entry function for each of `entries`: what it computes, its name, and a function.

    All functions have the same parameters. Entry functions take those that are arguments.
    """
    with propagating_lines([function for _, _, function in entries]):  # errors name the lines of these functions
        return _write(language, entries, parameters, reserved)


def _write(
    language: str,
    entries: Sequence[tuple[str, str, Function]],
    parameters: Sequence[ShaderParameter],
    reserved: Sequence[str],
) -> Shader:
    dialect = DIALECTS[language]
    writer = ShaderWriter(dialect, set(reserved))
    names = [writer.unused(name) for _, name, _ in entries]
    first, *others = [function for _, _, function in entries]
    arguments = [writer.unused(p.name) if p.is_argument else None for p in parameters]
    read = [p for p in parameters if not p.is_argument]
    # No function has the name of a uniform, which is declared after the functions are named.
    uniform_names = {identifier(name) for p in read for name in _uniform_names(p.name, p.type)}
    source = FunctionText(first, dialect, checked=False, others=others, reserved=writer.reserved | uniform_names)
    writer.reserved |= set(source.names.values())
    values = [
        argument or writer.read_parameter(source, p.name, p.type, p.value)
        for p, argument in zip(parameters, arguments, strict=True)
    ]
    listed = [
        (source.types.name(p.type), argument) for p, argument in zip(parameters, arguments, strict=True) if argument
    ]
    texts: list[str] = []
    for name, root in zip(names, (source.root, *source.others), strict=True):
        head = dialect.function_head(source.types.name(root.result_type), name, listed)
        call = source.call(root, values)
        texts.append(f"{head}\n{{\n    return {call};\n}}\n")
    text = "\n".join([writer.declarations() + source.text(), *texts])
    functions = {what: name for (what, _, _), name in zip(entries, names, strict=True)}
    operations = sum(source.operations[root] for root in (source.root, *source.others))
    return Shader(language, text, functions, tuple(writer.uniforms), tuple(writer.textures), operations)


def _uniform_names(name: str, type: Type) -> Iterator[str]:
    """The names of the uniforms of a parameter."""
    yield name
    parts = type.fields if isinstance(type, Struct) else [(str(i), part) for i, part in enumerate(components(type))]
    if not isinstance(type, Scalar | Vector | Matrix):
        for part, inner in parts:
            yield from _uniform_names(f"{name}.{part}", inner)

"""Runs a function as a shader at points, to compare it with the reference: `run_in_shader(language, function, …)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import livegrad as lg
from livegrad import ops
from livegrad.codegen.c import GLSL, WGSL
from livegrad.codegen.c.function_source import FunctionText
from livegrad.ir.types import Scalar, Tensor, Type, components
from tests.shaders.browser import Browser
from tests.shaders.wgpu_device import run_wgsl

Words = NDArray[np.uint32]
_DTYPES = {"f32": np.float32, "i32": np.int32, "i64": np.int32, "u32": np.uint32, "bool": np.uint32}
_FROM_WORD = {
    "GLSL": {"f32": "uintBitsToFloat({0})", "i32": "int({0})", "u32": "{0}", "bool": "({0} != 0u)"},
    "WGSL": {"f32": "bitcast<f32>({0})", "i32": "bitcast<i32>({0})", "u32": "{0}", "bool": "({0} != 0u)"},
}
_TO_WORD = {
    "GLSL": {"f32": "floatBitsToUint({0})", "i32": "uint({0})", "u32": "{0}", "bool": "({0} ? 1u : 0u)"},
    "WGSL": {"f32": "bitcast<u32>({0})", "i32": "bitcast<u32>({0})", "u32": "{0}", "bool": "select(0u, 1u, {0})"},
}


def _scalars(type: Type) -> list[Scalar]:
    if isinstance(type, Scalar):
        return [type]
    return [scalar for part in components(type) for scalar in _scalars(part)]


def _assemble(type: Type, parts: Iterator[Any]) -> Any:
    if isinstance(type, Scalar | Tensor):
        return next(parts)
    return ops.make(*[_assemble(part, parts) for part in components(type)], type=type)


def _decompose(type: Type, value: Any) -> Iterator[Any]:
    if isinstance(type, Scalar):
        yield value
    for index, part in enumerate(components(type)):
        yield from _decompose(part, ops.get(value, index=index))


def flatten(function: lg.ir.Function) -> lg.ir.Function:
    """The function with scalars and tensors as parameters, and a tuple of scalars as its result."""
    types = [
        part for type in function.parameter_types for part in ([type] if isinstance(type, Tensor) else _scalars(type))
    ]

    def flat(*values: Any) -> Any:
        parts = iter(values)
        value = ops.call(*[_assemble(type, parts) for type in function.parameter_types], function=function)
        return tuple(_decompose(function.result_type, value))

    return lg.ir.trace(flat, *types, name="flat")


class Program:
    """A function as a whole shader that computes it at points."""

    def __init__(self, function: lg.ir.Function, language: str) -> None:
        self.function = flatten(function)
        self.language = language
        self.source = FunctionText(self.function, GLSL if language == "GLSL" else WGSL, checked=False)
        self.result_types = [type for type in self.function.result_types if isinstance(type, Scalar)]
        self.text = self._glsl() if language == "GLSL" else self._wgsl()

    def _call(self, read: Callable[[int], str]) -> str:
        arguments, row, table = [], 0, 0
        for type in self.function.parameter_types:
            if isinstance(type, Scalar):
                arguments.append(_FROM_WORD[self.language][self._name(type)].format(read(row)))
                row += 1
            else:
                arguments.append(f"table{table}")
                table += 1
        return self.source.call(self.source.root, arguments)

    @staticmethod
    def _name(type: Scalar) -> str:
        return "i32" if type.name == "i64" else type.name

    def _words(self, value: str) -> list[str]:
        names = [value] if len(self.result_types) == 1 else [f"{value}.r{i}" for i in range(len(self.result_types))]
        to_word = _TO_WORD[self.language]
        return [to_word[self._name(type)].format(name) for name, type in zip(names, self.result_types, strict=True)]

    def _tables(self) -> list[str]:
        tables = [type for type in self.function.parameter_types if isinstance(type, Tensor)]
        return [self.source.types.name(type) for type in tables]

    def _glsl(self) -> str:
        precisions = "".join(f"precision highp {name};\n" for name in ("float", "int", "sampler2D", "isampler2D"))
        tables = "".join(f"uniform highp {type} table{index};\n" for index, type in enumerate(self._tables()))
        call = self._call(lambda row: f"texelFetch(lg_inputs, ivec2(int(gl_FragCoord.x), {row}), 0).x")
        result = self.source.types.name(self.function.result_type)
        cases = "\n".join(f"    if (row == {row}) word = {word};" for row, word in enumerate(self._words("result")))
        return f"""#version 300 es
{precisions}precision highp usampler2D;
{tables}uniform highp usampler2D lg_inputs;
layout(location = 0) out highp uvec4 lg_output;
{self.source.text()}
void main()
{{
    {result} result = {call};
    int row = int(gl_FragCoord.y);
    uint word = 0u;
{cases}
    lg_output = uvec4(word);
}}
"""

    def _wgsl(self) -> str:
        tables = "".join(
            f"@group(0) @binding({index + 2}) var table{index}: {type};\n" for index, type in enumerate(self._tables())
        )
        call = self._call(lambda row: f"lg_inputs[{row}u * points + point]")
        stores = "\n".join(
            f"    lg_outputs[{row}u * points + point] = {word};" for row, word in enumerate(self._words("result"))
        )
        return f"""@group(0) @binding(0) var<storage, read> lg_inputs: array<u32>;
@group(0) @binding(1) var<storage, read_write> lg_outputs: array<u32>;
{tables}{self.source.text()}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>)
{{
    let points = arrayLength(&lg_outputs) / {len(self.result_types)}u;
    let point = id.x;
    if (point >= points) {{ return; }}
    let result = {call};
{stores}
}}
"""

    def run(self, arguments: Sequence[Any], points: int, browser: Browser | None) -> list[NDArray[Any]]:
        """The results by scalar, each with one value for each point.

        Arguments belong to the parameters of the original function; each has one value for each point, except tables.
        """
        columns, tables = [], {}
        for argument, type in self._flat_arguments(arguments):
            if isinstance(type, Scalar):
                column = np.broadcast_to(np.asarray(argument), (points,)).astype(_DTYPES[type.name])
                columns.append(column.view(np.uint32))
            else:
                tables[f"table{len(tables)}"] = np.asarray(argument)
        inputs = np.stack(columns) if columns else np.zeros((1, points), np.uint32)
        count = len(self.result_types)
        if self.language == "GLSL":
            assert browser is not None
            words = browser.run_glsl(self.text, count, inputs, tables)
        else:
            words = run_wgsl(self.text, count, inputs, tables)
        found = [row.view(_DTYPES[type.name]) for row, type in zip(words, self.result_types, strict=True)]
        return [
            row.astype(type.dtype) if type.name in ("bool", "i64") else row
            for row, type in zip(found, self.result_types, strict=True)
        ]

    def _flat_arguments(self, arguments: Sequence[Any]) -> Iterator[tuple[Any, Type]]:
        """The arguments by parameter of the flat function: arrays over the points, of one scalar each, and tables."""
        types = iter(self.function.parameter_types)
        for argument in arguments:
            for column in argument:
                yield column, next(types)


def columns_of(type: Type, values: Sequence[Any]) -> list[Any]:
    """The values of a parameter at several points as one array a scalar; of a table, the first."""
    if isinstance(type, Tensor):
        return [values[0]]

    def scalars(type: Type, value: Any) -> Iterator[Any]:
        if isinstance(type, Scalar):
            yield value
        for index, part in enumerate(components(type)):
            yield from scalars(part, np.asarray(value).reshape(-1)[index] if isinstance(part, Scalar) else value[index])

    return [np.asarray(column) for column in zip(*[scalars(type, value) for value in values], strict=True)]

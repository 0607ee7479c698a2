"""Creates blocks from CUDA C, PTX and cubins.

In: code, and which parameters of the kernel are inputs, outputs and sizes. The types of CUDA C come from the signature.
Out: a block for `Engine("cuda")`. `watch_cuda` follows a code file and the JSON file next to it.
"""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from livegrad.diagnostics import TextOrigin, UsageError, caller_origin
from livegrad.ir.types import Scalar, Tensor, Type
from livegrad.ir.types.scalars import SCALARS
from livegrad.live.blocks.source_files import KEEPS_RUNNING, stamp_of
from livegrad.live.blocks.watch import follow
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, InputSpec, Specialized
from livegrad.live.graph.problems import GraphError, PinError
from livegrad.live.graph.shape_rules import apply_shape_rule
from livegrad.live.graph.sources import InputType
from livegrad.live.graph.user_kernel import CudaKernel, KernelArgument, Language

_C_TYPES = {
    "bool": "bool", "char": "i8", "signed char": "i8", "unsigned char": "u8", "short": "i16", "unsigned short": "u16",
    "int": "i32", "unsigned": "u32", "unsigned int": "u32", "long long": "i64", "unsigned long long": "u64",
    "long": "i64", "unsigned long": "u64", "size_t": "u64", "float": "f32", "double": "f64",
    "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int32_t": "i32", "uint32_t": "u32",
    "int64_t": "i64", "uint64_t": "u64",
}  # fmt: skip
_SIGNATURE = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)")
_LANGUAGES: dict[str, Language] = {".cu": "cuda", ".ptx": "ptx", ".cubin": "cubin"}


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel: an input or output (a pointer), a number, or the size of a buffer.

    `shape` is the shape rule of an output. A size parameter is the size of the buffer `of`, or one extent at `axis`.

    >>> KernelParameter("scale", "number", SCALARS["f32"], default=1.0).kind
    'number'
    """

    name: str
    kind: str
    element: Scalar
    shape: str | None = None
    default: Any = None
    of: str | None = None
    axis: int | None = None


def cuda_block(
    source: str,
    *,
    outputs: Mapping[str, str],
    sizes: Mapping[str, str | tuple[str, int]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    points: str | None = None,
    threads: int = 256,
    kernel: str | None = None,
    name: str | None = None,
) -> Block:
    """Creates a block from CUDA C. The kernel is `extern "C"`; pointers are buffers, other parameters are numbers.

    `outputs` maps the buffers that the kernel writes to shape rules. `sizes` maps parameters to the buffer whose number
    of elements they receive (or, as `(buffer, axis)`, one extent of it). One thread runs for each element of `points`,
    by default the first output.

    >>> add = cuda_block('''
    ... extern "C" __global__ void shift(const float* x, float by, float* result, int n)
    ... {
    ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) result[i] = x[i] + by;
    ... }''', outputs={"result": "same(0)"}, sizes={"n": "result"}, defaults={"by": 1.0})
    >>> add
    <block shift(x, by) -> result>
    """
    where = caller_origin()
    file, line = (where.file, _line_of(source, where.file, where.line)) if where is not None else ("", 1)
    symbol, parameters = read_head(source, outputs, sizes or {}, defaults or {}, kernel)
    code = KernelCode("cuda", source, symbol, file, line)
    return Block(CudaBody(code, parameters, points, threads, name or symbol), name)


def load_cuda_block(path: str | Path, *, name: str | None = None) -> Block:
    """Creates a block from a `.cu`, `.ptx` or `.cubin` file and the JSON file of the same name next to it.

    The JSON has `kernel` (the symbol), `parameters` (each with `name`, `kind`: input, output, number or size,
    `element`, and where they apply `shape`, `default`, `of`, `axis`), and optionally `threads` and `points`.

    >>> import json, pathlib, tempfile
    >>> head = {"kernel": "twice", "parameters": [{"name": "x", "kind": "input", "element": "f32"},
    ...     {"name": "result", "kind": "output", "element": "f32", "shape": "same(0)"}]}
    >>> text = 'extern "C" __global__ void twice(const float* x, float* result) { result[0] = 2 * x[0]; }'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "twice.cu")
    ...     _ = path.write_text(text), path.with_suffix(".json").write_text(json.dumps(head))
    ...     load_cuda_block(path)
    <block twice(x) -> result>
    """
    return Block(load_body(Path(path), name), name)


def watch_cuda(engine: Engine, path: str | Path, *, name: str | None = None) -> Block:
    """Adds a block from a file and reloads it whenever the file or its JSON is saved.

    >>> import json, pathlib, tempfile
    >>> head = {"kernel": "twice", "parameters": [{"name": "x", "kind": "input", "element": "f32"},
    ...     {"name": "result", "kind": "output", "element": "f32", "shape": "same(0)"}]}
    >>> text = 'extern "C" __global__ void twice(const float* x, float* result) { result[0] = 2 * x[0]; }'
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "twice.cu")
    ...     _ = path.write_text(text), path.with_suffix(".json").write_text(json.dumps(head))
    ...     watch_cuda(Engine(), path)
    <block twice(x) -> result>
    """
    file = Path(path)
    files = {path: stamp_of(path) for path in (file, file.with_suffix(".json"))}
    block = load_cuda_block(file, name=name)
    follow(block, lambda: files, lambda: load_body(file, name))
    return engine.add(block)


@dataclass(frozen=True)
class KernelCode:
    """The source or machine code of a kernel, and its location."""

    language: Language
    text: str | bytes
    symbol: str
    file: str
    line: int

    def with_text(self, text: str | bytes) -> KernelCode:
        """Other code for the same symbol."""
        return replace(self, text=text)


class CudaBody:
    """The body of a user kernel."""

    def __init__(
        self, code: KernelCode, parameters: Sequence[KernelParameter], points: str | None, threads: int, name: str
    ) -> None:
        self.name = name
        self.code, self._parameters, self._threads = code, tuple(parameters), threads
        inputs = [p for p in self._parameters if p.kind in ("input", "number")]
        self.inputs = tuple(InputSpec(p.name, None, p.default) for p in inputs)
        self._output_parameters = [p for p in self._parameters if p.kind == "output"]
        self.outputs = tuple(p.name for p in self._output_parameters)
        self._input_parameters = inputs
        if not self._output_parameters:
            raise UsageError(
                f"`{name}` has no outputs", where=_origin_of(code), help="declare which parameters are outputs"
            )
        if not 1 <= threads <= 1024:
            raise UsageError(
                f"`{name}` cannot have {threads} threads in a block", where=_origin_of(code), expected="1 to 1024"
            )
        self._points = points or self.outputs[0]
        named = {p.name for p in [*inputs, *self._output_parameters]}
        for wanted in (self._points, *(p.of for p in self._parameters if p.kind == "size")):
            if wanted not in named:
                raise UsageError(
                    f"`{name}` has no buffer `{wanted}`", where=_origin_of(code), expected=", ".join(named)
                )

    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        """The kernel for inputs of these types."""
        types: list[Type] = []
        for parameter, input_type in zip(self._input_parameters, input_types, strict=True):
            if parameter.kind == "number":
                types.append(parameter.element)
                continue
            if input_type.type.element is not parameter.element:
                raise PinError(parameter.name, str(parameter.element), str(input_type.type.element))
            types.append(input_type.type)
        shapes = [input_type.type.shape for input_type in input_types]
        result_shapes = [apply_shape_rule(p.shape or "same(0)", shapes) for p in self._output_parameters]  # type: ignore[arg-type]
        results = [Tensor(p.element, shape) for p, shape in zip(self._output_parameters, result_shapes, strict=True)]
        sized = dict(zip((*(p.name for p in self._input_parameters), *self.outputs), (*types, *results), strict=True))
        points_type = sized[self._points]
        points = prod(map(int, points_type.shape)) if isinstance(points_type, Tensor) else 1  # type: ignore[arg-type]
        code = self.code
        kernel = CudaKernel(
            self.name, code.language, code.text, code.symbol, self._arguments(), tuple(types), tuple(results), points,
            self._threads, code.file, code.line,
        )  # fmt: skip
        return Specialized(kernel)

    def _arguments(self) -> tuple[KernelArgument, ...]:
        inputs = {p.name: n for n, p in enumerate(self._input_parameters)}
        arguments = []
        for p in self._parameters:
            if p.kind == "size":
                assert p.of is not None
                side = "input_size" if p.of in inputs else "output_size"
                index = inputs[p.of] if p.of in inputs else self.outputs.index(p.of)
                arguments.append(KernelArgument(side, index, p.element, p.axis))
            elif p.kind == "output":
                arguments.append(KernelArgument("output", self.outputs.index(p.name), p.element))
            else:
                arguments.append(KernelArgument("input" if p.kind == "input" else "number", inputs[p.name], p.element))
        return tuple(arguments)


def _origin_of(code: KernelCode) -> TextOrigin | None:
    return TextOrigin(code.file, code.line) if code.file else None


# --- parameters from the signature of a kernel -----------------------------------------------------------------------


def read_head(
    source: str,
    outputs: Mapping[str, str],
    sizes: Mapping[str, str | tuple[str, int]],
    defaults: Mapping[str, Any],
    kernel: str | None = None,
) -> tuple[str, list[KernelParameter]]:
    """Parses the signature of a kernel in CUDA C: returns its symbol and its parameters.

    >>> read_head('extern "C" __global__ void f(const float* x, float* y)', {"y": "same"}, {}, {})[1][1].kind
    'output'
    """
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    signatures = [match for match in _SIGNATURE.finditer(code) if kernel in (None, match[1])]
    if len(signatures) != 1:
        found = ", ".join(match[1] for match in _SIGNATURE.finditer(code)) or "none"
        raise UsageError(
            f"there is no kernel `{kernel}`" if kernel else "the source must contain exactly one kernel", found=found,
            where=caller_origin(), help='name it: cuda_block(..., kernel="name")',
        )  # fmt: skip
    symbol, inside = signatures[0][1], signatures[0][2]
    parts = [part.strip() for part in inside.split(",") if part.strip()]
    parameters = [_parse_parameter(part, outputs, sizes, defaults) for part in parts]
    unknown = {*outputs, *sizes, *defaults} - {p.name for p in parameters}
    if unknown:
        raise UsageError(f"`{symbol}` has no parameter {', '.join(sorted(unknown))}", where=caller_origin())
    return symbol, parameters


def _parse_parameter(
    text: str, outputs: Mapping[str, str], sizes: Mapping[str, Any], defaults: Mapping[str, Any]
) -> KernelParameter:
    tokens = re.sub(r"\b(const|__restrict__|restrict|volatile)\b", " ", text.replace("*", " * ")).split()
    name, c_type = tokens[-1], " ".join(token for token in tokens[:-1] if token != "*")
    if c_type not in _C_TYPES or tokens.count("*") > 1:
        raise UsageError(f"a kernel parameter cannot be `{text}`", where=caller_origin(), expected=", ".join(_C_TYPES))
    element = SCALARS[_C_TYPES[c_type]]
    if "*" in tokens:
        if name in outputs:
            return KernelParameter(name, "output", element, shape=outputs[name])
        if not re.search(r"\bconst\b", text):
            raise UsageError(
                f"`{text}` may be written", where=caller_origin(), help="make it const, or name it among the outputs"
            )
        return KernelParameter(name, "input", element, default=defaults.get(name))
    if name in sizes:
        of, axis = sizes[name] if isinstance(sizes[name], tuple) else (sizes[name], None)
        return KernelParameter(name, "size", element, of=of, axis=axis)
    return KernelParameter(name, "number", element, default=defaults.get(name))


def _line_of(source: str, file: str, call: int) -> int:
    """The line of a file where the source text begins, or the line of the call if the text is not in the file."""
    text = "".join(linecache.getlines(file))
    start = text.find(source)
    return text.count("\n", 0, start) + 1 if start >= 0 else call


# --- code from files -------------------------------------------------------------------------------------------------


def load_body(path: Path, name: str | None) -> CudaBody:
    """Loads the body of a block from a code file and its JSON file."""
    language = _LANGUAGES.get(path.suffix)
    if language is None:
        raise GraphError(f"`{path.name}` is not CUDA code", expected=", ".join(_LANGUAGES))
    try:
        text: str | bytes = path.read_bytes() if language == "cubin" else path.read_text(encoding="utf-8")
        described = path.with_suffix(".json").read_text(encoding="utf-8")
    except OSError as error:
        missing = Path(str(error.filename)).name
        raise GraphError(f"cannot read `{missing}`: {error.strerror}", help=KEEPS_RUNNING) from error
    except UnicodeDecodeError as error:
        raise GraphError(f"`{path.stem}` is not UTF-8 text: {error}", help=KEEPS_RUNNING) from error
    try:
        data = json.loads(described)
        parameters = [_from_json(parameter) for parameter in data["parameters"]]
        code = KernelCode(language, text, str(data["kernel"]), str(path), 1)
        return CudaBody(code, parameters, data.get("points"), int(data.get("threads", 256)), name or code.symbol)
    except json.JSONDecodeError as error:
        where = TextOrigin(str(path.with_suffix(".json")), error.lineno, error.colno)
        raise GraphError(f"`{path.stem}.json` is not valid JSON: {error.msg}", where=where) from error
    except (KeyError, TypeError, ValueError) as error:
        where = TextOrigin(str(path.with_suffix(".json")), 1)
        what = f"has no {error}" if isinstance(error, KeyError) else f"does not describe a kernel: {error}"
        raise GraphError(f"`{path.stem}.json` {what}", where=where) from error


def _from_json(data: Mapping[str, Any]) -> KernelParameter:
    kind, element = data["kind"], data["element"]
    if kind not in ("input", "output", "number", "size"):
        raise ValueError(f"`{kind}` is not a kind of parameter")
    if element not in SCALARS:
        raise ValueError(f"`{element}` is not an element type")
    optional = {key: data.get(key) for key in ("shape", "default", "of", "axis")}
    return KernelParameter(str(data["name"]), kind, SCALARS[element], **optional)


__all__ = ["KernelParameter", "cuda_block", "load_cuda_block", "watch_cuda"]

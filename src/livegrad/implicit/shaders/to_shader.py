"""`lg.to_glsl` and `lg.to_wgsl`: traced functions, captured functions, parts and functions of assemblies as shaders."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from livegrad import ops
from livegrad.compiler import lower
from livegrad.diagnostics import CompileError, UsageError, caller_origin, shown
from livegrad.frontend.differentiable.plain_function import function as captured_function
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.implicit.bodies.part import Part, prepare_assembly
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.to_ir import convert
from livegrad.implicit.shaders.shader import Shader
from livegrad.implicit.shaders.shader_source import ShaderParameter, write_shader
from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ir.types import Scalar, Tape, Tensor, Type, components, differential_of, f32
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.aggregate import get, make
from livegrad.ops.rules import filled, zero
from livegrad.passes.inline_calls import grows_when_inlined
from livegrad.schedule.target import SOURCE

_MOST_PARAMETERS = 100


@dataclass(frozen=True)
class ShaderInput:
    """A function with the names of its parameters and the values of those that have one."""

    name: str
    function: Function
    names: tuple[str, ...]
    values: tuple[Any, ...]


def to_glsl(
    source: Any, *arguments: Any, uniforms: Sequence[str] | None = None, gradients: Sequence[str] = ()
) -> Shader:
    """Returns a function or a part as GLSL ES 3.00, the language of WebGL 2.

    `source` is a part; a function of an assembly, whose name follows; a function with annotations, such as an
    `lg.differentiable` one; or a function of nodes, whose parameter types follow.

    The parameters named by `uniforms` are uniforms, which a program sets without compiling again; the others are
    arguments. The default is all but the first, which is the position. Tensors are always textures. For each parameter
    named by `gradients`, the shader also has the exact gradient of the value with respect to it.

    Shaders compute with 32-bit numbers. 64-bit integers become 32-bit ones, and indices are not checked. GPUs compute
    sines to about 3 digits after the point at worst.

    >>> import livegrad as lg
    >>> @lg.differentiable
    ... def ball(position: lg.vec3, radius: lg.f32) -> lg.f32:
    ...     return lg.length(position) - radius
    >>> print(lg.to_glsl(ball))
    uniform highp float radius;
    float ball_2(vec3 p0, float p1)
    {
        float v0 = length(p0);
        return (v0 - p1);
    }
    <BLANKLINE>
    float ball(vec3 position)
    {
        return ball_2(position, radius);
    }
    <BLANKLINE>
    """
    return _to_shader("GLSL", source, arguments, uniforms, gradients)


def to_wgsl(
    source: Any, *arguments: Any, uniforms: Sequence[str] | None = None, gradients: Sequence[str] = ()
) -> Shader:
    """Returns a function or a part as WGSL, the language of WebGPU. See `to_glsl`.

    Uniforms are words of one buffer in binding 0 of group 0, at `Uniform.offset`; textures are in the bindings 1, 2 …

    >>> import livegrad as lg
    >>> waves = lg.implicit.add_expression(lg.Assembly(), "wave", "sin(pos.x) * 2", {"pos": "vector"})
    >>> print(lg.to_wgsl(waves, "wave"))
    fn wave_2(p0: vec3<f32>) -> f32
    {
        let v0: f32 = sin(p0.x);
        return (v0 * 2.0f);
    }
    <BLANKLINE>
    fn wave(pos: vec3<f32>) -> f32
    {
        return wave_2(pos);
    }
    <BLANKLINE>
    """
    return _to_shader("WGSL", source, arguments, uniforms, gradients)


def _to_shader(
    language: str,
    source: Any,
    arguments: Sequence[Any],
    uniforms: Sequence[str] | None,
    gradients: Sequence[str],
) -> Shader:
    shaded = shader_input(source, arguments)
    chosen = shaded.names[1:] if uniforms is None else _names(uniforms)
    gradients = _names(gradients)
    for name in (*chosen, *gradients):
        _require_name(shaded, name)
    entries = [("value", shaded.name, shaded.function)]
    for name in gradients:
        gradient = gradient_by(shaded.function, shaded.names.index(name))
        entries.append((f"gradient of {name}", f"{shaded.name}_gradient_{name}", gradient))
    return write_shader(language, entries, shader_parameters(shaded, chosen))


def shader_parameters(shaded: ShaderInput, uniforms: Sequence[str]) -> list[ShaderParameter]:
    """The parameters of a shader: those that are not uniforms or tensors are arguments."""
    rows = zip(shaded.names, shaded.function.parameter_types, shaded.values, strict=True)
    return [
        ShaderParameter(name, type, name not in uniforms and not isinstance(type, Tensor), value)
        for name, type, value in rows
    ]


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _require_name(shaded: ShaderInput, name: Any) -> None:
    if name not in shaded.names:
        raise UsageError(
            f"`{shaded.name}` has no parameter `{name}`",
            where=caller_origin(),
            expected="one of " + (", ".join(shaded.names) or "none"),
        )


# --- what shaders are made of ----------------------------------------------------------------------------------------


def shader_input(source: Any, arguments: Sequence[Any]) -> ShaderInput:
    """The function that a shader computes, from what `to_glsl` accepts."""
    if arguments and isinstance(source, Part | Function):
        raise UsageError(
            f"the types of `{source.name}` are known",
            where=caller_origin(),
            found=shown(arguments[0]),
            help="leave the types out",
        )
    match source:
        case Part():
            return input_of_part(source)
        case Assembly():
            return _input_of_assembly(source, *arguments)
        case Function():
            names = tuple(f"p{index}" if index else "position" for index in range(len(source.parameters)))
            return ShaderInput(source.name, source, names, (None,) * len(names))
        case CapturedFunction():
            return _input_of_captured(source, arguments)
        case FunctionType() if not arguments:
            return _input_of_captured(captured_function(source), arguments)
    if not callable(source):
        raise UsageError(
            "not a function of position",
            where=caller_origin(),
            expected="a part, a function, or an assembly and the name of a function",
            found=type(source).__name__,
        )
    names = tuple(inspect.signature(source).parameters)
    return ShaderInput(_name_of(source), trace(source, *arguments), names, (None,) * len(names))


def input_of_part(part: Part) -> ShaderInput:
    """The field of a part, with its parameters and tables."""
    if part.element is not f32:
        raise CompileError(
            f"shaders compute with f32, and part `{part.name}` with {part.element}",
            where=caller_origin(),
            help="create the part with element=lg.f32",
        )
    table_count = len(part.arguments) - len(part.parameter_names)
    tables = part.table_names or ("",) * table_count
    named = (name or f"table_{index}" for index, name in enumerate(tables))
    names = ("position", *part.parameter_names, *named)
    return ShaderInput(part.name, part.function, names, (None, *part.arguments))


def _input_of_assembly(assembly: Assembly, name: Any = None, *rest: Any) -> ShaderInput:
    if name is None or rest:
        raise UsageError(
            "a shader of an assembly needs one function",
            where=caller_origin(),
            help='write lg.to_glsl(assembly, "name")',
        )
    function = assembly.function(name)
    prepared = prepare_assembly(assembly, {function.id: function.outputs}, False)
    converted = convert(prepared, name, element=f32)
    values = (*(None for _ in converted.inputs), *converted.tables)
    names = (*converted.inputs, *converted.table_names)
    return ShaderInput(converted.function.name, converted.function, names, values)


def _input_of_captured(captured: CapturedFunction, types: Sequence[Any]) -> ShaderInput:
    parameters = captured.signature.parameters
    chosen = types or [parameter.annotation.type for parameter in parameters]
    for parameter, type in zip(parameters, chosen, strict=False):
        if type is None:
            raise UsageError(
                f"parameter `{parameter.name}` of `{captured.__name__}` has no type",
                where=caller_origin(),
                help=f"annotate it, such as `{parameter.name}: lg.vec3`, or pass the types after the function",
            )
    function = captured.specialization_for(*chosen).function
    names = tuple(parameter.name for parameter in parameters)
    return ShaderInput(captured.__name__, function, names, (None,) * len(names))


def _name_of(source: Callable[..., Any]) -> str:
    name = getattr(source, "__name__", "shade")
    return "shade" if name == "<lambda>" else name


# --- gradients -------------------------------------------------------------------------------------------------------


def gradient_by(function: Function, parameter: int) -> Function:
    """The gradient of a function with one float as its result, with respect to one parameter of floats."""
    type, result = function.parameter_types[parameter], function.result_type
    if result is not f32 or differential_of(type) != type or isinstance(type, Tensor):
        raise CompileError(
            f"`{function.name}` has no gradient with respect to parameter {parameter}",
            where=caller_origin(),
            expected="a function to f32, and a parameter of floats",
            found=f"{type} to {result}",
        )
    inputs = [input_node(Key("argument"), each) for each in function.parameter_types]
    cotangents = ops.bwd_diff(*inputs, filled(1.0, result), function=function)
    gradient = get(cotangents, index=parameter) if len(inputs) > 1 else cotangents
    backward = make_function(f"{function.name}.gradient", inputs, [gradient])
    if grows_when_inlined(function) or not _fits_shaders(backward):
        return make_function(f"{function.name}.gradient", inputs, [_forward(function, inputs, parameter, type)])
    return backward


def _fits_shaders(function: Function) -> bool:
    """Whether shaders can compute a derivative: they have no tapes, and compilers limit the number of parameters.

    The backward pass of a loop reads what a tape remembers, and functions pass residuals to each other.
    """
    functions = reachable_functions([lower(function, SOURCE)])
    if any(len(inner.parameters) > _MOST_PARAMETERS for inner in functions):
        return False
    return not any(isinstance(node.type, Tape) for inner in functions for node in nodes_of(inner))


def _forward(function: Function, inputs: Sequence[Any], parameter: int, type: Type) -> Any:
    parts = []
    count = len(components(type)) or 1
    for index in range(count):
        ones = [filled(float(index == other), f32) for other in range(count)]
        direction = ones[0] if isinstance(type, Scalar) else make(*ones, type=type)
        tangents = [zero(differential_of(each.type)) for each in inputs]
        tangents[parameter] = direction
        parts.append(get(ops.fwd_diff(*inputs, *tangents, function=function), index=1))
    return parts[0] if isinstance(type, Scalar) else make(*parts, type=type)

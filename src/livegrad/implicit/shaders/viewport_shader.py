"""`viewport_shader`: the whole fragment shader of a viewport of a part, with its parameters as uniforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from livegrad import ops
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.implicit.bodies.clipping import require_part
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.shaders.shader import Shader
from livegrad.implicit.shaders.shader_source import ShaderParameter, write_shader
from livegrad.implicit.shaders.steepness import Ranges, steepness
from livegrad.implicit.shaders.to_shader import gradient_by, input_of_part
from livegrad.implicit.shaders.viewport_text import HEAD, MAIN, UNIFORMS
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key
from livegrad.ir.types import f32

_COLOR = "color"


@dataclass(frozen=True, eq=False)
class ViewportShader:
    """The fragment shader of a viewport, with the box of its part and a bound of the gradient in it.

    `slopes` are the parameters whose slope the viewport can show.

    >>> import livegrad as lg
    >>> viewport = viewport_shader(lg.shapes.sphere(1.0).part(((-2, -2, -2), (2, 2, 2))))
    >>> viewport.high, viewport.slopes, sorted(viewport.to_json())[:4]
    ((2.0, 2.0, 2.0), (), ['functions', 'high', 'language', 'low'])
    """

    shader: Shader
    low: tuple[float, float, float]
    high: tuple[float, float, float]
    steepness: float
    slopes: tuple[str, ...]

    def __str__(self) -> str:
        return self.shader.text

    def to_json(self) -> dict[str, Any]:
        """The shader as data for a web page; `studio/src/viewport/types.ts` has the type."""
        box = {"low": list(self.low), "high": list(self.high)}
        return {**self.shader.to_json(), **box, "steepness": self.steepness, "slopes": list(self.slopes)}


def viewport_shader(part: Part, *, slopes: Sequence[str] = (), ranges: Ranges | None = None) -> ViewportShader:
    """Returns a GLSL shader that draws a part as `lg.render` does, live: parameters are uniforms.

    It traces spheres, with a step that never passes the surface (`steepness`), shades with exact normals, and draws a
    section plane with the field on it and a build plate. `slopes` names parameters of one number whose slope it can
    show as colours: how far the surface moves along its normal when the parameter grows by one.

    The bound of the gradient holds for the present values of the parameters, and for all values in `ranges`. After
    other changes, set the uniform `lg_steepness` to a new bound.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)), "ball")
    >>> viewport = viewport_shader(ball, slopes=["radius"], ranges={"radius": (0.5, 2.0)})
    >>> viewport.shader.uniforms[0].name, viewport.low, str(viewport).startswith("#version 300 es")
    ('radius', (-2.0, -2.0, -2.0), True)
    """
    require_part(part)
    shaded = input_of_part(part)
    for name in slopes:
        if name not in part.parameter_names or shaded.function.parameter_types[shaded.names.index(name)] is not f32:
            raise UsageError(
                f"`{name}` has no slope",
                where=caller_origin(),
                expected="a parameter of one number of the part",
                found=", ".join(part.parameter_names) or "no parameters",
            )
    entries = [("value", "field", shaded.function), ("gradient", "gradient", gradient_by(shaded.function, 0))]
    entries += [
        (f"slope of {name}", f"slope_{name}", gradient_by(shaded.function, shaded.names.index(name))) for name in slopes
    ]
    parameters = [
        ShaderParameter(name, type, index == 0, value)
        for index, (name, type, value) in enumerate(
            zip(shaded.names, shaded.function.parameter_types, shaded.values, strict=True)
        )
    ]
    entries, parameters = _with_color(part, entries, parameters)
    shader = write_shader("GLSL", entries, parameters)
    bound = steepness(part, ranges)
    low, high = (tuple(float(x) for x in corner) for corner in part.bounds())
    text = HEAD + UNIFORMS + shader.text + _main(shader, slopes)
    whole = replace(shader, text=text)
    return ViewportShader(whole, low, high, bound, tuple(slopes))  # type: ignore[arg-type]


def _main(shader: Shader, slopes: Sequence[str]) -> str:
    cases = "".join(
        f"    if (index == {index}) {{ return {shader.functions[f'slope of {name}']}(point); }}\n"
        for index, name in enumerate(slopes)
    )
    paint = f"lg_encode({shader.functions[_COLOR]}(point))" if _COLOR in shader.functions else "lg_color"
    names = {"field": shader.functions["value"], "gradient": shader.functions["gradient"]}
    return MAIN.substitute(names, paint=paint, slopes=cases)


def _with_color(
    part: Part, entries: list[tuple[str, str, Function]], parameters: list[ShaderParameter]
) -> tuple[list[tuple[str, str, Function]], list[ShaderParameter]]:
    """Adds the colour of a part, whose arguments follow those of the field in all functions."""
    color = part.color
    if color is None:
        return entries, parameters
    types = color.function.parameter_types[1:]
    extra = [
        ShaderParameter(f"color_{index}", type, False, value)
        for index, (type, value) in enumerate(zip(types, color.arguments, strict=True))
    ]
    counts = len(parameters), len(extra)
    functions = [
        (what, name, _widen(function, parameters, extra, range(counts[0]))) for what, name, function in entries
    ]
    order = [0, *range(counts[0], sum(counts))]
    functions.append((_COLOR, "paint", _widen(color.function, parameters, extra, order)))
    return functions, [*parameters, *extra]


def _widen(
    function: Function, parameters: Sequence[ShaderParameter], extra: Sequence[ShaderParameter], order: Sequence[int]
) -> Function:
    """The function with the parameters of all functions, of which it uses those in `order`."""
    inputs = [input_node(Key("argument"), parameter.type) for parameter in (*parameters, *extra)]
    value = ops.call(*[inputs[index] for index in order], function=function)
    return make_function(function.name, inputs, [value])

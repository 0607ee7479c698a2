"""`lg.to_glsl` and `lg.to_wgsl`: what they accept, uniforms, textures, gradients, and messages about what cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import livegrad as lg
from livegrad import ops
from livegrad.diagnostics import CompileError, UsageError
from livegrad.implicit import Shader
from livegrad.ir.types import Tensor, Vector
from tests.shaders.browser import Browser, reason_for_no_browser
from tests.shaders.wgpu_device import reason_for_no_wgpu

needs_browser = pytest.mark.skipif(bool(reason_for_no_browser()), reason=str(reason_for_no_browser()))
needs_wgpu = pytest.mark.skipif(bool(reason_for_no_wgpu()), reason=str(reason_for_no_wgpu()))
WRITERS = pytest.mark.parametrize("write", [lg.to_glsl, lg.to_wgsl])
V3 = Vector(lg.f32, 3)
BOX = ((-2, -2, -2), (2, 2, 2))


@lg.differentiable
class Light:
    """A struct as a parameter."""

    direction: lg.vec3
    strength: lg.f32


@lg.differentiable
def lit(position: lg.vec3, light: Light, turn: lg.mat3, count: lg.i32) -> lg.f32:
    total = lg.dot(position, light.direction) * light.strength
    for i in range(count):
        total += lg.length(turn @ position) * (i + 1)
    return total


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the whole module."""
    browser = Browser()
    yield browser
    browser.close()


def run_glsl(browser: Browser, shader: Shader, name: str, width: int, points: Any, values: Any) -> NDArray[Any]:
    """The floats of a function of the shader at points; uniforms become constants of the same names."""
    text = shader.text
    for uniform in shader.uniforms:
        numbers = [float(x) for x in np.asarray(values[uniform.name], float).reshape(-1)]
        literals = [str(int(x)) if uniform.kind == "int" else repr(x) for x in numbers]
        kind = {"float": "float", "int": "int"}[uniform.kind]
        line = next(line for line in text.splitlines() if line.startswith("uniform") and uniform.identifier in line)
        type = f"vec{uniform.size}" if uniform.size > 1 and not uniform.is_list else kind
        if uniform.is_list:
            constant = (
                f"const {kind} {uniform.identifier}[{uniform.size}] = {kind}[{uniform.size}]({', '.join(literals)});"
            )
        else:
            constant = f"const {type} {uniform.identifier} = {type}({', '.join(literals)});"
        text = text.replace(line, constant)
    cases = " ".join(
        f"if (row == {row}) value = result{'.xyzw'[0] + 'xyzw'[row] if width > 1 else ''};" for row in range(width)
    )
    precisions = "".join(
        f"precision highp {type};\n" for type in ("float", "int", "sampler2D", "isampler2D", "usampler2D")
    )
    type = "float" if width == 1 else f"vec{width}"
    fragment = f"""#version 300 es
{precisions}uniform usampler2D lg_inputs;
out uvec4 lg_output;
{text}
void main()
{{
    int row = int(gl_FragCoord.y), point = int(gl_FragCoord.x);
    vec3 at = vec3(0.0);
    for (int i = 0; i < 3; ++i) at[i] = uintBitsToFloat(texelFetch(lg_inputs, ivec2(point, i), 0).x);
    {type} result = {name}(at);
    float value = 0.0;
    {cases}
    lg_output = uvec4(floatBitsToUint(value));
}}
"""
    tables = {texture.identifier: np.asarray(texture.value) for texture in shader.textures}
    inputs = np.ascontiguousarray(np.asarray(points, np.float32).T).view(np.uint32)
    return browser.run_glsl(fragment, width, inputs, tables).view(np.float32).T


@needs_browser
def test_structs_matrices_and_integers_are_uniforms(browser: Browser) -> None:
    shader = lg.to_glsl(lit, gradients=["position"])
    assert {(u.name, u.identifier, u.kind, u.size) for u in shader.uniforms} == {
        ("light.direction", "light_direction", "float", 3),
        ("light.strength", "light_strength", "float", 1),
        ("turn", "turn", "float", 9),
        ("count", "count_", "int", 1),
    }
    generator = np.random.default_rng(0)
    points = generator.normal(size=(16, 3)).astype(np.float32)
    direction, turn = generator.normal(size=3).astype(np.float32), generator.normal(size=(3, 3)).astype(np.float32)
    values = {"light.direction": direction, "light.strength": 1.5, "turn": turn, "count": 3}
    found = run_glsl(browser, shader, shader.functions["value"], 1, points, values)
    expected = points @ direction * 1.5 + np.linalg.norm(points @ turn.T, axis=1) * 6
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5, atol=1e-5)
    gradient = run_glsl(browser, shader, shader.functions["gradient of position"], 3, points, values)
    turned = points @ turn.T
    expected = direction * 1.5 + 6 * (turned / np.linalg.norm(turned, axis=1, keepdims=True)) @ turn
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


@needs_browser
def test_meshes_are_textures(browser: Browser) -> None:
    mesh = lg.implicit.TriangleMesh.box([-1, -1, -1], [1, 1.5, 0.5])
    (part,) = lg.parts(lg.Assembly().add_resource(mesh, id=1).build(1))
    shader = lg.to_glsl(part)
    assert {texture.kind for texture in shader.textures} >= {"float"}
    points = np.random.default_rng(1).uniform(-2, 2, (64, 3)).astype(np.float32)
    found = run_glsl(browser, shader, shader.functions["value"], 1, points, part.parameters)
    np.testing.assert_allclose(found[:, 0], part(points), atol=1e-4)


@needs_wgpu
def test_uniforms_of_wgsl_are_words_of_one_buffer() -> None:
    """The entry function reads the words that `Uniform.offset` says."""
    from tests.shaders.wgpu_device import run_wgsl

    shader = lg.to_wgsl(lit)
    generator = np.random.default_rng(2)
    direction, turn = generator.normal(size=3).astype(np.float32), generator.normal(size=(3, 3)).astype(np.float32)
    words = np.zeros(16, np.uint32)
    values = {
        "light.direction": direction,
        "light.strength": np.array([1.5], np.float32),
        "turn": turn,
        "count": np.array([3], np.int32),
    }
    for uniform in shader.uniforms:
        words[uniform.offset : uniform.offset + uniform.size] = (
            np.asarray(values[uniform.name]).reshape(-1).view(np.uint32)
        )
    point = generator.normal(size=3).astype(np.float32)
    declaration = "@group(0) @binding(0) var<uniform> lg_uniforms: array<vec4<u32>, 4>;"
    assert declaration in shader.text
    # The uniforms are read from the inputs here, which are a storage buffer.
    text = shader.text.replace(declaration, "var<private> lg_uniforms: array<vec4<u32>, 4>;")
    main = f"""@group(0) @binding(0) var<storage, read> lg_inputs: array<u32>;
@group(0) @binding(1) var<storage, read_write> lg_outputs: array<u32>;
{text}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>)
{{
    if (id.x > 0u) {{ return; }}
    for (var i = 0u; i < 16u; i++) {{ lg_uniforms[i / 4u][i % 4u] = lg_inputs[i]; }}
    let at = vec3<f32>(bitcast<f32>(lg_inputs[16]), bitcast<f32>(lg_inputs[17]), bitcast<f32>(lg_inputs[18]));
    lg_outputs[0] = bitcast<u32>({shader.functions["value"]}(at));
}}
"""
    inputs = np.concatenate([words, point.view(np.uint32)])[:, None]
    found = run_wgsl(main, 1, inputs, {}).view(np.float32)[0, 0]
    assert found == pytest.approx(point @ direction * 1.5 + np.linalg.norm(turn @ point) * 6, rel=1e-5)


@WRITERS
def test_functions_of_every_kind_are_accepted(write: Any) -> None:
    traced = lg.ir.trace(lambda p: ops.length(p) - 1.0, V3, name="ball")
    assembly = lg.implicit.add_expression(lg.Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})

    def ball(position: lg.vec3) -> lg.f32:
        return lg.length(position) - 1.0

    for shader in (
        write(traced),
        write(lambda position: ops.length(position) - 1.0, V3),
        write(assembly, "ball"),
        write(ball),
        write(lg.function(ball)),
        write(lg.shapes.sphere(1.0).part(BOX, "ball")),
    ):
        assert shader.functions["value"] in ("ball", "shade")
        assert not shader.uniforms


@WRITERS
def test_arguments_and_uniforms_are_chosen_by_name(write: Any) -> None:
    def wave(position: lg.vec3, time: lg.f32, height: lg.f32) -> lg.f32:
        return lg.sin(position.x + time) * height  # type: ignore[return-value]

    assert [uniform.name for uniform in write(wave).uniforms] == ["time", "height"]
    assert [uniform.name for uniform in write(wave, uniforms=["height"]).uniforms] == ["height"]
    assert write(wave, uniforms="height", gradients="time").functions["gradient of time"] == "wave_gradient_time"
    with pytest.raises(UsageError, match=r"`wave` has no parameter `depth` .*expected one of position, time, height"):
        write(wave, uniforms=["depth"])


@WRITERS
def test_names_that_collide_are_changed(write: Any) -> None:
    def sample(position: lg.vec3, sample: lg.f32, vec3: lg.f32, uniform: lg.f32) -> lg.f32:
        return position.x * sample + vec3 * uniform

    shader = write(sample)
    names = [shader.functions["value"], *(uniform.identifier for uniform in shader.uniforms)]
    assert len(set(names)) == 4
    assert not {"sample", "vec3", "uniform"} & set(names)


@WRITERS
def test_uniforms_whose_names_collide_are_told_apart(write: Any) -> None:
    def one_2(position: lg.vec3, light: Light, light_strength: lg.f32, one: lg.f32) -> lg.f32:
        return position.x * light.strength + light_strength * one

    shader = write(one_2)
    identifiers = {uniform.name: uniform.identifier for uniform in shader.uniforms}
    assert identifiers["light.strength"] != identifiers["light_strength"]
    assert not {*identifiers.values()} & {*shader.functions.values()}


@WRITERS
def test_what_shaders_cannot_do_is_an_error_at_the_line(write: Any) -> None:
    def by_rows(table: Any, position: Any) -> Any:
        row = ops.cast(ops.get(position, index=0), type=lg.i64)
        return ops.lookup(ops.reshape(table, shape=(2, 2)), row, row)

    with pytest.raises(CompileError, match=r"`reshape` has no (GLSL|WGSL) \(test_to_shader.py:\d+"):
        write(by_rows, Tensor(lg.f32, (4,)), V3, uniforms=())
    with pytest.raises(CompileError, match=r"(GLSL|WGSL) has no f64"):
        write(lambda x: x * 2.0, lg.f64)
    assembly = lg.implicit.add_expression(lg.Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    precise = lg.implicit.part_of_function(assembly, "ball", BOX, element=lg.f64)
    with pytest.raises(CompileError, match=r"shaders compute with f32, and part .* with f64.*element=lg.f32"):
        write(precise)
    with pytest.raises(CompileError, match="does not fit a texture"):
        write(lambda t, i: ops.lookup(t, ops.cast(i, type=lg.i64)), Tensor(lg.f32, (9_000_000,)), lg.i32, uniforms=())
    with pytest.raises(CompileError, match="no 64-bit integers"):
        write(lambda n: ops.cast(n, type=lg.i64) + (1 << 40), lg.i32)
    with pytest.raises(UsageError, match=r"not a function of position .*expected a part, a function"):
        write(3)
    with pytest.raises(UsageError, match="the types of `ball` are known"):
        write(lg.shapes.sphere(1.0).part(BOX, "ball"), V3)
    with pytest.raises(CompileError, match="no gradient with respect to parameter 1"):
        write(lambda p, n: ops.get(p, index=0) * ops.cast(n, type=lg.f32), V3, lg.i32, gradients=["n"])


def test_tensors_are_padded_to_rows() -> None:
    part = lg.parts(lg.Assembly().add_resource(lg.implicit.TriangleMesh.box([0, 0, 0], [1, 1, 1]), id=1).build(1))[0]
    texture = lg.to_glsl(part).textures[0]
    assert texture.pixels().shape == (texture.size[1], 2048)
    assert texture.value is not None
    np.testing.assert_array_equal(texture.pixels().reshape(-1)[: texture.value.size], texture.value.reshape(-1))


def test_operations_count_calls_as_often_as_they_are_made() -> None:
    inner = lg.ir.trace(lambda x: ops.sin(x) * 511.0, lg.f32, name="inner")
    once = lg.ir.trace(lambda x: ops.call(x, function=inner), lg.f32, name="once")
    twice = lg.ir.trace(lambda x: ops.call(ops.call(x, function=inner), function=inner), lg.f32, name="twice")
    first, second = lg.to_glsl(once).operations, lg.to_glsl(twice).operations
    assert second > first + 2

"""OpenCL: the text of functions, and its values against native code where OpenCL can run."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.authoring.assembly import NODE_TYPES, Assembly, PortType, convert
from livegrad.authoring.assembly.resources import BeamLattice, TriangleMesh
from livegrad.backends.opencl import compile_function, kernel_source, opencl_source, reason_for_no_opencl
from livegrad.diagnostics import CompileError
from livegrad.ir.types import Matrix, Vector, c64, f32, f64, i32
from tests.authoring.assembly.test_node_types import ELEMENTWISE, FIXED, SHAPES, single_node

V = Vector(f32, 3)
needs_opencl = pytest.mark.skipif(reason_for_no_opencl() is not None, reason=str(reason_for_no_opencl()))


def test_every_function_is_written_once_and_before_its_users() -> None:
    inner = lg.trace(lambda p: ops.length(p), V, name="size")
    outer = lg.trace(lambda p: ops.call(p, function=inner) + ops.call(p * p, function=inner), V, name="both")
    text = opencl_source(outer)
    assert text.count("float size(float3 p0)") == 1
    assert text.index("float size") < text.index("float both")
    assert text.count("= size(") == 2


def test_names_never_hide_what_opencl_has() -> None:
    inner = lg.trace(lambda x: x * 2.0, f32, name="mix")
    text = opencl_source(lg.trace(lambda x: ops.call(x, function=inner), f32, name="main"))
    assert "float mix_(float p0)" in text
    assert "float main_(float p0)" in text


def test_functions_of_one_name_are_told_apart() -> None:
    first, second = (lg.trace(lambda x, k=k: x * k, f32, name="scaled") for k in (2.0, 3.0))
    text = opencl_source(
        lg.trace(lambda x: ops.call(x, function=first) + ops.call(x, function=second), f32, name="sum")
    )
    assert "scaled_2(" in text


def test_doubles_ask_for_their_extension() -> None:
    assert opencl_source(lg.trace(lambda x: x, f64)).startswith("#pragma OPENCL EXTENSION cl_khr_fp64")


def test_what_opencl_has_not_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match="OpenCL C has no c64"):
        opencl_source(lg.trace(lambda x: x, c64))
    with pytest.raises(CompileError, match="OpenCL C has no vec<f32, 5>"):
        opencl_source(lg.trace(lambda x: x, Vector(f32, 5)))


def test_kernels_guard_their_end() -> None:
    text = kernel_source(lg.trace(lambda p, r: ops.length(p) - r, V, f32), (True, False))
    assert "if (i >= count) return;" in text
    assert "a0[i * 3 + 2]" in text


def run(function: lg.Function, lifted: tuple[bool, ...], arguments: list[Any]) -> tuple[Any, Any]:
    found = compile_function(function, lifted)(*arguments)
    expected = lg.compile(lg.map_over(function, lifted))(*arguments)
    return (found, expected) if isinstance(found, tuple) else ((found,), (expected,))


@needs_opencl
@pytest.mark.parametrize("name", [*ELEMENTWISE, *FIXED])
def test_every_node_computes_the_same_on_opencl(name: str) -> None:
    for kind in NODE_TYPES[name].kinds or (None,):
        function = convert(single_node(name, kind), "f").function
        low, high = ELEMENTWISE[name][1] if name in ELEMENTWISE else (-2, 2)
        generator = np.random.default_rng(len(name))
        arguments = [
            generator.uniform(low, high, (100, *SHAPES[own or kind])).astype(np.float32)  # type: ignore[index]
            for _, own in NODE_TYPES[name].inputs
        ]
        for found, expected in zip(*run(function, (True,) * len(arguments), arguments), strict=True):
            np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)


@needs_opencl
def test_loops_branches_and_tables_run_on_opencl() -> None:
    made = Assembly().add_resource(TriangleMesh.box((-1, -1, -1), (1, 1, 1)), id=8)
    made = made.add_resource(BeamLattice([[0, 0, 0], [2, 0, 0]], [[0, 1]], [[0.5, 0.25]]), id=9)  # type: ignore[arg-type]
    made = made.add_function("d", {"pos": PortType.VECTOR}, {"m": PortType.SCALAR, "b": PortType.SCALAR})
    made = made.add_node("d", "Mesh", "mesh", pos="inputs.pos", mesh=8).link("d", "mesh.distance", "outputs.m")
    made = made.add_node("d", "BeamLattice", "beam", pos="inputs.pos", beamlattice=9)
    converted = convert(made.link("d", "beam.distance", "outputs.b"), "d")
    points = np.random.default_rng(0).uniform(-3, 3, (200, 3)).astype(np.float32)
    lifted = (True, *[False] * len(converted.tables))
    for found, expected in zip(*run(converted.function, lifted, [points, *converted.tables]), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@needs_opencl
def test_gradients_run_on_opencl() -> None:
    inner = lg.trace(lambda p: ops.length(p) * ops.sin(ops.get(p, index=0)), V)
    function = lg.trace(lambda p: ops.bwd_diff(p, lg.constant(1.0, f32), function=inner), V)
    points = np.random.default_rng(0).uniform(-3, 3, (200, 3)).astype(np.float32)
    (found,), (expected,) = run(function, (True,), [points])
    np.testing.assert_allclose(found, expected, atol=1e-5)


@needs_opencl
def test_integers_and_matrices_run_on_opencl() -> None:
    function = lg.trace(lambda n, m: ops.cast(n, type=f32) + ops.determinant(m), i32, Matrix(f32, 4, 4))
    numbers = np.arange(5, dtype=np.int32)
    matrices = np.random.default_rng(0).uniform(-1, 1, (5, 4, 4)).astype(np.float32)
    (found,), (expected,) = run(function, (True, True), [numbers, matrices])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert compile_function(function)(numbers[:0], matrices[:0]).shape == (0,)

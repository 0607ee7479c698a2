"""OpenCL: the generated text, and values compared with native code where OpenCL is available."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.c import OPENCL, function_source
from livegrad.diagnostics import CompileError, KernelCheckError
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.node_types import ARITHMETIC, NODE_TYPES
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import BeamLattice, TriangleMesh
from livegrad.implicit.nodes.to_ir import convert
from livegrad.ir.types import Matrix, Scalar, Tensor, Vector, c64, f32, i8, i32, i64, u16
from livegrad.runtime.opencl import compile_function
from tests.implicit.test_node_types import ELEMENTWISE, FIXED, SHAPES, single_node

V = Vector(f32, 3)


def test_unsupported_ops_are_rejected_by_name() -> None:
    with pytest.raises(CompileError, match="OpenCL C has no c64"):
        function_source(lg.ir.trace(lambda x: x, c64), OPENCL)
    with pytest.raises(CompileError, match="`add` has no OpenCL C"):  # it would add pointers
        function_source(lg.ir.trace(lambda x: x + x, Tensor(f32, (3,))), OPENCL)
    with pytest.raises(CompileError, match="`matmul` has no OpenCL C"):
        function_source(lg.ir.trace(lambda x: ops.matmul(x, x), Tensor(f32, (2, 2))), OPENCL)


def run(function: lg.ir.Function, lifted: tuple[bool, ...], arguments: list[Any]) -> tuple[Any, Any]:
    actual = compile_function(function, lifted)(*arguments)
    expected = lg.ir.compile(lg.ir.map_over(function, lifted))(*arguments)
    return (actual, expected) if isinstance(actual, tuple) else ((actual,), (expected,))


def all_nodes(kind: PortType | None) -> tuple[list[str], lg.ir.Function, list[Any]]:
    """All node types of one kind in one function: names of results, function, arguments."""
    names, calls, types, arguments = [], [], [], []
    chosen = list(ELEMENTWISE if kind else FIXED)
    if kind is PortType.MATRIX:
        chosen = ["Addition", "Min", "Mod", "Floor", "Select"]  # one for each form; sixteen of each compile slowly
    for name in chosen:
        function = convert(single_node(name, kind), "f").function
        low, high = ELEMENTWISE[name][1] if kind else (-2, 2)
        generator = np.random.default_rng(len(name))
        shapes = [SHAPES[shape_name or kind] for _, shape_name in NODE_TYPES[name].inputs]  # type: ignore[index]
        arguments += [generator.uniform(low, high, (100, *shape)).astype(np.float32) for shape in shapes]
        calls.append((function, slice(len(types), len(types) + len(shapes))))
        types += function.parameter_types
        names += [name] * len(function.results)

    def every(*values: Any) -> Any:
        for function, part in calls:
            value = ops.call(*values[part], function=function)
            several = len(function.results) > 1
            yield from (ops.get(value, index=i) for i in range(len(function.results))) if several else [value]

    return names, lg.ir.trace(lambda *values: tuple(every(*values)), *types, name="nodes"), arguments


@pytest.mark.opencl
@pytest.mark.parametrize("kind", [*ARITHMETIC, None])
def test_every_node_computes_the_same_on_opencl(kind: PortType | None) -> None:
    names, function, arguments = all_nodes(kind)
    results = run(function, (True,) * len(arguments), arguments)
    for name, actual, expected in zip(names, *results, strict=True):
        np.testing.assert_allclose(actual.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.opencl
def test_loops_branches_and_tables_run_on_opencl() -> None:
    assembly = Assembly().add_resource(TriangleMesh.box((-1, -1, -1), (1, 1, 1)), id=8)
    assembly = assembly.add_resource(BeamLattice([[0, 0, 0], [2, 0, 0]], [[0, 1]], [[0.5, 0.25]]), id=9)  # type: ignore[arg-type]
    assembly = assembly.add_function("d", {"pos": PortType.VECTOR}, {"m": PortType.SCALAR, "b": PortType.SCALAR})
    assembly = assembly.add_node("d", "Mesh", "mesh", pos="inputs.pos", mesh=8).link("d", "mesh.distance", "outputs.m")
    assembly = assembly.add_node("d", "BeamLattice", "beam", pos="inputs.pos", beamlattice=9)
    converted = convert(assembly.link("d", "beam.distance", "outputs.b"), "d")
    points = np.random.default_rng(0).uniform(-3, 3, (200, 3)).astype(np.float32)
    lifted = (True, *[False] * len(converted.tables))
    for actual, expected in zip(*run(converted.function, lifted, [points, *converted.tables]), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.opencl
def test_gradients_run_on_opencl() -> None:
    inner = lg.ir.trace(lambda p: ops.length(p) * ops.sin(ops.get(p, index=0)), V)
    function = lg.ir.trace(lambda p: ops.bwd_diff(p, lg.ir.constant(1.0, f32), function=inner), V)
    points = np.random.default_rng(0).uniform(-3, 3, (200, 3)).astype(np.float32)
    (actual,), (expected,) = run(function, (True,), [points])
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.opencl
def test_integers_and_matrices_run_on_opencl() -> None:
    function = lg.ir.trace(lambda n, m: ops.cast(n, type=f32) + ops.determinant(m), i32, Matrix(f32, 4, 4))
    numbers = np.arange(5, dtype=np.int32)
    matrices = np.random.default_rng(0).uniform(-1, 1, (5, 4, 4)).astype(np.float32)
    (actual,), (expected,) = run(function, (True, True), [numbers, matrices])
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert compile_function(function)(numbers[:0], matrices[:0]).shape == (0,)


# --- ops beyond those of nodes, and checks ---------------------------------------------------------------------------


def integers(a: Any, b: Any) -> Any:
    shifted = ops.shift_left(a, b), ops.shift_right(a, b)
    divided = ops.floor_div(a, b), ops.mod(a, b), ops.integer_pow(b, ops.bit_and(a, 3))
    return a + b, a * b, -a, ops.abs(a), *shifted, *divided, ops.bit_not(a), a < b


@pytest.mark.opencl
@pytest.mark.parametrize("element", [i8, i32, u16, i64])
def test_integers_wrap_and_divide_like_other_backends(element: Scalar) -> None:
    function = lg.ir.trace(integers, element, element)
    limits = np.iinfo(element.dtype)
    a = np.array([limits.min, limits.max, 7, 100, limits.min, 5], element.dtype)
    b = np.array([1, 2, 3, 7, 5, limits.max], element.dtype)
    if limits.min:
        a, b = np.append(a, [limits.min, -7, 7]).astype(a.dtype), np.append(b, [-1, 2, -2]).astype(b.dtype)
    for actual, expected in zip(*run(function, (True, True), [a, b]), strict=True):
        np.testing.assert_array_equal(actual, expected)


def branching(n: Any, x: Any) -> Any:
    chosen = ops.switch(n, x, branches=tuple(lg.ir.trace(lambda x, k=k: x * k, f32) for k in (1.0, 2.0, 3.0)))
    picked = ops.get_at(ops.make_vector(x, chosen, -x), n)
    return chosen, ops.set_at(ops.make_vector(x, x, x), n, picked), ops.is_nan(x)


@pytest.mark.opencl
def test_branches_by_number_and_truth_values_run_on_opencl() -> None:
    function = lg.ir.trace(branching, i32, f32)
    arguments = [np.array([0, 1, 2, 1], np.int32), np.array([0.5, -1.5, np.nan, 4], np.float32)]
    for actual, expected in zip(*run(function, (True, True), arguments), strict=True):
        np.testing.assert_array_equal(actual, expected)


def read(table: Any, index: Any) -> Any:
    return ops.lookup(table, index)


@pytest.mark.opencl
@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (
            lg.ir.trace(read, Tensor(f32, (3,)), i32),
            (np.ones(3, np.float32), [0, 2, 3]),
            "index out of range for axis 0",
        ),
        (lg.ir.trace(ops.floor_div, i32, i32), (7, [1, 2, 0]), "integer division by zero"),
        (lg.ir.trace(lambda k, x: ops.cast(x, type=i32), f32, f32), (0, [0, 1, 3e9]), "a value does not fit i32"),
        (lg.ir.trace(lambda x, n: branching(n, x), f32, i32), (1, [0, 2, -1]), "switch index out of range"),
    ],
)
def test_a_check_that_fails_names_what_and_where(function: lg.ir.Function, arguments: Any, message: str) -> None:
    with pytest.raises(KernelCheckError, match=f"{message}.*, at element 2"):
        compile_function(function, (False, True))(*arguments)


@pytest.mark.opencl
def test_a_loop_that_runs_past_its_limit_is_reported() -> None:
    loop = lambda x: ops.make_while_loop(lambda x: x > 0.0, lambda i, x: (x - 1.0,), x, limit=5)[0]  # noqa: E731
    run = compile_function(lg.ir.trace(loop, f32))
    assert run(np.array([3.5], np.float32)).tolist() == [-0.5]
    with pytest.raises(KernelCheckError, match="ran past its limit of 5, at element 1"):
        run(np.array([3.5, 9.5], np.float32))


@pytest.mark.opencl
def test_generated_code_compiles_without_a_warning(
    recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops, branches, tables with constant indices, and integers; no warnings."""
    table = Tensor(f32, (4, 3))

    def walk(rows: Any, n: Any, x: Any) -> Any:
        first = ops.lookup(rows, lg.ir.constant(1, i32), lg.ir.constant(2, i32))
        (total,) = ops.make_for_loop(ops.cast(n, type=i64), lambda i, total: (total * x + first,), x)
        return total, *branching(n, x), *integers(n, n + lg.ir.constant(7919, i32))

    monkeypatch.setenv("PYOPENCL_COMPILER_OUTPUT", "1")  # some drivers print more than warnings
    compile_function(lg.ir.trace(walk, table, i32, f32, name="walk"), (False, True, True))
    assert not [str(warning.message) for warning in recwarn if "warning:" in str(warning.message)]

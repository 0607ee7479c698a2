"""Loops over elements: the dependence test, layouts, matrix products."""

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan, lower
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Tensor, bool_, f64, i64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.indexing import lookup
from livegrad.passes.loop_over_elements import loop_over_elements
from livegrad.passes.loop_over_elements.dependence import may_read_overwritten
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call
from tests.fuzz import array_kernels

I, J, K = (input_node(Key(name), i64) for name in "ijk")


@pytest.mark.parametrize(
    ("writes", "reads", "expected"),
    [
        ((I, J), (I, J), False),  # the place that is written
        ((K, J), (I, J), True),  # nothing says where the rows begin
        ((K + I, J), (K + I, J + 1), False),  # one that is written later
        ((K + I, J), (K + I, J - 1), True),  # one that was written before
        ((I, J), (I - 1, J + 1), True),
        ((I, J), (I + 1, J - 1), False),
        ((I * 2, J), (I * 2 + 1, J), False),  # even and odd rows never meet
        ((I * 2, J), (I * 3, J), True),
        ((I, J), (J, I), True),
        ((I, J + K), (I, J + K), False),
        ((I, J + 9), (I, J), False),  # beyond the loop
        ((I % 3, J), (I % 3, J), True),
    ],
)
def test_what_an_iteration_may_read(writes: tuple[Node, ...], reads: tuple[Node, ...], expected: bool) -> None:
    assert may_read_overwritten(writes, reads, (I, J), (6, 5)) is expected


@pytest.mark.parametrize("seed", range(200))
def test_no_read_is_allowed_that_a_search_finds_behind(seed: int) -> None:
    """Random affine indices, compared with a search over all pairs of iterations."""
    random = np.random.default_rng(seed)
    extents = tuple(int(n) for n in random.integers(1, 5, 2))
    numbers = [tuple(int(n) for n in (*random.integers(-1, 3, 2), *random.integers(-2, 3, 1))) for _ in range(4)]
    indices = [I * a + J * b + c for a, b, c in numbers]

    def values(point: Sequence[int]) -> list[int]:
        return [a * point[0] + b * point[1] + c for a, b, c in numbers]

    points = list(product(*map(range, extents)))
    behind = any(
        values(later)[2:] == values(earlier)[:2] for number, later in enumerate(points) for earlier in points[:number]
    )
    allowed = not may_read_overwritten(indices[:2], indices[2:], (I, J), extents)
    assert not (allowed and behind)


def test_a_tensor_that_a_nest_goes_through_by_column_is_stored_transposed() -> None:
    def program(x: Any, y: Any) -> Any:
        def outer(k: Any, x: Any) -> Any:
            def inner(j: Any, x: Any) -> Any:
                x[:, j] = x[:, j] * 0.5 + x[:, k] * lg.sum(y[j])
                return x

            return lg.fori_loop(0, 16, inner, x)

        return lg.fori_loop(0, 16, outer, x)

    types = [Tensor(f64, (24, 16)), Tensor(f64, (16, 8))]
    function = loop_over_elements(lower(trace_call(program, types, "program").function, CPU))
    (loop,) = [node for node in nodes_of(function) if node.op.name == "for_loop"]
    assert loop.attribute("body").parameter_types[1] is Tensor(f64, (16, 24))
    assert [node.op.name for node in nodes_of(function) if node.op.name == "permute"] == ["permute", "permute"]
    x, y = np.random.default_rng(0).normal(size=(24, 16)), np.full((16, 8), 0.01)
    expected = x.copy()
    for k in range(16):
        for j in range(16):
            expected[:, j] = expected[:, j] * 0.5 + expected[:, k] * np.sum(y[j])
    np.testing.assert_allclose(evaluate(function, x, y), expected, rtol=1e-12)


def test_scratch_tensors_that_begin_alike_are_transposed_one_by_one() -> None:
    def program(lib: Any, repeated: Any, u: Any) -> Any:
        def half_step(_: Any, u: Any) -> Any:
            def column(j: Any, state: Any) -> Any:
                p, q = state
                p[:, j + 1] = 1.0 / (2.5 - p[:, j] - 0.1 * p[:, j - 1] - 0.1 * p[:, j - 2])
                q[:, j + 1] = (u[:, j] + q[:, j] + 0.1 * q[:, j - 1] + 0.1 * q[:, j - 2]) * p[:, j]
                return p, q

            def row(i: Any, r: Any) -> Any:
                r[i + 1] = 0.5 * r[i] + u[i]
                return r

            p, q = repeated(2, 15, column, (lib.zeros_like(u), lib.zeros_like(u)))
            return p * q + repeated(0, 15, row, lib.zeros_like(u))

        return repeated(0, 6, half_step, u)

    def repeated_in_python(first: int, end: int, body: Any, state: Any) -> Any:
        for index in range(first, end):
            state = body(index, state)
        return state

    traced = trace_call(lambda u: program(lg, lg.fori_loop, u), [Tensor(f64, (24, 16))], "program").function
    function = loop_over_elements(lower(traced, CPU))
    (loop,) = [node for node in nodes_of(function) if node.op.name == "for_loop"]
    # p: most of what reads and writes it goes down a column.
    assert list(loop.attribute("body").parameter_types).count(Tensor(f64, (16, 24))) == 1
    u = np.random.default_rng(1).normal(size=(24, 16))
    np.testing.assert_allclose(evaluate(function, u), program(np, repeated_in_python, u), rtol=1e-12)


# --- matrix products inside loops ------------------------------------------------------------------------------------


def cholesky(a: Any) -> Any:
    rows = lg.arange(a.shape[0])

    def column(j: Any, low: Any) -> Any:
        rest = a[:, j] - low @ low[j]
        low[:, j] = lg.where(rows >= j, rest / lg.sqrt(rest[j]), 0.0)
        return low

    return lg.fori_loop(0, a.shape[0], column, lg.zeros_like(a))


def test_a_product_with_a_vector_is_part_of_the_native_loop() -> None:
    function = trace_call(cholesky, [Tensor(f64, (40, 40))], "cholesky").function
    steps = compile_plan(function, CPU).steps
    assert all(isinstance(step, KernelStep) for step in steps)
    assert [step.note for step in steps if step.kernel.name == "for_loop"] == ["native loop, in place"]  # type: ignore[union-attr]


def test_a_long_sum_runs_in_lanes() -> None:
    function = loop_over_elements(lower(trace_call(cholesky, [Tensor(f64, (40, 40))], "cholesky").function, CPU))
    loops = [n for inner in reachable_functions([function]) for n in nodes_of(inner) if n.op.name == "for_loop"]
    assert {dict(loop.attributes).get("lanes", 1) for loop in loops} == {1, 16}


def test_products_that_fill_a_row_are_part_of_the_native_loop() -> None:
    """They take most of the time, and are vectorised; starting a kernel for each row would take longer."""

    def correlations(data: Any) -> Any:
        def row(i: Any, result: Any) -> Any:
            result[i] = data[:, i] @ data
            return result

        n = data.shape[1]
        return lg.fori_loop(0, n, row, lg.zeros((n, n), dtype=data.dtype))

    steps = compile_plan(trace_call(correlations, [Tensor(f64, (400, 100))], "correlations").function, CPU).steps
    assert all(isinstance(step, KernelStep) for step in steps)


def test_a_product_that_is_read_again_behind_elementwise_ops_is_computed_once() -> None:
    def lanczos(a: Any, rows: Any, q: Any) -> Any:
        def step(k: Any, state: Any) -> Any:
            rows, q = state
            rows[k] = q
            w = a @ q - 0.5 * q
            w = w - lg.sum(w * q) * q
            w = w - lg.matrix_transpose(rows) @ (rows @ w)
            return rows, w / lg.sqrt(lg.sum(w * w))

        return lg.fori_loop(0, rows.shape[0], step, (rows, q))

    types = [Tensor(f64, shape) for shape in ((40, 40), (6, 40), (40,))]
    function = loop_over_elements(lower(trace_call(lanczos, types, "lanczos").function, CPU))
    every = [node for inner in reachable_functions([function]) for node in nodes_of(inner)]
    assert [node.op.name for node in every if node.op.name == "matmul"] == []
    reads = [node for node in every if node.op is lookup and node.operands[0].type == Tensor(f64, (40, 40))]
    sums = [node for node in every if node.op.name == "for_loop" and types[0] in [o.type for o in node.operands]]
    assert len(reads) == 1
    assert len([loop for loop in sums if dict(loop.attributes).get("lanes", 1) > 1]) == 1


def test_a_product_of_large_matrices_keeps_its_kernel() -> None:
    def powers(a: Any, out: Any) -> Any:
        def step(k: Any, out: Any) -> Any:
            out[k + 1] = out[k] @ a
            return out

        return lg.fori_loop(0, 3, step, out)

    types = [Tensor(f64, (100, 100)), Tensor(f64, (4, 100, 100))]
    function = loop_over_elements(lower(trace_call(powers, types, "powers").function, CPU))
    assert any(n.op.name == "matmul" for inner in reachable_functions([function]) for n in nodes_of(inner))


def random_products(seed: int) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """Rows of a tensor, each computed from products of the others: with vectors, matrices, batches, transposes."""
    random = np.random.default_rng(seed)
    n, width, batch = (int(random.choice([1, 2, 3, 7, 16, 33, 40, 130])) for _ in range(3))
    batch = min(batch, 3)
    kinds = random.choice(["row", "transposed", "column", "dot", "outer", "matrices", "batch"], 3)
    dtype: Any = (np.float64, np.float32)[int(random.integers(2))]

    def program(lib: Any, x: Any, w: Any, small: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            for kind in kinds:
                match kind:
                    case "row":
                        value = lib.tanh(x[i] @ w)
                    case "transposed":
                        value = lib.tanh(x.T @ x[:, 0] * 0.1 + x[i])
                    case "column":
                        value = lib.tanh(w @ x[i] + x[i])
                    case "dot":
                        value = x[i] * lib.tanh(x[i] @ w[0])
                    case "outer":
                        value = lib.sum(x[i][:, None] @ w[:1], axis=0) * 0.1
                    case "matrices":
                        value = lib.sum((small[0] @ small[-1].T)[0]) * x[i]
                    case _:
                        value = lib.sum(small @ small[0]) * x[i] * 0.1
                x[i] = lib.tanh(value)
            return x

        if lib is lg:
            return lg.fori_loop(0, n, step, x)
        x = x.copy()
        for i in range(n):
            x = step(i, x)
        return x

    shapes = [(n, width), (width, width), (batch, 3, 3)]
    return program, [random.normal(size=shape).astype(dtype) * 0.3 for shape in shapes]


@pytest.mark.parametrize("seed", range(40))
def test_products_in_loops_compute_what_numpy_computes(seed: int) -> None:
    program, arrays = random_products(seed)
    function = trace_call(lambda *x: program(lg, *x), [lg.asarray(a).type for a in arrays], "program").function
    expected = program(np, *arrays)
    for target in (CPU, CPU.without("loop_over_elements"), CPU.without("split_index_sets")):
        plan = CompiledPlan.from_plan(CpuFunction(function).schedule(target=target), run_function)
        (found,) = plan.run([a.copy() for a in arrays])
        tolerance = 1e-9 if expected.dtype == np.float64 else 1e-3
        np.testing.assert_allclose(found, expected, tolerance, tolerance)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 127, 128, 131, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_in_lanes_are_those_of_numpy(length: int, dtype: Any) -> None:
    """Sums, products and extrema of rows, with NaN and infinities."""
    kinds = ("sum", "max", "min", "prod")
    rows = np.random.default_rng(length).normal(size=(6, length)).astype(dtype)
    rows[2, length // 2], rows[3, -1], rows[4] = np.nan, np.inf, -0.0

    @lg.jit
    def reduced(x: Any, out: Any) -> Any:
        def row(i: Any, out: Any) -> Any:
            for place, kind in enumerate(kinds):
                out[i, place] = getattr(lg, kind)(x[i] * 1.5)
            return out

        return lg.fori_loop(0, 6, row, out)

    found = np.asarray(reduced(lg.asarray(rows), lg.zeros((6, 4), dtype=lg.asarray(rows).dtype)))
    scaled = rows * dtype(1.5)
    expected = np.stack([getattr(np, kind)(scaled, axis=1) for kind in kinds], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == np.float32 else 1e-11)


@lg.function
def overwrite_before_reading(a: lg.inout[lg.tensor[float, Literal[1]]], k: int) -> Any:
    b = a.copy()
    for c in range(k):
        b[:] = a + 0.5
        a[(3 - c) % len(a)] -= b[-1 - (c + 1) % len(a)] * 0.5
    return a, b


def test_a_tensor_that_each_iteration_writes_as_a_whole_and_never_reads_is_the_destination_of_a_result() -> None:
    a = np.arange(4.0)
    expected = overwrite_before_reading.python(a.copy(), 3)
    for own, other in zip(overwrite_before_reading(a, 3), expected, strict=True):
        np.testing.assert_array_equal(own, other)


def test_a_tape_records_all_numbers_of_an_inner_loop_together() -> None:
    """A program of the fuzzer, whose derivative puts the results of a loop on a tape as one tuple."""
    assert array_kernels.run_one(70000187)


# --- tensors in memory -----------------------------------------------------------------------------------------------


def spread(start: Any, steps: int) -> Any:
    """Steps in which a copy of a grid reads the neighbours on all sides in the original."""

    def step(_: Any, grid: Any) -> Any:
        after = grid | False  # which is the grid, until it is changed
        after[1:] |= grid[:-1]
        after[:-1] ^= grid[1:]
        after[:, 1:] |= grid[:, :-1]
        return after ^ grid

    return lg.fori_loop(0, steps, step, start)


def test_parts_of_a_grid_that_only_a_copy_of_it_changes_are_read_where_they_are() -> None:
    function = trace_call(lambda grid: spread(grid, 5), [Tensor(bool_, (20, 30))], "spread").function
    changed = loop_over_elements(lower(function, CPU))
    (loop,) = [node for node in nodes_of(changed) if node.op.name == "for_loop"]
    assert loop.attribute("carried") == 2  # the grid and the copy

    grid = np.random.default_rng(0).random((20, 30)) < 0.1
    (found,) = CompiledPlan.from_plan(CpuFunction(function).schedule(), run_function).run([grid])
    expected = grid
    for _ in range(5):
        after = expected.copy()
        after[1:] |= expected[:-1]
        after[:-1] ^= expected[1:]
        after[:, 1:] |= expected[:, :-1]
        expected = after ^ expected
    np.testing.assert_array_equal(found, expected)

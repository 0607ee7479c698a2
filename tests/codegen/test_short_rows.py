"""Rows that are shorter than a vector: lanes across rows agree with the reference, at all ends and strides."""

from collections.abc import Callable

import numpy as np
import pytest

from livegrad.compiler import lower_loops
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, Vector, bool_, f16, f32, f64, i32, shape_of, u8
from livegrad.ops.aggregate import splat
from livegrad.ops.elementwise import select
from livegrad.ops.maps import map_over
from livegrad.ops.movement import broadcast, flip, index_along, permute, reshape, slice_
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.ops.transcendental import exp, sqrt
from livegrad.ops.vector import cross, dot
from livegrad.passes.bind_sizes import bind_sizes
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.reference import evaluate
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from tests.schedule.plans import along, plan_of, softmax, total

ELEMENTS = (f16, f32, f64, i32, u8)


def by_row(x: Node, y: Node) -> Node:
    """Each row times the scalar of that row."""
    return x * along(y, x, 1)


def by_column(x: Node, y: Node) -> Node:
    """Each column combined with the scalar of that column."""
    return x + broadcast(reduce(x, kind="max", axes=(0,)), shape=shape_of(x.type), axes=(1,)) + along(y, x, 1)


def lengths(x: Node, y: Node) -> Node:
    return total(x * x, 1) + y


def shares(x: Node, y: Node) -> Node:
    return x * along(y, x, 1) + along(total(x, 1), x, 1)


def reversed_rows(x: Node, y: Node) -> Node:
    return flip(x, axes=(1,)) * along(y, x, 1) + flip(x, axes=(0,))


def numbered(x: Node, y: Node) -> tuple[Node, Node]:
    place = index_along(shape_of(x.type), 1) + index_along(shape_of(x.type), 0)
    return select(place % 2 > 0, x, along(y, x, 1)), place


def several(x: Node, y: Node) -> tuple[Node, ...]:
    return by_row(x, y), arg_reduce(x, kind="argmax", axis=1), x > along(y, x, 1), total(x, 1, "min")


PROGRAMS = (by_row, by_column, lengths, shares, reversed_rows, numbered, several)


def agrees(function: Callable[..., object], element: Scalar, rows: int, length: int) -> None:
    traced = trace(function, Tensor(element, (rows, length)), Tensor(element, (rows,)))
    rng = np.random.default_rng(rows * 31 + length)
    given = [rng.integers(0, 4, shape).astype(element.dtype) for shape in ((rows, length), (rows,))]
    found, expected = CpuFunction(traced)(*given), evaluate(traced, *given)
    several = isinstance(expected, tuple)
    for one, other in zip(found if several else [found], expected if several else [expected], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_short_rows_of_every_element_are_exact(element: Scalar, program: Callable[..., object]) -> None:
    agrees(program, element, 203, 3)


@pytest.mark.parametrize("length", [1, 2, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("rows", [63, 64, 65, 96, 1000])
def test_short_rows_of_all_lengths_are_exact(rows: int, length: int) -> None:
    agrees(lambda x, y: (shares(x, y), lengths(x, y)), f32, rows, length)


@pytest.mark.parametrize("shape", [(100, 2, 3), (7, 100, 3), (100, 3, 2, 1)], ids=str)
def test_short_rows_in_several_dimensions(shape: tuple[int, ...]) -> None:
    def program(x: Node) -> tuple[Node, ...]:
        last = len(shape) - 1
        transposed = permute(x, axes=(*range(last - 1), last, last - 1))
        return x / along(sqrt(total(x * x, last)), x, last), exp(transposed) + 1.0, total(x, last - 1)

    traced = trace(program, Tensor(f64, shape))
    values = np.random.default_rng(5).uniform(1.0, 2.0, shape)
    for found, expected in zip(CpuFunction(traced)(values), evaluate(traced, values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_softmax_and_boolean_reductions_over_short_rows() -> None:
    traced = trace(lambda x, m: (softmax(x, 1), select(m, x, x * 2.0), m), Tensor(f64, (90, 5)), Tensor(bool_, (90, 5)))
    rng = np.random.default_rng(1)
    given = rng.standard_normal((90, 5)), rng.random((90, 5)) > 0.5
    for found, expected in zip(CpuFunction(traced)(*given), evaluate(traced, *given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def layouts(function: Callable[..., object], *types: Tensor) -> list[tuple[str, int]]:
    steps = [step for step in plan_of(function, *types).steps if isinstance(step, KernelStep)]
    nests = [lower_loops(for_cpu(step, CPU, host_target().vector_bytes)) for step in steps]
    return [("across" if nest.across else "along", nest.unrolled_points) for nest in nests]


def test_lanes_run_across_rows_only_if_rows_are_short_and_many() -> None:
    points, wide, few = (Tensor(f32, shape) for shape in ((500, 3), (500, 40), (20, 3)))
    line = [Tensor(f32, (type.shape[0],)) for type in (points, wide, few)]
    assert layouts(by_row, points, line[0]) == [("across", 3)]
    assert layouts(lengths, points, line[0]) == [("across", 3)]
    assert layouts(lengths, wide, line[1]) == [("along", 0)]
    assert layouts(lengths, few, line[2]) == [("along", 0)]
    assert layouts(lambda x: x * 2.0, points) == [("across", 0)]  # one long dimension


def test_one_compilation_serves_any_number_of_rows() -> None:
    rows = Dimension.symbol("rows")
    compiled = CpuFunction(trace(shares, Tensor(f32, (rows, 3)), Tensor(f32, (rows,))))
    for count in (64, 100, 301):
        x, y = np.ones((count, 3), np.float32), np.arange(count, dtype=np.float32)
        np.testing.assert_array_equal(compiled(x, y), x * y[:, None] + 3)


@pytest.mark.parametrize("shape", [(100, 3), (3, 100), (5000, 40)], ids=str)
def test_a_failed_check_names_the_element(shape: tuple[int, ...]) -> None:
    row = Tensor(i32, (shape[0],))
    compiled = CpuFunction(trace(lambda x, y: along(y, x, 1) // x, Tensor(i32, shape), row))
    divisor = np.ones(shape, np.int32)
    divisor[2, 2] = 0
    with pytest.raises(KernelCheckError, match=f"at element {2 * shape[1] + 2}"):
        compiled(divisor, np.ones(shape[0], np.int32))


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("rows", [5, 64, 203])
def test_columns_that_are_read_together_are_deinterleaved(rows: int, element: Scalar) -> None:
    def transposed(points: Node) -> tuple[Node, ...]:
        x, y, z = (column_of(points, place) for place in range(3))
        return x * y + z, y - x, column_of(points, 1) + column_of(points, 0)

    traced = trace(transposed, Tensor(element, (rows, 3)))
    values = np.random.default_rng(4).integers(0, 6, (rows, 3)).astype(element.dtype)
    for found, expected in zip(CpuFunction(traced)(values), evaluate(traced, values), strict=True):
        np.testing.assert_array_equal(found, expected)


def column_of(points: Node, place: int) -> Node:
    rows = shape_of(points.type)[0]
    part = slice_(points, start=(0, place), size=(rows, 1), step=(1, 1))
    return reshape(part, shape=(rows,))


@pytest.mark.parametrize("rows", [5, 64, 203])
def test_mapped_vectors_are_deinterleaved(rows: int) -> None:
    vector = Vector(f32, 3)
    mapped = map_over(trace(lambda v, s: cross(v, v + 1.0) * splat(s * dot(v, v), type=vector), vector, f32))
    rng = np.random.default_rng(6)
    given = rng.integers(-3, 4, (rows, 3)).astype(np.float32), rng.integers(0, 3, rows).astype(np.float32)
    np.testing.assert_array_equal(CpuFunction(mapped)(*given), evaluate(mapped, *given))
    (step,) = plan_of(bind_sizes(mapped, {"n": rows}), *[]).steps
    assert isinstance(step, KernelStep)
    nest = lower_loops(for_cpu(step, CPU, host_target().vector_bytes))
    assert (nest.read_packs, nest.output_packs) == (((0, 1, 2),), ((0, 1, 2),))

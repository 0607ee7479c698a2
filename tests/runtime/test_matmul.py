"""Native matrix products: all layouts, batches, edges and vector widths, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from livegrad.codegen.llvm.matmul.product import product_of
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes, tile_shapes
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f32, f64
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.runtime.cpu.cpu_function import compile_function
from livegrad.runtime.cpu.native.matmul import arrange, arrange_rows, is_row_independent, shapes_for
from livegrad.runtime.cpu.native.pool import set_threads, threads
from tests.runtime.launches import run

LAYOUTS = ("plain", "transposed", "sliced", "strided")


def made(shape: tuple[int, ...], dtype: str, layout: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if layout == "transposed":
        return np.swapaxes(generator.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(dtype), -1, -2)
    if layout == "sliced":
        wide = generator.standard_normal((*shape[:-2], shape[-2] + 2, shape[-1] + 3)).astype(dtype)
        return wide[..., 1:-1, 2:-1]
    if layout == "strided":
        return generator.standard_normal((*shape[:-1], shape[-1] * 2)).astype(dtype)[..., ::2]
    return generator.standard_normal(shape).astype(dtype)


def multiply(a: np.ndarray, b: np.ndarray, shapes: TileShapes | None = None, row_block: int = 0) -> np.ndarray:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.full((*batch, a.shape[-2], b.shape[-1]), np.nan, a.dtype)
    spread = [np.broadcast_to(x, batch + x.shape[-2:]) for x in (a, b)]
    product = product_of(a.dtype.name, out.shape, spread[0].strides, spread[1].strides, a.shape[-1])
    assert product is not None
    launches = arrange_rows(product, row_block, shapes) if row_block else arrange(product, shapes)
    places = {"left": a.ctypes.data, "right": b.ctypes.data, "out": out.ctypes.data}
    run(launches, shapes or shapes_for(a.dtype.name), places)
    return out


def assert_close(actual: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Compares with the product in higher precision, within a bound on rounding errors."""
    exact = np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
    sizes = np.matmul(abs(a.astype(np.longdouble)), abs(b.astype(np.longdouble)))
    assert np.all(abs(actual - exact) <= a.shape[-1] * np.finfo(a.dtype).eps * sizes)


SIZES = [
    ((3, 5), (5, 4)),
    ((1, 7), (7, 300)),
    ((300, 7), (7, 1)),
    ((1, 70), (70, 1)),
    ((5, 600), (600, 90)),
    ((113, 40), (40, 70)),
    ((150, 530), (530, 33)),
    ((520, 90), (90, 7)),
    ((8, 300), (300, 200)),
    ((6, 33, 20), (6, 20, 17)),
    ((2, 3, 8, 9), (9, 5)),
    ((4, 1, 8, 9), (5, 9, 6)),
    ((2, 3, 4, 30, 20), (2, 3, 1, 20, 40)),
    ((2, 3, 1, 100, 20), (2, 3, 4, 20, 40)),
    ((5, 7, 30, 20), (20, 64)),
    ((40, 90), (90, 1024)),
    ((9, 6000), (6000, 31)),
    ((20, 4200), (4200, 24)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS[:2])
def test_products_equal_numpys_in_all_layouts(first, second, dtype):
    for left, right in SIZES:
        a, b = made(left, dtype, first, 1), made(right, dtype, second, 2)
        assert_close(multiply(a, b), a, b)


@pytest.mark.parametrize(("vector_bytes", "many", "fma"), [(64, True, True), (32, False, True), (16, False, False)])
@pytest.mark.parametrize("element", [f32, f64], ids=str)
def test_every_width_of_vectors_computes_the_same(element, vector_bytes, many, fma):
    shapes = tile_shapes(element, vector_bytes, many, fma)
    if vector_bytes > shapes_for("float32").vector_bytes:
        pytest.skip("this processor has no vectors as wide")
    dtype = element.long_name
    for left, right in SIZES:
        for layout in ("plain", "transposed"):
            a, b = made(left, dtype, layout, 1), made(right, dtype, layout, 2)
            assert_close(multiply(a, b, shapes), a, b)


@pytest.mark.parametrize("second", ["plain", "transposed"])
def test_large_right_operands_are_packed_by_the_work_items_that_read_them(second):
    a, b = made((50, 300), "float32", "plain", 1), made((300, 1024), "float32", second, 2)
    product = product_of("float32", (50, 1024), a.strides, b.strides, 300)
    assert product is not None
    # Contiguous columns may be read in place: which is better depends on the width of vectors, and how
    # wide tiles are depends on the number of registers.
    expected = ["multiply_4", "multiply_2", *(["dot"] if second == "transposed" else [])]
    assert [step.kernel in expected for step in arrange(product).steps] == [True]
    np.testing.assert_allclose(multiply(a, b), np.matmul(a.astype(float), b.astype(float)), rtol=1e-4, atol=1e-3)


def test_a_long_inner_dimension_is_split_into_parts():
    a, b = made((24, 8192), "float32", "transposed", 1), made((8192, 20), "float32", "plain", 2)
    product = product_of("float32", (24, 20), a.strides, b.strides, 8192)
    assert product is not None
    assert not is_row_independent(product)
    assert arrange(product).steps[-1].kernel == "sum"
    assert_close(multiply(a, b), a, b)


def test_a_batch_of_rows_times_one_matrix_is_one_product():
    a, b = made((7, 5, 40), "float32", "plain", 1), made((40, 64), "float32", "plain", 2)
    assert np.array_equal(multiply(a, b).reshape(35, 64), multiply(a.reshape(35, 40), b))


def test_nothing_outside_the_operands_and_the_result_is_accessed():
    generator = np.random.default_rng(0)
    for rows, inner, columns in ((13, 9, 35), (100, 30, 33), (2, 50, 70), (1, 33, 5)):
        wide = [np.full((rows + 4, size + 4), np.nan, np.float32) for size in (inner, columns)]
        right = np.full((inner + 4, columns + 4), np.nan, np.float32)
        a, b = wide[0][2:-2, 2:-2], right[2:-2, 2:-2]
        a[...], b[...] = generator.standard_normal(a.shape), generator.standard_normal(b.shape)
        around = np.full(rows * columns + 64, 7, np.float32)
        out = around[32:-32].reshape(rows, columns)
        product = product_of("float32", out.shape, a.strides, b.strides, inner)
        assert product is not None
        places = {"left": a.ctypes.data, "right": b.ctypes.data, "out": out.ctypes.data}
        run(arrange(product), shapes_for("float32"), places)
        assert_close(out, a, b)
        assert np.all(around[:32] == 7)
        assert np.all(around[-32:] == 7)


@pytest.mark.parametrize("second", ["plain", "transposed"])
@pytest.mark.parametrize(("left", "right"), [((40, 60), (60, 50)), ((20, 4200), (4200, 24)), ((5, 90), (90, 12))])
def test_infinities_and_nans_stay_in_their_rows_and_columns(left, right, second):
    a, b = made(left, "float32", "plain", 1), made(right, "float32", second, 2)
    a[3, 5], b[7, 9] = np.inf, np.nan
    actual = multiply(a, b)
    assert np.isnan(actual[:, 9]).all()
    rest = np.delete(actual, 9, 1)
    assert np.isinf(rest[3]).all()
    assert np.isfinite(np.delete(rest, 3, 0)).all()


@pytest.mark.parametrize(
    ("left", "right"),
    [((700, 130), (130, 90)), ((32, 600), (600, 500)), ((4, 90, 70), (4, 70, 90)), ((20, 8192), (8192, 24))],
)
def test_results_do_not_depend_on_the_number_of_threads(left, right):
    a, b = made(left, "float32", "plain", 1), made(right, "float32", "transposed", 2)
    before = threads()
    results = []
    for count in (1, 2, 5):
        set_threads(count)
        results.append(multiply(a, b))
    set_threads(before)
    assert all(np.array_equal(results[0], other) for other in results)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 96, 300), (3, 300, 128)), ((2, 96, 300), (300, 128)), ((600, 700), (700, 96)), ((192, 400), (400, 10))],
)
def test_results_do_not_depend_on_the_partition_of_rows(left, right):
    a, b = made(left, "float32", "plain", 1), made(right, "float32", "plain", 2)
    out = (*left[:-1], right[-1])
    spread = np.broadcast_to(b, (*left[:-2], *b.shape[-2:])).strides
    product = product_of("float32", out, a.strides, spread, left[-1])
    assert product is not None
    assert is_row_independent(product)
    whole = multiply(a, b)
    for block in (4, 12, 32, 96):
        assert np.array_equal(multiply(a, b, row_block=block), whole)


@pytest.mark.parametrize("element", [f32, f64])
@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_plans_read_operands_in_any_order_of_dimensions(axes, element):
    shape = (6, 30, 45)
    permuted = tuple(shape[axis] for axis in axes)
    other = (permuted[0], permuted[2], 17)
    function = trace(lambda a, b: matmul(permute(a, axes=axes), b), Tensor(element, shape), Tensor(element, other))
    compiled = compile_function(function)
    a, b = made(shape, element.dtype.name, "plain", 1), made(other, element.dtype.name, "plain", 2)
    assert_close(compiled(a, b), np.transpose(a, axes), b)
    assert compiled.plan().step_counts == (0, 1)
    assert compiled.plan().only_kernels


def test_empty_products_are_zeros():
    function = trace(lambda a, b: matmul(a, b), Tensor(f32, (3, 0)), Tensor(f32, (0, 4)))
    actual = compile_function(function)(np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32))
    assert np.array_equal(actual, np.zeros((3, 4)))

"""Native convolutions: all packings, partitions and vector widths, compared with the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from livegrad.codegen.llvm.matmul.product import Launches
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes, tile_shapes
from livegrad.compiler import compile_plan
from livegrad.ir.function import trace
from livegrad.ir.types import Scalar, Tensor, f16, f32, f64
from livegrad.ops.convolution import convolve
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu.cpu_function import compile_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.native.convolution import Column, Convolution, Line, arrange_convolution, is_native
from livegrad.runtime.cpu.native.matmul import shapes_for
from livegrad.runtime.cpu.native.pool import set_threads, threads
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep
from tests.runtime.launches import run

Row = tuple[tuple[int, ...], tuple[int, ...], int, int, int]

ROWS: list[Row] = [
    # image, kernels, stride, dilation, groups
    ((2, 3, 9, 9), (4, 3, 3, 3), 1, 1, 1),
    ((2, 4, 7, 70), (6, 2, 3, 2), 1, 1, 2),
    ((2, 3, 11, 71), (5, 3, 3, 3), 2, 1, 1),
    ((1, 2, 13, 40), (3, 2, 2, 3), 3, 2, 1),
    ((3, 5, 30), (7, 5, 4), 1, 2, 1),
    ((2, 3, 6, 7, 20), (5, 3, 2, 3, 2), 1, 1, 1),
    ((9, 40, 3, 3), (30, 40, 3, 3), 1, 1, 1),
    ((7, 3, 20, 20), (17, 3, 18, 18), 1, 1, 1),
    ((5, 4, 41, 9), (8, 4, 18, 4), 1, 2, 1),
    ((3, 8, 12, 12), (8, 1, 3, 3), 1, 1, 8),
    ((1, 300, 4, 4), (70, 300, 2, 2), 1, 1, 1),
    ((1, 2, 4, 230), (16, 2, 3, 3), 1, 1, 1),
    ((4, 1, 5), (1, 1, 5), 1, 1, 1),
    ((6, 3, 1, 1), (2, 3, 1, 1), 1, 1, 1),
]


def native(x: np.ndarray, w: np.ndarray, row: Row, shapes: TileShapes | None = None) -> tuple[np.ndarray, Launches]:
    """The native convolution, and its launches."""
    _, _, stride, dilation, groups = row
    rows, size = w.shape[0] // groups, x.itemsize
    counts = [(n - (k - 1) * dilation - 1) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    reach = (x.strides[1], *(step * dilation for step in x.strides[2:]))
    convolution = Convolution(
        x.dtype.name,
        groups,
        rows,
        w.strides[0],
        rows * w.strides[0],
        w.shape[1] * x.strides[1],
        tuple(Line(*each) for each in zip(w.shape[1:], w.strides[1:], reach, strict=True)),
        Column(x.shape[0], x.strides[0]),
        tuple(Column(n, step * stride) for n, step in zip(counts, x.strides[2:], strict=True)),
    )
    assert is_native(convolution)
    out = np.full((x.shape[0], w.shape[0], *counts), np.nan, x.dtype)
    launches = arrange_convolution(convolution, shapes)
    assert size
    places = {"left": w.ctypes.data, "right": x.ctypes.data, "out": out.ctypes.data}
    run(launches, shapes or shapes_for(x.dtype.name), places)
    return out, launches


def expected(x: np.ndarray, w: np.ndarray, row: Row) -> tuple[np.ndarray, np.ndarray]:
    """The definition in double precision, and a bound on rounding errors."""
    _, _, stride, dilation, groups = row
    rank = x.ndim - 2
    attributes: dict[str, Any] = {"strides": (stride,) * rank, "dilation": (dilation,) * rank, "groups": groups}
    attributes["padding"] = ((0, 0),) * rank
    types = Tensor(f64, x.shape), Tensor(f64, w.shape)
    function = trace(lambda a, b: convolve(a, b, **attributes), *types)
    wide = [np.ascontiguousarray(a, np.float64) for a in (x, w)]
    bound = np.prod(w.shape[1:]) * np.finfo(x.dtype).eps * evaluate(function, *map(abs, wide))
    return evaluate(function, *wide), bound


def made(row: Row, dtype: str, turned: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in row[:2])
    # As gradients by kernels read them, with the first two dimensions exchanged.
    return tuple(np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1) if turned else a for a in (x, w))  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_convolutions_agree_with_their_definition(row: Row, turned: bool, dtype: str) -> None:
    x, w = made(row, dtype, turned)
    exact, bound = expected(x, w, row)
    assert np.all(abs(native(x, w, row)[0] - exact) <= bound)


@pytest.mark.parametrize(("vector_bytes", "many", "fma"), [(32, False, True), (16, False, False)])
@pytest.mark.parametrize("element", [f32, f64], ids=str)
def test_every_width_of_vectors_computes_the_same(element: Scalar, vector_bytes: int, many: bool, fma: bool) -> None:
    shapes = tile_shapes(element, vector_bytes, many, fma)
    for row in ROWS:
        x, w = made(row, element.long_name)
        exact, bound = expected(x, w, row)
        assert np.all(abs(native(x, w, row, shapes)[0] - exact) <= bound)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rows: list[Row] = [((3, 16, 40, 40), (32, 16, 38, 38), 1, 1, 1), ((2, 16, 40, 40), (24, 16, 3, 3), 1, 1, 1)]
    before = threads()
    for row in rows:
        x, w = made(row, "float32")
        results = []
        for count in (1, 2, 3):
            set_threads(count)
            results.append(native(x, w, row)[0].tobytes())
        set_threads(before)
        assert len(set(results)) == 1


def test_long_sums_of_few_results_are_split_into_parts() -> None:
    row: Row = ((3, 16, 40, 40), (32, 16, 38, 38), 1, 1, 1)
    _, launches = native(*made(row, "float32"), row)
    assert [step.kernel.split("_")[0] for step in launches.steps] == ["convolve", "sum", "pack"]
    assert launches.steps[0].total >= 8


def test_windows_are_packed_in_memory_that_does_not_grow_with_the_image() -> None:
    small, large = (((8, 16, size, size), (32, 16, 3, 3), 1, 1, 1) for size in (34, 130))
    actual = [native(*made(row, "float32"), row)[1] for row in (small, large)]
    assert max(launches.scratch for launches in actual) < 1 << 16
    assert [launches.workspace + launches.between for launches in actual] == [0, 0]


# --- plans -----------------------------------------------------------------------------------------------------------


def same(x: Any, w: Any) -> Any:
    return convolve(x, w, strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1)


def test_a_convolution_and_both_gradients_run_no_host_steps() -> None:
    function = trace(same, Tensor(f32, (4, 3, 16, 16)), Tensor(f32, (8, 3, 3, 3)))
    rng = np.random.default_rng(0)
    x, w, ct = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3, 16, 16), (8, 3, 3, 3), (4, 8, 16, 16)))
    gradient = vjp(function)
    compiled = compile_function(gradient)
    for actual, wanted in zip(compiled(x, w, ct), evaluate(gradient, x, w, ct), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
    assert compiled.plan({}).only_kernels
    assert compiled.plan({}).step_counts[1] == 2


def test_the_image_is_padded_once_for_the_convolution_and_the_gradient_by_its_kernels() -> None:
    def both(x: Any, w: Any, ct: Any) -> Any:
        y = same(x, w)
        return y, y.op.transpose(y, ct, False, True)[1]

    types = Tensor(f32, (4, 3, 16, 16)), Tensor(f32, (8, 3, 3, 3)), Tensor(f32, (4, 8, 16, 16))
    plan = compile_plan(trace(both, *types), CPU)
    assert len([b for b in plan.buffers if b.name == "pad"]) == 1
    # All operands are read in place: besides padding, only the result of the gradient is copied.
    kernels = [step for step in plan.steps if isinstance(step, KernelStep) and step.results[0].name != "pad"]
    assert [(step.inputs[0].name, step.results[0].shape) for step in kernels] == [("convolve", (8, 3, 3, 3))]


def test_half_precision_is_added_up_in_single() -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 64, 8, 8)).astype(np.float16), rng.standard_normal((4, 64, 3, 3)).astype(np.float16)
    compiled = compile_function(trace(same, Tensor(f16, x.shape), Tensor(f16, w.shape)))
    exact = evaluate(trace(same, Tensor(f64, x.shape), Tensor(f64, w.shape)), x.astype(float), w.astype(float))
    np.testing.assert_allclose(compiled(x, w), exact.astype(np.float16), rtol=2e-3, atol=2e-3)
    assert compiled.plan({}).only_kernels

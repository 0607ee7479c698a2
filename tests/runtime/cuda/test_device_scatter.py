"""Scatters on the device equal NumPy's, without host steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan, lower
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, f32, i32, scalar_of_dtype
from livegrad.ops.assignment import assign
from livegrad.ops.indexing import scatter_add
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.libraries.device_scatter import SLOTS, source_of
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver
from tests.runtime.cuda.test_layout import COMPILED_FOR, parameters_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


@pytest.fixture
def driver() -> Iterator[SimulatedDriver]:
    with simulated() as simulated_driver:
        yield simulated_driver


def writing(op: Any, dtype: str, index: str, count: int = 60) -> tuple[Function, list[Any]]:
    """Writes to a 5 x 7 tensor, several to some elements."""
    random = np.random.default_rng(count)
    base, updates = (random.integers(-9, 9, shape).astype(dtype) for shape in ((5, 7), (count,)))
    indices = [random.integers(0, size, count).astype(type) for size, type in ((5, index), (7, "int64"))]
    arguments = [base, updates, *indices]
    types = [Tensor(scalar_of_dtype(array.dtype), array.shape) for array in arguments]
    return trace(lambda a, b, i, j: op(a, b, i, j), *types), arguments


def check(function: Function, arguments: list[Any]) -> None:
    np.testing.assert_array_equal(CudaFunction(function)(*arguments), evaluate(function, *arguments))


@needs_compiler
@pytest.mark.parametrize("op", [scatter_add, assign])
@pytest.mark.parametrize(("dtype", "index"), [("float32", "int64"), ("float64", "int32"), ("int64", "int64")])
def test_writes_equal_numpys_and_stay_on_the_device(driver, op, dtype, index):
    check(*writing(op, dtype, index))
    assert driver.count("cuMemcpyDtoHAsync") == 2, "the result and the status, nothing on the way"


def compiled_sum(base: np.ndarray, updates: np.ndarray, index: np.ndarray) -> CudaFunction:
    return CudaFunction(
        trace(scatter_add, *[Tensor(scalar_of_dtype(a.dtype), a.shape) for a in (base, updates, index)])
    )


def check_sums(count: int, dtype: str) -> None:
    """Sums have the same bits in every run and for every order of the updates, and are exact but for their rounding."""
    random = np.random.default_rng(count)
    magnitudes = random.choice([1.0, 1e-6, 1e12], count) if count % 2 else 1.0
    updates, index = (random.normal(size=count) * magnitudes).astype(dtype), random.integers(0, 3, count)
    base = np.array([0.0, 0.5, -2.0, 3.0], dtype)
    compiled = compiled_sum(base, updates, index)
    first = compiled(base, updates, index)
    np.testing.assert_array_equal(compiled(base, updates, index), first)
    order = random.permutation(count)
    np.testing.assert_array_equal(compiled(base, updates[order], index[order]), first)
    for target in range(4):
        parts = updates[index == target].astype(np.float64)
        exact = math.fsum([base[target], *parts])
        largest = np.abs(parts).max(initial=0.0)
        lost = count * largest * 2.0 ** -(61 - count.bit_length()) if dtype == "float32" else 0.0
        assert abs(first[target] - exact) <= np.spacing(np.abs(first[target])) + lost


@needs_compiler
@pytest.mark.parametrize("count", [1, 2, 127, 700, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_floats_do_not_depend_on_the_order(driver, count, dtype):
    check_sums(count, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1000, 300_001])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_floats_on_a_device_do_not_depend_on_the_order(count, dtype):
    check_sums(count, dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_floats_are_added_as_numpy_adds_them(driver, dtype):
    limits = np.finfo(dtype)
    small, large = limits.smallest_subnormal, limits.max
    for values in (
        [small] * 5, [large, large], [large, -large], [np.inf, 1.0], [-np.inf, large], [np.inf, -np.inf],
        [np.nan, 1.0], [1.0, np.nan, np.inf], [0.0, -0.0], [limits.tiny, -small], [1.0, small],
    ):  # fmt: skip
        updates, index = np.array(values, dtype), np.zeros(len(values), np.int64)
        base = np.array([0.0, 7.0], dtype)
        with np.errstate(all="ignore"):
            expected = np.array([np.add.accumulate(updates)[-1], 7.0], dtype)
        np.testing.assert_array_equal(compiled_sum(base, updates, index)(base, updates, index), expected)


def whole_rows(x: Any, rows: Any, values: Any) -> Any:
    return x.at[rows].add(values)


def row_of_each_batch(x: Any, rows: Any, values: Any) -> Any:
    return lg.vmap(lambda x, r, v: x.at[r].add(v))(
        lg.stack([x, 2.0 * x]), lg.stack([rows, rows]), lg.stack([values] * 2)
    )


@needs_compiler
@pytest.mark.parametrize("program", [whole_rows, row_of_each_batch])
def test_rows_of_updates_share_their_index(driver, program):
    """Neither the index of a row nor the position in it is written out for each update."""
    random = np.random.default_rng(0)
    x, values = (random.normal(size=shape).astype(np.float32) for shape in ((5, 8), (9, 8)))
    rows = random.integers(0, 5, 9)
    types = [Tensor(scalar_of_dtype(a.dtype), a.shape) for a in (x, rows, values)]
    function = trace_call(program, types, "program").function
    result = CudaFunction(function)(x, rows, values)
    np.testing.assert_allclose(result, evaluate(function, x, rows, values), rtol=1e-6, atol=1e-6)
    steps = [step for step in compile_plan(lower(function, CUDA), CUDA).steps if isinstance(step, KernelStep)]
    updates = values.size * (1 if program is whole_rows else 2)
    indices = [output.buffer for step in steps for output in step.outputs if output.buffer.element is not f32]
    assert all(np.prod(buffer.shape) < updates for buffer in indices)


@needs_compiler
def test_the_last_assignment_to_an_element_of_two_bytes_wins(driver):
    check(*writing(assign, "float16", "int64", 300))


@needs_compiler
@pytest.mark.parametrize("op", [scatter_add, assign])
def test_an_index_out_of_range_names_its_axis(driver, op):
    check_range(op)


def check_range(op: Any) -> None:
    function, arguments = writing(op, "float32", "int64")
    wrong = [*arguments[:3], arguments[3].copy()]
    wrong[3][11] = 7
    compiled = CudaFunction(function)
    with pytest.raises(KernelCheckError, match="index out of range for axis 1, at element 11"):
        compiled(*wrong)
    np.testing.assert_array_equal(compiled(*arguments), evaluate(function, *arguments))


@pytest.mark.parametrize("architecture", COMPILED_FOR)
def test_the_kernels_compile_and_take_one_struct_of_slots(architecture):
    in_order = ("find_exponents", "add_scaled", "add_sums")
    for element, adds, symbols in ((i32, True, ("add",)), (f32, True, in_order), (f32, False, ("find_last", "assign"))):
        cubin = compile_source(source_of(element, adds), architecture)
        for symbol in symbols:
            assert parameters_of(cubin, symbol) == [(0, 8 * len(SLOTS))]


@pytest.mark.gpu
@pytest.mark.parametrize("op", [scatter_add, assign])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_device_writes_what_numpy_writes(op, dtype):
    check(*writing(op, dtype, "int64", 100_000))
    check_range(op)

"""Scatters on the device equal NumPy's, without host steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

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
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.runtime.cuda.simulated_driver import SimulatedDriver
from tests.runtime.cuda.test_layout import ARCHITECTURES, parameters_of

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


def check_sums(count: int) -> None:
    """Rounded sums have the same bits in every run: those of chunks of 128 in the order of the updates."""
    random = np.random.default_rng(count)
    updates, index = random.normal(size=count).astype(np.float32), random.integers(0, 3, count)
    base = np.zeros(4, np.float32)
    compiled = CudaFunction(
        trace(scatter_add, *[Tensor(scalar_of_dtype(a.dtype), a.shape) for a in (base, updates, index)])
    )
    first = compiled(base, updates, index)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(base, updates, index), first)
    for target in range(3):
        parts = updates[index == target]
        chunks = [np.add.accumulate(parts[start : start + 128])[-1] for start in range(0, len(parts), 128)]
        assert first[target] == np.add.accumulate(np.array([0.0, *chunks], np.float32))[-1]


@needs_compiler
@pytest.mark.parametrize("count", [1, 2, 127, 700, 3000])
def test_floats_are_added_in_a_fixed_order(driver, count):
    check_sums(count)


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1000, 300_000])
def test_a_device_adds_floats_in_a_fixed_order(count):
    check_sums(count)


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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_kernels_compile_and_take_one_struct_of_slots(architecture):
    in_order = ("find_targets", "add_chunks", "add_partial_sums")
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

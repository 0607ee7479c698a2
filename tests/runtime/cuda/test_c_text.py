"""CUDA C of the C emitter on a GPU: kernels have the reference's values, and checks fail where they should."""

import ctypes
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.c import CUDA, KernelSource, kernel_source
from livegrad.implicit.nodes.ports import PortType
from livegrad.ir.types import Tensor, f32, i8, i32, i64
from livegrad.runtime.cuda import reason_for_no_cuda
from livegrad.runtime.cuda.driver import check, device, driver
from livegrad.runtime.cuda.modules import load_function
from tests.codegen.test_c_ops import SCALARS, examples, together
from tests.runtime.test_opencl import all_nodes, branching, integers, read

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(reason_for_no_cuda() is not None, reason=str(reason_for_no_cuda())),
]


def launch(kernel: KernelSource, arguments: list[Any], results: list[Any]) -> Any:
    """Runs a kernel over arrays, writes into `results`, and returns the failed checks by element."""
    stream = device().stream
    function = load_function(kernel.text, "text", "evaluate")
    failed = np.zeros(len(results[0]), np.int32)
    arrays = [*arguments, *results, *([failed] if kernel.sites else [])]
    pointers = [int(check(driver.cuMemAlloc(max(array.nbytes, 1)))) for array in arrays]
    for pointer, array in zip(pointers, arrays, strict=True):
        check(driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
    words = (len(results[0]), *pointers)
    packed = (words, (ctypes.c_longlong,) * len(words))
    blocks = -(-len(results[0]) // 128)
    check(driver.cuLaunchKernel(function, blocks, 1, 1, 128, 1, 1, 0, stream, packed, 0))
    check(driver.cuStreamSynchronize(stream))
    for pointer, array in zip(pointers, arrays, strict=True):
        check(driver.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes))
        check(driver.cuMemFree(pointer))
    return failed


def compare(function: lg.ir.Function, arguments: list[Any], tolerance: float, names: list[str] | None = None) -> None:
    lifted = (True,) * len(arguments)
    expected = lg.ir.compile(lg.ir.map_over(function, lifted))(*arguments)
    actual = [np.zeros_like(array) for array in expected]
    assert not launch(kernel_source(function, lifted, CUDA), arguments, actual).any()
    for place, (value, wanted) in enumerate(zip(actual, expected, strict=True)):
        name = names[place] if names else ""
        np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance / 10, err_msg=name)


@pytest.mark.parametrize("kind", [PortType.SCALAR, PortType.VECTOR, PortType.MATRIX, None])
def test_every_node_computes_the_same_as_cuda_text(kind: PortType | None) -> None:
    names, function, arguments = all_nodes(kind)
    compare(function, arguments, 2e-4, names)


@pytest.mark.parametrize("scalar", SCALARS)
def test_every_op_computes_the_same_as_cuda_text(scalar: str) -> None:
    chosen, wrong = examples(scalar), []
    for start in range(0, len(chosen), 60):  # a kernel takes four kilobytes of arguments
        combined = together(chosen[start : start + 60])
        expected = [wanted for example in combined.examples for wanted in example.results]
        results = [np.zeros((combined.points, *wanted.shape[1:]), wanted.dtype) for wanted in expected]
        assert not launch(kernel_source(combined.function, combined.lifted, CUDA), combined.arguments, results).any()
        wrong += combined.complaints(results)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("element", [i8, i32, i64])
def test_integers_wrap_and_divide_in_cuda_text(element: Any) -> None:
    limits = np.iinfo(element.dtype)
    a = np.array([limits.min, limits.max, 7, 100, limits.min, -7, 7], element.dtype)
    b = np.array([1, 2, 3, 7, -1, 2, -2], element.dtype)
    compare(lg.ir.trace(integers, element, element), [a, b], 0)


def test_branches_run_and_checks_fail_in_cuda_text() -> None:
    numbers = np.array([0, 1, 2, 1], np.int32)
    compare(lg.ir.trace(branching, i32, f32), [numbers, np.array([0.5, -1.5, 3, 4], np.float32)], 0)
    kernel = kernel_source(lg.ir.trace(read, Tensor(f32, (3,)), i32), (False, True), CUDA)
    table, places = np.arange(3, dtype=np.float32), np.array([0, 2, 3], np.int32)
    actual = np.zeros(3, np.float32)
    failed = launch(kernel, [table, places], [actual])
    assert failed.tolist() == [0, 0, 1]
    assert actual.tolist()[:2] == [0, 2]

"""The simulated driver and compiler: drivers share no state, and threads share a compiler."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f32
from livegrad.ops.sorting import sort
from livegrad.runtime.cuda.cuda_function import CudaFunction
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import device
from livegrad.runtime.cuda.pinned_memory import PinnedMemory
from tests.runtime.cuda import simulated_driver
from tests.runtime.cuda.simulate import simulated
from tests.runtime.cuda.simulated_driver import COMPILER, compile_source

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
SOURCE = """struct Arguments { int x; };
extern "C" __global__ void kernel_KIND(const Arguments a) {}
"""


@needs_compiler
def test_threads_that_compile_concurrently_write_the_header_once(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_driver, "_FOLDER", type("Folder", (), {"name": str(tmp_path)}))
    inner, compilers, others = simulated_driver._compiler, [], []

    def compiler(*options):
        if "c++-header" in options:
            compilers.append(options)
            if len(compilers) == 1:  # another thread requests it during the compilation
                others.append(threading.Thread(target=simulated_driver._compiled_shim))
                others[0].start()
                others[0].join(0.1)
        return inner(*options)

    monkeypatch.setattr(simulated_driver, "_compiler", compiler)
    simulated_driver._compiled_shim()
    others[0].join()
    assert len(compilers) == 1


@needs_compiler
def test_threads_that_compile_the_same_kernel_all_get_complete_code(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_driver, "_KERNELS", tmp_path)
    written = []
    inner = simulated_driver._compiler

    def compiler(*options):
        written.append(Path(options[options.index("-o") + 1]))
        return inner(*options)

    monkeypatch.setattr(simulated_driver, "_compiler", compiler)
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda _: compile_source(SOURCE, "sm_90"), range(4)))
    path = Path(actual[0].split(b" ")[1][1:].decode())
    assert len(set(actual)) == 1
    assert path.exists()
    assert path not in written  # no thread sees it incomplete


@needs_compiler
def test_objects_of_one_driver_are_not_used_with_the_next():
    values = np.array([3, 1, 2], np.float32)
    function = trace(lambda x: sort(x, axis=0, descending=False, stable=True), Tensor(f32, (3,)))
    for _ in range(2):
        with simulated() as driver:
            np.testing.assert_array_equal(CudaFunction(function)(values), [1, 2, 3])
            assert driver.count("cuStreamCreate") == 2  # one for all work, one to capture sorts


def test_memory_that_outlives_its_driver_is_not_given_to_the_next():
    with simulated():
        memory = DeviceMemory(64)
    with simulated() as driver:
        del memory
        device()
        assert driver.count("cuMemFreeAsync") == 0


def test_memory_of_the_host_that_one_driver_kept_does_not_count_for_the_next():
    with simulated():
        PinnedMemory(1 << 26).free()
    with simulated() as driver:
        PinnedMemory(64).free()
        assert driver.count("cuStreamSynchronize") == 0

"""The compiler that stands in for NVRTC: threads share it, as they share NVRTC."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cuda import simulated_driver
from tests.cuda.simulated_driver import COMPILER, compile_source

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
SOURCE = """struct Arguments { int x; };
extern "C" __global__ void kernel_KIND(const Arguments a) {}
"""


def test_threads_that_compile_at_once_make_the_header_once(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_driver, "_FOLDER", type("Folder", (), {"name": str(tmp_path)}))
    inner, made, others = simulated_driver._compiler, [], []

    def compiler(*options):
        if "c++-header" in options:
            made.append(options)
            if len(made) == 1:  # while it is made, another thread asks for it
                others.append(threading.Thread(target=simulated_driver._compiled_shim))
                others[0].start()
                others[0].join(0.1)
        return inner(*options)

    monkeypatch.setattr(simulated_driver, "_compiler", compiler)
    simulated_driver._compiled_shim()
    others[0].join()
    assert len(made) == 1


def test_threads_that_compile_the_same_kernel_each_find_it_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated_driver, "_FOLDER", type("Folder", (), {"name": str(tmp_path)}))
    written = []
    inner = simulated_driver._compiler

    def compiler(*options):
        written.append(Path(options[options.index("-o") + 1]))
        return inner(*options)

    monkeypatch.setattr(simulated_driver, "_compiler", compiler)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: compile_source(SOURCE, "sm_90"), range(4)))
    path = Path(found[0].split(b" ")[1][1:].decode())
    assert len(set(found)) == 1
    assert path.exists()
    assert path not in written  # nobody sees it half written

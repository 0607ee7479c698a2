"""The cyclic garbage collector is paused during compilation, and only then."""

import gc
import threading
from typing import Any

import numpy as np
import pytest

from livegrad.ir.collecting import collection_paused
from livegrad.ir.function import trace
from livegrad.ir.types import f32
from livegrad.ops.maps import map_over
from livegrad.runtime.cpu import DerivedFunction, compile_function
from livegrad.runtime.cpu.cpu_function import CpuFunction
from tests.forked import run_in_fork


def test_the_collector_is_paused_while_passes_run_and_enabled_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[bool] = []
    compile_plan = CpuFunction._compile

    def compiled(self: CpuFunction, sizes: dict[str, int]) -> Any:
        observed.append(gc.isenabled())
        return compile_plan(self, sizes)

    def derived(function: Any) -> Any:
        observed.append(gc.isenabled())
        return map_over(function)

    monkeypatch.setattr(CpuFunction, "_compile", compiled)
    monkeypatch.setattr(CpuFunction, "_load", lambda self, data: None)
    points = np.arange(3, dtype=np.float32)
    compile_function(map_over(trace(lambda x: x * 3.25 + 1.5, f32)))(points)
    DerivedFunction(trace(lambda x: x * 5.25 - 1.5, f32), "of collecting", derived).compiled(points)
    assert observed == [False, False, False]
    assert gc.isenabled()


def nested() -> float:
    with collection_paused():
        return 1 / 0


def test_the_collector_is_restored_after_an_error_and_after_nested_pauses() -> None:
    assert gc.isenabled()
    with collection_paused():
        with pytest.raises(ZeroDivisionError):
            nested()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_child_of_a_fork_collects_although_another_thread_compiles() -> None:
    paused, go_on = threading.Event(), threading.Event()

    def compile_something() -> None:
        with collection_paused():
            paused.set()
            go_on.wait()

    thread = threading.Thread(target=compile_something)
    thread.start()
    paused.wait()

    def collects_outside() -> bool:
        with collection_paused():
            inside = gc.isenabled()
        return gc.isenabled() and not inside

    status = run_in_fork(collects_outside)
    go_on.set()
    thread.join()
    assert (status, gc.isenabled()) == (0, True)

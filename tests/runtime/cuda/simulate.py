"""Runs livegrad on a simulated CUDA driver: `with simulated() as driver:`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from livegrad.live.cuda import step_code
from livegrad.runtime.compiled_function import FunctionCache
from livegrad.runtime.cuda import CudaFunction, cuda_function, device_loop, modules, plan_graph, serialised_device_plan
from livegrad.runtime.cuda import driver as driver_module
from livegrad.runtime.cuda.libraries import cublas, cudnn, cufft, cusolver
from livegrad.state import Owned
from tests.runtime.cuda.simulated_driver import COMPILER, SimulatedDriver, compile_source

_LOADERS = (step_code, plan_graph, device_loop, serialised_device_plan)
__all__ = ["COMPILER", "simulated"]


@contextmanager
def simulated(seed: int = 0, size: int = 1 << 30) -> Iterator[SimulatedDriver]:
    """Replaces the CUDA driver by a simulated one."""
    driver: Any = SimulatedDriver(seed, size)
    users = [m for name, m in list(sys.modules.items()) if name.startswith("livegrad.") and hasattr(m, "driver")]
    users = [m for m in users if m is driver_module or m.driver is driver_module.driver]
    stand_ins = [(module, "driver", driver) for module in users]
    # Another driver has other contexts, so objects of previous contexts are not visible meanwhile.
    stand_ins += [(driver_module, "_start", cache(driver_module._start.__wrapped__))]
    stand_ins += [(cuda_function, "_functions", Owned(partial(FunctionCache, CudaFunction)))]
    stand_ins += [
        (modules, "compile_source", compile_source),
        (serialised_device_plan, "compile_with_key", compile_source),
    ]
    stand_ins += [(module, "load_compiled", bytes) for module in _LOADERS]
    stand_ins += [(library, "library", lambda: None) for library in (cublas, cudnn, cufft, cusolver)]  # they need a GPU
    originals = [(module, name, getattr(module, name)) for module, name, _ in stand_ins]
    _put_in_place(stand_ins)
    try:
        yield driver
    finally:
        gc.collect()
        _put_in_place(originals)


def _put_in_place(values: list[tuple[Any, str, Any]]) -> None:
    for module, name, value in values:
        setattr(module, name, value)
    driver_module.reason_for_no_cuda.cache_clear()
    driver_module._thread.__dict__.clear()

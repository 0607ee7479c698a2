"""Livegrad on a simulated CUDA driver: `with simulated() as driver:` for as long as the block lasts."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from livegrad.backends.cuda import driver as driver_module
from livegrad.backends.cuda import interrupt, memory, modules, recipe
from livegrad.engine.cuda import code, pinned
from tests.cuda.simulated_driver import COMPILER, SimulatedDriver, compile_source

__all__ = ["COMPILER", "simulated"]


@contextmanager
def simulated(seed: int = 0, size: int = 1 << 30) -> Iterator[SimulatedDriver]:
    """Puts a simulated driver in the place of the real one, everywhere."""
    made: Any = SimulatedDriver(seed, size)
    users = [m for name, m in list(sys.modules.items()) if name.startswith("livegrad.") and hasattr(m, "driver")]
    users = [m for m in users if m is driver_module or m.driver is driver_module.driver]
    before = [(module, module.driver) for module in users]
    functions = dict(modules._functions)
    patched = [(modules, "compile_source", compile_source), (recipe, "compile_with_key", compile_source)]
    patched += [(code, "load_compiled", bytes), (recipe, "load_compiled", bytes)]
    originals = [(module, name, getattr(module, name)) for module, name, _ in patched]
    for module in users:
        module.driver = made  # type: ignore[attr-defined]
    for module, name, stand_in in patched:
        setattr(module, name, stand_in)
    _forget()
    try:
        yield made
    finally:
        gc.collect()
        for module, own in before:
            module.driver = own  # type: ignore[attr-defined]
        for module, name, own in originals:
            setattr(module, name, own)
        _forget()
        modules._functions.update(functions)


def _forget() -> None:
    driver_module._start.cache_clear()
    driver_module.reason_for_no_cuda.cache_clear()
    driver_module._thread.__dict__.clear()
    modules._functions.clear()
    memory._pools.clear()
    interrupt._flag.cache_clear()
    pinned._free.clear()

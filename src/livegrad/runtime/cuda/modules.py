"""Loads code on the device. In: CUDA C or a cubin. Out: a function that can be launched.

Modules stay loaded as long as their context, because a running graph may use any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from livegrad.runtime.cuda.driver import PerContext, check, device, driver
from livegrad.runtime.cuda.nvrtc import compile_source


def _make_table() -> dict[tuple[str | bytes, str], Any]:
    return {}


_functions = PerContext(_make_table)  # by CUDA C or machine code, and symbol


def load_function(text: str, name: str, symbol: str = "kernel") -> Any:
    """A kernel of CUDA C, which is compiled and loaded once."""
    return _load(text, symbol, lambda: compile_source(text, device().architecture, name))


def load_code(code: bytes, symbol: str) -> Any:
    """A kernel of a cubin or of PTX, which is loaded once."""
    return _load(code, symbol, lambda: code)


def _load(key: str | bytes, symbol: str, make_code: Callable[[], bytes]) -> Any:
    functions = _functions.current
    function = functions.get((key, symbol))
    if function is None:
        code = np.frombuffer(make_code() + b"\0", np.uint8)  # PTX is text and must end in a zero
        module = check(driver.cuModuleLoadData(code.ctypes.data))
        function = check(driver.cuModuleGetFunction(module, symbol.encode()))
    return functions.setdefault((key, symbol), function)  # threads that load the same code share one function


def forget_functions() -> None:
    """Clears the table, so that the next use loads code again. Running graphs keep their functions."""
    _functions.current.clear()

"""Loads code on the device. In: CUDA C or a cubin. Out: a function that can be launched.

Modules are never unloaded while their context exists, because a running graph may use any of them.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from livegrad.runtime.cuda.driver import checked, device, driver
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.state import renew_lock_after_fork

_functions: dict[tuple[Any, str], Any] = {}
_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_lock")


def loaded_function(text: str, name: str, symbol: str = "kernel") -> Any:
    """A kernel of a text of CUDA C, compiled and loaded once."""
    found = device()
    return _loaded((found.context_number, text), symbol, lambda: compile_source(text, found.architecture, name))


def loaded_code(code: bytes, symbol: str) -> Any:
    """A kernel of a cubin or of PTX, loaded once."""
    return _loaded((device().context_number, code), symbol, lambda: code)


def _loaded(key: tuple[int, str | bytes], symbol: str, code: Any) -> Any:
    with _lock:
        if (key, symbol) in _functions:
            return _functions[key, symbol]
    made = np.frombuffer(code() + b"\0", np.uint8)  # PTX is text, which ends in a zero
    module = checked(driver.cuModuleLoadData(made.ctypes.data))
    function = checked(driver.cuModuleGetFunction(module, symbol.encode()))
    with _lock:
        return _functions.setdefault((key, symbol), function)


def forget_functions() -> None:
    """Forgets what is loaded: what is used next is loaded anew, and what runs keeps what it has."""
    with _lock:
        _functions.clear()

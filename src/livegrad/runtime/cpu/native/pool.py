"""Compiles and owns the native run time of this process: the thread pool, the built-ins, and the interrupt flag.

In: a number of threads. Out: addresses of functions and flags, for `invoke.py` and for kernels.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np

from livegrad.runtime.cpu.native.builtins_ir import C_API, builtins_ir
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_library
from livegrad.runtime.cpu.native.object_layout import find_layout, numpy_function
from livegrad.runtime.cpu.native.plan_call_ir import C_API as PLAN_CALL_API
from livegrad.runtime.cpu.native.plan_call_ir import plan_call_ir
from livegrad.runtime.cpu.native.pool_ir import MAX_THREADS, pool_ir

# How long an idle thread spins for work, and a caller for its helpers, before it sleeps. Long enough for the Python
# code between two steps of a plan (a few µs), short enough to cost other processes nothing.
SPIN_SECONDS = 30e-6

BUILTINS = ("invoke", "invoke_released", "invoke_sequence", "invoke_interruptible", "invoke_off_main", "array_address",
            "store_words")  # fmt: skip
_FUNCTIONS = ("pool_run", "pool_pause", "pool_resize", "pool_reset_after_fork", "interrupt_flag", "pool_counts",
              "pool_records", "pool_shares_always")  # fmt: skip


@dataclass(frozen=True)
class PoolStats:
    parallel_runs: int
    contended_runs: int  # on the caller's thread alone, because another caller used the pool
    threads_started: int


class Runtime:
    """The compiled pool and built-ins. The process has one, created on first use and never freed."""

    def __init__(self) -> None:
        self.code = _compile_runtime()
        addresses = self.code.addresses
        self._resize = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)(addresses["pool_resize"])
        self._pause = ctypes.CFUNCTYPE(None, ctypes.c_int64)(addresses["pool_pause"])
        self._reset_after_fork = ctypes.PYFUNCTYPE(None)(addresses["pool_reset_after_fork"])
        self._counts = (ctypes.c_int64 * 3).from_address(addresses["pool_counts"])
        self._spin = self._pauses_in(SPIN_SECONDS)
        self.threads = 1
        self.resize(default_threads())

    def resize(self, threads: int) -> None:
        """Sets the number of threads, including the caller's, from the next run on. Waits for a run in progress."""
        while not self._resize(threads, self._spin):
            time.sleep(0.0005)
        self.threads = threads

    def stop(self) -> None:
        """Ends the workers if no run is in progress; otherwise, they end with the process."""
        self._resize(1, self._spin)

    def reset_after_fork(self) -> None:
        """Resets threads and locks in the child of a fork. The next run that needs workers starts them."""
        self._reset_after_fork()

    def stats(self) -> PoolStats:
        return PoolStats(*self._counts)

    def _pauses_in(self, seconds: float) -> int:
        # A pause takes between 10 and 60 ns, so measure it. The minimum is the least disturbed measurement.
        sample = 200
        best = min(self._time_pauses(sample) for _ in range(4))
        return max(1, int(seconds / max(best / sample, 1e-9)))

    def _time_pauses(self, count: int) -> float:
        before = time.perf_counter()
        self._pause(count)
        return time.perf_counter() - before


def default_threads() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return min(count, MAX_THREADS)


def set_threads(count: int) -> None:
    """Sets how many threads a run uses, including the caller's. Results never depend on it."""
    if not 1 <= count <= MAX_THREADS:
        raise ValueError(f"expected between 1 and {MAX_THREADS} threads, found {count}")
    runtime().resize(count)


def threads() -> int:
    """The number of threads of a run; worker numbers are below it."""
    return runtime().threads


def stats() -> PoolStats:
    return runtime().stats()


def share_every_run(enabled: bool) -> None:
    """For tests: whether runs of several chunks are shared with other threads even where one thread is faster."""
    ctypes.c_int32.from_address(runtime().code.addresses["pool_shares_always"]).value = enabled


def interrupt_flag_address() -> int:
    """The address of the i32 that SIGINT sets during an interruptible run; kernels with `while` loops poll it."""
    return runtime().code.addresses["interrupt_flag"]


def pool_run_address() -> int:
    """The address of the function that runs a kernel on the pool, for kernels that launch other kernels."""
    return runtime().code.addresses["pool_run"]


_runtime: Runtime | None = None
_runtime_lock = threading.Lock()


def runtime() -> Runtime:
    """The run time of this process. The first call compiles it."""
    global _runtime
    if _runtime is None:
        with _runtime_lock:
            if _runtime is None:
                _runtime = Runtime()
    return _runtime


def c_api_addresses() -> dict[str, int]:
    """The addresses of the C API's functions and objects that the built-ins import."""
    names = (*C_API, *PLAN_CALL_API)
    addresses = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}
    addresses["numpy_new_from_descr"] = numpy_function("PyArray_NewFromDescr")
    objects = {"none": None, "true": True, "false": False, "type_error": TypeError, "ndarray": np.ndarray}
    objects |= {"float": float, "int": int, "keyboard_interrupt": KeyboardInterrupt}
    return addresses | {f"livegrad_{name}": id(value) for name, value in objects.items()}


def _compile_runtime() -> NativeFunction:
    machine = platform.machine().lower()
    architecture = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}.get(machine, "other")
    text = pool_ir(architecture, sys.platform) + builtins_ir(object.__basicsize__)
    exports = _FUNCTIONS[1:] + tuple(f"py_{name}" for name in BUILTINS)
    layout = find_layout()
    if layout is not None:  # without it, plans run step by step in Python
        text += plan_call_ir(layout)
        exports += ("py_run_plan",)
    # Speed 0 compiles in 10 ms and speed 2 in 80 ms, without a measurable difference for any built-in.
    return compile_library(text, _FUNCTIONS[0], speed=0, also_export=exports, imports=c_api_addresses())


def _reset_after_fork() -> None:
    global _runtime_lock
    _runtime_lock = threading.Lock()
    if _runtime is not None:
        _runtime.reset_after_fork()


def _stop_at_exit() -> None:
    if _runtime is not None:
        _runtime.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(_stop_at_exit)

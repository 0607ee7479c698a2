"""Compiles LLVM IR to object code concurrently with other threads.

llvmlite's lock admits one thread at a time to LLVM. Passes and code generation are slow and need no lock if threads
share nothing: each compilation has its own module, context, target machine and pass manager. Called by `tiers.py`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm

from livegrad.runtime.cpu.native.llvm_jit import NativeCompileError, host_machine, parsed_module
from livegrad.runtime.cpu.native.llvm_passes import (
    LOOP_SPEED,
    UNVECTORISED_LOOP_SPEED,
    has_unsafe_loads,
    pass_pipeline,
    whole_pipeline,
)


class _Gate:
    """Counts the threads inside LLVM, and blocks entry while the process forks or exits."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            while self._inside:
                self._changed.wait()
            self._closed = True

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()


_gate = _Gate()
atexit.register(_gate.close)  # no thread may use LLVM's static data while the process exits
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_gate.close, after_in_parent=_gate.open, after_in_child=_gate.renew)

_machines: dict[int, list[Any]] = {0: [], 1: [], 2: [], 3: [], 4: []}  # unused target machines by speed


@contextmanager
def exclusive_machine(speed: int) -> Iterator[Any]:
    """A target machine that no other thread uses."""
    try:
        machine = _machines[speed].pop()
    except IndexError:
        machine = host_machine(speed)
    yield machine
    _machines[speed].append(machine)  # not after an exception, which may leave it in an invalid state


def compile_unlocked(ir_text: str, speed: int) -> bytes:
    """Compiles `ir_text` to object code for this processor, without llvmlite's lock."""
    with exclusive_machine(speed) as machine, parsed_module(ir_text) as module, llvm.ffi.OutputString() as error:
        if speed:
            _run_passes(module, machine, speed)
        if has_unsafe_loads(module, speed):
            return compile_unlocked(ir_text, UNVECTORISED_LOOP_SPEED)
        with _gate:
            buffer = unlocked(llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, 1, error)
        if not buffer:
            raise NativeCompileError(str(error))
        try:
            start, size = llvm.ffi.lib.LLVMPY_GetBufferStart(buffer), llvm.ffi.lib.LLVMPY_GetBufferSize(buffer)
            return ctypes.string_at(start, size)
        finally:
            llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _run_passes(module: Any, machine: Any, speed: int) -> None:
    if speed >= LOOP_SPEED:
        with whole_pipeline(machine, speed) as (builder, passes), _gate:
            unlocked(llvm.ffi.lib.LLVMPY_RunNewModulePassManager)(passes, module, builder)
        return
    builder, prepare, simplify = pass_pipeline(machine, speed)
    with _gate:
        unlocked(llvm.ffi.lib.LLVMPY_RunNewModulePassManager)(prepare, module, builder)
    if simplify is None:
        return
    for function in module.functions:
        if not function.is_declaration:
            with _gate:
                unlocked(llvm.ffi.lib.LLVMPY_RunNewFunctionPassManager)(simplify, function, builder)


def unlocked(locked: Any) -> Any:
    """An LLVM function without llvmlite's lock, if this llvmlite wraps functions in one."""
    return getattr(locked, "_cfn", locked)

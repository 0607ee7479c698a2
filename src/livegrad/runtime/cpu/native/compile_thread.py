"""A native thread that compiles LLVM modules while Python continues. In: LLVM IR. Out: callable functions.

A caller that needs a module before the thread has started to compile it does so itself. Called by `tiers.py`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from livegrad.runtime.cpu.native.compile_thread_ir import (
    DONE,
    EXPORTS,
    JOB_WORDS,
    LLVM_FUNCTIONS,
    WAITING,
    compile_thread_ir,
)
from livegrad.runtime.cpu.native.llvm_jit import (
    NativeFunction,
    compile_image,
    compile_library,
    host_machine,
    link_image,
)
from livegrad.runtime.cpu.native.pool import default_threads
from livegrad.runtime.cpu.native.unlocked_compile import exclusive_machine, unlocked

_BASELINE_SPEED = 0  # no passes (`llvm_passes.py`)
_STATE, _IS_RELEASED = JOB_WORDS.index("state"), JOB_WORDS.index("is_released")


class _Job:
    """A module to compile: words in memory that the thread and its clients share."""

    __slots__ = ("_kept_alive", "_words", "address")

    def __init__(self, keep: object = None, **words: int) -> None:
        self._kept_alive = keep  # the words have addresses in it
        self._words = array("q", [words.get(name, 0) for name in JOB_WORDS])
        self.address: int = self._words.buffer_info()[0]

    def __getitem__(self, name: str) -> int:
        return self._words[JOB_WORDS.index(name)]

    @property
    def is_waiting(self) -> bool:
        return self._words[_STATE] == WAITING

    @property
    def is_done(self) -> bool:
        return self._words[_STATE] == DONE

    @property
    def is_released(self) -> bool:
        """Whether the thread no longer uses the job's memory."""
        return bool(self._words[_IS_RELEASED])

    def compile_here(self) -> None:
        """Runs the job on this thread, unless another thread has taken it."""
        if self.is_waiting:
            with exclusive_machine(_BASELINE_SPEED) as machine:
                _native().do_job(self.address, address_of(machine))

    def wait(self) -> None:
        """Waits until the job is done, and runs it if no thread has taken it."""
        self.compile_here()
        if not self.is_done:
            _native().await_job(self.address)


class PendingModule:
    """An LLVM module that is being compiled. It comes from livegrad's emitters, so it is verified only on request."""

    def __init__(self, text: str, exports: Sequence[str], imports: Mapping[str, int], verified: bool = True) -> None:
        self.text, self._exports, self._imports = text, tuple(exports), imports
        encoded = text.encode()
        self._job = _compile_thread.submit(keep=encoded, text=_address_of_bytes(encoded), is_verified=int(verified))

    def compile_here(self) -> None:
        """Compiles the module on this thread, unless another thread has started to."""
        if self._job is not None:
            self._job.compile_here()

    def finish(self) -> tuple[bytes, NativeFunction]:
        """Waits for the object code and links it. Must be called only once."""
        # The thread drops error messages, so a module that LLVM rejects is compiled again here, which raises.
        image = self._take_image() or compile_image(self.text, _BASELINE_SPEED)
        return image, link_image(image, self._exports, self._imports, self.text)

    def _take_image(self) -> bytes:
        """Takes the object code from the job; empty if there is none."""
        job, self._job = self._job, None
        if job is None:
            return b""
        job.wait()
        return _take_buffer(job["image"]) if job["image"] else b""

    def __del__(self) -> None:
        """Frees the object code if an error prevented the call of `finish`."""
        if getattr(self, "_job", None) is not None and not sys.is_finalizing():
            self._take_image()


def is_idle() -> bool:
    """Whether no module waits, so that the thread would compile the next one at once."""
    return _compile_thread.is_idle


class _CompileThread:
    """The compile thread, which starts with the first job, and its queue."""

    def __init__(self) -> None:
        self._machine: Any = None  # used only by the thread
        self._renew()

    def _renew(self) -> None:
        """Resets the state of threads, which the child of a fork does not have."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._jobs: deque[_Job] = deque()  # kept alive, because the thread has their addresses

    def submit(self, keep: object = None, **words: int) -> _Job | None:
        """Queues a job; returns None on a single processor, where a second thread gains nothing."""
        if sys.platform == "win32" or default_threads() < 2:
            return None
        with self._lock:
            if self._stopping:
                return None
            if self._thread is None:
                self._start(_native())
            while self._jobs and self._jobs[0].is_released:
                self._jobs.popleft()
            job = _Job(keep, **words)
            self._jobs.append(job)
            if not _native().submit(job.address):  # the queue is full, so the client runs the job
                self._jobs.pop()
            return job

    @property
    def is_idle(self) -> bool:
        return not any(job.is_waiting for job in tuple(self._jobs))  # a copy: other threads add to it

    def _start(self, native: _Native) -> None:
        native.reset()
        self._machine = host_machine(_BASELINE_SPEED)
        arguments = (address_of(self._machine),)
        self._thread = threading.Thread(target=native.serve, args=arguments, name="livegrad-compile", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, which must not be inside LLVM when the process exits."""
        with self._lock:
            self._stopping = True
            if self._thread is not None:
                self._drain()
                _native().submit(None)
                self._thread.join()

    def before_fork(self) -> None:
        """Waits for all jobs and blocks new ones, because the child would not have the thread."""
        self._lock.acquire()
        self._drain()

    def _drain(self) -> None:
        """Waits until the thread has done all jobs and no longer uses their memory."""
        for job in list(self._jobs):
            job.wait()
            while not job.is_released:
                time.sleep(1e-5)

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        if self._thread is not None:
            _native().reset()  # the parent's thread may have held the mutex
        self._renew()


class _Native:
    """The native functions. The slow ones release the GIL."""

    def __init__(self, code: NativeFunction) -> None:
        pointer, addresses = ctypes.c_void_p, code.addresses
        self.do_job = ctypes.CFUNCTYPE(None, pointer, pointer)(addresses["do_job"])
        self.await_job = ctypes.CFUNCTYPE(None, pointer)(addresses["await_job"])
        self.serve = ctypes.CFUNCTYPE(None, pointer)(addresses["serve"])
        self.reset = ctypes.PYFUNCTYPE(None)(addresses["reset"])
        self.submit = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer)(addresses["submit"])


@lru_cache(maxsize=1)
def _native() -> _Native:
    imports = {name: address_of(unlocked(getattr(llvm.ffi.lib, name))) for name in LLVM_FUNCTIONS}
    text = compile_thread_ir()
    code = compile_library(text, EXPORTS[0], speed=_BASELINE_SPEED, also_export=EXPORTS[1:], imports=imports)
    return _Native(code)


def address_of(reference: Any) -> int:
    """The address of an llvmlite object, or of an LLVM function."""
    return ctypes.cast(getattr(reference, "_ptr", reference), ctypes.c_void_p).value or 0


def _address_of_bytes(content: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def _take_buffer(buffer: int) -> bytes:
    """Copies the content of an LLVM buffer and frees it."""
    reference = ctypes.cast(buffer, llvm.ffi.LLVMMemoryBufferRef)
    try:
        start, size = llvm.ffi.lib.LLVMPY_GetBufferStart(reference), llvm.ffi.lib.LLVMPY_GetBufferSize(reference)
        return ctypes.string_at(start, size)
    finally:
        llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(reference)


_compile_thread = _CompileThread()
atexit.register(_compile_thread.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_compile_thread.before_fork,
        after_in_parent=_compile_thread.after_fork_in_parent,
        after_in_child=_compile_thread.after_fork_in_child,
    )

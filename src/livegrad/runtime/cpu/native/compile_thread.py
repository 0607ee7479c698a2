"""A native thread that compiles LLVM modules while Python continues. In: modules. Out: callable functions.

A caller that needs a result before the thread has started the job does the job itself. Called by `tiers.py`.
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
    side_thread_ir,
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

_QUICK = 0  # the speed of code that somebody waits for
_STATE, _IS_LEFT = JOB_WORDS.index("state"), JOB_WORDS.index("is_left")


class _Job:
    """Something for LLVM to do: words in memory, which the thread and those who wait for the result read and write."""

    __slots__ = ("_kept", "_words", "address")

    def __init__(self, kept: object = None, **words: int) -> None:
        self._kept = kept  # alive: words point into it
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
    def is_left(self) -> bool:
        """Whether the thread is through with it, and knows its address no more."""
        return bool(self._words[_IS_LEFT])

    def take_part(self) -> None:
        """Does the job, unless somebody has begun."""
        if self.is_waiting:
            with exclusive_machine(_QUICK) as machine:
                _native().do_job(self.address, address_of(machine))

    def wait(self) -> None:
        """Returns when the job is done."""
        self.take_part()
        if not self.is_done:
            _native().await_job(self.address)


class Compilation:
    """A text whose functions can be called soon: it is compiled while others do something else.

    Texts are our own: LLVM reads them, but looks for contradictions in them only if it is asked to.
    """

    def __init__(self, text: str, exports: Sequence[str], imports: Mapping[str, int], verified: bool = True) -> None:
        self.text, self._exports, self._imports = text, tuple(exports), imports
        encoded = text.encode()
        self._job = _side_thread.begin(kept=encoded, text=_address_of_bytes(encoded), is_verified=int(verified))

    def take_part(self) -> None:
        """Begins with it now, unless that has happened."""
        if self._job is not None:
            self._job.take_part()

    def finish(self) -> tuple[bytes, NativeFunction]:
        """The object code and its functions, once they are there; asked for once."""
        # LLVM refuses again what it refused, this time with a reason.
        image = self._take_image() or compile_image(self.text, _QUICK)
        return image, link_image(image, self._exports, self._imports, self.text)

    def _take_image(self) -> bytes:
        """Takes the object code from the job; the caller owns it."""
        job, self._job = self._job, None
        if job is None:
            return b""
        job.wait()
        return _content(job["image"]) if job["image"] else b""

    def __del__(self) -> None:
        """Frees what nobody asked for: an error came in between."""
        if getattr(self, "_job", None) is not None and not sys.is_finalizing():
            self._take_image()


def is_idle() -> bool:
    """Whether no text waits: one that comes now is the next to be compiled."""
    return _side_thread.is_idle


class _SideThread:
    """The thread, which starts with the first job."""

    def __init__(self) -> None:
        self._machine: Any = None  # the thread's own
        self._renew()

    def _renew(self) -> None:
        """What belongs to threads, which a child of a fork does not have."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._begun: deque[_Job] = deque()  # kept alive: the thread has their addresses

    def begin(self, kept: object = None, **words: int) -> _Job | None:
        """A job that the thread does soon; None where it would take turns with the others on one processor."""
        if sys.platform == "win32" or default_threads() < 2:
            return None
        with self._lock:
            if self._stopping:
                return None
            if self._thread is None:
                self._start(_native())
            while self._begun and self._begun[0].is_left:
                self._begun.popleft()
            job = _Job(kept, **words)
            self._begun.append(job)
            if not _native().submit(job.address):  # too many wait: whoever wants this one does it
                self._begun.pop()
            return job

    @property
    def is_idle(self) -> bool:
        return not any(job.is_waiting for job in tuple(self._begun))  # a copy: other threads add to it

    def _start(self, native: _Native) -> None:
        native.reset()
        self._machine = host_machine(_QUICK)
        arguments = (address_of(self._machine),)
        self._thread = threading.Thread(target=native.serve, args=arguments, name="livegrad-side", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, which must not be inside LLVM when the process ends."""
        with self._lock:
            self._stopping = True
            if self._thread is not None:
                self._finish()
                _native().submit(None)
                self._thread.join()

    def before_fork(self) -> None:
        """No job is under way while the process forks: the child would not have the thread that does it."""
        self._lock.acquire()
        self._finish()

    def _finish(self) -> None:
        """Returns when the thread has nothing left to do, not even to tidy up after what is done."""
        for job in list(self._begun):
            job.wait()
            while not job.is_left:
                time.sleep(1e-5)

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        if self._thread is not None:
            _native().reset()  # the parent's thread may have held the mutex
        self._renew()


class _Native:
    """The native code. Python's lock is free while it runs, but where that takes no time."""

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
    code = compile_library(side_thread_ir(), EXPORTS[0], speed=_QUICK, also_export=EXPORTS[1:], imports=imports)
    return _Native(code)


def address_of(reference: Any) -> int:
    """The address of something of LLVM's, or of one of its functions."""
    return ctypes.cast(getattr(reference, "_ptr", reference), ctypes.c_void_p).value or 0


def _address_of_bytes(content: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def _content(buffer: int) -> bytes:
    """What is in a buffer of LLVM's, which goes."""
    reference = ctypes.cast(buffer, llvm.ffi.LLVMMemoryBufferRef)
    try:
        start, size = llvm.ffi.lib.LLVMPY_GetBufferStart(reference), llvm.ffi.lib.LLVMPY_GetBufferSize(reference)
        return ctypes.string_at(start, size)
    finally:
        llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(reference)


_side_thread = _SideThread()
atexit.register(_side_thread.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_side_thread.before_fork,
        after_in_parent=_side_thread.after_fork_in_parent,
        after_in_child=_side_thread.after_fork_in_child,
    )

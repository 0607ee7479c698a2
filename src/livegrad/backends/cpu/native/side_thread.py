"""A thread that works for LLVM beside Python's. Texts come in; functions that can be called go out.

Whoever needs a job's result before the thread has come to it does the job instead. Called by `tiers.py`, which goes on
with Python's part of the work meanwhile.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from llvmlite.binding.orcjit import LLJIT, ResourceTracker

from livegrad.backends.cpu.native.compiler import (
    NativeFunction,
    compile_image,
    compile_kernel,
    host_machine,
    link_image,
    linking_machine,
)
from livegrad.backends.cpu.native.free_compile import own_machine, unlocked
from livegrad.backends.cpu.native.pool import default_threads
from livegrad.backends.cpu.native.side_thread_ir import (
    COMPILE,
    DISPOSE,
    DONE,
    EXPORTS,
    JOB_WORDS,
    LLVM_FUNCTIONS,
    MAKE_ENGINE,
    VERIFY_AND_COMPILE,
    WAITING,
    side_thread_ir,
)

_QUICK = 0  # the speed of code that somebody waits for
_STATE, _IS_LEFT = JOB_WORDS.index("state"), JOB_WORDS.index("is_left")
_OBJECT, _PROCESS = 2, 3  # what a library is linked from, by llvmlite's numbers


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
    def is_done(self) -> bool:
        return self._words[_STATE] == DONE

    @property
    def is_left(self) -> bool:
        """Whether the thread is through with it, and knows its address no more."""
        return bool(self._words[_IS_LEFT])

    def take_part(self) -> None:
        """Does the job, unless somebody has begun."""
        if self._words[_STATE] == WAITING:
            with own_machine(_QUICK) as machine:
                _native().do_job(self.address, address_of(machine))

    def wait(self) -> None:
        """Returns when the job is done."""
        self.take_part()
        if not self.is_done:
            _native().await_job(self.address)


class Compilation:
    """A text whose functions can be called soon: it is compiled and linked while others do something else.

    Texts are our own: LLVM reads them, but looks for contradictions in them only if it is asked to.
    """

    def __init__(self, text: str, exports: Sequence[str], imports: Mapping[str, int], verified: bool = True) -> None:
        self.text, self._exports, self._imports = text, tuple(exports), imports
        self._job: _Job | None = None
        encoded, nothing = text.encode(), b""
        # LLVM's records: of what is linked (the code, once it is there, and this process), and of names with addresses.
        elements = array("q", [_OBJECT, 0, 0, _PROCESS, _address_of_bytes(nothing), 0])
        names = [name.encode() for name in (*imports, *exports)]
        places = [_address_of_bytes(name) for name in names]
        known = array("q", [word for pair in zip(places, imports.values(), strict=False) for word in pair])
        self._found = array("q", [word for place in places[len(imports) :] for word in (place, 0)])
        self._job = _side_thread.begin(
            kept=(encoded, nothing, elements, names, known, self._found),
            kind=VERIFY_AND_COMPILE if verified else COMPILE,
            text=_address_of_bytes(encoded),
            engine=_ready_engine(),
            elements=elements.buffer_info()[0],
            imports=known.buffer_info()[0],
            import_count=len(imports),
            exports=self._found.buffer_info()[0],
            export_count=len(exports),
        )

    def take_part(self) -> None:
        """Begins with it now, unless that has happened."""
        if self._job is not None:
            self._job.take_part()

    def finish(self) -> tuple[bytes, NativeFunction]:
        """The object code and its functions, once they are there; asked for once."""
        image, placed = self._taken()
        if placed is None:  # what LLVM refused it refuses again, with a reason
            image = image or compile_image(self.text, _QUICK)
            return image, link_image(image, self._exports, self._imports, self.text)
        addresses = dict(zip(self._exports, self._found[1::2], strict=True))
        return image, NativeFunction(self._exports[0], addresses, placed)

    def _taken(self) -> tuple[bytes, _Placed | None]:
        """What the job has made, which is the caller's from now on."""
        job, self._job = self._job, None
        if job is None:
            return b"", None
        job.wait()
        image = _content(job["image"]) if job["image"] else b""
        if job["library"]:
            return image, _Placed(job["library"], job["engine"])
        if job["engine"]:
            _close_engine(job["engine"])
        return image, None

    def __del__(self) -> None:
        """Frees what nobody asked for: an error came in between."""
        if self._job is not None and not sys.is_finalizing():
            _, placed = self._taken()
            if placed is not None:
                placed.close()


class _Placed(NamedTuple):
    """Code in memory, by the addresses of LLVM's library and engine. To free it takes a tenth of a millisecond."""

    library: int
    engine: int

    def close(self) -> None:
        """Has it freed; it may be called by a finalizer, so at any moment."""
        if not _side_thread.submit(_Job(kind=DISPOSE, library=self.library, engine=self.engine)):
            ResourceTracker(ctypes.cast(self.library, llvm.ffi.LLVMOrcDylibTrackerRef), "kernel", {}).close()
            _close_engine(self.engine)


def _close_engine(engine: int) -> None:
    LLJIT(ctypes.cast(engine, llvm.ffi.LLVMOrcLLJITRef)).close()


_engines: deque[_Job] = deque()  # made ahead, for whoever links next


def prepare_engine() -> None:
    """Has an engine made, so that the next text can be linked at once."""
    if not _engines:
        job = _side_thread.begin(kind=MAKE_ENGINE)
        if job is not None:
            _engines.append(job)


def _ready_engine() -> int:
    """The address of an engine that was prepared; 0 where there is none yet."""
    try:
        job = _engines.popleft()
    except IndexError:
        return 0
    if job.is_done:
        return job["engine"]
    _engines.append(job)
    return 0


def is_idle() -> bool:
    """Whether a job that begins now would be done at once."""
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
        self._stopping = self._is_forking = False
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
            job = _Job(kept, linking_machine=address_of(linking_machine()), **words)
            self.submit(job)
            return job

    def submit(self, job: _Job) -> bool:
        """Whether the thread will do a job. Takes no lock of Python's: a finalizer may come between any two lines."""
        if self._thread is None or self._stopping or self._is_forking:
            return False
        self._begun.append(job)
        if _native().submit(job.address):
            return True
        self._begun.remove(job)
        return False

    @property
    def is_idle(self) -> bool:
        begun = self._begun
        return not begun or begun[-1].is_done  # they are done in order

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
        self._is_forking = True
        self._finish()

    def _finish(self) -> None:
        for job in list(self._begun):
            job.wait()

    def after_fork_in_parent(self) -> None:
        self._is_forking = False
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
    code = compile_kernel(side_thread_ir(), EXPORTS[0], speed=_QUICK, also_export=EXPORTS[1:], imports=imports)
    code.make_immortal()
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

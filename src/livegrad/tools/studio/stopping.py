"""Stops a frame that hangs, from another thread than the one that runs it.

In: the wish of a page, which the server's thread hears although the engine's thread is busy. Out: KeyboardInterrupt in
the engine's thread, as from Ctrl-C: in Python at once, in native loops when they poll.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from time import perf_counter

from livegrad.runtime.cpu.native.pool import interrupt_flag_address


class Stopper:
    """Knows how long the present frame runs, and can stop it.

    >>> stopper = Stopper()
    >>> stopper.seconds, stopper.stop()
    (0.0, False)
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread: int | None = None
        self._started = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Marks the frame that runs inside as one that may be stopped."""
        with self._lock:
            self._thread, self._started = get_ident(), perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._thread = None

    @property
    def seconds(self) -> float:
        """How long the present frame has run; 0 if none does."""
        return 0.0 if self._thread is None else perf_counter() - self._started

    def stop(self) -> bool:
        """Interrupts the present frame. Returns whether there is one."""
        with self._lock:
            if self._thread is None:
                return False
            thread = ctypes.c_ulong(self._thread)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))
            ctypes.c_int32.from_address(interrupt_flag_address()).value = 1
            return True

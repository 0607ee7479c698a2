"""Background recompilation: a thread compiles the optimised tier of new kernels, and writes caches to disk.

It starts a job only after a short pause without new ones, so that it does not compete with the thread that compiles the
baseline tier. Called by `kernel_code.py` and `cpu_function.py`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from livegrad.runtime.cpu.native.llvm_jit import NativeCompileError, count
from livegrad.runtime.cpu.tiers import TieredFunction
from livegrad.state import BackgroundWork, Owned, call_after_fork

QUIET_SECONDS = 0.05
_PATIENCE = 20  # times that: so long does a job wait where it never gets quiet
_LIVENESS_SECONDS = 1.0  # so often somebody who waits looks whether the thread is alive
_MANY = 256  # jobs: from then on, those are dropped that have nothing to do any more


class _Job(Protocol):
    @property
    def is_moot(self) -> bool: ...
    def run(self) -> None: ...
    def run_at_exit(self) -> None: ...


@dataclass(frozen=True)
class _TierUp:
    """The optimised tier of a kernel, unless the kernel is gone; at exit its source is stored for the next process."""

    function: weakref.ref[TieredFunction]

    @property
    def is_moot(self) -> bool:
        return self.function() is None

    def run(self) -> None:
        function = self.function()
        if function is not None:
            try:
                function.tier_up()
            except NativeCompileError:
                count("failed")  # the kernel keeps its baseline code, which is correct

    def run_at_exit(self) -> None:
        function = self.function()
        if function is not None:
            function.leave_behind()


@dataclass(frozen=True)
class _Errand:
    run: Callable[[], None]
    is_moot: bool = False

    def run_at_exit(self) -> None:
        self.run()


class BackgroundCompiler(BackgroundWork):
    """Jobs that wait, and the thread that does them; it starts with the first job."""

    def __init__(self, quiet_seconds: float = QUIET_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.quiet_seconds = quiet_seconds
        self._clock = clock
        self._waiting: deque[_Job] = deque()
        self._renew()
        call_after_fork(self, "_renew")

    def _renew(self) -> None:
        """What belongs to threads, which a child of a fork does not have."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._suspended = False
        self._busy = False
        self._waiters = 0  # threads inside `wait`: while there are any, jobs run at once
        self._last_came = self._waits_since = 0.0

    def tier_up(self, functions: Iterable[TieredFunction]) -> None:
        """Recompiles these functions in the background, unless they are gone when their turn comes."""
        self._add([_TierUp(weakref.ref(function)) for function in functions])

    def later(self, errand: Callable[[], None]) -> None:
        """Has something done that nobody waits for; it is done before the process ends."""
        self._add([_Errand(errand)])

    def _add(self, jobs: Iterable[_Job]) -> None:
        with self._changed:
            is_asleep = not self._waiting
            self._last_came = self._clock()
            if is_asleep:
                self._waits_since = self._last_came
            elif len(self._waiting) > _MANY:
                self._drop_moot()
            self._waiting.extend(jobs)
            if self._thread is None and not self._stopping:
                self._start_thread()
            elif is_asleep:
                self._changed.notify_all()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="livegrad-background-compiler", daemon=True)
        thread.start()
        self._thread = thread  # not before: nobody is to wait for a thread that could not start

    def _drop_moot(self) -> None:
        """Drops the jobs that have nothing to do any more; finalizers may add others meanwhile."""
        for _ in range(len(self._waiting)):
            job = self._waiting.popleft()
            if not job.is_moot:
                self._waiting.append(job)

    def wait(self) -> None:
        """Return when no job is left. Jobs run at once while somebody waits here, whatever the clock says."""
        with self._changed:
            self._waiters += 1
            self._changed.notify_all()
            try:
                while self._thread is not None and (self._waiting or self._busy):
                    if not self._thread.is_alive():  # something ended it that is no exception of a job
                        self._busy = False
                        self._start_thread()
                    self._changed.wait(_LIVENESS_SECONDS)
            finally:
                self._waiters -= 1

    def stop(self) -> None:
        """End the thread, which must not be inside LLVM when the process ends, and leave what waits in order."""
        self._end_thread()
        while self._waiting:
            self._waiting.popleft().run_at_exit()

    def close(self) -> None:
        """End the thread, and drop what waits."""
        self._end_thread()
        self._waiting.clear()

    def _end_thread(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def suspend(self) -> None:
        """Return when no job runs; none begins before `resume`."""
        with self._changed:
            self._suspended = True
            while self._busy:
                self._changed.wait()

    def resume(self) -> None:
        with self._changed:
            self._suspended = False
            self._changed.notify_all()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job.run()
            except Exception as error:  # it is reported, and costs nobody the jobs that wait behind it
                threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))
            del job  # what it holds is not to wait for the next one
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> _Job | None:
        """The job whose turn it is, once it is quiet; None when the thread has to end."""
        with self._changed:
            while not self._stopping:
                now = self._clock()
                due = min(self._last_came + self.quiet_seconds, self._waits_since + _PATIENCE * self.quiet_seconds)
                may_begin = bool(self._waiting) and not self._suspended
                if may_begin and (self._waiters or due <= now):
                    self._busy = True
                    self._waits_since = now
                    return self._waiting.popleft()
                self._changed.wait(due - now if may_begin else None)
        return None

    def continue_in_child(self) -> None:
        """The child's kernels are its own: what waits is done in both."""
        if self._waiting:
            self._add([])


background_compiler = Owned(BackgroundCompiler)
# Registered after what LLVM needs at the end, and so called before it; and called after LLVM is usable in a child.
atexit.register(lambda: background_compiler.current.stop())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: background_compiler.current.continue_in_child())

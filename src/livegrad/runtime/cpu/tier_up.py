"""Background recompilation: a thread compiles the optimised tier of new kernels, and writes caches to disk.

It starts a job only after a short time without new jobs, so that it does not compete with the compilation of the
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
_PATIENCE = 20  # times `QUIET_SECONDS`: the longest delay of a job while new jobs arrive
_LIVENESS_SECONDS = 1.0  # how often `wait` checks that the thread is alive
_CLEANUP_LENGTH = 256  # of the queue, beyond which moot jobs are dropped


class _Job(Protocol):
    @property
    def is_moot(self) -> bool: ...
    def run(self) -> None: ...
    def run_at_exit(self) -> None: ...


@dataclass(frozen=True)
class _TierUp:
    """Compiles the optimised tier of a kernel that is still alive; at exit, stores its module for the next process."""

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
            function.store_baseline()


@dataclass(frozen=True)
class _Task:
    """A job that must run before the process exits."""

    run: Callable[[], None]
    is_moot: bool = False

    def run_at_exit(self) -> None:
        self.run()


class BackgroundCompiler(BackgroundWork):
    """A queue of jobs, and the thread that runs them, which starts with the first job."""

    def __init__(self, quiet_seconds: float = QUIET_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.quiet_seconds = quiet_seconds
        self._clock = clock
        self._waiting: deque[_Job] = deque()
        self._renew()
        call_after_fork(self, "_renew")

    def _renew(self) -> None:
        """Resets the state of threads, which the child of a fork does not have."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._suspended = False
        self._busy = False
        self._waiters = 0  # threads inside `wait`: while there are any, jobs run at once
        self._last_added = self._waits_since = 0.0

    def tier_up(self, functions: Iterable[TieredFunction]) -> None:
        """Recompiles functions in the background, unless they are freed first."""
        self._add([_TierUp(weakref.ref(function)) for function in functions])

    def later(self, task: Callable[[], None]) -> None:
        """Runs a task in the background, or when the process exits."""
        self._add([_Task(task)])

    def _add(self, jobs: Iterable[_Job]) -> None:
        with self._changed:
            is_asleep = not self._waiting
            self._last_added = self._clock()
            if is_asleep:
                self._waits_since = self._last_added
            elif len(self._waiting) > _CLEANUP_LENGTH:
                self._drop_moot()
            self._waiting.extend(jobs)
            if self._thread is None and not self._stopping:
                self._start_thread()
            elif is_asleep:
                self._changed.notify_all()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="livegrad-background-compiler", daemon=True)
        thread.start()
        self._thread = thread  # after `start`, so that `wait` never waits for a thread that failed to start

    def _drop_moot(self) -> None:
        """Drops moot jobs. Rotates the queue instead of rebuilding it, because finalizers may add jobs meanwhile."""
        for _ in range(len(self._waiting)):
            job = self._waiting.popleft()
            if not job.is_moot:
                self._waiting.append(job)

    def wait(self) -> None:
        """Waits until no job is left. Jobs start without delay while a caller waits."""
        with self._changed:
            self._waiters += 1
            self._changed.notify_all()
            try:
                while self._thread is not None and (self._waiting or self._busy):
                    if not self._thread.is_alive():  # it died, though not by an exception of a job
                        self._busy = False
                        self._start_thread()
                    self._changed.wait(_LIVENESS_SECONDS)
            finally:
                self._waiters -= 1

    def stop(self) -> None:
        """Ends the thread, which must not be inside LLVM when the process exits, and stores the results of its jobs."""
        self._end_thread()
        while self._waiting:
            self._waiting.popleft().run_at_exit()

    def close(self) -> None:
        """Ends the thread and drops the queue."""
        self._end_thread()
        self._waiting.clear()

    def _end_thread(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def suspend(self) -> None:
        """Waits until no job runs; none starts before `resume`."""
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
            except Exception as error:  # reported, so that the other jobs still run
                threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))
            del job  # frees its objects before the next job starts
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> _Job | None:
        """Waits for the next job that may run; None if the thread has to end."""
        with self._changed:
            while not self._stopping:
                now = self._clock()
                due = min(self._last_added + self.quiet_seconds, self._waits_since + _PATIENCE * self.quiet_seconds)
                may_begin = bool(self._waiting) and not self._suspended
                if may_begin and (self._waiters or due <= now):
                    self._busy = True
                    self._waits_since = now
                    return self._waiting.popleft()
                self._changed.wait(due - now if may_begin else None)
        return None

    def continue_in_child(self) -> None:
        """Runs the queue in the child of a fork too, because it has copies of the kernels."""
        if self._waiting:
            self._add([])


background_compiler = Owned(BackgroundCompiler)
# Exit handlers run in reverse order, so this one runs before those of LLVM. Fork handlers of children run in order, so
# this one runs when the child may use LLVM again.
atexit.register(lambda: background_compiler.current.stop())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: background_compiler.current.continue_in_child())

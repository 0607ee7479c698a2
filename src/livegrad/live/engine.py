"""The live engine: holds a description, keeps its plan running, and applies all changes once per frame.

Users create an `Engine`, add and connect blocks, and call `step` and `read`. A frame takes the journal of edits,
updates the running plan at the cheapest correct level, and runs the stale steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock, RLock, get_ident
from typing import Literal, NoReturn

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.source_lines import ambient
from livegrad.live.cpu.cpu_executor import CpuExecutor
from livegrad.live.engine_edits import EngineEdits
from livegrad.live.executor import Executor
from livegrad.live.frame import Frame
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.drawing import draw_blocks
from livegrad.live.graph.journal import (
    MERGE_THRESHOLD,
    Journal,
    merge_entries,
)
from livegrad.live.history import History
from livegrad.live.output_reader import OutputReader
from livegrad.live.poll_watches import poll_watches, report_watch_errors
from livegrad.live.presets import Presets
from livegrad.live.runtime import Runtime
from livegrad.live.update.apply import Applier
from livegrad.live.update.background import BackgroundCompiler
from livegrad.state import renew_lock_after_fork


def _make_cuda_executor() -> Executor:
    """Creates the executor of the first GPU. Imports it on demand, so that CPU programs do not load the driver."""
    return import_module("livegrad.live.cuda").CudaExecutor()


EXECUTORS: dict[str, Callable[[], Executor]] = {"cpu": CpuExecutor, "cuda": _make_cuda_executor}


class Engine(EngineEdits):
    """Runs a live graph.

    With `compile="background"`, a thread compiles edits beside the running plan, and frames do not wait for it: they
    run the old plan, with its numbers, until the new one is ready, and say so (`frame.updating`). `settle` waits.

    >>> from livegrad.live.blocks import block
    >>> engine = Engine()
    >>> double = engine.add(block(lambda x: x * 2.0, name="double"))
    >>> engine.set(double["x"], 4.0)
    >>> engine.step().ran
    ('double',)
    >>> float(engine.read(double))
    8.0
    >>> engine.step().ran
    ()
    """

    def __init__(
        self,
        backend: str | Executor = "cpu",
        *,
        reuse_memory: bool = False,
        compile: Literal["at once", "background"] = "at once",
    ) -> None:
        if isinstance(backend, str):
            make = EXECUTORS.get(backend)
            if make is None:
                raise UsageError(
                    f"there is no backend `{backend}`", where=caller_origin(), expected="one of " + ", ".join(EXECUTORS)
                )
            backend = make()
        if not all(hasattr(backend, attribute) for attribute in ("name", "build")):
            expected = "one of " + ", ".join(EXECUTORS)
            raise UsageError("not a backend", where=caller_origin(), expected=expected, found=shown(backend))
        if not isinstance(reuse_memory, bool):
            raise UsageError("`reuse_memory` must be True or False", where=caller_origin(), found=shown(reuse_memory))
        if compile not in ("at once", "background"):
            expected = '"at once" or "background"'
            raise UsageError(
                "unknown value of `compile`", where=caller_origin(), expected=expected, found=shown(compile)
            )
        self.executor: Executor = backend
        self._journal = Journal()
        self.graph = Graph(self._journal)
        self.graph.is_engine = self.graph.journal.belongs_to_engine = True
        self.frame = Frame(0)
        self.before_frame: list[Callable[[], None]] = []  # called first in each frame
        self._runtime = Runtime()
        self._gate_owner: int | None = None  # the thread that is between two frames
        self._reader = OutputReader(self.graph, self._runtime)
        self._applier = Applier(self.graph, self.executor, self._runtime, reuse_memory)
        if compile == "background":
            self._applier.background = BackgroundCompiler(self._applier.plan_ahead)
        self.history = self._journal.history = History(self)
        self.presets = Presets(self)
        renew_lock_after_fork(self._runtime, "lock", RLock)
        renew_lock_after_fork(self._runtime, "gate", Lock)
        renew_lock_after_fork(self._journal, "lock", RLock)

    def __repr__(self) -> str:
        return f"<engine on {self.executor.name}: {len(self.graph.blocks)} blocks, {self.frame.number} frames>"

    def __reduce__(self) -> NoReturn:
        help = "send the file that engine.save(path) writes, and open it with lg.load_document(path)"
        raise UsageError("an engine cannot be pickled: it runs here", where=caller_origin(), help=help)

    def _repr_svg_(self) -> str:
        with self.graph.editing():
            return draw_blocks(self.graph)

    def step(self) -> Frame:
        """Runs one frame: applies all changes, runs stale steps and advances states. Errors are reported in the frame.

        A frame is atomic: after an exception such as Ctrl-C, the edits are still pending, states are unchanged, and the
        next `step` does all of the work. Only one thread runs a frame at a time. Edits made during a frame apply to the
        next one.
        """
        runtime, journal, transaction = self._runtime, self._journal, self._runtime.transaction
        if runtime.gate.locked():
            self._give_way()
        with runtime.lock:
            try:
                if runtime.requests:
                    runtime.answer_requests()
                if runtime.finish_run is not None or runtime.must_advance or runtime.readings:
                    runtime.conclude_last_frame()
                if self.before_frame:
                    with self.history.paused():
                        for prepare in self.before_frame:
                            prepare()
                if journal.watches and self._may_wait:
                    poll_watches(journal)
                if transaction.is_open:
                    self._applier.recover()
                elif transaction.undo_log:
                    transaction.close()
                frame = Frame(self.frame.number + 1)
                if journal.entries or journal.applying or journal.mailbox or not runtime.is_quiet:
                    self._run_frame(frame)
                if journal.watches and self._may_wait:
                    report_watch_errors(self.graph, frame)
                if transaction.undo_log:
                    transaction.set_attribute(self, "frame", frame)
                else:
                    self.frame = frame
                transaction.is_open = False  # last, because it commits the frame
                if journal.observer is not None:
                    journal.observer.frame_ends(frame)
                for listener in journal.listeners:
                    listener.frame_ended(frame)
            except BaseException:
                ambient.reset()  # an interrupt may have skipped the exit of a context
                raise
            finally:
                if runtime.requests:
                    runtime.answer_requests()
        return frame

    def _give_way(self) -> None:
        """Waits for a thread that asked for its turn, unless this thread has it."""
        if self._gate_owner != get_ident():
            with self._runtime.gate:
                pass

    @contextmanager
    def between_frames(self) -> Iterator[None]:
        """Keeps frames from running, between two of them. A thread that steps without a rest gives way.

        Locks of Python are not fair: without it, a page or another thread could wait for many frames.

        >>> engine = Engine()
        >>> with engine.between_frames():
        ...     number = engine.frame.number   # no other thread steps here
        """
        runtime = self._runtime
        if self._gate_owner == get_ident():
            yield
            return
        with runtime.gate:
            self._gate_owner = get_ident()
            try:
                with runtime.lock:
                    yield
            finally:
                self._gate_owner = None

    def settle(self) -> Frame:
        """Runs one frame that applies all edits, and compiles them itself if the background has not done so.

        >>> from livegrad.live.blocks import block, edit
        >>> engine = Engine(compile="background")
        >>> double = engine.add(block(lambda x=4.0: x * 2.0, name="double"))
        >>> _ = engine.step()                  # there is no older plan that could run: the first frame compiles
        >>> edit(engine, double, lambda x=4.0: x * 3.0)
        >>> engine.step().updating, float(engine.read(double)), engine.settle().updating, float(engine.read(double))
        (True, 8.0, False, 12.0)
        """
        with self.between_frames():
            self._applier.is_settling = True
            try:
                return self.step()
            finally:
                self._applier.is_settling = False

    @property
    def _may_wait(self) -> bool:
        """Whether a frame may wait for the lock of the description. A thread that compiles edits may hold it."""
        background = self._applier.background
        return background is None or not background.is_planning or self._applier.is_settling

    def _run_frame(self, frame: Frame) -> None:
        runtime, applier, journal, transaction = self._runtime, self._applier, self._journal, self._runtime.transaction
        quiet = runtime.is_quiet
        hot_update = None
        if applier.background is None or self._may_wait:
            with journal.lock:
                if journal.deliver():
                    # In this order: after an interrupt in between, some edits are applied twice, with the same result.
                    entries = [*journal.applying, *journal.entries]
                    journal.applying = merge_entries(entries) if len(entries) >= MERGE_THRESHOLD else entries
                    journal.entries = []
                entries = journal.applying
                if journal.observer is not None:
                    journal.observer.frame_begins()
                if quiet and not entries:
                    return
                transaction.is_open = True
                hot_update = applier.find_hot_update(entries[0]) if quiet and len(entries) == 1 else None
                pending = applier.apply(entries, frame) if hot_update is None else []
        else:
            entries = pending = journal.applying
            transaction.is_open = frame.updating = True
        # The plan is compiled: from here on, edits need not wait.
        if hot_update is not None:
            applier.apply_hot_update(*hot_update, entries[0].detail, frame)
            transaction.undo_log.clear()  # keeps the number; after an interrupt, the next frame sets it again
            journal.applying = []
            return
        if runtime.executable is not None:
            runtime.mark_external_memory_stale()
            runtime.run(frame)
        else:
            frame.failed = frozenset(runtime.failed)
        frame.problems = runtime.problems
        transaction.set_attribute(journal, "applying", pending)

    @property
    def profiling(self) -> Literal["off", "block", "step"]:
        """What is measured: nothing, steps, or also the steps inside regions."""
        return self._runtime.profiling

    @profiling.setter
    def profiling(self, level: Literal["off", "block", "step"]) -> None:
        if level not in ("off", "block", "step"):
            expected = "off, block or step"
            raise UsageError("unknown profiling mode", where=caller_origin(), expected=expected, found=repr(level))
        with self._runtime.lock:
            self._runtime.profiling = level
            self._runtime.is_quiet = False

    def close(self) -> None:
        """Releases all memory."""
        runtime = self._runtime
        with runtime.lock:
            runtime.is_quiet = False
            try:
                runtime.answer_requests()
                runtime.conclude_last_frame()
                runtime.take_readings(wait=True)
            finally:
                runtime.transaction.close()
                executable, runtime.executable = runtime.executable, None
                if executable is not None:
                    executable.close()

"""Compiles edits beside the running plan, so that frames do not wait: `Engine(compile="background")`.

A thread does the slow part of an edit ahead of the frame that applies it: it specialises bodies and compiles steps,
whose results stay in caches. The frame then does the same work from the caches, so plans, errors and their order do not
depend on the thread. In: edits, and the functions that plan and compile them. Out: whether a frame may apply them now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from livegrad.live.graph.journal import Entry
from livegrad.state import call_after_fork


class BackgroundCompiler:
    """Compiles the pending edits of one engine in a thread, all at once.

    `plan` returns jobs; it holds the lock of the description, which frames do not wait for while `is_planning`.

    >>> background = BackgroundCompiler(lambda edits: [edit.subject.upper for edit in edits])
    >>> edits = [Entry("code", "shade", "new body")]
    >>> background.has_compiled(edits)
    False
    >>> background.wait()
    >>> background.has_compiled(edits), background.is_planning
    (True, False)
    """

    def __init__(self, plan: Callable[[Sequence[Entry]], Iterable[Callable[[], Any]]]) -> None:
        self._plan = plan
        self._run: _Run | None = None
        call_after_fork(self, "forget")

    @property
    def is_planning(self) -> bool:
        """Whether the thread holds the lock of the description, or is about to."""
        return self._run is not None and self._run.is_planning

    def has_compiled(self, edits: Sequence[Entry]) -> bool:
        """Whether these edits are compiled. Starts the thread, unless it is busy with earlier ones."""
        run = self._run
        if run is not None and run.is_compiling:
            return False
        if run is not None and all(id(edit) in run.edits for edit in edits):
            return True
        self._run = _Run(self._plan, edits)
        return False

    def wait(self) -> None:
        """Waits until the thread is idle."""
        if self._run is not None:
            self._run.thread.join()

    def forget(self) -> None:
        """Forgets the thread, which does not exist in a forked child, and what it has compiled."""
        self._run = None


class _Run:
    """One run of the thread. The results stay alive until the next one, because some caches are weak."""

    def __init__(self, plan: Callable[[Sequence[Entry]], Iterable[Callable[[], Any]]], edits: Sequence[Entry]) -> None:
        self.edits = {id(edit): edit for edit in edits}
        self.results: list[Any] = []
        self.is_planning = self.is_compiling = True
        # Not a daemon: LLVM must not be in use when the process ends.
        self.thread = threading.Thread(target=self._compile, args=(plan,), name="livegrad-edits")
        self.thread.start()

    def _compile(self, plan: Callable[[Sequence[Entry]], Iterable[Callable[[], Any]]]) -> None:
        try:
            jobs = plan(list(self.edits.values()))
            self.is_planning = False
            for job in jobs:
                self.results.append(job())
        except Exception as error:
            self.results.append(error)  # the frame that applies the edits meets it again, and reports it
        finally:
            self.is_planning = self.is_compiling = False

"""Early cutoff on the CPU: a step whose results are unchanged does not cause its readers to run.

`cpu_executor` reports what ran and asks which dependents must run. Results of up to 16 KB are compared bit by bit;
comparing more would take as long as many steps. Results that always differ are not compared for a while. A region
depends on what the bodies read that it took in its last run: changing a number in an untaken branch does not run it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import RegionStep, Step, operand_key, roots_of
from livegrad.live.graph.sources import Numbers

_MAX_COMPARED = 1 << 14  # bytes
_MAX_DIFFERENCES = 64  # successive differences after which a result is no longer compared
_RUNS_UNTIL_RETRY = 1024
NONE: frozenset[str] = frozenset()


class Result:
    """A result that other steps read: a function that returns its bytes (None: assume a change), and the last bytes."""

    __slots__ = ("before", "buffer", "differences", "read")

    def __init__(self, buffer: str) -> None:
        self.buffer = buffer
        self.read: Callable[[], bytes] | None = None
        self.before: bytes | None = None
        self.differences = 0  # in succession

    def record_difference(self, now: bytes) -> None:
        """Stores the bytes that readers will see. Stops comparing after many successive differences."""
        self.before = now
        self.differences += 1
        if self.differences >= _MAX_DIFFERENCES:
            self.read = self.before = None


def find_equal(results: Iterable[Result]) -> frozenset[str]:
    """The unchanged ones of the results of a step that has just run."""
    equal = NONE
    for result in results:
        if result.read is not None:
            now = result.read()
            if now != result.before:
                result.record_difference(now)
            else:
                result.differences = 0
                equal = equal | {result.buffer}
    return equal


class HasPlan(Protocol):
    """An executable."""

    plan: LivePlan


class CutOff:
    """The results of an executable when their readers last ran, and the bodies that its regions took.

    A new executable inherits both, because steps that are not stale have run in the previous one. After an interrupted
    run, readers have not seen all results; the engine then starts with all steps stale.
    """

    def __init__(self, executable: HasPlan, memory: Mapping[str, Numbers], previous: CutOff | None) -> None:
        self._executable, self._memory = executable, memory
        self.taken: dict[str, set[tuple[str, int]]] = {} if previous is None else previous.taken
        self._by_buffer: dict[str, Result] = {} if previous is None else previous._by_buffer
        self.results = Results(self)
        self._runs = 0
        self._reads: dict[str, frozenset[object]] = {}  # of leaf steps; those of a region depend on its last run
        self._regions: set[str] | None = None

    def must_run(self, key: str, changed: Collection[object]) -> bool:
        """Whether a step reads something that has changed in this run."""
        reads = self._reads.get(key)
        if reads is None:
            step = self._executable.plan.steps[key]
            if isinstance(step, RegionStep):
                taken = self.taken.get(key)
                # None: the region has not run yet.
                return taken is None or any(
                    operand_key(operand) in changed for operand in step.operands_of_bodies(taken)
                )
            reads = self._reads[key] = frozenset(map(operand_key, step.all_operands()))
        return not reads.isdisjoint(changed)

    def changed_by(self, steps: Iterable[str]) -> set[object]:
        """The results of these steps that other steps read."""
        return {result.buffer for key in steps for result in self.results[key]}

    def forget_results(self, key: str) -> None:
        """Forgets the results of a failed step, which may be half written."""
        self.taken.pop(key, None)
        for buffer in self._executable.plan.steps[key].results:
            self._by_buffer.pop(buffer, None)
        self.results.pop(key, None)

    def find_results(self, key: str) -> list[Result]:
        """The results of a step that other steps read."""
        plan, results = self._executable.plan, []
        for buffer in plan.steps[key].results:
            if not plan.readers.get(buffer):
                self._by_buffer.pop(buffer, None)  # unobserved: the first reader must run
                continue
            result = self._by_buffer.setdefault(buffer, Result(buffer))
            is_compared = result.differences < _MAX_DIFFERENCES and plan.buffers[buffer].bytes <= _MAX_COMPARED
            result.read = self._memory[buffer].tobytes if is_compared else None
            result.before = result.before if is_compared else None
            results.append(result)
        return results

    @property
    def regions(self) -> Collection[str]:
        """The regions of the plan."""
        if self._regions is None:
            steps = self._executable.plan.steps.items()
            self._regions = {key for key, step in steps if isinstance(step, RegionStep)}
        return self._regions

    def begin_run(self) -> Collection[str]:
        """Returns the regions of the plan. Periodically resumes comparing results that always differed."""
        self._runs += 1
        if self._runs % _RUNS_UNTIL_RETRY == 0:
            for result in self._by_buffer.values():
                result.differences = 0
            self.results.clear()
        return self.regions if self._regions is None else self._regions

    def forget(
        self,
        running: LivePlan,
        plan: LivePlan,
        before: Mapping[str, Step],
        after: Mapping[str, Step],
        removed: Iterable[str],
    ) -> None:
        """Updates the tables after steps were added or removed, or received other memory, functions or readers.

        Keeps the results that readers have seen. `removed` has the removed buffers.
        """
        for key in before.keys() | after.keys():
            self.results.pop(key, None)
            self._reads.pop(key, None)
        for version, steps in ((running, before), (plan, after)):
            for root in {root for step in steps.values() for root in roots_of(step)}:
                self.results.pop(version.producer.get(root), None)  # type: ignore[arg-type]
                self._observe_first_reader(running, root)
        for key in before.keys() - after.keys():
            self.taken.pop(key, None)
        for buffer in removed:
            self._by_buffer.pop(buffer, None)
        if self._regions is not None:
            self._regions -= before.keys()
            self._regions |= {key for key, step in after.items() if isinstance(step, RegionStep)}

    def _observe_first_reader(self, running: LivePlan, root: object) -> None:
        """Starts to observe a result that had no readers. Its first reader runs now, and sees the current bytes."""
        spec = running.buffers.get(root) if root in running.producer and root not in self._by_buffer else None  # type: ignore[call-overload]
        if spec is not None and spec.bytes <= _MAX_COMPARED:
            self._by_buffer[spec.key] = Result(spec.key)
            self._by_buffer[spec.key].before = self._memory[spec.key].tobytes()

    def close(self) -> None:
        """Clears the tables."""
        self.results.clear()
        self._reads.clear()


class Results(dict[str, list[Result]]):
    """The results of each step, computed once, because every step of every frame needs them."""

    def __init__(self, cut_off: CutOff) -> None:
        self._cut_off = cut_off

    def __missing__(self, key: str) -> list[Result]:
        results = self[key] = self._cut_off.find_results(key)
        return results

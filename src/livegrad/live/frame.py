"""The result of a frame of a live engine, as data and as text, and the error of a failed frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import RegionStep
from livegrad.live.executor import RunReport
from livegrad.live.graph.journal import describe_detail
from livegrad.live.graph.problems import GraphError, Problem
from livegrad.live.update.diff_plans import Level, StepChange


class EngineError(GraphError):
    """The running plan does not match the described graph. `problems` lists all reasons, with block and pin.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    >>> frame = engine.step()            # nothing feeds `double.x`
    >>> try:
    ...     engine.read(double)
    ... except EngineError as error:
    ...     frame.ok, error.what.splitlines()[0]
    (False, '1 problem in the graph')
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        shown = "\n  ".join(str(problem) for problem in self.problems)
        super().__init__(f"{_count_problems(self.problems)} in the graph\n  {shown}")


def _count_problems(problems: Sequence[Problem]) -> str:
    return "1 problem" if len(problems) == 1 else f"{len(problems)} problems"


class Frame:
    """The result of a frame: changes by step, why each step ran, how often each block was called, and failures.

    If steps run asynchronously, reading their outcome waits for it. Most frames are never inspected, so fields that
    follow from a report or from a hot update are computed on access.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    >>> engine.step(), engine.step()
    (<frame 1: cold, ran double>, <frame 2: none, ran nothing>)
    """

    level: Level = Level.NONE
    changes: dict[str, StepChange]
    reasons: dict[str, str]
    ran: tuple[str, ...]
    calls: Mapping[str, int]
    problems: tuple[Problem, ...] = ()
    seconds: Mapping[str, float] | None  # by step, when profiling is on
    started: Mapping[str, float] | None
    prepared: int = 0  # how many functions had to be compiled
    updating: bool = False  # edits are being compiled in the background, and the plan from before them ran
    failed: frozenset[str]  # steps that failed, and their dependents
    warnings: tuple[str, ...]
    spared: tuple[str, ...] = ()  # dependents of steps that ran, whose operands did not change
    unneeded: tuple[str, ...] = ()  # stale steps whose results only untaken branches read
    report: RunReport | None = None
    later: Callable[[], None] | None = None  # waits for the run and fills in its outcome
    because: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})  # reasons shared between frames, and specific ones
    hot_update: tuple[str, Sequence[str], object] | None = None  # the only change: a number, its readers, its detail

    def __init__(self, number: int, **fields: Any) -> None:
        self.number = number
        if fields:
            self.__dict__.update(fields)

    @property
    def ok(self) -> bool:
        """Whether the frame ran the graph as described, without problems or pending edits, and no step failed.

        It waits until the outcome of the frame is known. `problems` alone does not wait.
        """
        return not self.problems and not self.failed and not self.updating

    def __repr__(self) -> str:
        failed = f", failed {_shorten(sorted(self.failed))}" if self.failed else ""
        problems = f", {_count_problems(self.problems)}" if self.problems else ""
        ran = _shorten(self.ran) or "nothing"
        updating = ", update under way" if self.updating else ""
        return f"<frame {self.number}: {self.level.name.lower()}, ran {ran}{failed}{problems}{updating}>"


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class _ComputedField:
    """A field of a frame that is computed on first access and then stored in the frame."""

    def __init__(self, name: str, make: Callable[[Frame], Any]) -> None:
        self._name, self._make = name, make

    def __get__(self, frame: Frame | None, owner: type) -> Any:
        if frame is None:
            raise AttributeError(self._name)
        value = frame.__dict__[self._name] = self._make(frame)
        return value


def _make_outcome_getter(name: str, empty: Callable[[], Any]) -> Callable[[Frame], Any]:
    """Returns the getter of a field that the report of a run provides. Reading it waits until the run has ended."""

    def make(frame: Frame) -> Any:
        while (later := frame.later) is not None:
            later()  # a second thread waits here for the first, and then has nothing left to do
            if frame.later is later:
                frame.later = None
        return frame.__dict__[name] if name in frame.__dict__ else getattr(frame.report, name, empty())

    return make


def _make_changes(frame: Frame) -> dict[str, StepChange]:
    if frame.hot_update is None:
        return {}
    key, readers, detail = frame.hot_update
    return {reader: StepChange(reader, Level.HOT, f"{key}: {describe_detail(detail)}") for reader in readers}


def _make_reasons(frame: Frame) -> dict[str, str]:
    """The reason of each step. Specific reasons override shared ones; a hot update uses the cause of its change."""
    shared, specific = frame.because
    reasons = {**shared, **{key: reason or frame.changes[key].cause for key, reason in specific.items()}}
    for key in (*frame.spared, *frame.unneeded):
        reasons.pop(key, None)
    for key in frame.__dict__.get("ran", ()):
        reasons.setdefault(key, "the branch that was taken reads it")
    return reasons


_OUTCOMES: dict[str, Callable[[], Any]] = {
    "ran": tuple, "calls": dict, "seconds": lambda: None, "started": lambda: None, "failed": frozenset,
    "warnings": tuple,
}  # fmt: skip
for _name, _empty in _OUTCOMES.items():
    setattr(Frame, _name, _ComputedField(_name, _make_outcome_getter(_name, _empty)))
Frame.changes = _ComputedField("changes", _make_changes)  # type: ignore[assignment]
Frame.reasons = _ComputedField("reasons", _make_reasons)  # type: ignore[assignment]


def defer_fields(frame: Frame, conclude: Callable[[], None], names: Iterable[str] = _OUTCOMES) -> None:
    """Makes reading these fields of a frame call `conclude`, which fills them in."""
    for name in names:
        frame.__dict__.pop(name, None)
    frame.later = conclude


def _describe_inner_steps(frame: Frame, prefix: str) -> list[str]:
    """Describes the steps inside a region, if they were measured individually."""
    steps = [(key, seconds) for key, seconds in (frame.seconds or {}).items() if key.startswith(prefix)]
    return [f"    {key}: ran {frame.calls.get(key, 1)} times, {1e6 * seconds:.1f} µs" for key, seconds in steps]


def describe_frame(frame: Frame, plan: LivePlan | None, errors: Mapping[str, LivegradError]) -> str:
    """Describes each step of a plan on one line: its level, what it did, and why. The errors follow their steps."""
    described_errors: set[int] = set()  # dependents share the error of the failed step
    ran = "1 step" if len(frame.ran) == 1 else f"{len(frame.ran)} steps"
    lines = [f"frame {frame.number}: {frame.level.name.lower()}, {ran} ran"]
    for key in plan.in_order() if plan is not None else ():
        change = frame.changes.get(key)
        level = (change.level if change is not None else Level.NONE).name.lower()
        if key in frame.reasons:
            times = frame.calls.get(key, 1)
            seconds = "" if frame.seconds is None else f", {1e6 * frame.seconds.get(key, 0.0):.1f} µs"
            outcome = "failed" if key in frame.failed else "ran" if times == 1 else f"ran {times} times"
            lines.append(f"  {key}: {level}, {outcome}{seconds}: {frame.reasons[key]}")
            error = errors.get(key) if key in frame.failed else None
            if error is not None and id(error) not in described_errors:
                described_errors.add(id(error))
                lines.append(f"    error: {str(error).partition(chr(10))[0]}")
            if plan is not None and isinstance(plan.steps[key], RegionStep):
                lines += _describe_inner_steps(frame, f"{key}/")
        else:
            why = "no taken branch reads it" if key in frame.unneeded else "none of its inputs changed"
            lines.append(f"  {key}: {level}, skipped: {why}")
    lines += [f"  {key}: removed" for key, change in frame.changes.items() if change.cause == "removed"]
    lines += ["  an update is being compiled in the background"] * frame.updating
    lines += [f"  warning: {warning}" for warning in frame.warnings]
    lines += [f"  problem: {problem}" for problem in frame.problems]
    return "\n".join(lines)

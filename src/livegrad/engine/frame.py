"""What one frame of a live engine did, as data and as text, and the error that a frame may end in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from livegrad.engine.live_plan import LivePlan
from livegrad.engine.problems import GraphError, Problem
from livegrad.engine.update import Change, Level


class EngineError(GraphError):
    """A graph that is not running as it is described; `problems` has every reason, with its block and pin."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        shown = "\n  ".join(str(problem) for problem in self.problems)
        super().__init__(f"{len(self.problems)} problem(s) in the graph\n  {shown}")


@dataclass
class Frame:
    """What one frame did: the changes by step, why each step ran, how often each block was called, what failed."""

    number: int
    level: Level = Level.NONE
    changes: dict[str, Change] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    ran: tuple[str, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    seconds: Mapping[str, float] | None = None  # by step, when profiling is on
    started: Mapping[str, float] | None = None
    prepared: int = 0  # how many functions had to be compiled
    failed: frozenset[str] = frozenset()  # steps that did not finish, and those that wait for them
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that was wanted happened."""
        return not self.problems


def describe_frame(frame: Frame, plan: LivePlan | None) -> str:
    """Every step of a plan on a line: its level, what it did, and why."""
    lines = [f"frame {frame.number}: {frame.level.name.lower()}, {len(frame.ran)} steps ran"]
    for key in plan.steps if plan is not None else ():
        change = frame.changes.get(key)
        level = (change.level if change is not None else Level.NONE).name.lower()
        if key in frame.reasons:
            times = frame.calls.get(key, 1)
            seconds = "" if frame.seconds is None else f", {1e6 * frame.seconds.get(key, 0.0):.1f} µs"
            did = "failed" if key in frame.failed else "ran" if times == 1 else f"ran {times} times"
            lines.append(f"  {key}: {level}, {did}{seconds}: {frame.reasons[key]}")
        else:
            lines.append(f"  {key}: {level}, skipped: nothing that it reads has changed")
    lines += [f"  {key}: removed" for key, change in frame.changes.items() if change.cause == "removed"]
    lines += [f"  warning: {warning}" for warning in frame.warnings]
    lines += [f"  problem: {problem}" for problem in frame.problems]
    return "\n".join(lines)

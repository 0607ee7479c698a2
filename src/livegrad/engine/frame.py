"""What one frame of a live engine did, as data and as text, and the error that a frame may end in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from livegrad.engine.live_plan import LivePlan, RegionStep
from livegrad.engine.problems import GraphError, Problem
from livegrad.engine.update import Change, Level


class EngineError(GraphError):
    """A graph that is not running as it is described; `problems` has every reason, with its block and pin.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    >>> frame = engine.step()            # nothing feeds `double.x`
    >>> try:
    ...     engine.read(double)
    ... except EngineError as error:
    ...     frame.ok, error.what.splitlines()[0]
    (False, '1 problem(s) in the graph')
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        shown = "\n  ".join(str(problem) for problem in self.problems)
        super().__init__(f"{len(self.problems)} problem(s) in the graph\n  {shown}")


@dataclass
class Frame:
    """What one frame did: the changes by step, why each step ran, how often each block was called, what failed.

    Where steps run while the host goes on, whoever looks at what became of them waits until it is known.

    >>> import livegrad as lg
    >>> engine = lg.Engine()
    >>> double = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    >>> engine.step(), engine.step()
    (<frame 1: cold, ran double>, <frame 2: none, ran nothing>)
    """

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
    later: Callable[[], None] | None = field(default=None, repr=False, compare=False)  # fills in what is not known yet

    @property
    def ok(self) -> bool:
        """Whether everything that was wanted happened."""
        return not self.problems

    def __repr__(self) -> str:
        ran = ", ".join(self.ran[:8]) + (f" and {len(self.ran) - 8} more" if len(self.ran) > 8 else "")
        problems = f", {len(self.problems)} problems" if self.problems else ""
        return f"<frame {self.number}: {self.level.name.lower()}, ran {ran or 'nothing'}{problems}>"


_OUTCOMES = ("ran", "calls", "seconds", "started", "failed", "warnings")


class _Outcome:
    """What a field of a frame is while it is not known: whoever looks waits. Known ones are the frame's own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, frame: Frame | None, owner: type) -> Any:
        if frame is None:
            raise AttributeError(self._name)
        while frame.later is not None:
            settle, frame.later = frame.later, None
            settle()
        return frame.__dict__[self._name]


class _Reasons:
    """The reasons of a frame, put together when someone looks."""

    def __get__(self, frame: Frame | None, owner: type) -> Any:
        if frame is None:
            raise AttributeError("reasons")
        shared, own = frame.__dict__.pop("because")
        made = {**shared, **{key: reason or frame.changes[key].cause for key, reason in own.items()}}
        frame.__dict__["reasons"] = made
        return made


class _Changes:
    """The changes of a frame in which a knob was turned, and nothing else: most frames' changes are never looked at."""

    def __get__(self, frame: Frame | None, owner: type) -> Any:
        if frame is None:
            raise AttributeError("changes")
        key, readers, turn = frame.__dict__.pop("turned")
        cause = f"{key}: {turn}"
        frame.__dict__["changes"] = made = {reader: Change(reader, Level.HOT, cause) for reader in readers}
        return made


for _name in _OUTCOMES:
    setattr(Frame, _name, _Outcome(_name))
Frame.reasons = _Reasons()  # type: ignore[assignment]
Frame.changes = _Changes()  # type: ignore[assignment]


def note_turn(frame: Frame, key: str, readers: Sequence[str], turn: object) -> None:
    """Says that all that happened is a hot change of one number."""
    del frame.__dict__["changes"]
    frame.__dict__["turned"] = key, readers, turn
    frame.level = Level.HOT


def postpone(frame: Frame, settle: Callable[[], None], names: Sequence[str] = _OUTCOMES) -> None:
    """Makes whoever looks at these fields of a frame wait for `settle`, which fills them in."""
    for name in names:
        del frame.__dict__[name]
    frame.later = settle


def give_reasons(frame: Frame, shared: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Why steps run: reasons that other frames have too, and those of this one, which count more."""
    del frame.__dict__["reasons"]
    frame.__dict__["because"] = shared, own


def _inside(frame: Frame, prefix: str) -> list[str]:
    """The steps inside of a region, when they were measured one by one."""
    found = [(key, own) for key, own in (frame.seconds or {}).items() if key.startswith(prefix)]
    return [f"    {key}: ran {frame.calls.get(key, 1)} times, {1e6 * own:.1f} µs" for key, own in found]


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
            if plan is not None and isinstance(plan.steps[key], RegionStep):
                lines += _inside(frame, f"{key}/")
        else:
            lines.append(f"  {key}: {level}, skipped: nothing that it reads has changed")
    lines += [f"  {key}: removed" for key, change in frame.changes.items() if change.cause == "removed"]
    lines += [f"  warning: {warning}" for warning in frame.warnings]
    lines += [f"  problem: {problem}" for problem in frame.problems]
    return "\n".join(lines)

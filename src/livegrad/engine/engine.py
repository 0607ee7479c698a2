"""The live engine: holds a description, keeps a plan of it running, and applies whatever changed, once a frame.

Users make an `Engine`, add blocks, connect them, and call `step` and `read`. A frame takes the journal, brings the
running plan up to the wanted one at the cheapest level that is correct, and runs the steps that are stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Literal

from livegrad.diagnostics import LivegradError, UsageError, caller_origin
from livegrad.engine.compile import Compilation, compile_graph
from livegrad.engine.cpu_executor import CpuExecutor
from livegrad.engine.executor import Executable, Executor, RunReport
from livegrad.engine.flatten import find_block
from livegrad.engine.graph import (
    Block,
    Composite,
    ExternalBuffer,
    Graph,
    Numbers,
    Pin,
    Setting,
    State,
    only_output,
    same_value,
)
from livegrad.engine.journal import Entry
from livegrad.engine.live_plan import BlockStep, LivePlan, operand_key
from livegrad.engine.problems import GraphError, Problem
from livegrad.engine.regions import Region
from livegrad.engine.replan import replan
from livegrad.engine.update import Change, Level, diff_plans, diff_step
from livegrad.engine.wire import parameter_value
from livegrad.ops.context import FeatureLevel, parse_feature

EXECUTORS: dict[str, Callable[[], Executor]] = {"cpu": CpuExecutor}


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
    seconds: Mapping[str, float] | None = None
    prepared: int = 0  # how many functions had to be compiled

    @property
    def ok(self) -> bool:
        """Whether everything that was wanted happened."""
        return not self.problems


class Engine:
    """Runs a live graph.

    >>> from livegrad.authoring.block import block
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

    def __init__(self, backend: str | Executor = "cpu", *, reuse_memory: bool = False) -> None:
        if isinstance(backend, str):
            maker = EXECUTORS.get(backend)
            if maker is None:
                raise UsageError(
                    f"there is no backend `{backend}`", where=caller_origin(), expected="one of " + ", ".join(EXECUTORS)
                )
            backend = maker()
        self.executor: Executor = backend
        self.graph = Graph()
        self.profiling: Literal["off", "block"] = "off"
        self.frame = Frame(0)
        self._reuse_memory = reuse_memory
        self._kept: set[str] = set()
        self._compilation: Compilation | None = None
        self._running: Executable | None = None
        self._wanted_features: dict[FeatureLevel, Any] = {}
        self._features: dict[FeatureLevel, Any] = {}
        self._versions: dict[str, int | None] = {}  # of external buffers, when their readers last ran
        self._stale: dict[str, str] = {}  # steps that must run, with the reason
        self._overwritten: dict[int, str] = {}  # slot → the buffer whose contents it has
        self._problems: tuple[Problem, ...] = ()
        self._failed: dict[str, LivegradError] = {}

    # --- describing ---

    def add(self, block: Block) -> Block:
        """Adds a block (also a `State`, a `Composite` or a region)."""
        return self.graph.add(block)

    def remove(self, block: Block) -> None:
        """Removes a block and what was connected to it."""
        self.graph.remove(block)

    def connect(self, source: Pin | Block, target: Pin) -> None:
        """Feeds an input with an output."""
        self.graph.connect(source, target)

    def disconnect(self, target: Pin) -> None:
        """Takes away what feeds an input."""
        self.graph.disconnect(target)

    def set(self, target: Pin, value: Any) -> None:
        """Gives an input a value: a number is a live parameter, an array is copied."""
        self.graph.set(target, value)

    def bind(self, target: Pin, external: ExternalBuffer | Numbers) -> ExternalBuffer:
        """Lets an input read memory that belongs to someone else; stale every frame unless it has a version."""
        return self.graph.bind(target, external)

    def set_feature(self, feature: str, value: Any) -> None:
        """Gives a feature of the context a value: exactly the steps that read it become stale."""
        level = parse_feature(feature)
        self._wanted_features[level] = value
        self.graph.journal.write("feature", level, repr(value))

    def keep(self, pin: Pin | Block) -> None:
        """Says that an output will be read: its memory is shared with nothing."""
        self._kept.add(self._buffer_key(only_output(pin)))
        self.graph.journal.write("structure", only_output(pin).block.name, "kept")

    def reset(self, state: State) -> None:
        """Gives a state its initial value again, from the next frame on."""
        self.graph.journal.write("reset", state, "reset")

    # --- running ---

    def step(self) -> Frame:
        """One frame: applies all changes, runs what is stale, lets states advance. Errors are in the frame."""
        frame = self.frame = Frame(self.frame.number + 1)
        entries = self.graph.journal.take()
        if self._apply(entries, frame) and self._running is not None:
            self._mark_memory_from_outside()
            report = self._run(frame)
            if not report.failures and self._running.plan.states:
                self._advance()
        frame.problems = self._problems
        return frame

    def _apply(self, entries: list[Entry], frame: Frame) -> bool:
        """Brings the running plan up to date, or leaves it as it is; says whether there is one to run."""
        numbers = [entry for entry in entries if self._changes_no_plan(entry)]
        others = [entry for entry in entries if not self._changes_no_plan(entry)]
        if others or self._running is None:
            try:
                self._replan(others, frame)
            except EngineError as error:
                self.graph.journal.put_back(others)
                self._report(error.problems)
                if self._running is None:
                    self.graph.journal.put_back(numbers)
                    return False
            else:
                self._report(())
        self._apply_numbers(numbers, frame)
        return True

    def _changes_no_plan(self, entry: Entry) -> bool:
        """Whether an edit is of values only; a number in place of a default of the same type is one too."""
        if entry.kind != "rebind" or self._running is None:
            return entry.kind in ("value", "feature", "reset")
        place = find_block(self.graph, entry.subject.block)
        source = None if place is None else place[0].sources.get(entry.subject)
        if place is None or not isinstance(source, Setting):
            return False
        before = self._running.plan.parameters.get(f"{place[1]}.{entry.subject.name}")
        return before is not None and source.is_number and type(before) is type(source.value)

    def _replan(self, entries: list[Entry], frame: Frame) -> None:
        """Structure, code and bindings: the wanted plan is made, compiled, compared and put in place."""
        running, known = self._running, self._compilation
        named = _named_nodes(entries)
        if running is None or known is None or known.plan is None or named is None or self._reuse_memory:
            compilation = compile_graph(self.graph, self._reuse_memory, frozenset(self._kept))
            names: Iterable[str] | None = None
        else:
            compilation, names = replan(self.graph, known, running.plan, named)
        plan = compilation.plan
        if plan is None:
            raise EngineError(compilation.problems)
        changes = _diff(running, plan, names)
        codes = self._prepare(running, plan, changes, compilation, frame)
        self._install(plan, changes, codes, frame)
        self._compilation = compilation
        frame.changes.update(changes)
        frame.level = max([frame.level, *(change.level for change in changes.values())])

    def _prepare(
        self, running: Executable | None, plan: LivePlan, changes: Mapping[str, Change], made: Compilation, frame: Frame
    ) -> dict[str, Any]:
        """Compiles what is new, before anything is touched; an error goes to the block that it is about."""
        codes: dict[str, Any] = {}
        problems = []
        cold = _must_build(running, plan, changes)
        blocks = {node.key: node.block for node in made.network.all_nodes()}
        before = {} if running is None else {step.key: step for step in _steps_of(running.plan, None)}
        for step in _steps_of(plan, None if cold else changes):
            old = before.get(step.key)
            try:
                codes[step.key] = self.executor.prepare(step)
            except LivegradError as error:
                problems.append(Problem(step.key, blocks[step.key], None, error))
            frame.prepared += old is None or (old.function, old.sizes) != (step.function, step.sizes)
        if problems:
            raise EngineError(problems)
        return codes

    def _install(self, plan: LivePlan, changes: dict[str, Change], codes: dict[str, Any], frame: Frame) -> None:
        running = self._running
        if running is None or _must_build(running, plan, changes):
            fresh = self.executor.build(plan, codes, self._features, running)
            self._running = fresh
            self._failed = {key: error for key, error in self._failed.items() if key in plan.steps}
            self._stale = {key: reason for key, reason in self._stale.items() if key in plan.steps}
            if running is not None:
                running.close()
            if self._reuse_memory:
                self._stale |= dict.fromkeys(plan.steps, "the graph was built anew")
                self._overwritten.clear()
        else:
            running.update(plan, codes, [key for key in changes if key in plan.steps])
        for key, change in changes.items():
            if key in plan.steps:
                self._stale[key] = change.cause
        self._versions = {key: self._versions.get(key) for key in plan.bindings}

    def _apply_numbers(self, entries: list[Entry], frame: Frame) -> None:
        """Numbers, contents, features and resets: no plan changes, only what is in it."""
        for entry in entries:
            if entry.kind == "feature":
                self._apply_feature(entry, frame)
            elif entry.kind == "value":
                self._apply_value(entry, frame)
            else:
                self._apply_reset(entry.subject)

    def _apply_feature(self, entry: Entry, frame: Frame) -> None:
        assert self._running is not None
        feature, value = entry.subject, self._wanted_features[entry.subject]
        before = self._features.get(feature)
        if before is not None and type(before) is type(value) and before == value:
            return
        self._features[feature] = value
        self._running.set_feature(feature, value)
        for key in self._running.plan.readers.get(feature, ()):
            self._touch(key, Level.HOT, f"feature {feature}: {before} → {value}", frame)

    def _apply_value(self, entry: Entry, frame: Frame) -> None:
        assert self._running is not None
        plan, pin = self._running.plan, entry.subject
        place = find_block(self.graph, pin.block)
        source = None if place is None else place[0].sources.get(pin)
        if place is None or not isinstance(source, Setting):
            return  # removed, or replaced since by something that the plan was made with
        key = f"{place[1]}.{pin.name}"
        if key in plan.parameters and source.is_number:
            if same_value(plan.parameters[key], source.value):
                return
            operands = {o for r in plan.readers[key] for o in plan.steps[r].all_operands() if operand_key(o) == key}
            try:
                for operand in operands:
                    parameter_value(source.value, operand.type, key)
            except LivegradError as error:
                self._report([*self._problems, Problem(place[1], pin.block, pin.name, error)])
                self.graph.journal.put_back([entry])
                return
            plan.parameters[key] = source.value  # type: ignore[index]
            self._running.set_parameter(key, source.value)
            level = Level.HOT
        elif key in plan.contents and not source.is_number and plan.buffers[key].type is source.given.type:
            if plan.contents[key] is source.value:
                return
            plan.contents[key] = source.value  # type: ignore[index]
            self._running.write(key, source.value)
            level = Level.NONE
        else:
            return  # of another type than what runs: part of an update that is due
        for reader in plan.readers[key]:
            self._touch(reader, level, f"{key}: {entry.detail}", frame)

    def _apply_reset(self, state: State) -> None:
        assert self._running is not None
        place = find_block(self.graph, state)
        for spec in self._running.plan.states:
            if place is not None and spec.key == place[1]:
                self._running.write(spec.value, state.initial)
                self._stale |= dict.fromkeys(self._running.plan.readers.get(spec.value, ()), f"{spec.key} was reset")

    def _touch(self, key: str, level: Level, cause: str, frame: Frame) -> None:
        known = frame.changes.get(key)
        if known is not None:
            level, cause = max(level, known.level), cause if known.cause == cause else f"{known.cause}; {cause}"
        frame.changes[key] = Change(key, level, cause)
        frame.level = max(frame.level, level)
        self._stale[key] = cause

    # --- staleness ---

    def _mark_memory_from_outside(self) -> None:
        """External memory without a version may have changed; with one, it has when the version has."""
        assert self._running is not None
        plan = self._running.plan
        for key, external in plan.bindings.items():
            if external.version is None or external.version != self._versions.get(key):
                self._versions[key] = external.version
                reason = f"{key} may have changed" if external.version is None else f"{key} was touched"
                for reader in plan.readers.get(key, ()):
                    self._stale.setdefault(reader, reason)

    def _stale_steps(self, plan: LivePlan) -> dict[str, str]:
        """The stale steps and everything below them, in order, each with the reason."""
        reasons = dict(self._stale)
        position = plan.position
        waiting = [(position[key], key) for key in reasons]
        heapify(waiting)
        ordered: dict[str, str] = {}
        while waiting:
            _, key = heappop(waiting)
            if key in ordered:
                continue
            ordered[key] = reasons[key]
            for source in self._lost_producers(plan, key):
                if source not in reasons:
                    reasons[source] = f"{key} reads it, and its memory was used again"
                    heappush(waiting, (position[source], source))
            for consumer in plan.consumers[key]:
                if consumer not in reasons:
                    reasons[consumer] = f"reads {key}, which ran"
                    heappush(waiting, (position[consumer], consumer))
        if plan.places:
            return {key: reasons[key] for key in sorted(ordered, key=position.__getitem__)}
        return ordered

    def _lost_producers(self, plan: LivePlan, key: str) -> Iterable[str]:
        """The steps whose results this one reads, and which are no longer there because memory is shared."""
        if not plan.places:
            return
        for operand in plan.steps[key].all_operands():
            name = str(operand_key(operand))
            place = plan.places.get(name)
            if place is not None and self._overwritten.get(place) != name:
                yield plan.producer[name]

    def _run(self, frame: Frame) -> RunReport:
        assert self._running is not None
        plan = self._running.plan
        reasons = self._stale_steps(plan)
        report = self._running.run(list(reasons), profile=self.profiling != "off")
        for key in report.ran:
            self._stale.pop(key, None)
            self._failed.pop(key, None)
        self._remember_contents(plan, report)
        if len(report.ran) != len(reasons):
            done = set(report.ran)
            self._stale |= {key: reason for key, reason in reasons.items() if key not in done}
            failed = {failure.step: failure.error for failure in report.failures}
            self._failed |= {key: failed.get(key, report.failures[0].error) for key in reasons if key not in done}
        frame.ran, frame.calls, frame.reasons = report.ran, report.calls, reasons
        frame.seconds = report.seconds
        self._tell_blocks(report)
        return report

    def _remember_contents(self, plan: LivePlan, report: RunReport) -> None:
        """Which buffer each piece of shared memory now holds; after a failure, which may have left half of it, none."""
        if not plan.places:
            return
        for key in report.ran:
            self._overwritten |= {plan.places[b]: b for b in plan.steps[key].results if b in plan.places}
        for failure in report.failures:
            for buffer in plan.steps[failure.step].results:
                self._overwritten.pop(plan.places.get(buffer, -1), None)

    def _advance(self) -> None:
        assert self._running is not None
        self._running.advance()
        plan = self._running.plan
        for state in plan.states:
            for reader in plan.readers.get(state.value, ()):
                self._stale.setdefault(reader, f"reads the state {state.key}")

    # --- reading ---

    def read(self, pin: Pin | Block, *, running: bool = False) -> Numbers:
        """The value of an output after the last frame, as a copy.

        Raises if the graph does not run as it is described; `running=True` gives what the graph that runs on has.
        """
        own = only_output(pin)
        if self._running is None or (self._problems and not running):
            raise (
                EngineError(self._problems)
                if self._problems
                else UsageError(f"`{own}` has no value yet", where=caller_origin(), help="call step() first")
            )
        key = self._buffer_key(own)
        plan = self._running.plan
        producer = plan.producer.get(key)
        if key not in plan.buffers:
            raise UsageError(f"`{own}` has no value yet", where=caller_origin(), help="call step() first")
        if producer in self._failed:
            raise self._failed[producer]
        place = plan.places.get(key)
        if place is not None and self._overwritten.get(place) != key and producer is not None:
            self._restore(plan, producer)
        return self._running.read(key)

    def _restore(self, plan: LivePlan, target: str) -> None:
        """Computes a result whose bytes were used again, and what it needs of the same kind."""
        assert self._running is not None
        needed = {target}
        grown = True
        while grown:
            written = {plan.places[b]: b for key in needed for b in plan.steps[key].results if b in plan.places}
            reads = {str(operand_key(o)) for key in needed for o in plan.steps[key].all_operands()}
            lost = {
                plan.producer[name]
                for name in reads & plan.places.keys()
                # Gone already, or about to be overwritten by another of those that run now.
                if self._overwritten.get(plan.places[name]) != name or written.get(plan.places[name], name) != name
            }
            grown = not lost <= needed
            needed |= lost
        report = self._running.run(sorted(needed, key=plan.position.__getitem__))
        self._remember_contents(plan, report)
        if report.failures:
            raise report.failures[0].error

    def explain(self) -> str:
        """What happened to every step in the last frame, at which level, and why."""
        frame, running = self.frame, self._running
        lines = [f"frame {frame.number}: {frame.level.name.lower()}, {len(frame.ran)} steps ran"]
        for key in running.plan.steps if running is not None else ():
            change = frame.changes.get(key)
            level = (change.level if change is not None else Level.NONE).name.lower()
            if key in frame.reasons:
                times = frame.calls.get(key, 1)
                seconds = "" if frame.seconds is None else f", {1e6 * frame.seconds.get(key, 0.0):.1f} µs"
                did = "failed" if key in self._failed else "ran" if times == 1 else f"ran {times} times"
                lines.append(f"  {key}: {level}, {did}{seconds}: {frame.reasons[key]}")
            else:
                lines.append(f"  {key}: {level}, skipped: nothing that it reads has changed")
        lines += [f"  {key}: removed" for key, change in frame.changes.items() if change.cause == "removed"]
        lines += [f"  problem: {problem}" for problem in frame.problems]
        return "\n".join(lines)

    @property
    def plan(self) -> LivePlan | None:
        """The plan that runs."""
        return None if self._running is None else self._running.plan

    def close(self) -> None:
        """Gives back all memory."""
        if self._running is not None:
            self._running.close()
            self._running = None

    # --- blocks and their keys ---

    def edit(self, block: Block, body: Any) -> None:
        """Gives a block another body: a change of code when its pins stay the same."""
        self.graph_of(block).edit(block, body)

    def graph_of(self, block: Block) -> Graph:
        """The graph that a block is in: the engine's own, or one inside of a composite."""
        return self._place(block)[0]

    def _place(self, block: Block) -> tuple[Graph, str]:
        found = find_block(self.graph, block)
        if found is None:
            raise UsageError(f"block `{block.name}` is not in this engine", where=caller_origin())
        return found

    def _buffer_key(self, pin: Pin) -> str:
        """The buffer behind an output; a composite's is that of the block inside."""
        while isinstance(pin.block, Composite) and not isinstance(pin.block, Region):
            pin = pin.block.inner_outputs[pin.name]
        return f"{self._place(pin.block)[1]}.{pin.name}"

    def _report(self, problems: Sequence[Problem]) -> None:
        for problem in self._problems:
            problem.block.debug.errors = []
        self._problems = tuple(problems)
        for problem in problems:
            problem.block.debug.errors = [*problem.block.debug.errors, problem.error]
            problem.block.debug.state = "failed"

    def _tell_blocks(self, report: RunReport) -> None:
        assert self._compilation is not None
        nodes = self._compilation.network.nodes
        for key in report.ran:
            debug = nodes[key].block.debug
            debug.runs += 1
            if debug.state != "running" and not self._problems:
                debug.state, debug.errors = "running", []
            if report.seconds is not None:
                debug.seconds = report.seconds[key]
        for failure in report.failures:
            debug = nodes[failure.step].block.debug
            debug.state, debug.errors = "failed", [failure.error]


def _named_nodes(entries: Iterable[Entry]) -> list[Block] | None:
    """The blocks that edits name, when none of the edits changes the structure."""
    named = []
    for entry in entries:
        if entry.kind == "structure":
            return None
        named.append(entry.subject.block if isinstance(entry.subject, Pin) else entry.subject)
    return named


def _diff(running: Executable | None, plan: LivePlan, names: Iterable[str] | None) -> dict[str, Change]:
    if running is None:
        return {key: Change(key, Level.COLD, "added") for key in plan.steps}
    if names is None:
        return diff_plans(running.plan, plan)
    found = [diff_step(running.plan, plan, key) for key in names]
    return {change.step: change for change in found if change.cause}


def _must_build(running: Executable | None, plan: LivePlan, changes: Mapping[str, Change]) -> bool:
    """Whether the plan needs an executable of its own: other steps or edges, or memory that is shared otherwise."""
    if running is None or any(change.level is Level.COLD for change in changes.values()):
        return True
    shared = plan.places or running.plan.places
    return bool(shared) and (bool(changes) or (plan.places, plan.slots) != (running.plan.places, running.plan.slots))


def _steps_of(plan: LivePlan, changes: Mapping[str, Change] | None) -> Iterable[BlockStep]:
    """The calls in all steps, or in those that changed."""
    for key in plan.steps if changes is None else changes:
        if key in plan.steps:
            yield from plan.steps[key].block_steps()

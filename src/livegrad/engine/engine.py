"""The live engine: holds a description, keeps a plan of it running, and applies whatever changed, once a frame.

Users make an `Engine`, add blocks, connect them, and call `step` and `read`. A frame takes the journal, brings the
running plan up to the wanted one at the cheapest level that is correct, and runs the steps that are stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from livegrad.diagnostics import LivegradError, UsageError, caller_origin
from livegrad.engine.compile import Compilation, compile_graph
from livegrad.engine.cpu_executor import CpuExecutor
from livegrad.engine.executor import Executable, Executor, RunReport
from livegrad.engine.flatten import find_block
from livegrad.engine.frame import EngineError, Frame, describe_frame
from livegrad.engine.graph import AnyBlock, Block, Composite, Graph, Pin, State, only_output
from livegrad.engine.journal import Entry
from livegrad.engine.live_plan import BlockStep, LivePlan, operand_key
from livegrad.engine.problems import Problem
from livegrad.engine.propagate import parameter_value
from livegrad.engine.regions import Region
from livegrad.engine.replan import replan
from livegrad.engine.sources import ExternalBuffer, Numbers, Setting, same_value
from livegrad.engine.stale import stale_steps, steps_to_restore
from livegrad.engine.update import Change, Level, find_changes, must_build
from livegrad.ops.context import FeatureLevel, parse_feature

EXECUTORS: dict[str, Callable[[], Executor]] = {"cpu": CpuExecutor}


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
        self.before_frame: list[Callable[[], None]] = []  # called first in each: watched files make their edits here
        self._reuse_memory = reuse_memory
        self._kept: set[str] = set()
        self._compilation: Compilation | None = None
        self._running: Executable | None = None
        self._wanted_features: dict[FeatureLevel, Any] = {}
        self._features: dict[FeatureLevel, Any] = {}
        self._versions: dict[str, int | None] = {}  # of external buffers, when their readers last ran
        self._stale: dict[str, str] = {}  # steps that must run, with the reason
        self._overwritten: dict[int, str] = {}  # slot → the buffer whose contents it has
        self._problems: tuple[Problem, ...] = ()  # all that keeps the graph from running as it is described:
        self._plan_problems: tuple[Problem, ...] = ()  # what the compiler found
        self._number_problems: dict[str, Problem] = {}  # and numbers that do not fit, by pin
        self._failed: dict[str, LivegradError] = {}

    # --- describing ---

    def add(self, block: AnyBlock) -> AnyBlock:
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
        for prepare in self.before_frame:
            prepare()
        entries = self.graph.journal.take()
        if self._apply(entries, frame) and self._running is not None:
            self._mark_memory_from_outside()
            report = self._run(frame)
            if not report.failures and self._running.plan.states:
                self._advance()
        frame.problems = self._problems
        frame.failed = frozenset(self._failed)
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
                self._plan_problems = error.problems
                if self._running is None:
                    self.graph.journal.put_back(numbers)
                    self._report()
                    return False
            else:
                self._plan_problems = ()
        self._apply_numbers(numbers, frame)
        self._report()
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
        changes = find_changes(None if running is None else running.plan, plan, names)
        codes = self._prepare(running, plan, changes, compilation, frame)
        self._install(plan, changes, codes, frame)
        self._compilation = compilation
        # Where steps were made anew, they were made with the numbers as they are now.
        renewed = None if names is None else set(names)
        for key, problem in list(self._number_problems.items()):
            if renewed is None or problem.node in renewed:
                del self._number_problems[key]
        frame.changes.update(changes)
        frame.level = max([frame.level, *(change.level for change in changes.values())])

    def _prepare(
        self, running: Executable | None, plan: LivePlan, changes: Mapping[str, Change], made: Compilation, frame: Frame
    ) -> dict[str, Any]:
        """Compiles what is new, before anything is touched; an error goes to the block that it is about."""
        codes: dict[str, Any] = {}
        problems = []
        cold = must_build(None if running is None else running.plan, plan, changes)
        which = None if cold else changes
        before = {} if running is None else {step.key: step for step in _steps_of(running.plan, which)}
        for step in _steps_of(plan, which):
            old = before.get(step.key)
            try:
                codes[step.key] = self.executor.prepare(step)
            except LivegradError as error:
                owner = next(node.block for node in made.network.all_nodes() if node.key == step.key)
                problems.append(Problem(step.key, owner, None, error))
            frame.prepared += old is None or (old.function, old.sizes) != (step.function, step.sizes)
        if problems:
            raise EngineError(problems)
        return codes

    def _install(self, plan: LivePlan, changes: dict[str, Change], codes: dict[str, Any], frame: Frame) -> None:
        running = self._running
        if running is None or must_build(None if running is None else running.plan, plan, changes):
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
            elif entry.kind == "reset":
                self._apply_reset(entry.subject)
            else:
                self._apply_value(entry, frame)

    def _apply_feature(self, entry: Entry, frame: Frame) -> None:
        assert self._running is not None
        feature, value = entry.subject, self._wanted_features[entry.subject]
        before = self._features.get(feature)
        if before is not None and type(before) is type(value) and same_value(before, value):
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
        self._number_problems.pop(key, None)
        if key in plan.parameters and source.is_number:
            if same_value(plan.parameters[key], source.value):
                return
            operands = {o for r in plan.readers[key] for o in plan.steps[r].all_operands() if operand_key(o) == key}
            try:
                for operand in operands:
                    parameter_value(source.value, operand.type, key)
            except LivegradError as error:
                self._number_problems[key] = Problem(place[1], pin.block, pin.name, error)
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

    def _run(self, frame: Frame) -> RunReport:
        assert self._running is not None
        plan = self._running.plan
        reasons = stale_steps(plan, self._stale, self._overwritten)
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
        frame.seconds, frame.started = report.seconds, report.started
        self._tell_blocks(report, frame)
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
        """Computes a result whose bytes were used again."""
        assert self._running is not None
        report = self._running.run(steps_to_restore(plan, target, self._overwritten))
        self._remember_contents(plan, report)
        if report.failures:
            raise report.failures[0].error

    def explain(self) -> str:
        """What happened to every step in the last frame, at which level, and why."""
        return describe_frame(self.frame, self.plan)

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

    def _report(self) -> None:
        """Tells blocks of their problems, and those that have none any more."""
        known = {(problem.node, problem.pin) for problem in self._plan_problems}
        others = [p for p in self._number_problems.values() if (p.node, p.pin) not in known]
        problems = (*self._plan_problems, *others)
        if problems == self._problems:
            return
        for problem in self._problems:
            problem.block.debug.errors, problem.block.debug.state = [], "running"
        self._problems = problems
        for problem in problems:
            problem.block.debug.errors = [*problem.block.debug.errors, problem.error]
            problem.block.debug.state = "failed"

    def _tell_blocks(self, report: RunReport, frame: Frame) -> None:
        assert self._compilation is not None
        assert self._running is not None
        nodes = self._compilation.network.nodes
        for key in report.ran:
            debug = nodes[key].block.debug
            debug.runs += 1
            if debug.state != "running" and not self._problems:
                debug.state, debug.errors = "running", []
            if report.seconds is not None:
                debug.seconds = report.seconds[key]
            for name, most in nodes[key].block.limits.items():
                found = int(self._running.read(f"{key}.{name}"))
                debug.warnings = [f"{key}: {found} elements, room for {most}"] if found > most else []
                frame.warnings += tuple(debug.warnings)
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


def _steps_of(plan: LivePlan, changes: Mapping[str, Change] | None) -> Iterable[BlockStep]:
    """The calls in all steps, or in those that changed."""
    for key in plan.steps if changes is None else changes:
        if key in plan.steps:
            yield from plan.steps[key].block_steps()

"""Applies the edits of a frame to the running plan, each at the cheapest correct level.

In: entries of the journal. Out: a new plan that is compiled, compared with the running plan and put in place, and
updated numbers; or problems, with nothing changed. Called by `Engine.step` before the frame runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.flatten import find_keys
from livegrad.live.compile.graph_compiler import Compilation, compile_graph
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import BlockStep, buffers_around
from livegrad.live.executor import Executable, Executor, StepError
from livegrad.live.frame import EngineError, Frame
from livegrad.live.graph.block import Block
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import Detail, Entry
from livegrad.live.graph.keys import pin_key
from livegrad.live.graph.problems import Problem
from livegrad.live.graph.sources import Numbers, Setting
from livegrad.live.runtime import Runtime
from livegrad.live.transaction import restore_entry
from livegrad.live.update.apply_values import ValueApplier
from livegrad.live.update.background import BackgroundCompiler
from livegrad.live.update.diff_plans import Level, StepChange, find_changes, must_build
from livegrad.live.update.hot_parameters import HotParameter, HotParameters
from livegrad.live.update.replan import commit, replan
from livegrad.live.update.swap_code import find_swap
from livegrad.ops.context import FeatureLevel


class Applier(ValueApplier):
    """Applies the edits of a graph to the running plan of a run time."""

    def __init__(self, graph: Graph, executor: Executor, runtime: Runtime, reuse_memory: bool) -> None:
        self._graph, self._executor, self._runtime = graph, executor, runtime
        self._transaction = runtime.transaction
        self.reuse_memory = reuse_memory
        self.kept: set[str] = set()  # buffers that must not share memory
        self.wanted_features: dict[FeatureLevel, Any] = {}
        self._features: dict[FeatureLevel, Any] = {}
        runtime.features = self._features
        self._plan_problems: tuple[Problem, ...] = ()  # from the compiler
        self._number_problems: dict[str, Problem] = {}  # of numbers that do not fit, by key
        self._rejected: Sequence[Entry] = ()  # edits that the compiler rejected; they stay in the journal
        self.background: BackgroundCompiler | None = None
        self.is_settling = False  # the frame compiles, and waits
        self._hot_parameters = HotParameters()
        self.find_hot_update = self._hot_parameters.find_update

    def apply_hot_update(self, parameter: HotParameter, value: float, detail: Detail, frame: Frame) -> None:
        """Runs a frame whose only change is a hot parameter."""
        parameters, key = parameter.parameters, parameter.key
        self._transaction.undo_log.append((restore_entry, parameters, key, parameters[key]))  # `set_entry`, inlined
        parameters[key] = value
        parameter.put(value)
        frame.level = Level.HOT
        frame.hot_update = parameter.key, parameter.readers, detail
        self._runtime.run_hot_update(frame, parameter)

    def recover(self) -> None:
        """Rebuilds the executable that ran before an interrupted frame, from its plan and the values of its states."""
        runtime = self._runtime
        self._rejected = ()
        self._hot_parameters.forget()
        runtime.roll_back()
        if runtime.compilation is None or runtime.compilation.plan is None:
            return
        plan = runtime.compilation.plan
        codes = {step.key: self._executor.prepare(step) for step in _steps_of(plan, None)}
        runtime.resume(self._executor.build(plan, codes, self._features, None))

    def apply(self, entries: list[Entry], frame: Frame) -> list[Entry]:
        """Updates the running plan, or leaves it unchanged. Returns the edits that stay pending."""
        self._runtime.is_quiet = False
        if entries is self._rejected:
            return entries  # the compiler would reject them again
        entries = [entry for entry in entries if entry.kind != "state" or find_keys(self._graph, entry.subject.state)]
        numbers: list[Entry] = []
        others: list[Entry] = []
        for entry in entries:
            (numbers if self._keeps_plan(entry) else others).append(entry)
        pending: list[Entry] = []
        problems: tuple[Problem, ...] = ()
        self._rejected = ()
        if others and self._must_wait(others):
            frame.updating = True
            problems, pending = self._plan_problems, [*others, *self._waiting_states(numbers)]
        elif others or self._runtime.executable is None:
            try:
                if not (len(others) == 1 and others[0].kind == "code" and self._swap(others[0].subject, frame)):
                    self._replan(others, frame)
            except EngineError as error:
                problems = error.problems
                pending = entries if self._runtime.executable is None else [*others, *self._waiting_states(numbers)]
                if error.__cause__ is None:  # a failed installation is retried, because memory may be free by then
                    self._rejected = pending
        self._set_attribute("_plan_problems", problems)
        if self._runtime.executable is not None:
            self._apply_numbers(numbers, frame)
        self._report()
        return pending

    def _keeps_plan(self, entry: Entry) -> bool:
        """Whether an edit only changes values, such as a number that replaces a default of the same type.

        Numbers in a captured library call are part of the plan: changing one requires another capture.
        """
        if entry.kind not in ("rebind", "value") or self._runtime.executable is None:
            return entry.kind in ("value", "feature", "state")
        if entry.kind == "value" and not self._runtime.executable.plan.captured:
            return True
        plan, pin = self._runtime.executable.plan, entry.subject
        source = None if pin.block.home is None else pin.block.home.sources.get(pin)
        nodes = find_keys(self._graph, pin.block)
        if len(nodes) > 1:  # uses that do not run yet will be compiled with the current value
            nodes = [node for node in nodes if self._is_running(node)] or nodes
        keys = [pin_key(node, pin.name) for node in nodes]
        if not keys or not isinstance(source, Setting):
            return False
        for key in keys:
            before = plan.parameters.get(key)
            if plan.is_captured(key):
                if before is not None or not (entry.kind == "value" or source.is_number):
                    return False
            elif entry.kind != "value" and not (
                type(before) is type(source.value) and self._replaces_running_value(key, pin, source)
            ):
                return False
        return True

    def _is_running(self, key: str) -> bool:
        """Whether the running plan has a node with this key, or inside it."""
        compilation = self._runtime.compilation
        nodes = () if compilation is None else compilation.network.all_nodes()
        return any(node.key == key or node.key.startswith(f"{key}/") for node in nodes)

    def _swap(self, block: Block, frame: Frame) -> bool:
        """Code: replaces the function of a block. Returns False if the edit needs a new plan."""
        running, compilation = self._runtime.executable, self._runtime.compilation
        if running is None or compilation is None or compilation.plan is not running.plan:
            return False
        swap = find_swap(self._graph, compilation, running.plan, block)
        if swap is None:
            return False
        step = swap.step
        if swap.is_change:
            try:
                code = self._executor.prepare(step)
            except LivegradError as error:
                raise EngineError([Problem(step.key, block, None, error)]) from None
            try:
                running.swap(step, code)
            except LivegradError as error:
                cause = error.error if isinstance(error, StepError) else error
                raise EngineError([Problem(step.key, block, None, cause)]) from error
            frame.prepared += 1
            frame.changes[step.key] = StepChange(step.key, Level.CODE, "new code")
            frame.level = max(frame.level, Level.CODE)
            self._runtime.make_stale(step.key, "new code")
        swap.commit(compilation, self._transaction)
        self._runtime.debug_version += 1
        return True

    def _must_wait(self, edits: Sequence[Entry]) -> bool:
        """Whether a thread is compiling these edits, while the running plan goes on.

        A recording has edits in the frames that apply them, so nothing is compiled in the background meanwhile.
        """
        if self.background is None or self._runtime.executable is None or self.is_settling:
            return False
        return self._graph.journal.observer is None and not self.background.has_compiled(edits)

    def plan_ahead(self, edits: Sequence[Entry]) -> list[Callable[[], Any]]:
        """Specialises what these edits need. Returns what must be compiled. Called by the thread of `background`."""
        with self._graph.journal.lock:
            running = self._runtime.executable
            compilation, _, changes = self._plan(edits)
            plan = compilation.plan
            assert plan is not None
            to_compile = None if self._must_build(running, plan, changes) else changes
            return [partial(self._executor.prepare, step) for step in _steps_of(plan, to_compile)]

    def _plan(self, entries: Sequence[Entry]) -> tuple[Compilation, Iterable[str] | None, dict[str, StepChange]]:
        """The new plan, the steps that may differ (None: any), and how they differ. Changes nothing."""
        running, previous = self._runtime.executable, self._runtime.compilation
        structural = any(entry.kind == "structure" for entry in entries)
        needs_rebuild = self.reuse_memory or (structural and not self._executor.edits_in_place)
        names: Iterable[str] | None = None
        if running is None or previous is None or previous.plan is not running.plan or needs_rebuild:
            compilation = compile_graph(self._graph, self.reuse_memory, frozenset(self.kept), previous)
        else:
            compilation, names = replan(self._graph, previous, running.plan, entries)
        plan = compilation.plan
        if plan is None:
            raise EngineError(compilation.problems)
        is_previous_running = previous is not None and running is not None and previous.plan is running.plan
        same = compilation.same if is_previous_running else ()
        return compilation, names, find_changes(None if running is None else running.plan, plan, names, same)

    def _replan(self, entries: list[Entry], frame: Frame) -> None:
        """Structure, code and bindings: compiles the new plan, compares it with the running one, and installs it."""
        running, previous = self._runtime.executable, self._runtime.compilation
        compilation, names, changes = self._plan(entries)
        plan = compilation.plan
        assert plan is not None
        codes = self._prepare(running, plan, changes, compilation, frame)
        try:
            self._install(plan, changes, codes, frame)
        except LivegradError as error:
            raise EngineError([_installation_problem(error, compilation, changes)]) from error
        committed = commit(compilation, previous, self._transaction)
        self._transaction.set_attribute(self._runtime, "compilation", committed)
        assert self._runtime.executable is not None
        assert committed.plan is not None
        self._runtime.executable.plan = committed.plan
        self._runtime.debug_version += 1
        self._hot_parameters.forget()
        # Replaced steps have the current numbers.
        replaced = None if names is None else set(names)
        if self._number_problems:
            problems = self._number_problems.items()
            remaining = {} if replaced is None else {key: p for key, p in problems if p.node not in replaced}
            self._set_attribute("_number_problems", remaining)
        frame.changes.update(changes)
        frame.level = max([frame.level, *(change.level for change in changes.values())])

    def _prepare(
        self,
        running: Executable | None,
        plan: LivePlan,
        changes: Mapping[str, StepChange],
        compilation: Compilation,
        frame: Frame,
    ) -> dict[str, Any]:
        """Compiles new steps before it changes anything. Reports errors for their blocks."""
        codes: dict[str, Any] = {}
        problems = []
        to_compile = None if self._must_build(running, plan, changes) else changes
        old_steps = {} if running is None else {step.key: step for step in _steps_of(running.plan, to_compile)}
        for step in _steps_of(plan, to_compile):
            old = old_steps.get(step.key)
            if old is step:
                continue  # the running executable has its code
            try:
                codes[step.key] = self._executor.prepare(step)
            except LivegradError as error:
                owner = next(node.block for node in compilation.network.all_nodes() if node.key == step.key)
                problems.append(Problem(step.key, owner, None, error))
            frame.prepared += old is None or (old.function, old.sizes) != (step.function, step.sizes)
        if problems:
            raise EngineError(problems)
        return codes

    def _must_build(self, running: Executable | None, plan: LivePlan, changes: Mapping[str, StepChange]) -> bool:
        return must_build(None if running is None else running.plan, plan, changes, self._executor.edits_in_place)

    def _install(self, plan: LivePlan, changes: dict[str, StepChange], codes: dict[str, Any], frame: Frame) -> None:
        """Updates the running executable, or builds another one. Marks changed steps as stale."""
        running = self._runtime.executable
        owners = {} if running is None else {state.key: state.owner for state in running.plan.states}
        renamed = {} if running is None else _values_of_renamed_states(running, plan)
        if running is None or self._must_build(running, plan, changes):
            executable = self._executor.build(plan, codes, self._features, running)
            self._make_ready(executable, plan, changes)
            if running is not None:
                self._transaction.replaced.append(running)
            self._transaction.set_attribute(self._runtime, "executable", executable)
            if self.reuse_memory:
                self._runtime.forget_contents(plan)
            self._runtime.versions = {key: self._runtime.versions.get(key) for key in plan.bindings}
        else:
            self._save_states(running, changes)
            steps = running.plan.steps
            read = {key for name in changes if name in steps for key in buffers_around(steps[name])}
            running.update(plan, codes, list(changes))
            for key in read:
                if key not in plan.bindings:
                    self._runtime.versions.pop(key, None)
        self._runtime.failed = {key: error for key, error in self._runtime.failed.items() if key in plan.steps}
        self._runtime.stale = {key: reason for key, reason in self._runtime.stale.items() if key in plan.steps}
        self._runtime.touched = {key: operands for key, operands in self._runtime.touched.items() if key in plan.steps}
        for key, change in changes.items():
            if key in plan.steps:
                self._runtime.make_stale(key, change.cause, change.values)
        self._runtime.demand_changed = True
        self._runtime.steady_states -= changes.keys()
        assert self._runtime.executable is not None
        for buffer, value in renamed.items():
            self._runtime.executable.write(buffer, value)
        for state in plan.states:
            if state.key in changes and owners.get(state.key) is not state.owner:  # a new state
                self._runtime.touch(state.value, f"{state.key}: {changes[state.key].cause}")

    def _save_states(self, running: Executable, changes: Mapping[str, StepChange]) -> None:
        """Saves the values of states that change or are removed, for a rollback."""
        for state in running.plan.states:
            if state.key in changes:
                self._transaction.states.setdefault(state.value, running.read(state.value))

    def _make_ready(self, executable: Executable, plan: LivePlan, changes: Mapping[str, StepChange]) -> None:
        """Lets a new executable prepare its first run while the old one still exists."""
        seeds = {key: "" for key in (*self._runtime.stale, *changes) if key in plan.steps}
        if self.reuse_memory or not seeds:
            seeds = dict.fromkeys(plan.steps, "")
        try:
            executable.make_ready(self._runtime.expect(plan, seeds))
        except LivegradError:
            executable.close()
            raise

    def _report(self) -> None:
        """Reports new problems to their blocks, and clears resolved ones."""
        if not (self._runtime.problems or self._plan_problems or self._number_problems):
            return
        reported = {(problem.node, problem.pin) for problem in self._plan_problems}
        others = [p for p in self._number_problems.values() if (p.node, p.pin) not in reported]
        problems = (*self._plan_problems, *others)
        if problems == self._runtime.problems:
            return
        for problem in self._runtime.problems:
            debug = problem.block.debug
            debug.errors, debug.state, debug.is_rejected = [], "running", False
        self._transaction.set_attribute(self._runtime, "problems", problems)
        self._runtime.debug_version += 1
        for problem in problems:
            debug = problem.block.debug
            debug.errors, debug.state, debug.is_rejected = [*debug.errors, problem.error], "failed", True


def _installation_problem(error: LivegradError, compilation: Compilation, changes: Mapping[str, StepChange]) -> Problem:
    """The problem of a plan that could not be installed, with the failed block or the one with the highest change."""
    nodes = {node.key: node for node in compilation.network.all_nodes()}
    if isinstance(error, StepError):
        return Problem(error.step, nodes[error.step].block, None, error.error)
    changed = [key for key in changes if key in nodes]
    most_changed = max(changed, key=lambda key: changes[key].level, default=next(iter(nodes)))
    return Problem(most_changed, nodes[most_changed].block, None, error)


def _values_of_renamed_states(running: Executable, plan: LivePlan) -> dict[str, Numbers]:
    """The values of states that have another name in a new plan, by their new buffers."""
    before, after = _states_by_owner(running.plan), _states_by_owner(plan)
    renamed = {state: after[state] for state in before.keys() & after.keys() if before[state] != after[state]}
    return {
        buffers[0]: running.read(before[state][0])
        for state, buffers in renamed.items()
        if len(buffers) == len(before[state]) == 1
    }


def _states_by_owner(plan: LivePlan) -> dict[object, list[str]]:
    buffers: dict[object, list[str]] = {}
    for spec in plan.states:
        buffers.setdefault(spec.owner, []).append(spec.value)
    return buffers


def _steps_of(plan: LivePlan, changes: Mapping[str, StepChange] | None) -> Iterable[BlockStep]:
    """The block steps of a plan; of its changed steps only, if `changes` is passed."""
    for key in plan.steps if changes is None else changes:
        if key in plan.steps:
            yield from plan.steps[key].block_steps()

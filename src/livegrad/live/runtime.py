"""The run-time state of a plan: stale steps, failures, contents of shared memory, and notifications of blocks.

`Engine` runs a frame here after `apply` has updated the plan. Executors may work asynchronously; the outcome of a run
is then processed when it is known, at the latest before the next frame.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock, RLock
from typing import Any, Literal

from livegrad.diagnostics import LivegradError
from livegrad.lazy.nan_checks import watch
from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import RegionStep, operand_key
from livegrad.live.compile.network import NetworkNode, limits_of
from livegrad.live.deferred_results import CombinedReading, MappingReading, notify_calls, notify_limits, notify_times
from livegrad.live.executor import Executable, Reading, RunReport
from livegrad.live.frame import Frame, defer_fields
from livegrad.live.graph.block import Block
from livegrad.live.graph.problems import Problem
from livegrad.live.graph.sources import Numbers
from livegrad.live.nan_watch import find_nans
from livegrad.live.readings import Attempts, RequestedReading
from livegrad.live.stale import steps_to_restore
from livegrad.live.stale_sets import StaleSet, StaleSets
from livegrad.live.transaction import Transaction
from livegrad.live.update.hot_parameters import HotParameter
from livegrad.ops.context import FeatureLevel


class Runtime(Attempts):
    """The running executable and the state of its values.

    Frames and readings hold `lock`, so that a reading comes from one complete frame. A thread that holds it may acquire
    the lock of the journal, never the other way round.
    """

    def __init__(self) -> None:
        super().__init__(RLock())
        self.gate = Lock()  # held by a thread that waits for its turn between two frames
        self.transaction = Transaction()
        self.requests: list[RequestedReading] = []  # of other threads, while this one holds the lock
        self.profiling: Literal["off", "block", "step"] = "off"
        self.executable: Executable | None = None
        self.compilation: Compilation | None = None
        self.problems: tuple[Problem, ...] = ()  # why the graph cannot run as described
        self.stale: dict[str, str] = {}  # steps that must run, with the reason
        self.touched: dict[str, set[object]] = {}  # stale regions that must run only if they read one of these
        self.uses_early_cutoff = True  # tests compare with an engine that runs all stale steps
        self.failed: dict[str, LivegradError] = {}
        self.demand_changed = True  # the plan, or the set of outputs that users read, has changed
        self._first_reads: set[str] = set()  # steps whose results were first read since the last run
        self.features: Mapping[FeatureLevel, Any] = {}  # of the context of the running plan
        self.versions: dict[str, int | None] = {}  # of external buffers, as of the last run of their readers
        self.debug_version = 0  # incremented by events that may change the state of blocks
        self._overwritten: dict[int, str] = {}  # slot → the buffer whose contents it holds
        self._sets = StaleSets()
        self.finish_run: Callable[[], None] | None = None  # processes the last run, whose steps may still fail
        self.readings: list[tuple[Reading, Callable[[Numbers], None]]] = []  # deferred results, and their receivers
        self.must_advance = False  # states must take their staged values
        self._changing_states: Collection[str] = ()  # states whose value `advance` will change
        self.steady_states: set[str] = set()  # states that hold their `next`, which has not been recomputed since
        self.is_quiet = False  # without edits, a frame has no work; after a hot update, it only runs the readers

    def answer_requests(self) -> None:
        """Performs the readings that other threads requested during a frame, before the next one changes values."""
        for reading in self.requests[: (count := len(self.requests))]:
            reading.fill()
        del self.requests[:count]

    def conclude_last_frame(self) -> None:
        """Concludes the last frame: waits for steps that may still fail, and advances states.

        After an interrupt, the next call does it again; all of it may be done twice.
        """
        if not (self.finish_run or self.must_advance or self.readings or self.transaction.undo_log):
            return
        with self.lock:  # reading a frame also calls this
            if not self.transaction.is_open:
                if self.finish_run is not None:
                    self.finish_run()
                    self.finish_run = None
                if self.must_advance:
                    self._advance()
                    self.must_advance = False
                self.transaction.close()
            if self.readings:
                self.take_readings(wait=False)

    def roll_back(self) -> None:
        """Rolls back an interrupted frame. Closes its executables, which may be half updated.

        The transaction keeps the values of states, and `compilation` has the plan that ran before the frame.
        """
        transaction, interrupted = self.transaction, self.executable
        self.finish_run, self.must_advance, self.is_quiet, self.readings = None, False, False, []
        transaction.undo()
        previous = self.executable
        if previous is not None and self.compilation is not None and self.compilation.plan is not None:
            for state in self.compilation.plan.states:
                if state.value not in transaction.states:
                    transaction.states[state.value] = previous.read(state.value)
        self.executable = None
        executables = (interrupted, previous, *transaction.replaced)
        to_close = {id(executable): executable for executable in executables if executable is not None}
        transaction.replaced.clear()
        for executable in to_close.values():
            executable.close()

    def resume(self, executable: Executable) -> None:
        """Continues with a rebuilt executable, in which only states have values."""
        plan = executable.plan
        for state in plan.states:
            if state.value in self.transaction.states:
                executable.write(state.value, self.transaction.states[state.value])
        self.failed, self.versions = {}, {}
        self._overwritten.clear()
        self.stale = dict.fromkeys(plan.steps, "the last frame was interrupted")
        self.touched, self.steady_states, self.demand_changed = {}, set(), True
        self.debug_version += 1
        self.executable = executable

    def make_stale(self, key: str, reason: str, values: Iterable[object] = ()) -> None:
        """Marks a step as stale. If only `values` changed, a region runs only if it reads one of them."""
        assert self.executable is not None
        changed = set(values) if self.executable.plan.steps[key].__class__ is RegionStep else None
        if not changed:
            self.touched.pop(key, None)
        elif key not in self.stale or key in self.touched:
            self.touched.setdefault(key, set()).update(changed)
        self.stale[key] = reason

    def touch(self, operand: object, reason: str) -> None:
        """Marks the readers of a number, a feature or a buffer as stale."""
        assert self.executable is not None
        for key in self.executable.plan.readers.get(operand, ()):  # type: ignore[call-overload]
            self.make_stale(key, reason, (operand,))

    def mark_external_memory_stale(self) -> None:
        """Marks the readers of external memory as stale, unless its version is unchanged."""
        assert self.executable is not None
        plan = self.executable.plan
        if not plan.bindings:
            return
        for key, external in plan.bindings.items():
            if external.version is None or external.version != self.versions.get(key):
                self.versions[key] = external.version
                self.touch(key, f"{key} may have changed" if external.version is None else f"{key} was touched")

    def expect(self, plan: LivePlan, seeds: Mapping[str, str]) -> tuple[str, ...]:
        """The steps of the first run of a plan in which these steps are stale."""
        return self._sets.expect(plan, seeds)

    def forget_contents(self, plan: LivePlan) -> None:
        """Marks all steps as stale after memory was reassigned."""
        self.stale |= dict.fromkeys(plan.steps, "the graph was rebuilt")
        self.touched.clear()
        self._overwritten.clear()

    def mark_as_read(self, step: str) -> None:
        """Marks a step as read: from now on it runs whenever it is stale."""
        block = self.block_of(step)
        if not block.is_read:
            block.is_read = self.demand_changed = True
            self._first_reads.add(step)

    def catch_up(self, step: str) -> None:
        """Runs a waiting step, which was skipped because nothing needed its results."""
        assert self.executable is not None
        report = self.executable.catch_up(step, self.failed)
        if watch.active:
            ran, report = report.ran, find_nans(self.executable, report, self.features)
            self.executable.defer([key for key in ran if key not in report.ran])
        for key in report.ran:
            self.block_of(key).debug.untallied_runs += 1
        if report.failures:
            self.is_quiet = False  # the next frame tries again
            raise report.failures[0].error

    def _require(self, running: Executable) -> None:
        """Declares to the executable which steps are needed. Marks waiting steps that became needed as stale."""
        for key in running.require(lambda step: self.block_of(step).is_read, self._first_reads):
            self.make_stale(key, "it is needed now")
        self.demand_changed, self._first_reads = False, set()

    def run(self, frame: Frame) -> StaleSet:
        """Runs the stale steps and returns their set."""
        running = self.executable
        assert running is not None
        if self.demand_changed:
            self._require(running)
        stale = self._sets.get(running.plan, self.stale, self._overwritten, self._nodes)
        frame.because = stale.reasons, self.stale
        report = running.run(stale.steps, self.profiling != "off" and self.profiling, *self._causes(running.plan))
        if watch.active:
            report = find_nans(running, report if report.later is None else report.later(), self.features)
        if report.later is None:
            self._conclude(frame, report, stale)
            return stale
        later = report.later
        self.finish_run = lambda: self._conclude(frame, later(), stale)
        defer_fields(frame, self.conclude_last_frame)
        return stale

    def _causes(self, plan: LivePlan) -> tuple[Collection[str] | None, Collection[object]]:
        """The steps that must run regardless of their operands, and the changed operands that regions may have read.

        If buffers share memory, all must run: another step may have overwritten the result of a skipped one.
        """
        if not self.uses_early_cutoff or plan.slot_of:
            return None, ()
        if not self.touched:
            return self.stale.keys(), ()
        return self.stale.keys() - self.touched.keys(), set().union(*self.touched.values())

    def run_hot_update(self, frame: Frame, parameter: HotParameter) -> None:
        """Runs the steps that one hot number makes stale, if nothing else is stale."""
        stale, start = parameter.stale, parameter.start
        is_current = stale is not None and stale.debug_version == self.debug_version and not self.demand_changed
        report = start() if start is not None and is_current and not watch.active else None
        if stale is not None and report is not None:
            frame.because = stale.reasons, parameter.seeds
            if len(report.ran) == len(stale.steps) and not report.failures:
                stale.tally.times += 1
                frame.report = report
            else:
                self._conclude(frame, report, stale)
            return
        running = self.executable
        assert running is not None
        self.stale, self.touched = dict(parameter.seeds), parameter.touched
        causes = self._causes(running.plan)
        stale = parameter.stale = self.run(frame)
        parameter.start = None if stale.limited or stale.inner else running.starter(stale.steps, *causes)

    @property
    def _nodes(self) -> Mapping[str, NetworkNode]:
        """The network nodes of the running plan."""
        return {} if self.compilation is None else self.compilation.network.nodes

    def block_of(self, key: str) -> Block:
        """The block behind a step."""
        return self._nodes[key].block

    def _conclude(self, frame: Frame, report: RunReport, stale: StaleSet) -> None:
        """Processes the report of a run that has ended or cannot fail."""
        assert self.executable is not None
        plan = self.executable.plan
        frame.later = None
        self.stale, self.touched = {}, {}  # the frame keeps the reasons
        frame.spared, frame.unneeded = report.spared, report.unneeded
        if self.failed:
            for key in (*report.ran, *report.unneeded):  # a step that is no longer needed has not failed
                self.failed.pop(key, None)
        if self.steady_states:
            ran = set(report.ran)
            self.steady_states -= {state.key for state in plan.states if plan.producer.get(state.next) in ran}
        if plan.slot_of:
            self._remember_contents(plan, report)
        if report.failures:
            self._keep_failed_stale(frame.reasons, report)
        frame.ran, frame.calls = report.ran, report.calls
        frame.seconds, frame.started = report.seconds, report.started
        frame.failed = frozenset(self.failed)
        frame.warnings = ()
        self._notify_blocks(report, stale, frame)
        if plan.states and not report.failures:
            changing = self.executable.stage()
            if changing is None or not self.uses_early_cutoff:
                steady = self.steady_states if self.uses_early_cutoff else set()
                changing = {state.key for state in plan.states} - steady
            self._changing_states = changing
            self.must_advance = True
        is_clean = not (self.stale or self.failed or self.problems or self.profiling != "off")
        self.is_quiet = is_clean and not (plan.bindings or plan.states or plan.slot_of)

    def _keep_failed_stale(self, reasons: Mapping[str, str], report: RunReport) -> None:
        """Keeps failed steps and their dependents stale. Their results cannot be read."""
        done = {*report.ran, *report.spared, *report.unneeded}
        failed = dict.fromkeys((failure.step for failure in report.failures), "it failed")
        self.stale = {key: reason for key, reason in (failed | reasons).items() if key not in done}  # type: ignore[operator]
        assert self.executable is not None
        plan, errors = self.executable.plan, {failure.step: failure.error for failure in report.failures}
        for key in sorted(self.stale, key=plan.position.__getitem__):  # dependents get the error of their source
            step = plan.steps[key]
            sources = (plan.producer.get(str(operand_key(operand))) for operand in step.all_operands())
            source_error = next((errors[source] for source in sources if source in errors), None)
            if key not in errors or (source_error is not None and step.__class__ is not RegionStep):
                # A device also runs steps that read failed results, so their own errors are meaningless.
                errors[key] = source_error or report.failures[0].error
            self.failed[key] = errors[key]

    def _remember_contents(self, plan: LivePlan, report: RunReport) -> None:
        """Records which buffer each slot holds now. After a failure, a slot may be half written and holds none."""
        for key in report.ran:
            self._overwritten |= {plan.slot_of[b]: b for b in plan.steps[key].results if b in plan.slot_of}
        for failure in report.failures:
            for buffer in plan.steps[failure.step].results:
                self._overwritten.pop(plan.slot_of.get(buffer, -1), None)

    def _advance(self) -> None:
        """Gives states their staged values. Doing it again changes nothing."""
        assert self.executable is not None
        self.executable.advance()
        plan = self.executable.plan
        for state in plan.states:
            if state.key in self._changing_states:
                self.touch(state.value, f"reads the state {state.key}")
        # Excludes states whose `next` is another state.
        self.steady_states = {state.key for state in plan.states if state.next in plan.producer}

    def is_overwritten(self, key: str) -> bool:
        """Whether the memory of a result holds another result, or nothing yet."""
        assert self.executable is not None
        slot = self.executable.plan.slot_of.get(key)
        return slot is not None and self._overwritten.get(slot) != key

    def restore(self, key: str) -> None:
        """Recomputes a result whose memory was overwritten."""
        assert self.executable is not None
        plan = self.executable.plan
        slot, target = plan.slot_of.get(key), plan.producer.get(key)
        if slot is None or target is None or self._overwritten.get(slot) == key:
            return
        steps = steps_to_restore(plan, target, self._overwritten)
        for step in steps:  # before they run: an interrupt may leave results half written
            for buffer in plan.steps[step].results:
                self._overwritten.pop(plan.slot_of.get(buffer, -1), None)
        report = self.executable.run(steps)
        if report.later is not None:
            report = report.later()
        if plan.slot_of:
            self._remember_contents(plan, report)
        if report.failures:
            raise report.failures[0].error

    # --- notifying blocks ---

    def _notify_blocks(self, report: RunReport, stale: StaleSet, frame: Frame) -> None:
        """Counts the run, and updates the state and errors of blocks if they may have changed."""
        # The blocks inside a region may have been edited.
        if stale.inner is None or stale.debug_version != self.debug_version:
            inside = (inner for key in stale.steps for body in self._nodes[key].bodies for inner in body.all_nodes())
            stale.inner = {inner.key: inner.block.debug for inner in inside}
        if stale.inner:
            self.readings.append((MappingReading(report.calls), notify_calls(stale.inner)))
            self.take_readings(wait=False)
        if len(report.ran) == len(stale.steps) and not (report.spared or report.unneeded):
            stale.tally.times += 1
        else:
            for key in report.ran:
                self.block_of(key).debug.untallied_runs += 1
            self.debug_version += bool(report.failures)
        if stale.debug_version != self.debug_version:
            stale.debug_version = self.debug_version
            for key in report.ran:
                debug = self.block_of(key).debug
                if debug.state != "running" and not self.problems:
                    debug.state, debug.errors = "running", []
        for failure in report.failures:
            debug = self.block_of(failure.step).debug
            debug.state, debug.errors = "failed", [failure.error]
        if report.seconds is not None or stale.limited:
            self._expect_readings(report, stale, frame)

    def _expect_readings(self, report: RunReport, stale: StaleSet, frame: Frame) -> None:
        """Registers readings of append counters and times, which some executors deliver later."""
        assert self.executable is not None
        names = []
        if report.seconds is not None:
            names.append("seconds")
            debugs = {key: self.block_of(key).debug for key in report.ran}
            if self.profiling == "step" and self.compilation is not None:
                debugs |= {node.key: node.block.debug for node in self.compilation.network.all_nodes()}
            self.readings.append((MappingReading(report.seconds), notify_times(frame, debugs)))
        limited = set(stale.limited).intersection(report.ran)
        nodes = self._nodes
        # The counter of an inner step that did not run has an old value.
        limits = [limit for key in limited for limit in limits_of(nodes[key]) if report.calls.get(limit.node.key, 0)]
        if limits:
            names.append("warnings")
            reading = CombinedReading([self.executable.read_later(limit.buffer) for limit in limits])
            counters = [(limit.node.key, limit.node.block.debug, limit.most) for limit in limits]
            self.readings.append((reading, notify_limits(frame, counters)))
        self.take_readings(wait=False)
        if self.readings:
            defer_fields(frame, lambda: self.take_readings(wait=True), names)

    def take_readings(self, wait: bool) -> None:
        """Passes deferred results that have arrived to their receivers."""
        with self.lock:
            waiting, self.readings = self.readings, []
            for reading, notify in waiting:
                if wait or reading.ready():
                    notify(reading.result())
                else:
                    self.readings.append((reading, notify))

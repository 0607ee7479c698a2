"""The run-time state of a plan: stale steps, failures, contents of shared memory, and notifications of blocks.

`Engine` runs a frame here after `apply` has updated the plan. Executors may work asynchronously; the outcome of a run
is then processed when it is known, at the latest before the next frame.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import RLock
from typing import Any, Literal

from livegrad.diagnostics import LivegradError
from livegrad.lazy.execution import watch
from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.live_plan import LivePlan, RegionStep, operand_key
from livegrad.live.compile.network import NetworkNode, limits_of
from livegrad.live.deferred_results import Readings, Times, notify_calls, notify_limits, notify_times
from livegrad.live.executor import Executable, Reading, RunReport
from livegrad.live.frame import Frame, postpone
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
    """The executable that runs, and everything that is known of its values.

    Frames and readings hold `lock`, so that a reading is of a whole frame. Who holds it may take the journal's lock,
    never the other way round.
    """

    def __init__(self) -> None:
        super().__init__(RLock())
        self.transaction = Transaction()
        self.requests: list[RequestedReading] = []  # of other threads, while this one holds the lock
        self.profiling: Literal["off", "block", "step"] = "off"
        self.executable: Executable | None = None
        self.compilation: Compilation | None = None
        self.problems: tuple[Problem, ...] = ()  # all that keeps the graph from running as it is described
        self.stale: dict[str, str] = {}  # steps that are not up to date, with the reason
        self.touched: dict[str, set[object]] = {}  # regions among them that are stale only by what they may read
        self.spares = True  # what came out as it was makes nothing stale; tests compare with an engine that runs all
        self.failed: dict[str, LivegradError] = {}
        self.requires_anew = True  # what somebody reads has changed, or the plan has
        self._wanted: set[str] = set()  # steps that somebody has begun to read
        self.features: Mapping[FeatureLevel, Any] = {}  # of the context, as they run
        self.versions: dict[str, int | None] = {}  # of external buffers, when their readers last ran
        self.notified = 0  # counts what may have changed the state of blocks
        self._overwritten: dict[int, str] = {}  # slot → the buffer whose contents it has
        self._sets = StaleSets()
        self.unsettled: Callable[[], None] | None = None  # the last frame, while its steps may still fail
        self.readings: list[tuple[Reading, Callable[[Numbers], None]]] = []  # results that blocks are notified of later
        self.is_advancing = False  # states are to take the values that were staged
        self._moving: Collection[str] = ()  # those of them that will have another value
        self.still: set[str] = set()  # states that have their next value, which was not computed again since
        self.is_quiet = False  # nothing is stale by itself, wrong or measured: one hot number is all of a frame's work

    def answer_requests(self) -> None:
        """Gives other threads the values that they asked for while a frame ran, before another one changes them."""
        count = len(self.requests)
        for reading in self.requests[:count]:
            reading.fill()
        del self.requests[:count]

    def settle(self) -> None:
        """Waits for a frame whose steps may still fail, draws the consequences, and lets states take their values.

        Whatever is interrupted here is done again the next time, and may be done twice.
        """
        with self.lock:  # also called by readers of a frame
            if not self.transaction.is_open:
                if self.unsettled is not None:
                    self.unsettled()
                    self.unsettled = None
                if self.is_advancing:
                    self._advance()
                    self.is_advancing = False
                self.transaction.close()
            if self.readings:
                self.take_readings(wait=False)

    def start_over(self) -> None:
        """Takes back a frame that was interrupted. Executables may be half of this and half of that: they go.

        What states held is kept in the transaction, the plan that ran is that of `compilation` again.
        """
        transaction, in_part = self.transaction, self.executable
        self.unsettled, self.is_advancing, self.is_quiet, self.readings = None, False, False, []
        transaction.undo()
        before = self.executable
        if before is not None and self.compilation is not None and self.compilation.plan is not None:
            for state in self.compilation.plan.states:
                if state.value not in transaction.states:
                    transaction.states[state.value] = before.read(state.value)
        self.executable = None
        closing = {id(one): one for one in (in_part, before, *transaction.replaced) if one is not None}
        transaction.replaced.clear()
        for executable in closing.values():
            executable.close()

    def resume(self, executable: Executable) -> None:
        """Goes on with an executable that was made anew: nothing but its states has a value."""
        plan = executable.plan
        for state in plan.states:
            if state.value in self.transaction.states:
                executable.write(state.value, self.transaction.states[state.value])
        self.failed, self.versions = {}, {}
        self._overwritten.clear()
        self.stale = dict.fromkeys(plan.steps, "the last frame was interrupted")
        self.touched, self.still, self.requires_anew = {}, set(), True
        self.notified += 1
        self.executable = executable

    def make_stale(self, key: str, reason: str, values: Iterable[object] = ()) -> None:
        """Says that a step must run; a region only if it reads one of these values, where they are all that changed."""
        assert self.executable is not None
        changed = set(values) if self.executable.plan.steps[key].__class__ is RegionStep else None
        if not changed:
            self.touched.pop(key, None)
        elif key not in self.stale or key in self.touched:
            self.touched.setdefault(key, set()).update(changed)
        self.stale[key] = reason

    def touch(self, operand: object, reason: str) -> None:
        """Says that a number, a feature or the contents of a buffer have changed: its readers must run."""
        assert self.executable is not None
        for key in self.executable.plan.readers.get(operand, ()):  # type: ignore[call-overload]
            self.make_stale(key, reason, (operand,))

    def mark_memory_from_outside(self) -> None:
        """External memory without a version may have changed; with one, it has when the version has."""
        assert self.executable is not None
        plan = self.executable.plan
        if not plan.bindings:
            return
        for key, external in plan.bindings.items():
            if external.version is None or external.version != self.versions.get(key):
                self.versions[key] = external.version
                self.touch(key, f"{key} may have changed" if external.version is None else f"{key} was touched")

    def expect(self, plan: LivePlan, seeds: Mapping[str, str]) -> tuple[str, ...]:
        """The steps that a plan will run first, if nothing but these is stale."""
        return self._sets.expect(plan, seeds)

    def forget_contents(self, plan: LivePlan) -> None:
        """Memory is shared anew: no step has a value that could be relied on."""
        self.stale |= dict.fromkeys(plan.steps, "the graph was built anew")
        self.touched.clear()
        self._overwritten.clear()

    def want(self, step: str) -> None:
        """Says that somebody reads the results of a step: from now on it runs whenever it is stale."""
        block = self.block_of(step)
        if not block.is_read:
            block.is_read = self.requires_anew = True
            self._wanted.add(step)

    def catch_up(self, step: str) -> None:
        """Computes a result that nobody has needed until now."""
        assert self.executable is not None
        report = self.executable.catch_up(step, self.failed)
        if watch.active:
            ran, report = report.ran, find_nans(self.executable, report, self.features)
            self.executable.put_off([key for key in ran if key not in report.ran])
        for key in report.ran:
            self.block_of(key).debug.counted += 1
        if report.failures:
            self.is_quiet = False  # the next frame tries again
            raise report.failures[0].error

    def _require(self, running: Executable) -> None:
        """Tells the executable what is needed; a step that has waited, and is needed now, must run."""
        for key in running.require(lambda step: self.block_of(step).is_read, self._wanted):
            self.make_stale(key, "it is needed now")
        self.requires_anew, self._wanted = False, set()

    def run(self, frame: Frame) -> StaleSet:
        """Runs what is stale, and says what that was."""
        running = self.executable
        assert running is not None
        if self.requires_anew:
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
        self.unsettled = lambda: self._conclude(frame, later(), stale)
        postpone(frame, self.settle)
        return stale

    def _causes(self, plan: LivePlan) -> tuple[Collection[str] | None, Collection[object]]:
        """The steps that must run whatever their operands are, and the operands that regions may or may not have read.

        Where memory is shared, all must run: what one of them leaves out, another may have overwritten.
        """
        if not self.spares or plan.places:
            return None, ()
        if not self.touched:
            return self.stale, ()
        return self.stale.keys() - self.touched.keys(), set().union(*self.touched.values())

    def run_hot_update(self, frame: Frame, parameter: HotParameter) -> None:
        """Runs what is stale because of one hot number, in a plan that is quiet otherwise."""
        stale, start = parameter.stale, parameter.start
        if start is not None and stale is not None and stale.notified == self.notified and not watch.active:
            report = start()
            if report is not None:
                stale.tally.times += 1
                frame.because, frame.report = (stale.reasons, parameter.seeds), report
                return
        assert self.executable is not None
        self.stale, self.touched = dict(parameter.seeds), parameter.touched
        parameter.stale = self.run(frame)
        parameter.start = None if parameter.stale.limited else self.executable.starter(parameter.stale.steps)

    @property
    def _nodes(self) -> Mapping[str, NetworkNode]:
        """What the steps of the plan were made from."""
        return {} if self.compilation is None else self.compilation.network.nodes

    def block_of(self, key: str) -> Block:
        """The block behind a step."""
        return self._nodes[key].block

    def _conclude(self, frame: Frame, report: RunReport, stale: StaleSet) -> None:
        """What follows from a run that has ended, or that cannot fail."""
        assert self.executable is not None
        plan = self.executable.plan
        frame.later = None
        self.stale, self.touched = {}, {}  # what was stale is in the set, and in the frame's reasons
        frame.spared, frame.unneeded = report.spared, report.unneeded
        if self.failed:
            for key in (*report.ran, *report.unneeded):  # what is not needed any more has not failed
                self.failed.pop(key, None)
        if self.still:
            ran = set(report.ran)
            self.still -= {state.key for state in plan.states if plan.producer.get(state.next) in ran}
        if plan.places:
            self._remember_contents(plan, report)
        if report.failures:
            self._keep_stale(frame.reasons, report)
        frame.ran, frame.calls = report.ran, report.calls
        frame.seconds, frame.started = report.seconds, report.started
        frame.failed = frozenset(self.failed)
        frame.warnings = ()
        self._tell_blocks(report, stale, frame)
        if plan.states and not report.failures:
            moving = self.executable.stage()
            if moving is None or not self.spares:
                moving = {state.key for state in plan.states} - (self.still if self.spares else set())
            self._moving = moving
            self.is_advancing = True
        uneventful = not (self.stale or self.failed or self.problems or self.profiling != "off")
        self.is_quiet = uneventful and not (plan.bindings or plan.states or plan.places)

    def _keep_stale(self, reasons: Mapping[str, str], report: RunReport) -> None:
        """Steps that did not run, and should have, stay stale, and have no value to be read."""
        done = {*report.ran, *report.spared, *report.unneeded}
        failed = dict.fromkeys((failure.step for failure in report.failures), "it failed")
        self.stale = {key: reason for key, reason in (failed | reasons).items() if key not in done}  # type: ignore[operator]
        assert self.executable is not None
        plan, errors = self.executable.plan, {failure.step: failure.error for failure in report.failures}
        for key in sorted(self.stale, key=plan.position.__getitem__):  # a waiting step has the error it waits behind
            step = plan.steps[key]
            sources = (plan.producer.get(str(operand_key(operand))) for operand in step.all_operands())
            found = next((errors[source] for source in sources if source in errors), None)
            if key not in errors or (found is not None and step.__class__ is not RegionStep):
                # On a device, a step that reads what failed has run nevertheless: its own error means nothing.
                errors[key] = found or report.failures[0].error
            self.failed[key] = errors[key]

    def _remember_contents(self, plan: LivePlan, report: RunReport) -> None:
        """Which buffer each piece of shared memory now holds; after a failure, which may have left half of it, none."""
        for key in report.ran:
            self._overwritten |= {plan.places[b]: b for b in plan.steps[key].results if b in plan.places}
        for failure in report.failures:
            for buffer in plan.steps[failure.step].results:
                self._overwritten.pop(plan.places.get(buffer, -1), None)

    def _advance(self) -> None:
        """Lets states take the values that were staged; doing it again changes nothing."""
        assert self.executable is not None
        self.executable.advance()
        plan = self.executable.plan
        for state in plan.states:
            if state.key in self._moving:
                self.touch(state.value, f"reads the state {state.key}")
        self.still = {state.key for state in plan.states if state.next in plan.producer}  # else it is another state's

    def restore(self, key: str) -> None:
        """Computes a result anew if its bytes were used again."""
        assert self.executable is not None
        plan = self.executable.plan
        place, target = plan.places.get(key), plan.producer.get(key)
        if place is None or target is None or self._overwritten.get(place) == key:
            return
        steps = steps_to_restore(plan, target, self._overwritten)
        for written in steps:  # before they run: an interrupt may leave half of it
            for buffer in plan.steps[written].results:
                self._overwritten.pop(plan.places.get(buffer, -1), None)
        report = self.executable.run(steps)
        if report.later is not None:
            report = report.later()
        if plan.places:
            self._remember_contents(plan, report)
        if report.failures:
            raise report.failures[0].error

    # --- notifying blocks ---

    def _tell_blocks(self, report: RunReport, stale: StaleSet, frame: Frame) -> None:
        """Counts the run, and says of blocks that they run or why they do not; most frames have nothing to say."""
        if stale.inner is None or stale.notified != self.notified:  # what is inside of a region may be edited
            inside = (inner for key in stale.steps for body in self._nodes[key].bodies for inner in body.all_nodes())
            stale.inner = {inner.key: inner.block.debug for inner in inside if not inner.bodies}
        if stale.inner:
            self.readings.append((Times(report.calls), notify_calls(stale.inner)))
            self.take_readings(wait=False)
        if len(report.ran) == len(stale.steps) and not (report.spared or report.unneeded):
            stale.tally.times += 1
        else:
            for key in report.ran:
                self.block_of(key).debug.counted += 1
            self.notified += bool(report.failures)
        if stale.notified != self.notified:
            stale.notified = self.notified
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
        """Counters of append buffers and times: some executors know them later."""
        assert self.executable is not None
        names = []
        if report.seconds is not None:
            names.append("seconds")
            debugs = {key: self.block_of(key).debug for key in report.ran}
            if self.profiling == "step" and self.compilation is not None:
                debugs |= {node.key: node.block.debug for node in self.compilation.network.all_nodes()}
            self.readings.append((Times(report.seconds), notify_times(frame, debugs)))
        limited = set(stale.limited).intersection(report.ran)
        nodes = self._nodes
        # What did not run inside of a region has an old value in its counter.
        limits = [one for key in limited for one in limits_of(nodes[key]) if report.calls.get(one.node.key, 0)]
        if limits:
            names.append("warnings")
            reading = Readings([self.executable.read_later(one.buffer) for one in limits])
            limited = [(one.node.key, one.node.block.debug, one.most) for one in limits]
            self.readings.append((reading, notify_limits(frame, limited)))
        self.take_readings(wait=False)
        if self.readings:
            postpone(frame, lambda: self.take_readings(wait=True), names)

    def take_readings(self, wait: bool) -> None:
        """Tells blocks what has arrived since."""
        with self.lock:
            waiting, self.readings = self.readings, []
            for reading, notify in waiting:
                if wait or reading.ready():
                    notify(reading.result())
                else:
                    self.readings.append((reading, notify))

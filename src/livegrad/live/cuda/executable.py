"""Executes a live plan on the device: buffers, bound steps, and cached programs (graphs), one per set of stale steps.

The engine reports changes by level; a run looks up the program of the stale steps and launches it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import AppendStep, BlockStep, FeatureOperand, LeafStep, Operand, RegionStep
from livegrad.live.cuda.advance_states import Advance
from livegrad.live.cuda.bind_steps import NewBindings, PlanAddresses, bind_step, buffers_for, share_steps
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.buffers import Buffers, wait_for_writer, write_array
from livegrad.live.cuda.captured_graphs import CapturedGraph
from livegrad.live.cuda.host_work import HostWork
from livegrad.live.cuda.in_place import find_in_place
from livegrad.live.cuda.live_graph import LiveGraph, notify
from livegrad.live.cuda.live_numbers import LiveNumbers
from livegrad.live.cuda.missing_features import calls_that_cannot_run, run_without, steps_that_cannot_run
from livegrad.live.cuda.pinned import DeviceReading
from livegrad.live.cuda.program import Program
from livegrad.live.cuda.program_builder import ProgramBuilder
from livegrad.live.cuda.program_cache import ProgramCache
from livegrad.live.cuda.report_slots import ReportSlots
from livegrad.live.cuda.reports import report_of
from livegrad.live.cuda.step_code import StepCode
from livegrad.live.cuda.touched_buffers import leaves_of, regions_of
from livegrad.live.cuda.update_steps import swap_step, update_executable
from livegrad.live.executor import Failure, Profile, RunReport
from livegrad.live.graph.sources import ForeignArray, Numbers
from livegrad.ops.context import FeatureLevel
from livegrad.runtime.cuda.cuda_graph import ChangeRefused
from livegrad.runtime.cuda.device_memory import DeviceMemory, download
from livegrad.runtime.cuda.driver import DeviceError, check, device, driver


class CudaExecutable:
    """A plan with its memory and its graphs on the device."""

    def __init__(
        self,
        plan: LivePlan,
        codes: Mapping[str, StepCode],
        features: Mapping[FeatureLevel, Any],
        previous: CudaExecutable | None,
    ) -> None:
        device()
        self.plan = plan
        self.features = dict(features)
        self.buffers = Buffers()
        self.numbers = LiveNumbers()
        self._missing: set[FeatureLevel] = set()  # features that steps read and that have no value
        self.bound: dict[str, BoundStep] = {}
        self.captured: dict[str, CapturedGraph] = {}
        self.programs = ProgramCache()
        self.refused: Mapping[str, LivegradError] = {}  # calls inside regions that cannot run now
        self._advance: Advance | None = None
        self._previous: CudaExecutable | None = None  # until `make_ready`
        self._shared: list[str] = []  # steps whose launches the previous executable still owns
        self.host = HostWork(self)
        leaves = list(leaves_of(plan.steps.values()))
        self.reports = ReportSlots(plan, leaves)
        self._append_memory = self._make_append_memory(leaves)
        all_codes = {
            **{key: bound.code for key, bound in ({} if previous is None else previous.bound).items()},
            **codes,
        }
        # Loop variables that share the memory of a result.
        self.in_place = find_in_place(regions_of(plan.steps.values()), all_codes)
        self.buffers.replace_memory(buffers_for(plan, previous, self.in_place))
        bindings = NewBindings()
        if previous is not None:
            share_steps(self, previous, codes, leaves, bindings)
            self.numbers.borrow(previous.numbers, bindings.shared)
        try:
            for leaf in leaves:
                if leaf.key not in bindings.bound:
                    code = codes.get(leaf.key)
                    if code is None and previous is not None and leaf.key in previous.bound:
                        code = previous.bound[leaf.key].code  # the step is unchanged, but its memory is not
                    bind_step(self, leaf, plan, code, bindings)
            self._shared = bindings.shared
            self.install(bindings)
            self._write_contents(plan, previous)
        except LivegradError:
            self.close()
            raise
        self._previous = previous

    def make_ready(self, steps: Sequence[str]) -> None:
        """Builds the program of these steps, then takes ownership of everything shared with the previous executable."""
        if steps:
            self._get_program(tuple(steps), False)
        previous, self._previous = self._previous, None
        if previous is not None:
            self._take_over(previous)

    def _take_over(self, previous: CudaExecutable) -> None:
        """Takes ownership of launches shared with the previous executable, and sets the current numbers in them."""
        while self._shared:  # one by one: after an interrupt, no launch is closed twice
            previous.bound.pop(self._shared[-1], None)
            self._shared.pop()
        self.numbers.keep_borrowed()
        self.numbers.set_changed(previous.plan.parameters, self.plan.parameters)
        self.numbers.set_changed(previous.features, self.features)

    # --- building ---

    def status_address(self, bound: BoundStep) -> int:
        """The address of the status words of a step."""
        if bound.reports_failures and not self.reports.reserve_status(bound):
            self.reports.grow(list(self.bound.values()))
            self.programs.drop({region.key for region in regions_of(self.plan.steps.values())})  # they count runs
        return self.reports.status_address(bound.key)

    def _make_append_memory(self, leaves: Sequence[LeafStep]) -> dict[str, tuple[DeviceMemory, int]]:
        memory_of_step = {}
        for leaf in leaves:
            if isinstance(leaf, AppendStep):
                memory = DeviceMemory(16 * len(leaf.writers))
                memory_of_step[leaf.key] = memory, memory.address
        return memory_of_step

    def install(self, bindings: NewBindings) -> None:
        """Replaces old bindings by new ones. Cannot fail."""
        for key, bound in bindings.bound.items():
            old = self.bound.get(key)
            if old is not None:
                self.numbers.forget(key, old.number_slots)
                old.close()
            self.bound[key] = bound
            self.numbers.add(key, bound.number_slots)
            for operand in bound.step.operands:
                if isinstance(operand, FeatureOperand) and self.features.get(operand.feature) is None:
                    self._missing.add(operand.feature)
        for key, graph in bindings.captured.items():
            if key in self.captured:
                self.captured[key].close()
            self.captured[key] = graph

    def _write_contents(self, plan: LivePlan, previous: CudaExecutable | None) -> None:
        reused = {} if previous is None else previous.buffers.by_key
        for state in plan.states:
            if self.buffers.by_key[state.value] is not reused.get(state.value):
                write_array(self.buffers.address(state.value), state.initial)
        for key, contents in plan.contents.items():
            if self.buffers.by_key[key] is not reused.get(key):
                write_array(self.buffers.address(key), contents)

    waiting: Collection[str] = ()  # always empty: only the device knows which bodies are taken, so all steps run

    def require(self, is_needed: Callable[[str], bool], wanted: Collection[str] = ()) -> Collection[str]:
        """Does nothing: all steps run."""
        return ()

    def catch_up(self, step: str, failed: Mapping[str, LivegradError]) -> RunReport:
        """Does nothing: no step waits."""
        return RunReport((), {})

    def defer(self, steps: Iterable[str]) -> None:
        """Does nothing: no step waits."""

    # --- parts of programs ---

    def address(self, key: str) -> int:
        """The address of a buffer."""
        return self.buffers.address(key)

    def operand_address(self, operand: Operand) -> int:
        """The address of an operand. Stores a number in a memory cell."""
        return self.addresses().operand(operand)

    def addresses(self) -> PlanAddresses:
        """The addresses of buffers and numbers."""
        return PlanAddresses(self, self.plan)

    def append_ranges(self, key: str) -> int:
        """The address of the row ranges of the writers of an append step."""
        return self._append_memory[key][1]

    def run_host_item(self, key: str, item: int) -> None:
        """Runs a host call of a step."""
        self.host.run_item(self.bound[key], item)

    def refuse(self, key: str) -> None:
        """Raises the error of a call inside a region that cannot run."""
        raise self.refused[key]

    def run_host_region(self, region: RegionStep, bodies: Sequence[Program], prologue: Program) -> None:
        """Runs a region on the host."""
        self.host.run_region(region, bodies, prologue)

    # --- updates ---

    def set_parameter(self, key: str, value: Any) -> None:
        """Hot: stores the number in the argument slots that hold it."""
        self.numbers.set(key, value)

    def setter(self, key: str) -> Callable[[Any], None]:
        """Returns a function that sets one number, whose slots are looked up once."""
        return self.numbers.setter(key)

    def set_feature(self, feature: FeatureLevel, value: Any) -> None:
        """Hot: stores a feature in the argument slots that hold it. None: its readers cannot run any more."""
        if value is None:
            self.features.pop(feature, None)
            self._missing.add(feature)
            return
        self.features[feature] = value
        self._missing.discard(feature)
        self.numbers.set(feature, value)

    def write(self, buffer: str, contents: Numbers) -> None:
        """Writes new contents to a buffer."""
        write_array(self.buffers.address(buffer), contents)

    def drop_advance(self) -> None:
        """Drops the graphs that advance states."""
        if self._advance is not None:
            self._advance.close()
            self._advance = None

    def update(self, plan: LivePlan, codes: Mapping[str, StepCode], steps: Sequence[str]) -> None:
        """Warm, code and recapture: prepares the changes while the old plan stays intact, then installs them."""
        update_executable(self, plan, codes, steps)

    def swap(self, step: BlockStep, code: StepCode) -> None:
        """Code: launches of the new function replace the old ones in their nodes."""
        swap_step(self, step, code)

    # --- running ---

    def run(
        self,
        steps: Sequence[str],
        profile: Profile = False,
        forced: Collection[str] | None = None,
        touched: Collection[object] = (),
    ) -> RunReport:
        """Starts the program of these steps, without waiting unless a step calls the host.

        All steps run: to find unchanged results, the host would have to wait for the device.
        """
        if not steps:
            return RunReport((), {}, seconds={} if profile else None, started={} if profile else None)
        cached = self.programs.of_same(steps)
        must_check = bool(self._missing or self.plan.bindings)
        if cached is not None and not profile and not must_check:
            return self._start(cached)
        missing = steps_that_cannot_run(self.plan, self.features, self.buffers.by_key, steps) if must_check else {}
        runnable = tuple(key for key in steps if key not in missing) if missing else tuple(steps)
        self.refused = calls_that_cannot_run(self.plan, self.features, runnable) if self._missing else {}
        program = self._get_program(runnable, profile)
        if missing:
            return run_without(lambda: self._start(program) if program.steps else RunReport((), {}), missing)
        if steps.__class__ is tuple and not profile and not self.refused:
            self.programs.remember(steps, program)
        return self._start(program)

    def operands_read(self, step: str) -> Iterable[Operand]:
        """All operands that a step may read, because only the device knows which bodies a region took."""
        return self.plan.steps[step].all_operands()

    def starter(
        self, steps: Sequence[str], forced: Collection[str] | None, touched: Collection[object]
    ) -> Callable[[], RunReport | None] | None:
        """Returns a function that starts the program of these steps, if that is one graph without later checks."""
        program, buffers = self.programs.of_same(steps), self.buffers
        if program is None or self._missing:
            return None
        graph, report = program.parts[0], program.report
        if not program.plain or program.externals or len(program.parts) > 1 or not isinstance(graph, LiveGraph):
            return None

        def start() -> RunReport | None:
            if program.generation != buffers.generation or not program.plain:
                return None  # the program is closed, has stale addresses, or has a new function that may fail
            try:
                graph.start(device().stream)
            except ChangeRefused:
                return None
            return report

        return start

    def _start(self, program: Program) -> RunReport:
        if program.generation != self.buffers.generation:
            raise DeviceError("a graph refers to freed buffers, and was not started")
        if program.externals:
            self._upload_externals(program)
        if program.plain:
            try:
                failures = program.start(device().stream)
            except ChangeRefused:
                program, failures = self._rebuild_and_start(program)
            return report_of(self, program, None, failures) if failures else program.report
        if program.last_times is not None:
            program.last_times.times()  # before the next run records its events again
        self.host.calls.clear()
        self.reports.ledger.clear()
        try:
            failures = program.start(device().stream)
        except ChangeRefused:
            program, failures = self._rebuild_and_start(program)
        return report_of(self, program, self.reports.ledger.snapshot(), failures)

    def _rebuild_and_start(self, program: Program) -> tuple[Program, list[Failure]]:
        """Rebuilds and starts a program whose graph the driver refused to update."""
        self.programs.drop(set(program.steps))
        rebuilt = self._get_program(program.steps, program.profile)
        return rebuilt, rebuilt.start(device().stream)

    def _upload_externals(self, program: Program) -> None:
        for key in program.externals:
            array, buffer = self.plan.bindings[key].array, self.buffers.by_key[key]
            if isinstance(array, ForeignArray):
                wait_for_writer(array)
            else:
                write_array(buffer.address, array)

    def _get_program(self, steps: tuple[str, ...], profile: Profile) -> Program:
        key = steps, profile, frozenset(self.refused)
        program = self.programs.use(key)
        if program is None:
            program = ProgramBuilder(self, steps, profile).build()
            program.generation = self.buffers.generation
            self.programs.keep(key, program)
        return program

    def stage(self) -> None:
        """Saves values that are the `next` of other states."""
        if self._advance is None:
            self._advance = Advance(self)
        if self._advance.staging is not None:
            self._advance.staging.start(device().stream)

    def advance(self) -> None:
        """Gives all states their staged values."""
        assert self._advance is not None
        self._advance.graph.start(device().stream)

    # --- reading ---

    def read(self, buffer: str) -> Numbers:
        """A copy of a buffer's contents, after all runs so far."""
        spec = self.plan.buffers[buffer]
        array = np.empty(spec.shape, spec.element.dtype)
        device()
        download(self.buffers.address(buffer), array)
        return array

    def read_operand(self, buffer: str) -> Numbers:
        """The contents of a buffer in the last run: no step waits here, so that is the current value."""
        return self.read(buffer)

    def read_later(self, buffer: str) -> DeviceReading:
        """Like `read`, without waiting."""
        return DeviceReading(self.buffers.address(buffer), self.plan.buffers[buffer])

    def close(self) -> None:
        """Releases graphs and memory. The driver waits for running work."""
        for key in self._shared:
            self.bound.pop(key, None)
        self.programs.close()
        self.drop_advance()
        for graph in (*self.captured.values(), *self.bound.values()):
            graph.close()
        self.captured.clear()
        self.bound.clear()
        self.numbers.clear()
        self.buffers.by_key.clear()
        self._append_memory.clear()

    def grow_tapes(self, keys: Sequence[str]) -> None:
        """Allocates more memory for the tapes of these steps."""
        for key in keys:
            notify(self.bound[key].grow_tapes())

    def wait(self) -> None:
        """Waits until all started work has ended."""
        check(driver.cuStreamSynchronize(device().stream))

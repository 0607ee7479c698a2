"""Builds the graphs of a program: kernels, memsets, copies, library calls, and regions as conditional nodes.

In: stale steps that are bound to memory. Out: a `Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from livegrad.diagnostics import LivegradError
from livegrad.ir.types import Scalar, scalar_of
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import (
    AppendStep,
    BlockStep,
    BufferOperand,
    CapturedStep,
    Carried,
    Operand,
    RegionStep,
    Step,
)
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.captured_graphs import CapturedGraph
from livegrad.live.cuda.control_kernels import append_launch, control_launch, time_launch
from livegrad.live.cuda.live_graph import LiveGraph
from livegrad.live.cuda.program import HostCallPart, Program, Timing, externals_of
from livegrad.live.cuda.report_slots import ReportSlots
from livegrad.live.cuda.touched_buffers import accessed_buffers, written_inside
from livegrad.live.executor import Profile, RunReport
from livegrad.runtime.cuda.cuda_graph import GraphBuilder, Launch
from livegrad.runtime.cuda.dependencies import DependencyTracker

MakeNode = Callable[[Iterable[int]], int]  # from the nodes that it waits for


class ProgramParts(Protocol):
    """The parts of programs, which `CudaExecutable` provides."""

    plan: LivePlan
    bound: dict[str, BoundStep]
    in_place: dict[str, str]
    refused: Mapping[str, LivegradError]
    captured: dict[str, CapturedGraph]
    reports: ReportSlots

    def address(self, key: str) -> int: ...
    def operand_address(self, operand: Operand) -> int: ...
    def append_ranges(self, key: str) -> int: ...
    def run_host_item(self, key: str, item: int) -> None: ...
    def refuse(self, key: str) -> None: ...
    def run_host_region(self, region: RegionStep, bodies: Sequence[Program], prologue: Program) -> None: ...


@dataclass(eq=False)
class _Scope:
    """A graph under construction and the dependencies of its nodes."""

    builder: GraphBuilder
    tracker: DependencyTracker = field(default_factory=DependencyTracker)

    def add(self, make: MakeNode, reads: Sequence[Any], writes: Sequence[Any], also: Iterable[int] = ()) -> int:
        """Adds a node that waits for the earlier uses of what it reads and writes, and for the nodes in `also`."""
        return make(sorted(self.tracker.add(len(self.builder), reads, writes).union(also)))


class ProgramBuilder:
    """Builds the program of some steps."""

    def __init__(self, parts: ProgramParts, steps: Sequence[str], profile: Profile = False) -> None:
        self.parts, self.plan = parts, parts.plan
        self.program = Program(tuple(steps), profile=profile)
        self._profile = profile
        if profile:
            self.program.timing = Timing()
        self._scope: _Scope | None = None
        self._owner = ""
        self._sharing = bool(self.plan.slot_of or parts.in_place)  # several buffers may have the same memory

    def build(self) -> Program:
        """Builds the program. If the driver refuses a node, all graphs are destroyed."""
        steps = [self.plan.steps[key] for key in self.program.steps]
        try:
            for step in steps:
                self._owner = step.key
                if isinstance(step, BlockStep) and not self._profile:
                    self._add_block(step, None)
                else:
                    self._add_step(step, None)
            self._close_graph()
        except LivegradError:
            if self._scope is not None:
                self._scope.builder.drop()
            self.program.close()
            raise
        return self._describe_program(steps)

    def _describe_program(self, steps: Sequence[Step]) -> Program:
        program, bound = self.program, self.parts.bound
        regions = {step.key for step in steps if isinstance(step, RegionStep)}
        calls = [key for key in program.steps if key not in regions] if regions else program.steps
        program.calls = dict.fromkeys(calls, 1)
        program.owners = dict(zip(calls, calls, strict=True))
        for step in steps if regions else ():
            program.owners.update((leaf.key, step.key) for leaf in step.leaf_steps())
        program.members = frozenset([*program.steps, *program.owners])
        program.counted = bool(regions)
        program.externals = externals_of(program, self.plan)
        program.update_checks(bound)
        program.report = RunReport(program.steps, program.calls)
        return program

    # --- graphs and host calls ---

    def _open_scope(self, scope: _Scope | None) -> _Scope:
        if scope is not None:
            return scope
        if self._scope is None:
            self._scope = _Scope(GraphBuilder())
        return self._scope

    def _close_graph(self) -> None:
        """Ends the graph under construction."""
        scope, self._scope = self._scope, None
        if scope is not None and len(scope.builder):
            self.program.parts.append(LiveGraph(scope.builder))
        elif scope is not None:
            scope.builder.drop()

    def _add_host_call(self, call: Callable[[], None]) -> None:
        self._close_graph()
        self.program.parts.append(HostCallPart(self._owner, call))

    def _resource(self, key: str) -> Any:
        key = self.parts.in_place.get(key, key)
        slot = self.plan.slot_of.get(key)
        return key if slot is None else slot

    def _resources(self, keys: Iterable[str]) -> list[Any]:
        if not self._sharing:
            return list(keys)
        return list(dict.fromkeys(self._resource(key) for key in keys))

    # --- steps ---

    def _add_step(self, step: Step, scope: _Scope | None) -> None:
        if step.key in self.parts.refused:
            self._add_host_call(lambda: self.parts.refuse(step.key))
            return
        stop = self._start_time(step, scope) if self._profile else None
        match step:
            case BlockStep():
                self._add_block(step, scope)
            case CapturedStep():
                self._add_captured_call(step, scope)
            case AppendStep():
                self._add_append(step, scope)
            case RegionStep():
                self._add_region(step, scope)
        if stop is not None:
            stop()

    def _add_block(self, step: BlockStep, scope: _Scope | None) -> None:
        bound = self.parts.bound[step.key]
        code = bound.code
        nodes: dict[int, int] = {}  # by item, in the open graph
        for item, launch in enumerate(bound.launches):
            if launch is None:
                # By key, because an update may bind the step again while this program stays.
                self._add_host_call(lambda item=item: self.parts.run_host_item(step.key, item))
                nodes.clear()
                continue
            current = scope or self._scope or self._open_scope(None)
            builder = current.builder
            reads, writes = bound.touched[item]
            if self._sharing:
                reads, writes = self._resources(reads), self._resources(writes)
            if isinstance(launch, CapturedGraph):
                before = current.tracker.add(len(builder.nodes), reads, (*writes, _LIBRARIES))
                before.update(nodes[n] for n in code.before[item] if n in nodes)
                nodes[item] = builder.child(bound.node_name(item), launch.graph, before)
            else:
                before = current.tracker.add(len(builder.nodes), reads, writes)
                if nodes:
                    before.update(nodes[n] for n in code.before[item] if n in nodes)
                nodes[item] = builder.kernel(launch, before)

    def _add_captured_call(self, step: CapturedStep, scope: _Scope | None) -> None:
        current, captured = self._open_scope(scope), self.parts.captured[step.key]
        read = [operand.key for operand in step.operands if isinstance(operand, BufferOperand)]
        copies = []
        for index, (key, memory) in enumerate(zip(read, captured.copies, strict=True)):
            copies.append(("copy", step.key, index))
            size, source, target = self.plan.buffers[key].bytes, self.parts.address(key), memory.address
            if size:
                make = partial(current.builder.copy, target, source, size)
                current.add(make, self._resources([key]), copies[-1:])
        results = self._resources(step.results)
        current.add(lambda before: current.builder.child(step.key, captured.graph, before), copies, results)

    def _add_append(self, step: AppendStep, scope: _Scope | None) -> None:
        current, address = self._open_scope(scope), self.parts.address
        values, count, total = step.results
        for key in step.results:
            self._add_memset(current, key)
        ranges = self.parts.append_ranges(step.key)
        row_bytes = self.plan.buffers[values].bytes // step.capacity
        for index, (rows, emitted) in enumerate(step.writers):
            slots = {
                "rows": address(rows.key), "emitted": address(emitted.key), "values": address(values),
                "count": address(count), "total": address(total), "range": ranges + 16 * index,
                "most": self.plan.buffers[rows.key].shape[0], "capacity": step.capacity, "row_bytes": row_bytes,
            }  # fmt: skip
            range_resource = ("append", step.key, index)
            self._add_launch(
                current, append_launch("append_count", **slots), [emitted.key], [count, total], [range_resource]
            )
            self._add_launch(current, append_launch("append_rows", **slots), [rows.key], [values], [], [range_resource])

    def _add_launch(
        self,
        scope: _Scope,
        launch: Launch,
        reads: Iterable[str],
        writes: Iterable[str],
        extra_writes: Sequence[Any] = (),
        extra_reads: Sequence[Any] = (),
    ) -> int:
        all_reads = [*self._resources(reads), *extra_reads]
        all_writes = [*self._resources(writes), *extra_writes]
        return scope.add(lambda nodes: scope.builder.kernel(launch, nodes), all_reads, all_writes)

    def _add_memset(self, scope: _Scope, key: str) -> None:
        size, address = self.plan.buffers[key].bytes, self.parts.address(key)
        if size:
            scope.add(lambda before: scope.builder.memset(address, size, before), (), self._resources([key]))

    def _add_copy(self, scope: _Scope, target: str, source: Operand | str) -> None:
        size, parts = self.plan.buffers[target].bytes, self.parts
        key = source if isinstance(source, str) else source.key if isinstance(source, BufferOperand) else None
        start = parts.address(key) if key is not None else parts.operand_address(source)  # type: ignore[arg-type]
        if size:
            reads = [] if key is None else self._resources([key])
            to = parts.address(target)
            scope.add(lambda before: scope.builder.copy(to, start, size, before), reads, self._resources([target]))

    # --- regions ---

    def _add_region(self, step: RegionStep, scope: _Scope | None) -> None:
        if self._needs_host(step):
            self._add_host_region(step)
            return
        outer = self._open_scope(scope)
        self._add_prologue(step, outer)
        condition = outer.builder.condition()
        begin, repeat = _KERNELS[step.kind]
        counts, control = self.parts.reports.counts_address(step.key), self._control_type(step)
        slots = {"condition": int(condition), "counts": counts, "bodies": len(step.bodies)}
        slots["index"] = 0 if step.index is None else self.parts.address(step.index)
        address = self.parts.operand_address(step.control)
        index = [] if step.index is None else [step.index]
        first = control_launch(begin, control, control=address, **slots)
        reads = [step.control.key] if isinstance(step.control, BufferOperand) else []
        ready = ("condition", step.key)
        self._add_launch(outer, first, reads, index, [ready])
        inside = self._resources(written_inside(step))
        if self._calls_libraries(step):
            inside.append(_LIBRARIES)
        if scope is not None:
            inside.append(_CONDITIONALS)
        outside = self._resources(operand.key for operand in step.all_operands() if isinstance(operand, BufferOperand))
        before = outer.tracker.add(len(outer.builder), [*outside, ready], inside)
        _, bodies = outer.builder.conditional(_NODES[step.kind], condition, len(step.bodies), sorted(before))
        for body, builder in zip(step.bodies, bodies, strict=True):
            inner = _Scope(builder)
            for inner_step in body:
                self._add_step(inner_step, inner)
            if repeat is not None:
                self._add_repeat(step, inner, repeat, control, address, slots)

    def _add_prologue(self, step: RegionStep, scope: _Scope) -> None:
        """Initialises results with zeros, or with the initial values of loop variables."""
        carried_results = {variable.result for variable in step.carried}
        for key in step.results:
            if key not in carried_results:
                self._add_memset(scope, key)
        for variable in step.carried:
            self._add_copy(scope, variable.result, variable.initial)
            self._add_carry(scope, variable, variable.initial)

    def _add_carry(self, scope: _Scope, carried: Carried, source: Operand | str) -> None:
        """Copies the value of a loop variable, unless it shares memory with its result."""
        if carried.carry not in self.parts.in_place:
            self._add_copy(scope, carried.carry, source)

    def _add_repeat(
        self, step: RegionStep, scope: _Scope, symbol: str, control: Scalar, address: int, slots: dict[str, int]
    ) -> None:
        """Ends an iteration: copies loop variables, and sets the condition again."""
        for variable in step.carried:
            self._add_carry(scope, variable, variable.result)
        reads: list[str] = []
        if step.condition is not None:
            control, address = self.plan.buffers[step.condition].element, self.parts.address(step.condition)
            reads = [step.condition]
        launch = control_launch(symbol, control, control=address, **slots)
        # After the whole body: once the condition is set, a driver may start the next iteration while kernels of this
        # iteration still run (seen on an H200 with driver 580: the device faults).
        body, index = range(len(scope.builder)), [] if step.index is None else [step.index]
        read, written = self._resources(reads), self._resources(index)
        scope.add(lambda nodes: scope.builder.kernel(launch, nodes), read, written, also=body)

    def _control_type(self, step: RegionStep) -> Scalar:
        operand = step.control
        if isinstance(operand, BufferOperand):
            return self.plan.buffers[operand.key].element
        scalar = scalar_of(operand.type)
        assert scalar is not None
        return scalar

    def _needs_host(self, step: RegionStep) -> bool:
        bound, refused = self.parts.bound, self.parts.refused
        leaves = [leaf.key for leaf in step.leaf_steps()]
        return any(key in refused or (key in bound and bound[key].code.has_host_steps) for key in leaves)

    def _calls_libraries(self, step: RegionStep) -> bool:
        bound = self.parts.bound
        leaves = (bound[leaf.key] for leaf in step.leaf_steps() if leaf.key in bound)
        return any(isinstance(launch, CapturedGraph) for bound_leaf in leaves for launch in bound_leaf.launches)

    def _add_host_region(self, step: RegionStep) -> None:
        """Adds a region whose bodies call the host. It cannot be a conditional node, so the host runs the loop."""
        self._close_graph()
        outer, bodies = self.program, []
        prologue = self.program = Program(outer.steps)
        self._add_prologue(step, self._open_scope(None))
        self._close_graph()
        for body in step.bodies:
            self.program = Program(outer.steps)
            for inner_step in body:
                self._add_step(inner_step, None)
            for carried in step.carried:
                self._add_carry(self._open_scope(None), carried, carried.result)
            self._close_graph()
            bodies.append(self.program)
        self.program = outer
        outer.parts.append(HostCallPart(self._owner, lambda: self.parts.run_host_region(step, bodies, prologue)))
        outer.nested += [prologue, *bodies]

    # --- times ---

    def _start_time(self, step: Step, scope: _Scope | None) -> Callable[[], None] | None:
        """Times a step with events or, inside regions, where events are not allowed, with kernels."""
        if scope is None and step.key == self._owner:
            return self._start_events(step)
        if scope is None or isinstance(step, RegionStep) or self._profile != "step":
            return None
        assert self.program.timing is not None
        self.program.timing.inside.append(step.key)
        return self._start_timer(step, scope)

    def _start_events(self, step: Step) -> Callable[[], None]:
        timing = self.program.timing
        assert timing is not None
        start, stop = timing.around[step.key] = timing.event(), timing.event()
        self._add_marker(step, lambda scope, before: scope.builder.event(start, before))
        return lambda: self._add_marker(step, lambda scope, before: scope.builder.event(stop, before))

    def _start_timer(self, step: Step, scope: _Scope) -> Callable[[], None]:
        slot = self.parts.reports.timer_address(step.key)
        begin, end = time_launch("time_start", slot), time_launch("time_stop", slot)
        self._add_marker(step, lambda current, before: current.builder.kernel(begin, before), scope=scope)
        return lambda: self._add_marker(step, lambda current, before: current.builder.kernel(end, before), scope=scope)

    def _add_marker(
        self, step: Step, make: Callable[[_Scope, Iterable[int]], int], scope: _Scope | None = None
    ) -> None:
        """Adds a node before or after all work of a step, as a writer of every buffer that the step touches."""
        current = self._open_scope(scope)
        touched = self._resources(accessed_buffers(step))
        current.add(lambda before: make(current, before), [], touched)


_KERNELS: dict[str, tuple[str, str | None]] = {
    "if": ("begin_if", None),
    "if_else": ("begin_if", None),
    "switch": ("begin_switch", None),
    "while": ("begin_while", "next_while"),
    "for": ("begin_for", "next_for"),
}
_LIBRARIES = ("libraries",)  # a resource that serialises library calls, which share a workspace
# A resource that serialises regions inside a body: two concurrent conditional nodes of a body can deadlock (seen on an
# H200 with driver 580 in one of 700 random graphs; never where they were ordered).
_CONDITIONALS = ("conditionals",)
_NODES: dict[str, Any] = {"if": "if", "if_else": "if", "switch": "switch", "while": "while", "for": "while"}

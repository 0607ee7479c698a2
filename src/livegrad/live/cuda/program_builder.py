"""Builds the graphs of a program: kernels, memsets, copies, library calls, and regions as conditional nodes.

In: the stale steps, bound to memory. Out: a `Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from livegrad.diagnostics import LivegradError
from livegrad.ir.types import Scalar, scalar_of
from livegrad.live.compile.live_plan import (
    AppendStep,
    BlockStep,
    BufferOperand,
    CapturedStep,
    Carried,
    LivePlan,
    Operand,
    RegionStep,
    Step,
)
from livegrad.live.cuda.bound_step import BoundStep
from livegrad.live.cuda.captured_graphs import CapturedGraph
from livegrad.live.cuda.control_kernels import append_launch, control_launch, time_launch
from livegrad.live.cuda.live_graph import LiveGraph
from livegrad.live.cuda.program import HostPart, Program, Timing, externals_of
from livegrad.live.cuda.touched_buffers import accessed_buffers, written_inside
from livegrad.live.executor import Profile, RunReport
from livegrad.runtime.cuda.cuda_graph import GraphBuilder, Launch
from livegrad.runtime.cuda.dependencies import DependencyTracker


class Parts(Protocol):
    """What programs are made from: `CudaExecutable`."""

    plan: LivePlan
    bound: dict[str, BoundStep]
    in_place: dict[str, str]
    refused: Mapping[str, LivegradError]

    def address(self, key: str) -> int: ...
    def operand_address(self, operand: Operand) -> int: ...
    def captured_graph(self, key: str) -> CapturedGraph: ...
    def counts_address(self, region: str) -> int: ...
    def append_places(self, key: str) -> int: ...
    def timer(self, key: str) -> int: ...
    def run_host_item(self, key: str, number: int) -> None: ...
    def refuse(self, key: str) -> None: ...
    def run_host_region(self, region: RegionStep, bodies: Sequence[Program], prologue: Program) -> None: ...


@dataclass(eq=False)
class _Scope:
    """A graph under construction and the dependencies of its nodes."""

    builder: GraphBuilder
    tracker: DependencyTracker = field(default_factory=DependencyTracker)

    def add(
        self,
        make: Callable[[Iterable[int]], int],
        reads: Sequence[Any],
        writes: Sequence[Any],
        also: Iterable[int] = (),
    ) -> int:
        """Adds a node that waits for the earlier uses of what it reads and writes, and for the nodes in `also`."""
        return make(sorted(self.tracker.add(len(self.builder), reads, writes).union(also)))


class ProgramBuilder:
    """Makes the program of some steps."""

    def __init__(self, parts: Parts, steps: Sequence[str], profile: Profile = False) -> None:
        self.parts, self.plan = parts, parts.plan
        self.program = Program(tuple(steps), profile=profile)
        self._profile = profile
        if profile:
            self.program.timing = Timing()
        self._scope: _Scope | None = None
        self._owner = ""
        self._sharing = bool(self.plan.places or parts.in_place)  # buffers are not the only names of their memory

    def build(self) -> Program:
        """The program. Whatever was made is given back if the driver refuses something."""
        steps = [self.plan.steps[key] for key in self.program.steps]
        try:
            for step in steps:
                self._owner = step.key
                if isinstance(step, BlockStep) and not self._profile:
                    self._block(step, None)
                else:
                    self._step(step, None)
            self._close()
        except LivegradError:
            if self._scope is not None:
                self._scope.builder.drop()
            self.program.close()
            raise
        return self._described(steps)

    def _described(self, steps: Sequence[Step]) -> Program:
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
        program.look_for_watched(bound)
        program.report = RunReport(program.steps, program.calls)
        return program

    # --- graphs and what lies between them ---

    def _open(self, scope: _Scope | None) -> _Scope:
        if scope is not None:
            return scope
        if self._scope is None:
            self._scope = _Scope(GraphBuilder())
        return self._scope

    def _close(self) -> None:
        """Ends the graph under construction."""
        scope, self._scope = self._scope, None
        if scope is not None and len(scope.builder):
            self.program.parts.append(LiveGraph(scope.builder))
        elif scope is not None:
            scope.builder.drop()

    def _host(self, call: Callable[[], None]) -> None:
        self._close()
        self.program.parts.append(HostPart(self._owner, call))

    def _resource(self, key: str) -> Any:
        key = self.parts.in_place.get(key, key)
        place = self.plan.places.get(key)
        return key if place is None else place

    def _resources(self, keys: Iterable[str]) -> list[Any]:
        if not self._sharing:
            return list(keys)
        return list(dict.fromkeys(self._resource(key) for key in keys))

    # --- steps ---

    def _step(self, step: Step, scope: _Scope | None) -> None:
        if step.key in self.parts.refused:
            self._host(lambda: self.parts.refuse(step.key))
            return
        stop = self._start_time(step, scope) if self._profile else None
        match step:
            case BlockStep():
                self._block(step, scope)
            case CapturedStep():
                self._captured(step, scope)
            case AppendStep():
                self._append(step, scope)
            case RegionStep():
                self._region(step, scope)
        if stop is not None:
            stop()

    def _block(self, step: BlockStep, scope: _Scope | None) -> None:
        bound = self.parts.bound[step.key]
        code = bound.code
        nodes: dict[int, int] = {}  # of its items in the graph that is open
        for number, launch in enumerate(bound.launches):
            if launch is None:
                # By its key: the step may be bound anew while this program stays.
                self._host(lambda number=number: self.parts.run_host_item(step.key, number))
                nodes.clear()
                continue
            own = scope or self._scope or self._open(None)
            builder = own.builder
            reads, writes = bound.touched[number]
            if self._sharing:
                reads, writes = self._resources(reads), self._resources(writes)
            if isinstance(launch, CapturedGraph):
                before = own.tracker.add(len(builder.nodes), reads, (*writes, _LIBRARIES))
                before.update(nodes[n] for n in code.before[number] if n in nodes)
                nodes[number] = builder.child(bound.node_name(number), launch.graph, before)
            else:
                before = own.tracker.add(len(builder.nodes), reads, writes)
                if nodes:
                    before.update(nodes[n] for n in code.before[number] if n in nodes)
                nodes[number] = builder.kernel(launch, before)

    def _captured(self, step: CapturedStep, scope: _Scope | None) -> None:
        own, captured = self._open(scope), self.parts.captured_graph(step.key)
        read = [operand.key for operand in step.operands if isinstance(operand, BufferOperand)]
        copies = []
        for number, (key, memory) in enumerate(zip(read, captured.copies, strict=True)):
            copies.append(("copy", step.key, number))
            size, source, target = self.plan.buffers[key].bytes, self.parts.address(key), memory.address
            if size:
                make = partial(own.builder.copy, target, source, size)
                own.add(make, self._resources([key]), copies[-1:])
        results = self._resources(step.results)
        own.add(lambda before: own.builder.child(step.key, captured.graph, before), copies, results)

    def _append(self, step: AppendStep, scope: _Scope | None) -> None:
        own, address = self._open(scope), self.parts.address
        values, count, total = step.results
        for key in step.results:
            self._memset(own, key)
        places = self.parts.append_places(step.key)
        row_bytes = self.plan.buffers[values].bytes // step.capacity
        for number, (rows, emitted) in enumerate(step.writers):
            words = {
                "rows": address(rows.key), "emitted": address(emitted.key), "values": address(values),
                "count": address(count), "total": address(total), "place": places + 16 * number,
                "most": self.plan.buffers[rows.key].shape[0], "capacity": step.capacity, "row_bytes": row_bytes,
            }  # fmt: skip
            place = ("append", step.key, number)
            self._launch(own, append_launch("append_count", **words), [emitted.key], [count, total], [place])
            self._launch(own, append_launch("append_rows", **words), [rows.key], [values], [], [place])

    def _launch(
        self,
        scope: _Scope,
        launch: Launch,
        reads: Iterable[str],
        writes: Iterable[str],
        writes_also: Sequence[Any] = (),
        reads_also: Sequence[Any] = (),
    ) -> int:
        before = [*self._resources(reads), *reads_also]
        after = [*self._resources(writes), *writes_also]
        return scope.add(lambda nodes: scope.builder.kernel(launch, nodes), before, after)

    def _memset(self, scope: _Scope, key: str) -> None:
        size, address = self.plan.buffers[key].bytes, self.parts.address(key)
        if size:
            scope.add(lambda before: scope.builder.memset(address, size, before), (), self._resources([key]))

    def _copy(self, scope: _Scope, target: str, source: Operand | str) -> None:
        size, own = self.plan.buffers[target].bytes, self.parts
        key = source if isinstance(source, str) else source.key if isinstance(source, BufferOperand) else None
        start = own.address(key) if key is not None else own.operand_address(source)  # type: ignore[arg-type]
        if size:
            reads = [] if key is None else self._resources([key])
            to = own.address(target)
            scope.add(lambda before: scope.builder.copy(to, start, size, before), reads, self._resources([target]))

    # --- regions ---

    def _region(self, step: RegionStep, scope: _Scope | None) -> None:
        if self._needs_host(step):
            self._host_region(step)
            return
        own = self._open(scope)
        self._prologue(step, own)
        condition = own.builder.condition()
        begin, repeat = _KERNELS[step.kind]
        counts, control = self.parts.counts_address(step.key), self._control(step)
        words = {"condition": int(condition), "counts": counts, "bodies": len(step.bodies)}
        words["index"] = 0 if step.index is None else self.parts.address(step.index)
        address = self.parts.operand_address(step.control)
        index = [] if step.index is None else [step.index]
        first = control_launch(begin, control, control=address, **words)
        reads = [step.control.key] if isinstance(step.control, BufferOperand) else []
        ready = ("condition", step.key)
        self._launch(own, first, reads, index, [ready])
        inside = self._resources(written_inside(step))
        if self._calls_libraries(step):
            inside.append(_LIBRARIES)
        if scope is not None:
            inside.append(_CONDITIONALS)
        outside = self._resources(o.key for o in step.all_operands() if isinstance(o, BufferOperand))
        before = own.tracker.add(len(own.builder), [*outside, ready], inside)
        _, bodies = own.builder.conditional(_NODES[step.kind], condition, len(step.bodies), sorted(before))
        for body, builder in zip(step.bodies, bodies, strict=True):
            inner = _Scope(builder)
            for one in body:
                self._step(one, inner)
            if repeat is not None:
                self._repeat(step, inner, repeat, control, address, words)

    def _prologue(self, step: RegionStep, scope: _Scope) -> None:
        """Results are zeros, or the initial values of what is carried, until a body has run."""
        carried = {one.result for one in step.carried}
        for key in step.results:
            if key not in carried:
                self._memset(scope, key)
        for one in step.carried:
            self._copy(scope, one.result, one.initial)
            self._carry(scope, one, one.initial)

    def _carry(self, scope: _Scope, carried: Carried, source: Operand | str) -> None:
        """Gives a variable its value; one that shares memory with its result has it already."""
        if carried.carry not in self.parts.in_place:
            self._copy(scope, carried.carry, source)

    def _repeat(
        self, step: RegionStep, scope: _Scope, symbol: str, control: Scalar, address: int, words: dict[str, int]
    ) -> None:
        """The end of an iteration: what is carried moves on, and the condition is set anew."""
        for one in step.carried:
            self._carry(scope, one, one.result)
        reads: list[str] = []
        if step.condition is not None:
            control, address = self.plan.buffers[step.condition].element, self.parts.address(step.condition)
            reads = [step.condition]
        launch = control_launch(symbol, control, control=address, **words)
        # Behind everything in the body: from the moment when the condition is set, a driver may start the next round
        # while other kernels of this one still run (seen on an H200 with driver 580: the device faults).
        body, index = range(len(scope.builder)), [] if step.index is None else [step.index]
        before, after = self._resources(reads), self._resources(index)
        scope.add(lambda nodes: scope.builder.kernel(launch, nodes), before, after, also=body)

    def _control(self, step: RegionStep) -> Scalar:
        operand = step.control
        if isinstance(operand, BufferOperand):
            return self.plan.buffers[operand.key].element
        found = scalar_of(operand.type)
        assert found is not None
        return found

    def _needs_host(self, step: RegionStep) -> bool:
        bound, refused = self.parts.bound, self.parts.refused
        leaves = [leaf.key for leaf in step.leaf_steps()]
        return any(key in refused or (key in bound and bound[key].code.has_host_steps) for key in leaves)

    def _calls_libraries(self, step: RegionStep) -> bool:
        bound = self.parts.bound
        leaves = (bound[leaf.key] for leaf in step.leaf_steps() if leaf.key in bound)
        return any(isinstance(launch, CapturedGraph) for own in leaves for launch in own.launches)

    def _host_region(self, step: RegionStep) -> None:
        """A region whose bodies call the host cannot be a conditional node: the host goes round."""
        self._close()
        outer, bodies = self.program, []
        prologue = self.program = Program(outer.steps)
        self._prologue(step, self._open(None))
        self._close()
        for body in step.bodies:
            self.program = Program(outer.steps)
            for one in body:
                self._step(one, None)
            for carried in step.carried:
                self._carry(self._open(None), carried, carried.result)
            self._close()
            bodies.append(self.program)
        self.program = outer
        outer.parts.append(HostPart(self._owner, lambda: self.parts.run_host_region(step, bodies, prologue)))
        outer.nested += [prologue, *bodies]

    # --- times ---

    def _start_time(self, step: Step, scope: _Scope | None) -> Callable[[], None] | None:
        """Events around a step of the plan; around one inside a region, where there can be no events, kernels."""
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
        self._mark(step, lambda scope, before: scope.builder.event(start, before))
        return lambda: self._mark(step, lambda scope, before: scope.builder.event(stop, before))

    def _start_timer(self, step: Step, scope: _Scope) -> Callable[[], None]:
        slot = self.parts.timer(step.key)
        begin, end = time_launch("time_start", slot), time_launch("time_stop", slot)
        self._mark(step, lambda own, before: own.builder.kernel(begin, before), scope=scope)
        return lambda: self._mark(step, lambda own, before: own.builder.kernel(end, before), scope=scope)

    def _mark(self, step: Step, make: Callable[[_Scope, Iterable[int]], int], scope: _Scope | None = None) -> None:
        """A node before everything that a step does, or after it: it counts as a writer of what the step touches."""
        own = self._open(scope)
        touched = self._resources(accessed_buffers(step))
        own.add(lambda before: make(own, before), [], touched)


_KERNELS: dict[str, tuple[str, str | None]] = {
    "if": ("begin_if", None),
    "if_else": ("begin_if", None),
    "switch": ("begin_switch", None),
    "while": ("begin_while", "next_while"),
    "for": ("begin_for", "next_for"),
}
_LIBRARIES = ("libraries",)  # their calls share memory of their own, so they take turns
# Regions inside of a body take turns: two conditional nodes that a body runs side by side can wait for one another for
# ever (seen on an H200 with driver 580 in one of 700 random graphs; never where they were in order).
_CONDITIONALS = ("conditionals",)
_NODES: dict[str, Any] = {"if": "if", "if_else": "if", "switch": "switch", "while": "while", "for": "while"}

"""Lowers tapes, tuples and loops over tensors of a plan to device memory.

In: a plan whose steps exchange tapes and tuples. Out: for each such step, the calls to capture into the graph, possibly
none. If one step needs the host, or a loop is so small that the host is faster, all of them remain host steps. Called
by `serialise_plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from livegrad.codegen.argument_slots import ArgumentSlot, buffer_slot
from livegrad.codegen.check_sites import Site
from livegrad.ir.types import components, scalar_of, shape_of
from livegrad.ops.aggregate import get
from livegrad.ops.control import for_loop
from livegrad.ops.convolution import convolve
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import sizes
from livegrad.ops.tape import tape_new, tape_stack, tape_unstack
from livegrad.passes.flatten_signature import leaf_types
from livegrad.runtime.cuda.device_loop import DeviceCopy, DeviceLoop, LoopState, Output, TapeRow, launches_of
from livegrad.runtime.cuda.libraries import LIBRARY_CALLS
from livegrad.runtime.cuda.libraries.library_call import operand_buffers
from livegrad.runtime.cuda.serialised_launches import SerialisedDevicePlan, SerialisedGraph, SerialisedLibraryCall
from livegrad.runtime.cuda.states_in_rows import keep_states_in_rows
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, ObjectSlot, Plan, RowTape, Slot, reserved_bytes

_MAX_LAUNCHES = 100_000  # of all iterations of a loop; building a graph with more takes too long
_MANY_LAUNCHES = 64  # from here on, addresses that may change from run to run are kept out of the graph
# The cost model: microseconds for a launch on the device, for a host step and for a transfer; and what the host does in
# a microsecond.
_LAUNCH_MICROSECONDS, _STEP_MICROSECONDS, _TRANSFER_MICROSECONDS = 2.5, 0.3, 60.0
_HOST_BYTES, _HOST_OPERATIONS, _HOST_COPIED_BYTES = 5e3, 2e4, 1e4
_REBOUND_KINDS = ("external", "cell")  # kinds of slots whose address may change from run to run

SerialiseBody = Callable[[Plan], SerialisedDevicePlan]


class _NeedsHost(Exception):
    """A step cannot run on the device."""


@dataclass(frozen=True)
class _Column:
    """The rows of one leaf of a tape: the slot of the first row, and the bytes of a row."""

    first: ArgumentSlot
    row_bytes: int


@dataclass(frozen=True)
class _TapeRows:
    """A tape: a column for each leaf of its elements."""

    columns: tuple[_Column, ...]
    count: int  # rows


@dataclass(frozen=True)
class _Array:
    """An array in device memory."""

    slot: ArgumentSlot
    size: int  # bytes


_Value = _TapeRows | _Array | None  # None: a value without a form on the device, which must stay unused
_EMPTY_TAPE = _TapeRows((), 0)


class ObjectLowering:
    """Lowers all steps of a plan that use tapes or tuples, or none. `calls` has the calls of each, by step index.

    A step that only renames memory has no calls. `arena_bytes` is the plan's arena with the objects' memory behind it.
    """

    def __init__(self, plan: Plan, serialise_body: SerialiseBody) -> None:
        self._plan, self.serialise_body = plan, serialise_body
        self.arena_bytes = reserved_bytes(plan.arena_bytes)
        self.calls: dict[int, tuple[SerialisedLibraryCall, ...]] = {}
        self.values: dict[ObjectSlot, _TapeRows | tuple[_Value, ...]] = {}
        if any(isinstance(slot, ObjectSlot) for slot in (*plan.arguments, *plan.results)):
            return
        steps = [(number, step) for number, step in enumerate(plan.steps) if isinstance(step, HostStep)]
        try:
            for number, step in steps:
                if any(isinstance(slot, ObjectSlot) for slot in (*step.operands, *step.written)):
                    self.calls[number] = self._lower(number, step)
        except _NeedsHost:
            self.calls, self.arena_bytes = {}, reserved_bytes(plan.arena_bytes)

    def _lower(self, number: int, step: HostStep) -> tuple[SerialisedLibraryCall, ...]:
        node, result = step.function.results[0], step.result
        if step.op is tape_new and isinstance(result, ObjectSlot):
            self.values[result] = _EMPTY_TAPE
            return ()
        if step.op is tape_unstack and isinstance(result, ObjectSlot):
            return self._unstack(number, step, result)
        if step.op is tape_stack and isinstance(result, Buffer):
            return self._stack(number, step, result)
        if step.op is get:
            return self._get(number, step, node.attribute("index"))
        if step.op is for_loop and isinstance(result, ObjectSlot) and step.loop is not None:
            return self._loop(number, step, result)
        if step.op in LIBRARY_CALLS and isinstance(result, ObjectSlot):
            return self._call_library(number, step, result)
        raise _NeedsHost

    def allocate(self, size: int) -> ArgumentSlot:
        """Memory behind the plan's arena."""
        slot = ArgumentSlot("arena", 0, self.arena_bytes)
        self.arena_bytes += reserved_bytes(size)
        return slot

    def slot_of(self, buffer: Buffer) -> ArgumentSlot:
        return buffer_slot(buffer, self._plan)

    def _copy(
        self, number: int, source: ArgumentSlot, target: ArgumentSlot, size: int
    ) -> tuple[SerialisedLibraryCall, ...]:
        return (copy_call(number, source, target, size),)

    # --- tapes and tuples ---

    def _unstack(self, number: int, step: HostStep, result: ObjectSlot) -> tuple[SerialisedLibraryCall, ...]:
        (source,) = step.operands
        if not isinstance(source, Buffer):
            raise _NeedsHost
        count = source.shape[0]
        slot = self.slot_of(source)
        # No step overwrites an argument; other memory may be reused before the tape is read.
        is_argument = source.base in self._plan.arguments and source.base not in self._plan.results
        target = slot if is_argument else self.allocate(source.bytes)
        self.values[result] = _TapeRows((_Column(target, source.bytes // max(count, 1)),), count)
        return () if is_argument else self._copy(number, slot, target, source.bytes)

    def _stack(self, number: int, step: HostStep, result: Buffer) -> tuple[SerialisedLibraryCall, ...]:
        tape = self.values.get(step.operands[0]) if isinstance(step.operands[0], ObjectSlot) else None
        if not isinstance(tape, _TapeRows) or tape.count < result.shape[0] or len(tape.columns) != 1:
            raise _NeedsHost
        return self._copy(number, tape.columns[0].first, self.slot_of(result), result.bytes)

    def _get(self, number: int, step: HostStep, index: int) -> tuple[SerialisedLibraryCall, ...]:
        (source,) = step.operands
        members = self.values.get(source) if isinstance(source, ObjectSlot) else None
        member = members[index] if isinstance(members, tuple) else None
        if isinstance(step.result, ObjectSlot) and isinstance(member, _TapeRows):
            self.values[step.result] = member
            return ()
        if isinstance(step.result, Buffer) and isinstance(member, _Array):
            return self._copy(number, member.slot, self.slot_of(step.result), member.size)
        raise _NeedsHost

    def _call_library(self, number: int, step: HostStep, result: ObjectSlot) -> tuple[SerialisedLibraryCall, ...]:
        """A library call with several results. The first is the result of the call, the others are operands."""
        call = LIBRARY_CALLS[step.op](step)
        if call is None:
            raise _NeedsHost
        members = [_Array(self.allocate(size), size) for size in result_bytes(step)]
        self.values[result] = tuple(members)
        first, *others = [member.slot for member in members]
        operands = (*[self.slot_of(buffer) for buffer in operand_buffers(step)], *others)
        sites = tuple(Site(failure, step.origin) for failure in getattr(call, "failures", ()))
        status = (ArgumentSlot("status"),) if sites else ()
        return (SerialisedLibraryCall(number, call, (*operands, *status), first, sites),)

    # --- loops ---

    def _loop(self, number: int, step: HostStep, result: ObjectSlot) -> tuple[SerialisedLibraryCall, ...]:
        return _LoopLowering(self, number, step, result).calls()

    def iterations_of(self, step: HostStep) -> int:
        """The number of iterations of a `for` loop, which must be a constant of the plan."""
        node = step.function.results[0]
        slot = step.operands[node.operands[0].attribute("index")]
        for writer in self._plan.steps:
            if isinstance(writer, KernelStep) and isinstance(slot, Buffer) and slot.base in writer.results:
                for stage in writer.kernel.stages:
                    for sink, value in zip(stage.sinks, stage.body.results, strict=True):
                        is_writer = sink.kind == "output" and writer.outputs[sink.number].buffer.base is slot.base
                        if is_writer and value.op.name == "constant":
                            return max(0, int(value.attribute("value")))
        raise _NeedsHost

    def leaves_of(self, step: HostStep) -> list[_Value]:
        """The initial value of each leaf that a loop carries."""
        node = step.function.results[0]
        leaves: list[_Value] = []
        for operand in node.operands[1:]:
            slot = step.operands[operand.attribute("index")]
            value = self._value_of(slot)
            if value is None or len(leaf_types(operand.type)) != 1:
                raise _NeedsHost
            leaves.append(value)
        return leaves

    def _value_of(self, slot: Slot) -> _Value:
        if isinstance(slot, Buffer):
            return _Array(self.slot_of(slot), slot.bytes)
        value = self.values.get(slot)
        return value if isinstance(value, _TapeRows) else None


def result_bytes(step: HostStep) -> list[int]:
    """The bytes of each result of a step that returns a tuple of tensors."""
    types = components(step.function.results[0].type)
    return [prod(shape_of(type)) * scalar.dtype.itemsize for type in types if (scalar := scalar_of(type)) is not None]  # type: ignore[arg-type]


def _operations(step: HostStep) -> float:
    """The multiplications and additions of a host step, as an estimate."""
    node = step.function.results[0]
    if node.op not in (matmul, convolve) or not isinstance(step.result, Buffer):
        return step.op.cost * sum(buffer.size for buffer in step.inputs)
    shape = sizes(node.operands[0]) if node.op is matmul else sizes(node.operands[1])
    return 2.0 * step.result.size * (shape[-1] if node.op is matmul else prod(shape[1:]))


def copy_call(number: int, source: ArgumentSlot, target: ArgumentSlot, size: int) -> SerialisedLibraryCall:
    """A copy of device memory, as a call of step `number`."""
    return SerialisedLibraryCall(number, DeviceCopy(size), (source,), target)


class _LoopLowering:
    """Lowers one loop. Operands are numbered in the order in which they are collected."""

    def __init__(self, objects: ObjectLowering, number: int, step: HostStep, result: ObjectSlot) -> None:
        assert step.loop is not None
        assert step.loop.plan is not None
        self._objects, self._number, self._step, self._result = objects, number, step, result
        self._loop, self._plan = step.loop, step.loop.plan
        self._count = objects.iterations_of(step)
        self._leaves = objects.leaves_of(step)
        self._operands: list[ArgumentSlot] = []
        self._copies_in: list[SerialisedLibraryCall] = []
        self._copies_out: list[SerialisedLibraryCall] = []

    def calls(self) -> tuple[SerialisedLibraryCall, ...]:
        """The loop, between copies from and to memory whose address may change from run to run."""
        loop, node = self._loop, self._step.function.results[0]
        slots = [*self._plan.arguments, *self._plan.results]
        if not all(isinstance(slot, Buffer) for slot in slots) or self._count == 0:
            raise _NeedsHost
        arguments = iter([slot for slot in self._plan.arguments if isinstance(slot, Buffer)])
        results = iter([slot for slot in self._plan.results if isinstance(slot, Buffer)])
        index = next(arguments)
        states = tuple([self._state(leaf, next(arguments), next(results)) for leaf in loop.state])
        invariants = tuple([(next(arguments).number, self._array(leaf)) for leaf in loop.invariants])
        rows = [self._read_row(row, number, next(arguments)) for row in loop.rows for number in row.reads]
        written: dict[int, _TapeRows] = {}
        for row in loop.rows:
            if row.writes:
                buffers = [next(results) for _ in leaf_types(row.element)]
                written[row.leaf] = self._new_tape(row, buffers)
                columns = zip(buffers, written[row.leaf].columns, strict=True)
                rows += [TapeRow(b.number, self._add_operand(c.first), c.row_bytes) for b, c in columns]
        outputs = self._outputs(written)
        body = self._body(index)
        sites = tuple(site for launch in body.launches for site in launch.sites)
        if sites:
            self._add_operand(ArgumentSlot("status"))
        device_loop = DeviceLoop(
            body,
            self._count,
            node.attribute("reverse"),
            index.number,
            states,
            invariants,
            tuple(rows),
            outputs,
            failures=tuple(site.message for site in sites),
        )
        device_loop = keep_states_in_rows(device_loop, self._plan)
        call = SerialisedLibraryCall(self._number, device_loop, tuple(self._operands), ArgumentSlot("status"), sites)
        return (*self._copies_in, call, *self._copies_out)

    def _body(self, index: Buffer) -> SerialisedDevicePlan:
        """The serialised body. Kernels take the index by value and other scalars from memory."""
        body = self._objects.serialise_body(replace(self._plan, arguments=(index,)))
        is_graph = all(isinstance(segment, SerialisedGraph) for segment in body.segments)
        launches = launches_of(body) * self._count
        if not is_graph or launches > _MAX_LAUNCHES or any(kernel.uses_tapes for kernel in body.kernels):
            raise _NeedsHost
        if self._host_microseconds() < launches * _LAUNCH_MICROSECONDS:
            raise _NeedsHost
        return body

    def _host_microseconds(self) -> float:
        """An estimate of the time that the loop takes on the host."""
        copied = sum(slot.bytes for slot in self._step.inputs)
        operations = sum(_operations(step) for step in self._plan.steps if isinstance(step, HostStep))
        iteration = len(self._plan.steps) * _STEP_MICROSECONDS
        iteration += self._plan.bytes_moved / _HOST_BYTES + operations / _HOST_OPERATIONS
        return _TRANSFER_MICROSECONDS + copied / _HOST_COPIED_BYTES + self._count * iteration

    @property
    def _has_many_launches(self) -> bool:
        return len(self._plan.steps) * self._count >= _MANY_LAUNCHES

    def _add_operand(self, slot: ArgumentSlot) -> int:
        """Adds an operand and returns its index."""
        self._operands.append(slot)
        return len(self._operands) - 1

    def _read_operand(self, slot: ArgumentSlot, size: int) -> int:
        """Adds an operand that the loop reads: the memory itself, or a copy.

        A copy takes less time than capturing a long loop again for another address.
        """
        if slot.kind in _REBOUND_KINDS and self._has_many_launches:
            copy = self._objects.allocate(size)
            self._copies_in.append(copy_call(self._number, slot, copy, size))
            slot = copy
        return self._add_operand(slot)

    def _array(self, leaf: int) -> int:
        value = self._leaves[leaf]
        if not isinstance(value, _Array):
            raise _NeedsHost
        return self._read_operand(value.slot, value.size)

    def _state(self, leaf: int, argument: Buffer, result: Buffer) -> LoopState:
        return LoopState(argument.base.number, result.base.number, self._array(leaf), argument.bytes)

    def _read_row(self, row: RowTape, number: int, buffer: Buffer) -> TapeRow:
        tape = self._leaves[row.leaf]
        if not isinstance(tape, _TapeRows):
            raise _NeedsHost
        if not tape.count:
            return TapeRow(buffer.number, None, buffer.bytes)
        if tape.count < self._count:
            raise _NeedsHost
        column = tape.columns[number]
        first = self._read_operand(column.first, column.row_bytes * tape.count)
        return TapeRow(buffer.number, first, column.row_bytes)

    def _new_tape(self, row: RowTape, buffers: Sequence[Buffer]) -> _TapeRows:
        """Memory for a tape that the loop writes."""
        before = self._leaves[row.leaf]
        if not isinstance(before, _TapeRows) or before.count > self._count:
            raise _NeedsHost
        columns = [_Column(self._objects.allocate(b.bytes * self._count), b.bytes) for b in buffers]
        return _TapeRows(tuple(columns), self._count)

    def _outputs(self, written: dict[int, _TapeRows]) -> tuple[Output, ...]:
        """The outputs of the loop, in buffers of the plan if it stores results there, else in new memory."""
        node, outputs, members = self._step.function.results[0], list[Output](), list[_Value]()
        stored = dict(self._step.stored)
        for index in range(node.attribute("carried")):
            if index in written:
                members.append(written[index])
                continue
            value = self._leaves[index]
            if isinstance(value, _Array):
                slot = self._objects.slot_of(stored[index]) if index in stored else None
                value = self._output(index, value, slot, outputs)
            members.append(value)
        self._objects.values[self._result] = tuple(members)
        return tuple(outputs)

    def _output(self, leaf: int, initial: _Array, slot: ArgumentSlot | None, outputs: list[Output]) -> _Array:
        """Adds the output for a leaf to `outputs`, and returns its value after the loop."""
        target = slot or self._objects.allocate(initial.size)
        if target.kind in _REBOUND_KINDS and self._has_many_launches:
            target = self._objects.allocate(initial.size)
            self._copies_out.append(copy_call(self._number, target, slot or target, initial.size))
        state = self._loop.state.index(leaf) if leaf in self._loop.state else None
        source = self._read_operand(initial.slot, initial.size) if state is None else self._add_operand(target)
        outputs.append(Output(state, source, self._add_operand(target), initial.size))
        return _Array(target, initial.size)

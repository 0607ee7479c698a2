"""Runs plans on the CPU: argument blocks are filled once, memory is one arena, and kernels are called directly."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot, buffer_slot
from livegrad.codegen.llvm.fourier.transform_module import KERNELS as TRANSFORM_KERNELS
from livegrad.codegen.llvm.ordering_module import KERNELS as ORDERING_KERNELS
from livegrad.compiler import Compilation
from livegrad.diagnostics import LivegradError
from livegrad.ir.line_sites import SourceLocations, resolve_location
from livegrad.ir.node import Function, Node
from livegrad.ir.persistent_array import Entries
from livegrad.ir.types import Tuple
from livegrad.ops.aggregate import get, make
from livegrad.ops.control import cond, switch
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.ops.tape import tape_set, tape_stack, tape_unstack
from livegrad.passes.in_place_loops import writes_in_place
from livegrad.runtime.cpu.branches import BranchCall
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.host_steps import computed_in_parts
from livegrad.runtime.cpu.index_errors import name_index
from livegrad.runtime.cpu.kernel_calls import CLEAN, KernelCall, joined
from livegrad.runtime.cpu.kernel_code import ALIGNMENT, Compiling, code_of, codes_of
from livegrad.runtime.cpu.loop_body import Call, Memory
from livegrad.runtime.cpu.memory_pool import plan_memory, result_maker
from livegrad.runtime.cpu.native.fourier import table
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.matmul import PRODUCT_KERNELS
from livegrad.runtime.cpu.native.pool import interrupt_flag_address, pool_run_address
from livegrad.runtime.cpu.native.pool_ir import MAX_THREADS
from livegrad.runtime.cpu.native_loops import NativeLoop, native_loop
from livegrad.runtime.cpu.plan_entry import PlanEntry, make_plan_entry
from livegrad.runtime.cpu.plan_serialiser import serialise_plan
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel, SerialisedPlan
from livegrad.runtime.cpu.tape_rows import Rows
from livegrad.runtime.cpu.tensor_loops import LoopCall
from livegrad.runtime.cpu.tiers import Code
from livegrad.runtime.reference import apply_node
from livegrad.runtime.serialised import SerialisedArray
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, Plan, Slot
from livegrad.state import call_after_fork

Patch = tuple[ArgumentBlock, int, int]  # block, index, byte offset
_LIBRARY_KERNELS = frozenset({*PRODUCT_KERNELS, *TRANSFORM_KERNELS, *ORDERING_KERNELS})
_NO_VALUES: Any = MappingProxyType({})


class CompiledPlan:
    """A plan with its code, its memory and its argument blocks. One run at a time; others wait.

    `plan` may be None when a serialised plan without host steps was loaded from disk.
    """

    def __init__(
        self,
        serialised: SerialisedPlan,
        codes: Mapping[bytes, Code],
        plan: Plan | None,
        run_nested: Callable[..., Any],
        counts: Sequence[int | None] = (),
        source_locations: SourceLocations = (),
    ) -> None:
        self.serialised, self.plan, self.run_nested = serialised, plan, run_nested
        self._line_of_mark = source_locations
        self.source: Function | None = None  # what it was compiled from, for errors
        self._counts = counts  # of each step of the plan: how many kernels it is, None for one that the host runs
        self._codes = codes
        self.lock = threading.Lock()
        call_after_fork(self, "_free_lock")
        self._entry: PlanEntry | None = None  # made after the first run
        self._has_run = False
        self._arena = plan_memory(serialised.arena_bytes)
        self._arena_start = self._arena.ctypes.data
        arguments = [array for array in serialised.arguments if array is not None]
        self._cells = {array.number: np.zeros((), array.element.dtype) for array in arguments if array.shape == ()}
        self._results = [array for array in serialised.results if array is not None]
        self._makers = [result_maker(array.element, array.shape, array.bytes) for array in self._results]
        self.only_kernels = None not in counts and None not in serialised.results
        self._bind()

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        run_nested: Callable[..., Any],
        source_locations: SourceLocations = (),
        compiling: Compiling | None = None,
    ) -> CompiledPlan:
        """Compiles the kernels of a plan; where its nodes have marks, errors name the place of that number."""
        serialised, counts, codes = serialise_plan(plan, compiling)
        return cls(serialised, codes, plan, run_nested, counts, source_locations)

    @classmethod
    def from_serialised(
        cls, serialised: SerialisedPlan, run_nested: Callable[..., Any], source_locations: SourceLocations = ()
    ) -> CompiledPlan | None:
        """Loads the kernels of a serialised plan; None when one of them is no longer in the cache."""
        codes = codes_of(serialised)
        return None if codes is None else cls(serialised, codes, None, run_nested, (), source_locations)

    # --- preparation ---

    def _bind(self) -> None:
        # Room for all threads that there can be: their number may change at any moment, also during a run. Only pages
        # that are written to take memory.
        sizes = self.serialised.scratch
        self._scratch = [plan_memory((size + ALIGNMENT) * MAX_THREADS if size else 0) for size in sizes]
        self._patches: dict[int, list[Patch]] = {}
        self._tables: list[np.ndarray[Any, Any]] = []  # kept alive: argument blocks hold their addresses
        every = [self._kernel_call(kernel) for kernel in self.serialised.kernels]
        kernels = iter(every)
        if self.plan is None:
            singles: list[KernelCall | Call] = list(kernels)
        else:
            singles = []
            for step, count in zip(self.plan.steps, self._counts, strict=True):
                if count is None:
                    assert isinstance(step, HostStep)
                    singles.append(self._native_loop(step) or host_call(step, self))
                else:
                    singles += [next(kernels) for _ in range(count)]
        self._calls = joined(singles)
        # By position among the arguments and among the results, so that a call looks nothing up.
        arguments = [(p, array.number) for p, array in enumerate(self.serialised.arguments) if array is not None]
        self._to_patch = [(p, self._patches[number]) for p, number in arguments if number in self._patches]
        self._to_set = [(p, self._cells[number]) for p, number in arguments if number in self._cells]
        results = enumerate(self._results)
        self._to_give = [(p, self._patches[a.number]) for p, a in results if a.number in self._patches]
        loops = [call for call in singles if isinstance(call, NativeLoop)]
        for call in (*every, *loops):  # last of all: code is made meanwhile
            call.wait()

    def _native_loop(self, step: HostStep) -> NativeLoop | None:
        assert self.plan is not None
        return native_loop(step, self.plan, self)

    def bind_slot(self, block: ArgumentBlock, index: int, buffer: Buffer, offset: int) -> None:
        """Makes an argument slot hold the address of a buffer: now, or in each run if it is an argument or a result."""
        assert self.plan is not None
        slot = buffer_slot(buffer, self.plan)
        if slot.kind == "external":
            self._patches.setdefault(slot.buffer, []).append((block, index, slot.offset + offset))
        else:
            base = self._arena_start if slot.kind == "arena" else self._cells[slot.buffer].ctypes.data
            block.ints[index] = base + slot.offset + offset

    def _kernel_call(self, kernel: SerialisedKernel) -> KernelCall:
        native, status = code_of(kernel, self._codes), array("q", [CLEAN])
        members = list(map(self._kernel_call, kernel.members))
        values = [
            slot if isinstance(slot, int) else self._address(slot, status, members, kernel.library)
            for slot in kernel.slots
        ]
        block = ArgumentBlock.holding(values)
        for index, slot in enumerate(kernel.slots):
            if not isinstance(slot, int) and slot.kind == "external":
                self._patches.setdefault(slot.buffer, []).append((block, index, slot.offset))
        return KernelCall(kernel, native, block, status, members)

    def _address(self, slot: ArgumentSlot, status: array[int], members: Sequence[KernelCall], library: str) -> int:
        """The address in an argument slot; 0 for the arrays of a run, whose addresses come with it."""
        match slot.kind:
            case "arena":
                return self._arena_start + slot.offset
            case "scratch":
                return self._scratch[slot.buffer].ctypes.data
            case "cell":
                return self._cells[slot.buffer].ctypes.data + slot.offset
            case "status":
                return status.buffer_info()[0]
            case "interrupt":
                return interrupt_flag_address()
            case "run":
                return pool_run_address()
            case "table":
                self._tables.append(table(library, slot.buffer, slot.offset))
                return self._tables[-1].ctypes.data
            case "code":
                return members[slot.buffer].record[0]
            case "block":
                return members[slot.buffer].record[3]
        return 0

    # --- what native entries are made of ---

    @property
    def calls(self) -> Sequence[Call]:
        return self._calls

    @property
    def memory(self) -> Any:
        """What kernels have the addresses of."""
        return self._arena, self._scratch, self._cells, self._calls, self._codes, self._tables

    @property
    def result_makers(self) -> list[tuple[SerialisedArray, Callable[[], Any]]]:
        return list(zip(self._results, self._makers, strict=True))

    def patches_of(self, number: int) -> list[tuple[int, int]]:
        """The addresses of argument slots for the array of a buffer, each with the offset from its start."""
        return [(block.address + 8 * index, offset) for block, index, offset in self._patches.get(number, ())]

    def cell_of(self, number: int) -> int:
        """The address of the cell of an argument without dimensions; 0 if it has none."""
        return self._cells[number].ctypes.data if number in self._cells else 0

    def _free_lock(self) -> None:
        """In a child of a fork: the thread that held the lock does not exist."""
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]

    @property
    def step_counts(self) -> tuple[int, int]:
        """How many kernels and how many library calls one run makes."""
        every = [single for kernel in self.serialised.kernels for single in kernel.members or (kernel,)]
        products = sum(kernel.symbol in _LIBRARY_KERNELS for kernel in every)
        kernels = sum(not kernel.library for kernel in every)
        return kernels, products + sum(count is None for count in self._counts)

    # --- running ---

    def run(self, arguments: Sequence[Any], into: list[Any] | None = None) -> list[Any]:
        """The results' leaves from the arguments' leaves. Arrays are dense and of the right type and shape.

        `into` are arrays to write the results to; they share no memory with the arguments.
        """
        if into is None:
            if self._entry is not None:
                results = self._entry(*arguments)
                if results is not None:
                    return results if results.__class__ is list else [results]
            elif not self._has_run:
                self._has_run, self._entry = True, make_plan_entry(self)
        return self.run_step_by_step(arguments, into)

    def run_step_by_step(self, arguments: Sequence[Any], into: list[Any] | None = None) -> list[Any]:
        """`run` in Python: for whatever the native entry declines."""
        with self.lock:
            for position, cell in self._to_set:
                cell[()] = arguments[position]
            if into is not None:
                results = into
            else:
                results = [self._makers[0]()] if len(self._makers) == 1 else [make() for make in self._makers]
            for position, patches in self._to_patch:
                start = _address_of(arguments[position])
                for block, index, offset in patches:
                    block.ints[index] = start + offset
            for position, patches in self._to_give:
                start = _address_of(results[position])
                for block, index, offset in patches:
                    block.ints[index] = start + offset
            try:
                if self.only_kernels:
                    for call in self._calls:
                        call.run(_NO_VALUES)
                    return results
                return self._run_with_host(arguments, results)
            except LivegradError as error:
                resolve_location(error, self._line_of_mark)
                name_index(error, self.source, arguments)
                raise

    def _run_with_host(self, arguments: Sequence[Any], results: list[Any]) -> list[Any]:
        """Host steps find their operands by slot: buffers by number, objects by themselves."""
        plan = self.plan
        assert plan is not None
        values: dict[Any, Any] = {_slot_key(slot): a for slot, a in zip(plan.arguments, arguments, strict=True)}
        buffers = [slot for slot in plan.results if isinstance(slot, Buffer)]
        values |= {slot.number: array for slot, array in zip(buffers, results, strict=True)}
        for call in self._calls:
            call.run(values)
        return [values[_slot_key(slot)] for slot in plan.results]

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """A buffer's memory as an array."""
        fixed = self.fixed_array(buffer)
        return values[buffer.base.number].reshape(buffer.shape) if fixed is None else fixed

    def fixed_array(self, buffer: Buffer) -> np.ndarray[Any, Any] | None:
        """A buffer's memory as an array if it is the same in every run; None for arrays of arguments and results."""
        base = buffer.base
        if base.number in self._cells:
            return self._cells[base.number].reshape(buffer.shape)
        if base.lifetime == "external":
            return None
        assert self.plan is not None
        start = self.plan.arena_offsets[base]
        return self._arena[start : start + buffer.bytes].view(buffer.element.dtype).reshape(buffer.shape)


def _slot_key(slot: Slot) -> int | ObjectSlot:
    return slot.number if isinstance(slot, Buffer) else slot


def _address_of(array: np.ndarray[Any, Any], /) -> int:
    """The address of an array; replaces itself by the quickest way there is, once the runtime is up."""
    global _address_of
    _address_of = invoker().array_address
    return _address_of(array)


def host_call(step: HostStep, owner: Memory) -> Call:
    """A step of the host, ready to run: a loop runs the plan of its body directly."""
    if step.loop is not None:
        return LoopCall(step, step.loop, owner, host_call)
    if step.op in (cond, switch):
        return BranchCall(step, owner, lambda branch: _branch_plan(branch, owner))
    return HostCall(step, owner)


def _branch_plan(branch: Function, owner: Memory) -> CompiledPlan:
    """A branch was lowered with the function around it: to do it again would take time for each level below it."""
    return CompiledPlan.from_plan(Compilation(branch, CPU).plan, owner.run_nested)


class HostCall:
    """One op called from Python; functions among its attributes run as plans of their own."""

    def __init__(self, step: HostStep, owner: Memory) -> None:
        self.step, self._owner = step, owner
        # Looked up once: loops over tensors run their steps thousands of times.
        self._handed_on = _is_handed_on(step.function.results[0])
        self._arrays = {s: array for s in (*step.operands, step.result) if (array := _fixed(s, owner)) is not None}

    def run(self, values: dict[Any, Any]) -> None:
        step = self.step
        node = step.function.results[0]
        arguments = [self._value(slot, values) for slot in step.operands]
        if writes_in_place(node):  # the step is more than one op: it runs as the function that it is
            values[step.result] = self._owner.run_nested(step.function, *[_copied(value) for value in arguments])
            return
        operands = [_operand_view(operand, arguments) for operand in node.operands]
        if self._handed_on:
            self._hand_on(node, operands, values)
            return
        with np.errstate(all="ignore"):
            self._compute(node, operands, values)
        for index, buffer in step.stored:
            np.copyto(self._value(buffer, values), values[step.result][index], casting="unsafe")

    def _value(self, slot: Slot, values: Mapping[Any, Any]) -> Any:
        if isinstance(slot, ObjectSlot):
            return values[slot]
        array = self._arrays.get(slot)
        return self._owner.array_of(slot, values) if array is None else array

    def _hand_on(self, node: Node, operands: list[Any], values: dict[Any, Any]) -> None:
        """Tuples and tapes are put together and taken apart; an array that goes into one is copied from the arena."""
        if node.op is make:
            result: Any = tuple([_copied(value) for value in operands])
        elif node.op is get:
            result = operands[0][node.attribute("index")]
        else:
            tape, index, value = operands
            table = tape if isinstance(tape, Entries | Rows) else Entries(dict(tape))
            result = table.with_entry(int(index), _copied(value))
        if isinstance(self.step.result, ObjectSlot):
            values[self.step.result] = result
        else:
            np.copyto(self._value(self.step.result, values), result, casting="unsafe")

    def _compute(self, node: Node, operands: list[Any], values: dict[Any, Any]) -> None:
        step = self.step
        if node.op is tape_unstack:
            stacked = _copied(operands[0])
            values[step.result] = Rows(node.type.element, [stacked], len(stacked))  # type: ignore[attr-defined]
            return
        if isinstance(step.result, ObjectSlot):
            value = computed_in_parts(node, operands, partial(self._applied, node))
            # An object outlives the arena's present contents.
            values[step.result] = self._applied(node, [_copied(v) for v in operands]) if value is None else value
            return
        target = self._value(step.result, values)
        if node.op is matmul:
            np.matmul(*operands, out=target)
            return
        if node.op is tape_stack and isinstance(operands[0], Rows) and operands[0].count == len(target):
            np.copyto(target, operands[0].columns[0][: len(target)])
            return
        if computed_in_parts(node, operands, partial(self._applied, node), target) is None:
            np.copyto(target, self._applied(node, operands), casting="unsafe")

    def _applied(self, node: Node, operands: Sequence[Any]) -> Any:
        return apply_node(node, operands, self._owner.run_nested)


def _is_handed_on(node: Node) -> bool:
    """Whether a step computes nothing: it puts tuples together, takes them apart, or remembers them."""
    holder = node.operands[0] if node.op is get else node
    return node.op is tape_set or (node.op in (get, make) and isinstance(holder.type, Tuple))


def _fixed(slot: Slot, owner: Memory) -> Any:
    return None if isinstance(slot, ObjectSlot) else owner.fixed_array(slot)


def _operand_view(operand: Node, arguments: Sequence[Any]) -> Any:
    """An operand as a step sees it: what it was given, or that with its dimensions in another order."""
    if operand.op is permute:
        return np.transpose(_operand_view(operand.operands[0], arguments), operand.attribute("axes"))
    return arguments[operand.attribute("index")]


def _copied(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value

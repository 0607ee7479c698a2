"""Runs plans on the CPU: binds argument blocks to one arena once, and then calls kernels directly.

In: a serialised plan and the native code of its kernels. Out: results for arguments. Called by `cpu_function.py`.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from livegrad.codegen.argument_slots import ArgumentSlot, buffer_slot
from livegrad.codegen.check_sites import CLEAN
from livegrad.codegen.llvm.fourier.transform_module import KERNELS as TRANSFORM_KERNELS
from livegrad.codegen.llvm.ordering_module import KERNELS as ORDERING_KERNELS
from livegrad.compiler import Compilation
from livegrad.diagnostics import LivegradError
from livegrad.ir.line_sites import SourceLocations, resolve_location
from livegrad.ir.node import Function
from livegrad.ops.control import cond, switch
from livegrad.runtime.cpu.branches import BranchCall
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.host_steps import HostCall
from livegrad.runtime.cpu.index_errors import add_index
from livegrad.runtime.cpu.kernel_calls import KernelCall, join_kernels
from livegrad.runtime.cpu.kernel_code import KernelCompiler, code_of, codes_of
from livegrad.runtime.cpu.kernel_memory import KernelMemory, Patch
from livegrad.runtime.cpu.loop_body import Call, StepOwner
from livegrad.runtime.cpu.memory_pool import result_maker
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.matmul import PRODUCT_KERNELS
from livegrad.runtime.cpu.native_loops import NativeLoop, native_loop
from livegrad.runtime.cpu.plan_entry import PlanEntry, make_plan_entry
from livegrad.runtime.cpu.plan_serialiser import serialise_plan
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel, SerialisedPlan
from livegrad.runtime.cpu.tensor_loops import LoopCall
from livegrad.runtime.cpu.tiers import Code
from livegrad.runtime.serialised import SerialisedArray
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, Plan, Slot
from livegrad.state import call_after_fork

_LIBRARY_KERNELS = frozenset({*PRODUCT_KERNELS, *TRANSFORM_KERNELS, *ORDERING_KERNELS})
_NO_VALUES: Any = MappingProxyType({})


class CompiledPlan:
    """A plan with its code, memory and argument blocks. Threads run it one at a time.

    `plan` is None if the serialised plan was loaded from disk or made from a template; then it has no host steps.
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
        self._source_locations = source_locations
        self.source: Function | None = None  # for errors
        self._counts = counts  # the number of kernels of each step of the plan; None for a host step
        self._codes = codes
        self.lock = threading.Lock()
        call_after_fork(self, "_free_lock")
        self._entry: PlanEntry | None = None  # made by the second run, because many plans run only once
        self._runs = 0  # so far, those through the entry excepted
        self._memory = KernelMemory(serialised)
        self._address_of_array = invoker().array_address
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
        compiler: KernelCompiler | None = None,
    ) -> CompiledPlan:
        """Compiles the kernels of a plan. Errors resolve the marks of its nodes by `source_locations`."""
        serialised, counts, codes = serialise_plan(plan, compiler)
        return cls(serialised, codes, plan, run_nested, counts, source_locations)

    @classmethod
    def from_serialised(
        cls, serialised: SerialisedPlan, run_nested: Callable[..., Any], source_locations: SourceLocations = ()
    ) -> CompiledPlan | None:
        """Loads the kernels of a serialised plan; None if one of them is no longer in the cache."""
        codes = codes_of(serialised)
        return None if codes is None else cls(serialised, codes, None, run_nested, (), source_locations)

    # --- preparation ---

    def _bind(self) -> None:
        self._patches: dict[int, list[Patch]] = {}
        kernel_calls = [self._kernel_call(kernel) for kernel in self.serialised.kernels]
        kernels = iter(kernel_calls)
        if self.plan is None:
            calls: list[KernelCall | Call] = list(kernels)
        else:
            calls = []
            for step, count in zip(self.plan.steps, self._counts, strict=True):
                if count is None:
                    assert isinstance(step, HostStep)
                    calls.append(self._native_loop(step) or host_call(step, self))
                else:
                    calls += [next(kernels) for _ in range(count)]
        self._calls = join_kernels(calls)
        # By argument or result position, so that a run looks up no buffers.
        arguments = [(p, array.number) for p, array in enumerate(self.serialised.arguments) if array is not None]
        self._argument_patches = [(p, self._patches[number]) for p, number in arguments if number in self._patches]
        self._argument_cells = [(p, self._cells[number]) for p, number in arguments if number in self._cells]
        results = enumerate(self._results)
        self._result_patches = [(p, self._patches[a.number]) for p, a in results if a.number in self._patches]
        loops = [call for call in calls if isinstance(call, NativeLoop)]
        for call in (*kernel_calls, *loops):  # last, because kernels compile in the background meanwhile
            call.wait()

    def _native_loop(self, step: HostStep) -> NativeLoop | None:
        assert self.plan is not None
        return native_loop(step, self.plan, self)

    def bind_slot(self, block: ArgumentBlock, index: int, buffer: Buffer, offset: int) -> None:
        """Writes the address of a buffer to an argument slot: now, or in each run for an argument or result."""
        assert self.plan is not None
        slot = buffer_slot(buffer, self.plan)
        if slot.kind == "external":
            self._patches.setdefault(slot.buffer, []).append((block, index, slot.offset + offset))
        else:
            base = self._memory.arena_start if slot.kind == "arena" else self._cells[slot.buffer].ctypes.data
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
        """The address in an argument slot; 0 for arguments and results, whose addresses are written in each run."""
        match slot.kind:
            case "external":
                return 0
            case "cell":
                return self._cells[slot.buffer].ctypes.data + slot.offset
            case "code":
                return members[slot.buffer].record[0]
            case "block":
                return members[slot.buffer].record[3]
        return self._memory.address_of(slot, library, status.buffer_info()[0])

    # --- parts of native entries ---

    @property
    def calls(self) -> Sequence[Call]:
        return self._calls

    @property
    def memory(self) -> Any:
        """Everything whose address kernels have; a native entry keeps it alive."""
        return self._memory, self._cells, self._calls, self._codes

    @property
    def result_makers(self) -> list[tuple[SerialisedArray, Callable[[], Any]]]:
        return list(zip(self._results, self._makers, strict=True))

    def patches_of(self, number: int) -> list[tuple[int, int]]:
        """The address of each argument slot that refers to a buffer, with its byte offset in the buffer."""
        return [(block.address + 8 * index, offset) for block, index, offset in self._patches.get(number, ())]

    def cell_of(self, number: int) -> int:
        """The address of the cell of a scalar argument; 0 for other arguments."""
        return self._cells[number].ctypes.data if number in self._cells else 0

    def _free_lock(self) -> None:
        """Releases the lock in the child of a fork, which does not have the thread that held it."""
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]

    @property
    def step_counts(self) -> tuple[int, int]:
        """The number of kernels in a run, and of library calls and host steps."""
        launches = [member for kernel in self.serialised.kernels for member in kernel.members or (kernel,)]
        library_calls = sum(kernel.symbol in _LIBRARY_KERNELS for kernel in launches)
        kernels = sum(not kernel.library for kernel in launches)
        return kernels, library_calls + sum(count is None for count in self._counts)

    # --- running ---

    def run(self, arguments: Sequence[Any], into: list[Any] | None = None) -> list[Any]:
        """Computes result leaves from argument leaves, which are dense arrays of the plan's types and shapes.

        With `into`, writes the results to these arrays, which must not alias the arguments.
        """
        if into is None:
            if self._entry is None:
                self._runs += 1
                if self._runs == 2:
                    self._entry = make_plan_entry(self)
            if self._entry is not None:
                results = self._entry(*arguments)
                if results is not None:
                    return results if results.__class__ is list else [results]
        return self.run_step_by_step(arguments, into)

    def run_step_by_step(self, arguments: Sequence[Any], into: list[Any] | None = None) -> list[Any]:
        """`run` without the native entry, which declines some plans and arguments."""
        address_of = self._address_of_array
        with self.lock:
            for position, cell in self._argument_cells:
                cell[()] = arguments[position]
            if into is not None:
                results = into
            else:
                results = [self._makers[0]()] if len(self._makers) == 1 else [make() for make in self._makers]
            for position, patches in self._argument_patches:
                start = address_of(arguments[position])
                for block, index, offset in patches:
                    block.ints[index] = start + offset
            for position, patches in self._result_patches:
                start = address_of(results[position])
                for block, index, offset in patches:
                    block.ints[index] = start + offset
            try:
                if self.only_kernels:
                    for call in self._calls:
                        call.run(_NO_VALUES)
                    return results
                return self._run_with_host(arguments, results)
            except LivegradError as error:
                resolve_location(error, self._source_locations)
                add_index(error, self.source, arguments)
                raise

    def _run_with_host(self, arguments: Sequence[Any], results: list[Any]) -> list[Any]:
        """Runs a plan with host steps. They look up values by key: buffers by number, objects by slot."""
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
        """A buffer's memory as an array if it is the same in every run; None for arguments and results."""
        base = buffer.base
        if base.number in self._cells:
            return self._cells[base.number].reshape(buffer.shape)
        if base.lifetime == "external":
            return None
        assert self.plan is not None
        return self._memory.array_of(buffer, self.plan)


def _slot_key(slot: Slot) -> int | ObjectSlot:
    return slot.number if isinstance(slot, Buffer) else slot


def host_call(step: HostStep, owner: StepOwner) -> Call:
    """Prepares a host step. Loops and branches over tensors run compiled plans; NumPy computes the others."""
    if step.loop is not None:
        return LoopCall(step, step.loop, owner, host_call)
    if step.op in (cond, switch):
        return BranchCall(step, owner, lambda branch: _branch_plan(branch, owner))
    return HostCall(step, owner)


def _branch_plan(branch: Function, owner: StepOwner) -> CompiledPlan:
    """Schedules and compiles a branch. It was lowered with the enclosing function, so it is not lowered again."""
    return CompiledPlan.from_plan(Compilation(branch, CPU).plan, owner.run_nested)

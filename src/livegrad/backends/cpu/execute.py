"""Running plans on the CPU: argument blocks filled once, memory in one arena, calls without detours."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from livegrad.backends.cpu.accumulate import AccumulatingCall
from livegrad.backends.cpu.branch import BranchCall
from livegrad.backends.cpu.chains import worthwhile
from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cpu.kernels import ALIGNMENT, code_of, make_recipe
from livegrad.backends.cpu.loop import LoopCall
from livegrad.backends.cpu.loop_body import Call, Memory
from livegrad.backends.cpu.memory_pool import aligned_memory, result_maker
from livegrad.backends.cpu.native.gemm import PRODUCT_KERNELS
from livegrad.backends.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.backends.cpu.native.pool import interrupt_flag_address
from livegrad.backends.cpu.native.pool_ir import MAX_THREADS
from livegrad.backends.cpu.recipe import KernelRecipe, Recipe
from livegrad.backends.cpu.rows import Rows
from livegrad.backends.cpu.tiers import Code
from livegrad.backends.reference import apply_node
from livegrad.diagnostics import KernelCheckError, LivegradError
from livegrad.ir.entries import Entries
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.places import Places, name_place
from livegrad.ir.types import Tuple
from livegrad.ops.aggregate import get, make
from livegrad.ops.control import cond, for_loop, switch, while_loop
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute
from livegrad.ops.trace import trace_set, trace_stack, trace_unstack
from livegrad.passes.pipeline import run_pipeline
from livegrad.schedule.accumulating import accumulates
from livegrad.schedule.plan import Buffer, HostStep, ObjectSlot, Plan, Slot
from livegrad.schedule.row_chains import row_chains, with_row_chains
from livegrad.schedule.schedule import schedule

_CLEAN = -1
_LONGEST_SEQUENCE = 32  # kernels in one native call: an interrupt waits for its end
Patch = tuple["memoryview[int]", int, int]  # words, index, byte offset


class CompiledPlan:
    """A plan with its code, its memory and its argument blocks. One run at a time; others wait.

    `plan` may be None when a recipe without host steps was loaded from disk.
    """

    def __init__(
        self,
        recipe: Recipe,
        natives: Sequence[Code],
        plan: Plan | None,
        run_nested: Callable[..., Any],
        counts: Sequence[int | None] = (),
        places: Places = (),
    ) -> None:
        self.recipe, self.plan, self.run_nested = recipe, plan, run_nested
        self._line_of_mark = places
        self._counts = counts  # of each step of the plan: how many kernels it is, None for one that the host runs
        self._natives = list(natives)
        self._lock = threading.Lock()
        renew_lock_after_fork(self, "_lock")
        self._arena = aligned_memory(recipe.arena_bytes)
        self._cells = {a.number: np.zeros((), a.element.dtype) for a in recipe.arguments if a.shape == ()}
        self._slots = plan.arguments if plan is not None else recipe.arguments
        self._makers = [result_maker(array.element, array.shape, array.bytes) for array in recipe.results]
        self.only_kernels = None not in counts
        self._bind()

    @classmethod
    def from_plan(cls, plan: Plan, run_nested: Callable[..., Any], places: Places = ()) -> CompiledPlan:
        """Compiles the kernels of a plan; where its nodes have marks, errors name the place of that number."""
        chains = worthwhile(row_chains(plan))
        plan = with_row_chains(plan, chains)
        recipe, counts = make_recipe(plan, chains)
        natives = [_required(kernel) for kernel in recipe.kernels]
        return cls(recipe, natives, plan, run_nested, counts, places)

    @classmethod
    def from_recipe(cls, recipe: Recipe, run_nested: Callable[..., Any], places: Places = ()) -> CompiledPlan | None:
        """Loads the kernels of a recipe; None when one of them is no longer in the cache."""
        natives = [code_of(kernel) for kernel in recipe.kernels]
        found = [native for native in natives if native is not None]
        return cls(recipe, found, None, run_nested, (), places) if len(found) == len(natives) else None

    # --- preparation ---

    def _bind(self) -> None:
        # Room for all threads that there can be: their number may change at any moment, also during a run. Only pages
        # that are written to take memory.
        self._scratch = [aligned_memory((size + ALIGNMENT) * MAX_THREADS) for size in self.recipe.scratch]
        self._patches: dict[int, list[Patch]] = {}
        pairs = zip(self.recipe.kernels, self._natives, strict=True)
        kernels = iter([self._kernel_call(kernel, native) for kernel, native in pairs])
        if self.plan is None:
            singles: list[_KernelCall | Call] = list(kernels)
        else:
            singles = []
            for step, count in zip(self.plan.steps, self._counts, strict=True):
                if count is None:
                    assert isinstance(step, HostStep)
                    singles.append(host_call(step, self, self.plan))
                else:
                    singles += [next(kernels) for _ in range(count)]
        self._calls = _joined(singles)
        # By position among the arguments and among the results, so that a call looks nothing up.
        self._to_patch = [
            (position, self._patches[slot.number])
            for position, slot in enumerate(self._slots)
            if not isinstance(slot, ObjectSlot) and slot.number in self._patches
        ]
        self._to_set = [
            (position, self._cells[slot.number])
            for position, slot in enumerate(self._slots)
            if not isinstance(slot, ObjectSlot) and slot.number in self._cells
        ]
        results = self.recipe.results
        self._to_give = [(p, self._patches[a.number]) for p, a in enumerate(results) if a.number in self._patches]

    def _kernel_call(self, kernel: KernelRecipe, native: Code) -> _KernelCall:
        block = ArgumentBlock(len(kernel.words))
        status = np.full((), _CLEAN, np.int64)
        bases = {"number": 0, "arena": self._arena.ctypes.data, "status": status.ctypes.data}
        members = [self._kernel_call(member, _required(member)) for member in kernel.members]
        for index, word in enumerate(kernel.words):
            if word.kind == "external":
                self._patches.setdefault(word.slot, []).append((block.ints, index, word.value))
            elif word.kind == "cell":
                block.ints[index] = self._cells[word.slot].ctypes.data + word.value
            elif word.kind == "scratch":
                block.ints[index] = self._scratch[word.slot].ctypes.data
            elif word.kind == "interrupt":
                block.ints[index] = interrupt_flag_address()
            elif word.kind == "code":
                block.ints[index] = members[word.slot].record[0]
            elif word.kind == "block":
                block.ints[index] = members[word.slot].record[3]
            else:
                block.ints[index] = bases[word.kind] + word.value
        return _KernelCall(kernel, native, block, status, members)

    @property
    def step_counts(self) -> tuple[int, int]:
        """How many kernels and how many library calls one run makes."""
        every = [single for kernel in self.recipe.kernels for single in kernel.members or (kernel,)]
        products = sum(kernel.symbol in PRODUCT_KERNELS for kernel in every)
        kernels = sum(not kernel.library for kernel in every)
        return kernels, products + sum(count is None for count in self._counts)

    # --- running ---

    def run(self, arguments: Sequence[Any], into: list[Any] | None = None) -> list[Any]:
        """The results' leaves from the arguments' leaves. Arrays are dense and of the right type and shape.

        `into` are arrays to write the results to; they share no memory with the arguments.
        """
        with self._lock:
            for position, cell in self._to_set:
                cell[()] = arguments[position]
            results = [make() for make in self._makers] if into is None else into
            for arrays, patched in ((arguments, self._to_patch), (results, self._to_give)):
                for position, patches in patched:
                    start = _address_of(arrays[position])
                    for words, index, offset in patches:
                        words[index] = start + offset
            try:
                if self.only_kernels:
                    for call in self._calls:
                        call.run({})
                    return results
                return self._run_with_host(arguments, results)
            except LivegradError as error:
                name_place(error, self._line_of_mark)
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
            return self._cells[base.number]
        if base.lifetime == "external":
            return None
        assert self.plan is not None
        start = self.plan.places[base]
        return self._arena[start : start + buffer.bytes].view(buffer.element.dtype).reshape(buffer.shape)


def _required(kernel: KernelRecipe) -> Code:
    native = code_of(kernel)
    assert native is not None, "a kernel that was just compiled is in memory"
    return native


def _slot_key(slot: Slot) -> int | ObjectSlot:
    return slot.number if isinstance(slot, Buffer) else slot


def _address_of(array: np.ndarray[Any, Any], /) -> int:
    """The address of an array; replaces itself by the quickest way there is, once the runtime is up."""
    global _address_of
    _address_of = invoker().array_address
    return _address_of(array)


class _KernelCall:
    """One kernel launch, ready to go."""

    __slots__ = ("_invoke", "_sites", "block", "interruptible", "members", "native", "record", "status")

    def __init__(
        self,
        kernel: KernelRecipe,
        native: Code,
        block: ArgumentBlock,
        status: Any,
        members: Sequence[_KernelCall],
    ) -> None:
        self.native, self.block, self.status = native, block, status
        self.members = members  # kept alive: the block holds their addresses
        self.record = (native.addresses[kernel.symbol], kernel.total, kernel.grain, block.address)
        self._sites, self.interruptible = kernel.sites, kernel.interruptible
        self._invoke = invoker().invoke_interruptible if kernel.interruptible else invoker().invoke

    @property
    def has_checks(self) -> bool:
        return bool(self._sites)

    def run(self, values: Mapping[Any, Any]) -> None:
        try:
            interrupted = self._invoke(*self.record)
            if self.interruptible and interrupted:
                raise KeyboardInterrupt
        except BaseException:
            self.status[()] = _CLEAN  # a check that failed before the interrupt is no business of the next run
            raise
        self.check()

    def check(self) -> None:
        """Raises what the kernel found wrong."""
        if self._sites and self.status != _CLEAN:
            word = int(self.status)
            self.status[()] = _CLEAN
            site = self._sites[word & 0xFFFF]
            raise KernelCheckError(f"{site.message}, at element {word >> 16}", where=site.origin)


class _Sequence:
    """Kernels that run one after the other in one native call; only the last may have something to check."""

    __slots__ = ("_arguments", "_invoke", "_members", "_records")

    def __init__(self, members: Sequence[_KernelCall]) -> None:
        self._members = members
        self._records = array("q", [word for member in members for word in member.record])
        self._arguments = (self._records.buffer_info()[0], len(members))
        self._invoke = invoker().invoke_sequence

    def run(self, values: Mapping[Any, Any]) -> None:
        self._invoke(*self._arguments)
        self._members[-1].check()


def _joined(calls: Sequence[_KernelCall | Call]) -> list[Call]:
    """Neighbouring kernels become one call, up to one that has something to check or that an interrupt may end."""
    joined: list[Call] = []
    waiting: list[_KernelCall] = []
    for call in (*calls, None):
        if isinstance(call, _KernelCall) and not call.interruptible:
            waiting.append(call)
            if not call.has_checks and len(waiting) < _LONGEST_SEQUENCE:
                continue
            call = None
        if waiting:
            joined.append(waiting[0] if len(waiting) == 1 else _Sequence(tuple(waiting)))
            waiting = []
        if call is not None:
            joined.append(call)
    return joined


def host_call(step: HostStep, owner: Memory, plan: Plan) -> Call:
    """A step of the host, ready to go: a loop runs its body's plan without a detour."""
    if accumulates(step.function.results[0]):
        return AccumulatingCall(step, owner, lambda made: CompiledPlan.from_plan(made, owner.run_nested))
    if step.op in (for_loop, while_loop):
        return LoopCall(step, owner, plan, host_call)
    if step.op in (cond, switch):
        return BranchCall(step, owner, lambda branch: _branch_plan(branch, owner))
    return HostCall(step, owner)


def _branch_plan(branch: Function, owner: Memory) -> CompiledPlan:
    return CompiledPlan.from_plan(schedule(run_pipeline(Module((branch,))).functions[0]), owner.run_nested)


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
        given = [self._value(slot, values) for slot in step.operands]
        if accumulates(node):  # the step is more than one op: it runs as the function that it is
            values[step.result] = self._owner.run_nested(step.function, *[_own_copy(value) for value in given])
            return
        operands = [_seen(operand, given) for operand in node.operands]
        if self._handed_on:
            self._hand_on(node, operands, values)
            return
        with np.errstate(all="ignore"):
            self._compute(node, operands, values)

    def _value(self, slot: Slot, values: Mapping[Any, Any]) -> Any:
        if isinstance(slot, ObjectSlot):
            return values[slot]
        array = self._arrays.get(slot)
        return self._owner.array_of(slot, values) if array is None else array

    def _hand_on(self, node: Node, operands: list[Any], values: dict[Any, Any]) -> None:
        """Tuples and traces are put together and taken apart; an array that goes into one is copied from the arena."""
        if node.op is make:
            result: Any = tuple([_own_copy(value) for value in operands])
        elif node.op is get:
            result = operands[0][node.attribute("index")]
        else:
            trace, index, value = operands
            table = trace if isinstance(trace, Entries | Rows) else Entries(dict(trace))
            result = table.with_entry(int(index), _own_copy(value))
        if isinstance(self.step.result, ObjectSlot):
            values[self.step.result] = result
        else:
            np.copyto(self._value(self.step.result, values), result, casting="unsafe")

    def _compute(self, node: Node, operands: list[Any], values: dict[Any, Any]) -> None:
        step, owner = self.step, self._owner
        if node.op is trace_unstack:
            stacked = _own_copy(operands[0])
            values[step.result] = Rows(node.type.element, [stacked], len(stacked))  # type: ignore[attr-defined]
            return
        if isinstance(step.result, ObjectSlot):
            # An object outlives the arena's present contents.
            values[step.result] = apply_node(node, [_own_copy(value) for value in operands], owner.run_nested)
            return
        target = self._value(step.result, values)
        if node.op is matmul:
            np.matmul(*operands, out=target)
            return
        if node.op is trace_stack and isinstance(operands[0], Rows) and operands[0].count == len(target):
            np.copyto(target, operands[0].columns[0][: len(target)])
            return
        np.copyto(target, apply_node(node, operands, owner.run_nested), casting="unsafe")


def _is_handed_on(node: Node) -> bool:
    """Whether a step computes nothing: it puts tuples together, takes them apart, or remembers them."""
    holder = node.operands[0] if node.op is get else node
    return node.op is trace_set or (node.op in (get, make) and isinstance(holder.type, Tuple))


def _fixed(slot: Slot, owner: Memory) -> Any:
    return None if isinstance(slot, ObjectSlot) else owner.fixed_array(slot)


def _seen(operand: Node, given: Sequence[Any]) -> Any:
    """An operand as a step sees it: what it was given, or that with its dimensions in another order."""
    if operand.op is permute:
        return np.transpose(_seen(operand.operands[0], given), operand.attribute("axes"))
    return given[operand.attribute("index")]


def _own_copy(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value

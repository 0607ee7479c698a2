"""Running plans on the CPU: kernels compiled once for each layout, buffers in one arena, calls without detours."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.backends.cpu.bind import Bound, bind
from livegrad.backends.cpu.emit.assembler import Site
from livegrad.backends.cpu.emit.kernel import Layout, emit_kernel
from livegrad.backends.cpu.memory_pool import RESULTS, aligned_memory
from livegrad.backends.cpu.native.compiler import NativeFunction, compile_kernel, host_target
from livegrad.backends.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.backends.cpu.native.pool import interrupt_flag_address, threads
from livegrad.backends.reference import apply_node
from livegrad.diagnostics import KernelCheckError
from livegrad.schedule.kernel import Kernel
from livegrad.schedule.plan import Buffer, HostStep, KernelStep, ObjectSlot, Plan

_ALIGNMENT = 64
_MOST_KERNELS = 2048
_CLEAN = -1


@dataclass(frozen=True)
class CompiledKernel:
    """Native code of a kernel for one layout."""

    native: NativeFunction
    words: tuple[str, ...]
    sites: tuple[Site, ...]
    interruptible: bool


_kernels: OrderedDict[tuple[Kernel, Layout], CompiledKernel] = OrderedDict()
_kernels_lock = threading.Lock()


def compiled(kernel: Kernel, layout: Layout) -> CompiledKernel:
    """The kernel's code, made when it is asked for first."""
    key = (kernel, layout)
    with _kernels_lock:
        found = _kernels.get(key)
        if found is not None:
            _kernels.move_to_end(key)
            return found
    text = emit_kernel(kernel, layout)
    native = compile_kernel(text.text, "kernel")
    made = CompiledKernel(native, text.words, text.sites, text.interruptible)
    with _kernels_lock:
        _kernels[key] = made
        while len(_kernels) > _MOST_KERNELS:
            _kernels.popitem(last=False)
    return made


def forget_kernels() -> None:
    """Drops all compiled kernels from memory; those on disk stay."""
    with _kernels_lock:
        _kernels.clear()


class CompiledPlan:
    """A plan with its code, its memory and its argument blocks. One run at a time; others wait."""

    def __init__(self, plan: Plan, run_nested: Callable[..., Any]) -> None:
        self.plan = plan
        self.run_nested = run_nested
        self._lock = threading.Lock()
        self._arena = aligned_memory(plan.arena_bytes)
        self._address = self._arena.ctypes.data
        self._scratch: list[Any] = []
        self._cells: dict[Buffer, np.ndarray[Any, Any]] = {}
        self._patches: dict[Buffer, list[tuple[memoryview[int], int, int]]] = {}
        self._calls: list[_KernelCall | _HostCall] = []
        self._threads = threads()
        self._outputs = [
            (slot, slot.element, slot.shape, slot.bytes) for slot in plan.results if isinstance(slot, Buffer)
        ]
        for slot in plan.arguments:
            if isinstance(slot, Buffer) and slot.shape == ():
                self._cells[slot] = np.zeros((), slot.element.dtype)
        self._bind_steps()

    # --- preparation ---

    def _bind_steps(self) -> None:
        for step in self.plan.steps:
            if isinstance(step, KernelStep):
                self._calls.append(self._bind_kernel(step))
            else:
                self._calls.append(_HostCall(step, self))

    def _bind_kernel(self, step: KernelStep) -> _KernelCall:
        bound = bind(step, host_target().vector_bytes)
        code = compiled(step.kernel, bound.layout)
        block = ArgumentBlock(len(code.words))
        status = np.full((), _CLEAN, np.int64)
        values = self._word_values(step, bound, status)
        for index, name in enumerate(code.words):
            value = values[name]
            if isinstance(value, tuple):
                buffer, offset = value
                self._patches.setdefault(buffer, []).append((block.ints, index, offset))
            else:
                block.ints[index] = value
        return _KernelCall(code, block, bound.total, bound.grain, status)

    def _word_values(self, step: KernelStep, bound: Bound, status: Any) -> dict[str, Any]:
        """What each word of the argument block holds: a number, or a buffer that is given at each run."""
        values: dict[str, Any] = {
            "status": status.ctypes.data,
            "interrupt": interrupt_flag_address(),
            "block": bound.block,
        }
        values |= {f"domain{d}": size for d, size in enumerate(bound.domain)}
        values |= {f"inner{d}": size for d, size in enumerate(bound.inner)}
        for role, ports, views, strides in (
            ("read", step.kernel.reads, step.reads, bound.reads),
            ("output", step.kernel.outputs, step.outputs, bound.outputs),
        ):
            for number, (port, view, own) in enumerate(zip(ports, views, strides, strict=True)):
                values[f"{role}{number}"] = self._place(view.buffer, view.offset)
                values |= {f"{role}{number}.stride{d}": stride for d, stride in enumerate(own)}
                if port.scratch:
                    values["block"] = self._scratch_bytes(step)
        for number, buffer in enumerate(step.wholes):
            values[f"whole{number}"] = self._place(buffer, 0)
            values |= {f"whole{number}.extent{d}": size for d, size in enumerate(buffer.shape)}
            values |= {f"whole{number}.stride{d}": stride for d, stride in enumerate(buffer.strides)}
        for number, view in enumerate(step.uniforms):
            values[f"uniform{number}"] = self._place(view.buffer, view.offset)
        return values

    def _scratch_bytes(self, step: KernelStep) -> int:
        """What one thread needs of each scratch buffer of a step."""
        sizes = [v.buffer.bytes for p, v in zip(step.kernel.outputs, step.outputs, strict=True) if p.scratch]
        return -(-max(sizes) // _ALIGNMENT) * _ALIGNMENT

    def _place(self, buffer: Buffer, offset: int) -> Any:
        """Where an element of a buffer lies: an address, or the buffer and a byte offset when it comes from outside."""
        base = buffer.base
        shift = offset * buffer.element.dtype.itemsize
        if base in self._cells:
            return self._cells[base].ctypes.data + shift
        if base.lifetime == "external":
            return base, shift
        if base.lifetime == "region":
            return self._scratch_place(base)
        return self._address + self.plan.places[base] + shift

    def _scratch_place(self, buffer: Buffer) -> int:
        for known, memory in self._scratch:
            if known is buffer:
                return memory.ctypes.data
        size = (-(-buffer.bytes // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT) * self._threads
        memory = aligned_memory(size)
        self._scratch.append((buffer, memory))
        return memory.ctypes.data

    # --- running ---

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The results' leaves from the arguments' leaves. Arrays are dense and of the right type and shape."""
        with self._lock:
            if threads() != self._threads:
                self._rebind()
            values = self._accept(arguments)
            for slot, element, shape, size in self._outputs:
                values[slot] = RESULTS.array(element, shape, size)
            address = invoker().array_address
            for buffer, patches in self._patches.items():
                start = address(values[buffer])
                for words, index, offset in patches:
                    words[index] = start + offset
            for call in self._calls:
                call.run(values)
            return [values[slot] for slot in self.plan.results]

    def _rebind(self) -> None:
        self._threads = threads()
        self._scratch, self._calls, self._patches = [], [], {}
        self._bind_steps()

    def _accept(self, arguments: Sequence[Any]) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for slot, argument in zip(self.plan.arguments, arguments, strict=True):
            if isinstance(slot, ObjectSlot):
                values[slot] = argument
            elif slot in self._cells:
                self._cells[slot][()] = argument
            else:
                values[slot] = argument
        return values

    def array_of(self, buffer: Buffer, values: Mapping[Any, Any]) -> np.ndarray[Any, Any]:
        """A buffer's memory as an array."""
        base = buffer.base
        if base in self._cells:
            return self._cells[base]
        if base in values:
            return values[base].reshape(buffer.shape)
        start = self.plan.places[base]
        return self._arena[start : start + buffer.bytes].view(buffer.element.dtype).reshape(buffer.shape)


class _KernelCall:
    """One kernel launch, ready to go."""

    __slots__ = ("_interruptible", "_invoke", "_record", "block", "code", "status")

    def __init__(self, code: CompiledKernel, block: ArgumentBlock, total: int, grain: int, status: Any) -> None:
        self.code, self.block, self.status = code, block, status
        self._record = (code.native.address, total, grain, block.address)
        self._interruptible = code.interruptible
        self._invoke = invoker().invoke_interruptible if code.interruptible else invoker().invoke

    def run(self, values: Mapping[Any, Any]) -> None:
        interrupted = self._invoke(*self._record)
        if interrupted and self._interruptible:
            raise KeyboardInterrupt
        if self.code.sites and self.status != _CLEAN:
            word = int(self.status)
            self.status[()] = _CLEAN
            site = self.code.sites[word & 0xFFFF]
            raise KernelCheckError(f"{site.message}, at element {word >> 16}", where=site.origin)


class _HostCall:
    """One op called from Python; functions among its attributes run as plans of their own."""

    def __init__(self, step: HostStep, owner: CompiledPlan) -> None:
        self._step, self._owner = step, owner

    def run(self, values: dict[Any, Any]) -> None:
        step, owner = self._step, self._owner
        node = step.function.results[0]
        given = [values[s] if isinstance(s, ObjectSlot) else owner.array_of(s, values) for s in step.operands]
        operands = [given[operand.attribute("index")] for operand in node.operands]
        if isinstance(step.result, ObjectSlot):
            # An object outlives the arena's present contents.
            values[step.result] = apply_node(node, [_own_copy(value) for value in operands], owner.run_nested)
            return
        result = apply_node(node, operands, owner.run_nested)
        np.copyto(owner.array_of(step.result, values), result, casting="unsafe")


def _own_copy(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value

"""Outlines parallel loops of a kernel: a subroutine runs a range of iterations, and the thread pool calls it.

The values that the iterations read (kernel arguments, scalars, addresses of tensors) are passed in a block of memory.
Called by `masked_control.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import NodeValue, Register, TensorReference, pointer
from livegrad.ir.types import i64

_ARGUMENTS, _BLOCK = Register("%args", pointer, 1), Register("%block", pointer, 1)
_STATUS, _INTERRUPT = 0, 1  # the first argument slots of every kernel


class OutlinedLoop:
    """The subroutine for the iterations from `begin` to `end`, under construction; `values` are its operands.

    `private` has the positions of operands that are private to a thread, on its stack, with their sizes in bytes.
    """

    def __init__(self, kernel: KernelBuilder, operands: Sequence[NodeValue], private: Mapping[int, int]) -> None:
        self._kernel, self._block, self._slots = kernel, Register(kernel.name("block"), pointer, 1), 0
        self.builder = kernel.subroutine_builder()
        self.builder.sites = kernel.sites
        self.builder.ends_on_failure = kernel.ends_on_failure
        self.begin, self.end = Register("%begin", i64, 1), Register("%end", i64, 1)
        arguments = self._pass(_ARGUMENTS)
        for name, index in (("status", _STATUS), ("interrupt", _INTERRUPT)):
            slot = self.builder.advance(arguments, self.builder.constant(index, i64), "i64")
            self.builder.line(f"%{name} = load ptr, {slot.typed}, align 8")
        self.values = [self._import(operand, private.get(position)) for position, operand in enumerate(operands)]

    def run(self, iterations: Register, grain: int) -> None:
        """Ends the subroutine, and emits the call that runs it for all iterations on the pool."""
        kernel, inner = self._kernel, self.builder
        inner.line("ret void")
        symbol = f"kernel.{len(kernel.definitions)}"
        body = "\n".join(["start:", *inner.entry, *inner.lines])
        head = f"define internal void @{symbol}(i64 %begin, i64 %end, ptr noalias %block, i64 %worker) noinline #0"
        kernel.definitions.append(f"{head} {{\n{body}\n}}")
        kernel.polls |= inner.polls
        kernel.entry.append(f"  {self._block.text} = alloca [{self._slots} x i64], align 64")
        assert kernel.pool_run is not None
        operands = (f"ptr @{symbol}", iterations.typed, f"i64 {grain}", self._block.typed)
        kernel.line(f"call void {kernel.pool_run.text}({', '.join(operands)})")

    def _import(self, value: NodeValue, private: int | None = None) -> NodeValue:
        """A value of the kernel in the subroutine; with `private`, a tensor of so many bytes on the thread's stack."""
        if isinstance(value, Register):
            return self._pass(value)
        if isinstance(value, tuple):
            return tuple([self._import(part) for part in value])
        assert isinstance(value, TensorReference)
        extents, strides = ([self._pass(register) for register in group] for group in (value.extents, value.strides))
        address = self._pass(value.pointer) if private is None else self.builder.allocate(f"[{private} x i8]", "local")
        return replace(value, pointer=address, extents=tuple(extents), strides=tuple(strides))

    def _pass(self, register: Register) -> Register:
        """Passes a register of the kernel to the subroutine through a slot of the block."""
        if register.literal:
            return register
        offset = self._kernel.constant(self._slots, i64)
        self._slots += 1
        self._kernel.store(register, self._kernel.advance(self._block, offset, "i64"), 8)
        return self.builder.load(self.builder.advance(_BLOCK, offset, "i64"), register.type, 1, 8)

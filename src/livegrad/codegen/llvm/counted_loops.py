"""Loops in LLVM IR: blocks, and a phi for every register that is carried between iterations.

`control.py` writes a program's loops with it, `stages.py` and `kernel.py` those over a domain, `tapes.py` over slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.codegen.llvm.builder import Assembler
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.ir.types import bool_, i64


class OpenLoop:
    """A loop whose head has been emitted; `carried` holds the registers at the start of an iteration."""

    def __init__(self, asm: Assembler, start: Sequence[Register]) -> None:
        self._asm, self._start = asm, start
        self._head, self.body, self.done = (asm.label(hint) for hint in ("loop", "body", "done"))
        self._before = asm.block
        asm.jump(self._head)
        asm.begin(self._head)
        self._place = len(asm.lines)
        self.carried = [Register(asm.name("c"), register.type, register.lanes) for register in start]
        asm.lines.extend([""] * len(start))  # the phis: what they take from the body is known only at its end

    def close(self, following: Sequence[Register]) -> None:
        """Ends the body; the next iteration starts with these registers."""
        asm = self._asm
        last = asm.block
        asm.jump(self._head)
        for offset, (phi, first, final) in enumerate(zip(self.carried, self._start, following, strict=True)):
            pairs = f"[ {first.text}, %{self._before} ], [ {final.text}, %{last} ]"
            asm.lines[self._place + offset] = f"  {phi.text} = phi {llvm_type(phi.type, phi.lanes)} {pairs}"
        asm.begin(self.done)


def counted_loop(
    asm: Assembler,
    start: Register,
    stop: Register,
    step: int,
    carried: Sequence[Register],
    body: Callable[[Register, list[Register]], list[Register]],
    downward: bool = False,
) -> list[Register]:
    """for (i = start; i < stop; i += step) carried = body(i, carried); gives the last carried registers."""
    loop = OpenLoop(asm, [start, *carried])
    index, *state = loop.carried
    asm.branch(asm.apply("icmp slt", bool_, index, stop), loop.body, loop.done)
    asm.begin(loop.body)
    position = index
    if downward:
        beyond = asm.apply("sub", i64, asm.apply("add", i64, start, stop), index)
        position = asm.apply("sub", i64, beyond, asm.constant(1, i64))
    finals = body(position, state)
    loop.close([asm.apply("add", i64, index, asm.constant(step, i64)), *finals])
    return state

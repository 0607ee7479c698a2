"""Loops in LLVM IR: blocks, and a phi for every register that is carried between iterations.

`masked_control.py` writes the loops of a program with it, `stages.py` and `kernel_module.py` those over a domain, and
`values.py` those of hand-written kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.ir.types import bool_, i64


class OpenLoop:
    """A loop whose head has been emitted; `carried` holds the registers at the start of an iteration."""

    def __init__(self, builder: Builder, start: Sequence[Register]) -> None:
        self._builder, self._start = builder, start
        self._head, self.body, self.done = (builder.label(hint) for hint in ("loop", "body", "done"))
        self._before = builder.block
        builder.jump(self._head)
        builder.begin(self._head)
        self._preheader_line = len(builder.lines)
        self.carried = [Register(builder.name("c"), register.type, register.lanes) for register in start]
        builder.lines.extend([""] * len(start))  # the phis: what they take from the body is known only at its end

    def close(self, following: Sequence[Register], condition: Register | None = None, flags: str = "") -> None:
        """Ends the body; the next iteration starts with these registers.

        With a condition, there is one only while it holds. The condition is then tested here, not in the head.
        """
        builder = self._builder
        last = builder.block
        if condition is None:
            builder.jump(self._head, flags)
        else:
            builder.branch(condition, self._head, self.done, flags)
        for offset, (phi, first, final) in enumerate(zip(self.carried, self._start, following, strict=True)):
            pairs = f"[ {first.text}, %{self._before} ], [ {final.text}, %{last} ]"
            builder.lines[self._preheader_line + offset] = (
                f"  {phi.text} = phi {llvm_type(phi.type, phi.lanes)} {pairs}"
            )
        builder.begin(self.done)


def counted_loop(
    builder: Builder,
    start: Register,
    stop: Register,
    step: int,
    carried: Sequence[Register],
    body: Callable[[Register, list[Register]], list[Register]],
    downward: bool = False,
    unless: Callable[[Register], Register] | None = None,
    increment: str = "add",
    flags: str = "",
) -> list[Register]:
    """for (i = start; i < stop; i += step) carried = body(i, carried); gives the last carried registers.

    `unless` makes the condition narrower, as one that also polls for an interrupt; `flags` are metadata of the loop.
    """
    loop = OpenLoop(builder, [start, *carried])
    index, *state = loop.carried
    again = builder.apply("icmp slt", bool_, index, stop)
    builder.branch(again if unless is None else unless(again), loop.body, loop.done)
    builder.begin(loop.body)
    position = index
    if downward:
        beyond = builder.apply("sub", i64, builder.apply("add", i64, start, stop), index)
        position = builder.apply("sub", i64, beyond, builder.constant(1, i64))
    finals = body(position, state)
    loop.close([builder.apply(increment, i64, index, builder.constant(step, i64)), *finals], flags=flags)
    return state

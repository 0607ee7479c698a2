"""Emits loops in LLVM IR: their blocks, and a phi for every register that is carried between iterations.

`masked_control.py` emits the loops of a program with it, `stages.py` and `kernel_module.py` the loops over a domain,
and `values.py` the loops of hand-written kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Register, llvm_type
from livegrad.ir.types import bool_, i64


class OpenLoop:
    """A loop whose header has been emitted; `carried` holds the registers at the start of an iteration."""

    def __init__(self, builder: Builder, start: Sequence[Register]) -> None:
        self._builder, self._start = builder, start
        self._head, self.body, self.done = (builder.label(hint) for hint in ("loop", "body", "done"))
        self._before = builder.block
        builder.jump(self._head)
        builder.begin(self._head)
        self._first_phi = len(builder.lines)
        self.carried = [Register(builder.name("c"), register.type, register.lanes) for register in start]
        builder.lines.extend([""] * len(start))  # the phis, written by `close`: their operands come from the body

    def close(self, following: Sequence[Register], condition: Register | None = None, flags: str = "") -> None:
        """Ends the body; the next iteration starts with these registers.

        With a condition, the loop continues while it holds: the loop is tested at its end, not in its header.
        """
        builder = self._builder
        last = builder.block
        if condition is None:
            builder.jump(self._head, flags)
        else:
            builder.branch(condition, self._head, self.done, flags)
        for offset, (phi, first, final) in enumerate(zip(self.carried, self._start, following, strict=True)):
            pairs = f"[ {first.text}, %{self._before} ], [ {final.text}, %{last} ]"
            builder.lines[self._first_phi + offset] = f"  {phi.text} = phi {llvm_type(phi.type, phi.lanes)} {pairs}"
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
    """for (i = start; i < stop; i += step) carried = body(i, carried); returns the last carried registers.

    `downward` visits the same indices from the last to the first. `unless` restricts the loop condition, for example
    by polling for an interrupt. `flags` are metadata of the loop.
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

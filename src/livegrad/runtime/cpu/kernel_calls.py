"""Kernel launches that are ready to run. In: kernels of a serialised plan, with code and argument blocks. Out: calls.

`compiled_plan.py` creates them when it binds a plan, and runs them in order.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from livegrad.codegen.check_sites import CLEAN, check_failure
from livegrad.runtime.cpu.loop_body import Call
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel
from livegrad.runtime.cpu.tiers import Code

_MAX_SEQUENCE = 32  # kernels in one native call, which cannot be interrupted


class KernelCall:
    """One kernel launch, ready to run."""

    __slots__ = ("_invoke", "_sites", "block", "interruptible", "members", "native", "record", "status")

    def __init__(
        self,
        kernel: SerialisedKernel,
        native: Code,
        block: ArgumentBlock,
        status: array[int],
        members: Sequence[KernelCall],
    ) -> None:
        self.native, self.block, self.status = native, block, status
        self.members = members  # kept alive: the block holds their addresses
        self.record = (native.addresses[kernel.symbol], kernel.total, kernel.grain, block.address)
        self._sites, self.interruptible = kernel.sites, kernel.interruptible
        self._invoke = invoker().invoke_interruptible if kernel.interruptible else invoker().invoke

    def wait(self) -> None:
        """Returns when the code is compiled."""
        for call in (self, *self.members):
            call.native.wait()

    @property
    def has_checks(self) -> bool:
        return bool(self._sites)

    @property
    def status_address(self) -> int:
        """The address of the status word; 0 without checks."""
        return self.status.buffer_info()[0] if self._sites else 0

    def run(self, values: Mapping[Any, Any]) -> None:
        try:
            interrupted = self._invoke(*self.record)
            if self.interruptible and interrupted:
                raise KeyboardInterrupt
        except BaseException:
            self.status[0] = CLEAN  # a check may have failed before the interrupt
            raise
        if self._sites:
            self.check()

    def check(self) -> None:
        """Raises the failure that the kernel reported."""
        if self._sites and self.status[0] != CLEAN:
            status = self.status[0]
            self.status[0] = CLEAN
            raise check_failure(status, self._sites)


class KernelSequence:
    """Kernels that run in sequence in one native call; only the last one may have checks."""

    __slots__ = ("_arguments", "_invoke", "_records", "members")

    def __init__(self, members: Sequence[KernelCall]) -> None:
        self.members = members
        self._records = array("q", [word for member in members for word in member.record])
        self._arguments = (self._records.buffer_info()[0], len(members))
        self._invoke = invoker().invoke_sequence

    def run(self, values: Mapping[Any, Any]) -> None:
        self._invoke(*self._arguments)
        self.members[-1].check()


def join_kernels(calls: Sequence[KernelCall | Call]) -> list[Call]:
    """Joins adjacent kernels into native calls. A kernel with checks ends a call; an interruptible one is separate."""
    joined: list[Call] = []
    sequence: list[KernelCall] = []
    for call in (*calls, None):
        if isinstance(call, KernelCall) and not call.interruptible:
            sequence.append(call)
            if not call.has_checks and len(sequence) < _MAX_SEQUENCE:
                continue
            call = None
        if sequence:
            joined.append(sequence[0] if len(sequence) == 1 else KernelSequence(tuple(sequence)))
            sequence = []
        if call is not None:
            joined.append(call)
    return joined

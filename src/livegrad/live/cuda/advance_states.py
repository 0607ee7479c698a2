"""Advances the states on the device with one graph of copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from livegrad.runtime.cuda.cuda_graph import ExecutableGraph, GraphBuilder
from livegrad.runtime.cuda.device_memory import DeviceMemory

if TYPE_CHECKING:
    from livegrad.live.cuda.executable import CudaExecutable


class Advance:
    """Two graphs: one puts values aside that are another state's next, one gives all states theirs.

    Started a second time before the next run, either changes nothing: a frame that was interrupted here can go on.
    """

    def __init__(self, executable: CudaExecutable) -> None:
        self._spare: list[DeviceMemory] = []
        values = {state.value for state in executable.plan.states}
        staged: list[tuple[int, int, int]] = []
        copied: list[tuple[int, int, int]] = []
        for state in executable.plan.states:
            size, source = executable.plan.buffers[state.value].bytes, executable.address(state.next)
            if size and state.next in values:
                memory = DeviceMemory(size)
                self._spare.append(memory)
                staged.append((memory.address, source, size))
                source = memory.address
            if size:
                copied.append((executable.address(state.value), source, size))
        self.staging = _copying(staged) if staged else None
        self.graph = _copying(copied)

    def close(self) -> None:
        """Gives the graphs back."""
        self.graph.close()
        if self.staging is not None:
            self.staging.close()


def _copying(copies: Iterable[tuple[int, int, int]]) -> ExecutableGraph:
    """A graph of copies, each a target, a source and a number of bytes."""
    builder = GraphBuilder()
    for target, source, size in copies:
        builder.copy(target, source, size)
    return ExecutableGraph(builder)

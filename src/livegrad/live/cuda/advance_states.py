"""Advances states on the device: graphs of copies from the next values to the values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from livegrad.runtime.cuda.cuda_graph import ExecutableGraph, GraphBuilder
from livegrad.runtime.cuda.device_memory import DeviceMemory

if TYPE_CHECKING:
    from livegrad.live.cuda.executable import CudaExecutable


class Advance:
    """Two graphs: `staging` saves values that are the `next` of other states, `graph` advances all states.

    Both are idempotent until the next run, so an interrupted frame can continue.
    """

    def __init__(self, executable: CudaExecutable) -> None:
        self._staging_memory: list[DeviceMemory] = []
        values = {state.value for state in executable.plan.states}
        staged: list[tuple[int, int, int]] = []
        copied: list[tuple[int, int, int]] = []
        for state in executable.plan.states:
            size, source = executable.plan.buffers[state.value].bytes, executable.address(state.next)
            if size and state.next in values:
                memory = DeviceMemory(size)
                self._staging_memory.append(memory)
                staged.append((memory.address, source, size))
                source = memory.address
            if size:
                copied.append((executable.address(state.value), source, size))
        self.staging = _make_copy_graph(staged) if staged else None
        self.graph = _make_copy_graph(copied)

    def close(self) -> None:
        """Destroys the graphs."""
        self.graph.close()
        if self.staging is not None:
            self.staging.close()


def _make_copy_graph(copies: Iterable[tuple[int, int, int]]) -> ExecutableGraph:
    """A graph of copies, each given as target, source and size in bytes."""
    builder = GraphBuilder()
    for target, source, size in copies:
        builder.copy(target, source, size)
    return ExecutableGraph(builder)

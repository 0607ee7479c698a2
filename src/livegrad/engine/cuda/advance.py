"""States on the device: a graph of copies that gives all of them their next values, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livegrad.backends.cuda.live_graph import ExecutableGraph, GraphBuilder
from livegrad.backends.cuda.memory import DeviceMemory

if TYPE_CHECKING:
    from livegrad.engine.cuda.executable import CudaExecutable


class Advance:
    """The graph, and the memory that values pass through which are another state's next."""

    def __init__(self, executable: CudaExecutable) -> None:
        builder = GraphBuilder()
        self._spare: list[DeviceMemory] = []
        values = {state.value for state in executable.plan.states}
        copies: list[tuple[int, int, int]] = []
        first: list[int] = []
        for state in executable.plan.states:
            size, source = executable.plan.buffers[state.value].bytes, executable.address(state.next)
            if state.next in values:
                memory = DeviceMemory(size)
                self._spare.append(memory)
                first.append(builder.copy(memory.address, source, size))
                source = memory.address
            copies.append((executable.address(state.value), source, size))
        for target, source, size in copies:
            if size:
                builder.copy(target, source, size, first)
        self.graph = ExecutableGraph(builder)

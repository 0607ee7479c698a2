"""The launches of a plan, and the graphs that run them.

In: serialised launches with their dependencies. Out: a graph that is built before its first launch. `device_plan.py`
fills the argument slots; a graph updates its nodes when they have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from livegrad.codegen.argument_slots import Slots
from livegrad.diagnostics import LivegradError
from livegrad.runtime.cuda.cuda_graph import ChangeRefused, ExecutableGraph, GraphBuilder, Launch
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, device, driver
from livegrad.runtime.cuda.libraries.capture import BoundCall
from livegrad.runtime.cuda.modules import load_code
from livegrad.runtime.cuda.nvrtc import load_compiled
from livegrad.runtime.cuda.serialised_device_plan import SerialisedLaunch, SerialisedLibraryCall


class PlanLaunch:
    """A launch of a plan and the sources of its argument slots: of a kernel, or the addresses of a library call."""

    def __init__(self, serialised: SerialisedLaunch | SerialisedLibraryCall) -> None:
        self.serialised, self.number = serialised, serialised.number
        self.partials = self.counters = None
        if isinstance(serialised, SerialisedLibraryCall):
            serialised.call.prepare()
            self.slots: Slots = (*serialised.operands, serialised.result)
            self.launch: Launch | BoundCall = BoundCall(serialised.call, [0] * len(serialised.operands), 0)
            self.kernel: SerialisedLaunch | None = None
            return
        code = load_compiled(serialised.code)
        if code is None:
            raise DeviceError(f"the code of `{serialised.name}` was evicted from the cache", help="run it again")
        self.slots, self.kernel = serialised.slots, serialised
        self.launch = Launch(load_code(code, "kernel"), serialised.grid, serialised.threads, len(serialised.slots))
        if serialised.counters:
            self.partials, self.counters = DeviceMemory(serialised.partial_bytes), DeviceMemory(4 * serialised.counters)
            self.counters.clear()  # each launch leaves them at zero

    def set(self, index: int, value: int) -> bool:
        """Sets an argument slot; returns whether that changed it."""
        if isinstance(self.launch, Launch):
            if self.launch.slots[index] == value:
                return False
            self.launch.slots[index] = value
            return True
        if index < len(self.launch.operands):
            changed, self.launch.operands[index] = self.launch.operands[index] != value, value
        else:
            changed, self.launch.result = self.launch.result != value, value
        return changed


@dataclass
class GraphCounters:
    """How often a graph was built and launched, and how many nodes were updated in place."""

    built: int = 0
    launched: int = 0
    nodes_updated: int = 0


@dataclass(eq=False)
class PlanGraph:
    """Launches in order, each with the indices of the launches that must end before it starts."""

    launches: Sequence[Launch | BoundCall]
    dependencies: Sequence[Sequence[int]]
    counters: GraphCounters = field(default_factory=GraphCounters)
    _executable: ExecutableGraph | None = None
    _changed_calls: dict[BoundCall, None] = field(default_factory=dict)  # library calls with other addresses

    def change(self, launch: Launch | BoundCall) -> None:
        """Marks the node of a launch to be updated before the next run."""
        if self._executable is None:
            return
        if isinstance(launch, Launch):
            self._executable.changed[launch] = None
        else:
            self._changed_calls[launch] = None

    def launch(self) -> None:
        """Updates the changed nodes and launches the graph, without waiting."""
        stream = device().stream
        executable = self._executable or self._build()
        try:
            self._update_calls(executable)
            updated = executable.start(stream)
        except ChangeRefused:  # a library may choose other kernels for other addresses
            updated = self._build().start(stream)
        self.counters.nodes_updated += updated
        self.counters.launched += 1

    def _build(self) -> ExecutableGraph:
        """Builds the graph with the current arguments, and replaces the previous one."""
        builder = GraphBuilder()
        try:
            for launch, before in zip(self.launches, self.dependencies, strict=True):
                if isinstance(launch, Launch):
                    builder.kernel(launch, before)
                else:
                    child = launch.capture()
                    try:
                        builder.child(launch, child, before)
                    finally:
                        driver.cuGraphDestroy(child)  # the node has a copy
        except LivegradError:
            builder.drop()
            raise
        executable, previous = ExecutableGraph(builder), self._executable
        if previous is not None:
            previous.close()
        self._executable = executable
        self._changed_calls.clear()
        self.counters.built += 1
        return executable

    def _update_calls(self, executable: ExecutableGraph) -> None:
        for call in self._changed_calls:
            child = call.capture()
            try:
                executable.change_child(call, child)
            finally:
                driver.cuGraphDestroy(child)
        self.counters.nodes_updated += len(self._changed_calls)
        self._changed_calls.clear()

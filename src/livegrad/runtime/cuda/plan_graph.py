"""The CUDA Graphs of a plan. In: serialised launches with their dependencies. Out: graphs, built on first use.

`device_plan.py` fills the argument slots of the launches; a graph updates the nodes whose slots have changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from livegrad.codegen.argument_slots import Slots
from livegrad.diagnostics import LivegradError
from livegrad.ir.lru import LruCache
from livegrad.runtime.cuda.cuda_graph import ChangeRefused, ExecutableGraph, GraphBuilder, Launch
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import DeviceError, device, driver
from livegrad.runtime.cuda.libraries.capture import BoundCall
from livegrad.runtime.cuda.modules import load_code
from livegrad.runtime.cuda.nvrtc import load_compiled
from livegrad.runtime.cuda.serialised_launches import SerialisedLaunch, SerialisedLibraryCall

_MAX_VARIANTS = 4  # executables of one graph, each for one binding
_SEEN_BINDINGS = 16


class PlanLaunch:
    """A kernel launch or library call of a plan, with the sources of its argument slots or addresses."""

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
        """Sets an argument slot; returns whether its value changed."""
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


class _Variant:
    """An executable graph, the arguments of its nodes, and the launches whose arguments may have changed since."""

    def __init__(self, executable: ExecutableGraph, launches: Sequence[Launch | BoundCall]) -> None:
        self.executable = executable
        self.arguments = {launch: _arguments_of(launch) for launch in launches}
        self.pending: dict[Launch | BoundCall, None] = {}

    def changed(self) -> dict[Launch | BoundCall, Hashable]:
        """The launches whose nodes are out of date, with their current arguments."""
        current = {launch: _arguments_of(launch) for launch in self.pending}
        return {launch: arguments for launch, arguments in current.items() if self.arguments[launch] != arguments}

    def accept(self, changed: dict[Launch | BoundCall, Hashable]) -> None:
        """Records that all nodes have their current arguments."""
        self.arguments |= changed
        self.pending.clear()


def _arguments_of(launch: Launch | BoundCall) -> Hashable:
    return bytes(launch.bytes) if isinstance(launch, Launch) else (*launch.operands, launch.result)


@dataclass(eq=False)
class PlanGraph:
    """Launches in order, each with the indices of the launches that must end before it starts.

    A loop that calls a function alternates between a few sets of addresses for the results. Such a set, a binding, gets
    a separate executable graph when it occurs for the second time, so that later runs need no updates.
    """

    launches: Sequence[Launch | BoundCall]
    dependencies: Sequence[Sequence[int]]
    counters: GraphCounters = field(default_factory=GraphCounters)
    _variants: dict[Hashable, _Variant] = field(default_factory=dict)  # by binding, in order of use
    _seen_bindings: LruCache[Hashable, bool] = field(default_factory=lambda: LruCache(_SEEN_BINDINGS))

    def is_ready(self, binding: Hashable) -> bool:
        """Whether an executable for these addresses needs no updates, so that the argument slots are not read."""
        variant = self._variants.get(binding)
        return variant is not None and not variant.pending

    def change(self, launch: Launch | BoundCall) -> None:
        """Marks the node of a launch, whose arguments other than addresses have changed, to be updated."""
        for variant in self._variants.values():
            variant.pending[launch] = None

    def launch(self, binding: Hashable = ()) -> None:
        """Updates the changed nodes and launches the graph, without waiting."""
        stream = device().stream
        variant = self._variant_for(binding)
        changed = variant.changed() if variant.pending else {}
        try:
            for launch in changed:
                self._update(variant.executable, launch)
            variant.executable.start(stream)
            variant.accept(changed)
            self.counters.nodes_updated += len(changed)
        except ChangeRefused:  # a library may select other kernels for other addresses
            self._variants.pop(binding).executable.close()
            self._build(binding).executable.start(stream)
        self.counters.launched += 1

    def _variant_for(self, binding: Hashable) -> _Variant:
        """The executable for a binding. A new binding takes the most recently used one, which is then updated."""
        variant = self._variants.pop(binding, None)
        if variant is None:
            if not self._variants or binding in self._seen_bindings:
                return self._build(binding)
            last = next(reversed(self._variants))
            variant = self._variants.pop(last)
            variant.pending = dict.fromkeys(self.launches)
            self._seen_bindings[last] = self._seen_bindings[binding] = True
        self._variants[binding] = variant
        return variant

    def _build(self, binding: Hashable) -> _Variant:
        """Builds the graph with the current arguments."""
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
        if len(self._variants) >= _MAX_VARIANTS:
            self._variants.pop(next(iter(self._variants))).executable.close()
        variant = self._variants[binding] = _Variant(ExecutableGraph(builder), self.launches)
        self.counters.built += 1
        return variant

    def _update(self, executable: ExecutableGraph, launch: Launch | BoundCall) -> None:
        if isinstance(launch, Launch):
            executable.changed[launch] = None
            return
        child = launch.capture()
        try:
            executable.change_child(launch, child)
        finally:
            driver.cuGraphDestroy(child)

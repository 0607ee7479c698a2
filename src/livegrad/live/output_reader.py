"""Reads the outputs of an engine: finds the buffer behind an output pin, and copies its contents between frames.

`Engine.read` and `read_async` call it. If another thread runs a frame, the reading waits in `Runtime.requests`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.live.compile.flatten import find_keys, output_keys
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.executor import Executable, Reading
from livegrad.live.frame import EngineError
from livegrad.live.graph.block import Block, Pin, only_output, require_block
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.sources import Numbers
from livegrad.live.readings import RequestedReading
from livegrad.live.runtime import Runtime


class _Output(NamedTuple):
    """The buffer of an output, and the step and block that compute it (None: no step does, as for a state)."""

    buffer: str
    producer: str | None
    block: Block | None


class OutputReader:
    """Reads the outputs of one graph from the plan that runs."""

    def __init__(self, graph: Graph, runtime: Runtime) -> None:
        self._graph, self._runtime, self._journal = graph, runtime, graph.journal
        # Programs read the same outputs in every frame. The cache is valid for one version of connections and graph.
        self._outputs: dict[Pin | Block, _Output] = {}
        self._connections: Any = None
        self._structural = 0

    def read(self, pin: Pin | Block, running: bool) -> Numbers:
        """A copy of an output. Called with the lock of the run time held."""
        runtime = self._runtime
        if runtime.finish_run or runtime.must_advance or runtime.readings or runtime.transaction.undo_log:
            runtime.conclude_last_frame()
        executable, key = self._readable_buffer(pin, running)
        return executable.read(key)

    def read_later(self, pin: Pin | Block, running: bool) -> Reading:
        """Like `read`, but returns a reading and does not wait for the device."""
        self._runtime.conclude_last_frame()
        executable, key = self._readable_buffer(pin, running)
        return executable.read_later(key)

    def peek(self, output: Pin) -> Numbers | None:
        """A copy of an output of the running plan, or None. Computes nothing, and does not mark the output as read."""
        runtime = self._runtime
        runtime.conclude_last_frame()
        executable = runtime.executable
        if executable is None or runtime.transaction.is_open:
            return None
        plan = executable.plan
        source = self._cached_output(output, plan)
        if source is None:
            try:
                source = self._find_output(output, plan)
            except UsageError:  # the block was removed, or has several instances
                return None
            if source.buffer not in plan.buffers:
                return None
            self._outputs[output] = source
        key, producer, _ = source
        if producer is not None and (producer in runtime.failed or producer in executable.waiting):
            return None
        return None if runtime.is_overwritten(key) else executable.read(key)

    def request(self, pin: Pin | Block, running: bool) -> RequestedReading:
        """A reading that is performed when no other thread holds the lock."""
        output = only_output(pin)
        request = RequestedReading(self._runtime.lock, lambda: self.read_later(output, running))
        self._runtime.requests.append(request)
        return request

    def _readable_buffer(self, pin: Pin | Block, running: bool) -> tuple[Executable, str]:
        """The buffer behind an output, after computing its value if that was deferred or overwritten."""
        runtime = self._runtime
        if running.__class__ is not bool:
            raise UsageError("`running` must be True or False", where=caller_origin(), found=shown(running))
        executable = runtime.executable
        output = None if executable is None else self._cached_output(pin, executable.plan)
        if output is None or runtime.transaction.is_open or runtime.problems:
            output = self._require_output(pin, running)
            executable = runtime.executable
        assert executable is not None
        producer, block = output.producer, output.block
        if block is not None and producer is not None:
            if not block.is_read:
                runtime.mark_as_read(producer)
            if producer in runtime.failed:
                raise runtime.failed[producer]
            if producer in executable.waiting:
                runtime.catch_up(producer)
        if executable.plan.slot_of:
            runtime.restore(output.buffer)
        return executable, output.buffer

    def _require_output(self, pin: Pin | Block, running: bool) -> _Output:
        """Finds an output; raises if it has no value, or none that matches the described graph."""
        output, runtime = only_output(pin), self._runtime
        if output.direction != "output":
            _raise_for_input(output)
        if runtime.transaction.is_open:
            raise UsageError("the last frame was interrupted", where=caller_origin(), help="call step() again")
        if runtime.problems and not running:
            raise EngineError(runtime.problems)
        executable = runtime.executable
        source = None if executable is None else self._find_output(output, executable.plan)
        if executable is None or source is None or source.buffer not in executable.plan.buffers:
            if runtime.problems:
                raise EngineError(runtime.problems)
            raise UsageError(f"`{output}` has no value yet", where=caller_origin(), help="call step() first")
        self._outputs[pin] = source
        return source

    def buffer_keys(self, pin: Pin) -> list[str]:
        """The buffers behind an output. For a composite, those of the inner block, which may still be running."""
        if pin.direction != "output":
            _raise_for_input(pin)
        compilation = self._runtime.compilation
        with self._graph.journal.lock:
            graph_containing(pin.block, self._graph)
            outputs = output_keys(self._graph, pin)
            if not outputs and compilation is not None:
                outputs = output_keys(self._graph, pin, running=compilation.network)
        if not outputs:
            raise UsageError(f"`{pin}` no longer exists", where=caller_origin())
        return [ref.key for ref in outputs]

    def _cached_output(self, pin: Pin | Block, plan: LivePlan) -> _Output | None:
        """The cached result of finding an output, if it is still valid."""
        if self._connections is plan.connections and self._structural == self._journal.structural:
            return self._outputs.get(pin) if isinstance(pin, (Pin, Block)) else None
        self._connections, self._structural = plan.connections, self._journal.structural
        self._outputs.clear()
        return None

    def _find_output(self, pin: Pin, plan: LivePlan) -> _Output:
        """Finds the buffer and the producer of an output."""
        key = self._find_buffer_key(pin, plan)
        producer = plan.producer.get(key)
        return _Output(key, producer, None if producer is None else self._runtime.block_of(producer))

    def _find_buffer_key(self, pin: Pin, plan: LivePlan) -> str:
        """The buffer behind an output. Of several, the one outside of regions."""
        keys = self.buffer_keys(pin)
        if len(keys) > 1:
            outside = [key for key in keys if key in plan.buffers and plan.buffers[key].lifetime == "graph"]
            keys = outside or keys
        if len(keys) > 1:
            help = "expose it, and read the exposed pin"
            raise UsageError(f"`{pin}` has several instances", where=caller_origin(), found=", ".join(keys), help=help)
        return keys[0]


def graph_containing(block: Block, graph: Graph) -> Graph:
    """The graph that contains a block directly, if that is this graph or inside it; otherwise raises."""
    require_block(block)
    if block.home is None or not find_keys(graph, block):
        raise UsageError(f"block `{block.name}` is not in this engine", where=caller_origin())
    return block.home


def _raise_for_input(pin: Pin) -> NoReturn:
    """Raises because an output was expected. The block may have an output with the same name."""
    block = pin.block
    outputs = [f'block.outputs["{name}"]' if name in block.inputs else f'block["{name}"]' for name in block.outputs]
    raise UsageError(
        f"`{pin}` is an input",
        where=caller_origin(),
        expected="an output: " + ", ".join(outputs) if outputs else None,
        help="an input has the value that you set, or the value of the output that you connected",
    )

"""Reads the outputs of an engine: finds the buffer behind an output pin, and copies its contents between frames.

`Engine.read` and `read_async` call it. If another thread runs a frame, the reading waits in `Runtime.requests`.
"""

from __future__ import annotations

from typing import NoReturn

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


class OutputReader:
    """Reads the outputs of one graph from the plan that runs."""

    def __init__(self, graph: Graph, runtime: Runtime) -> None:
        self._graph, self._runtime = graph, runtime
        self._keys: dict[Pin, str] = {}  # the buffers of outputs that were read
        self._keys_of: tuple[object, int] = None, 0  # the connections and the count of structural edits they hold for

    def read(self, pin: Pin | Block, running: bool) -> Numbers:
        """A copy of an output. Called with the lock of the run time held."""
        self._runtime.conclude_last_frame()
        executable, key = self._readable_buffer(pin, running)
        return executable.read(key)

    def read_later(self, pin: Pin | Block, running: bool) -> Reading:
        """The same as a reading, which does not wait for the device."""
        self._runtime.conclude_last_frame()
        executable, key = self._readable_buffer(pin, running)
        return executable.read_later(key)

    def peek(self, output: Pin) -> Numbers | None:
        """A copy of an output of the running plan, or None. It computes nothing, and marks nothing as read."""
        runtime = self._runtime
        runtime.conclude_last_frame()
        executable = runtime.executable
        if executable is None or runtime.transaction.is_open:
            return None
        plan = executable.plan
        try:
            key = self._buffer_key(output, plan)
        except UsageError:  # it was removed, or exists in several places
            return None
        producer = plan.producer.get(key)
        if key not in plan.buffers or (
            producer is not None and (producer in runtime.failed or producer in executable.waiting)
        ):
            return None
        return None if runtime.is_overwritten(key) else executable.read(key)

    def request(self, pin: Pin | Block, running: bool) -> RequestedReading:
        """A reading that is performed when no other thread holds the lock."""
        output = only_output(pin)
        request = RequestedReading(self._runtime.lock, lambda: self.read_later(output, running))
        self._runtime.requests.append(request)
        return request

    def _readable_buffer(self, pin: Pin | Block, running: bool) -> tuple[Executable, str]:
        """The buffer behind an output, after computing its value if that was put off or overwritten."""
        output, runtime = only_output(pin), self._runtime
        if output.direction != "output":
            _refuse_input(output)
        if running.__class__ is not bool:
            raise UsageError("`running` must be True or False", where=caller_origin(), found=shown(running))
        if runtime.transaction.is_open:
            raise UsageError("the last frame was interrupted", where=caller_origin(), help="call step() again")
        if runtime.problems and not running:
            raise EngineError(runtime.problems)
        executable = runtime.executable
        key = "" if executable is None else self._buffer_key(output, executable.plan)
        if executable is None or key not in executable.plan.buffers:
            if runtime.problems:
                raise EngineError(runtime.problems)
            raise UsageError(f"`{output}` has no value yet", where=caller_origin(), help="call step() first")
        producer = executable.plan.producer.get(key)
        if producer is not None:
            runtime.want(producer)
            if producer in runtime.failed:
                raise runtime.failed[producer]
            if producer in executable.waiting:
                runtime.catch_up(producer)
        runtime.restore(key)
        return executable, key

    def buffer_keys(self, pin: Pin) -> list[str]:
        """The buffers behind an output. For a composite, those of the inner block, which may still be running."""
        if pin.direction != "output":
            _refuse_input(pin)
        compilation = self._runtime.compilation
        with self._graph.journal.lock:
            graph_containing(pin.block, self._graph)
            outputs = output_keys(self._graph, pin)
            if not outputs and compilation is not None:
                outputs = output_keys(self._graph, pin, running=compilation.network)
        if not outputs:
            raise UsageError(f"`{pin}` no longer exists", where=caller_origin())
        return [ref.key for ref in outputs]

    def _buffer_key(self, pin: Pin, plan: LivePlan) -> str:
        """The buffer behind an output; of several, the one that is not inside a region.

        Cached, because programs read the same outputs in every frame.
        """
        structural = self._graph.journal.structural
        if self._keys_of[0] is not plan.connections or self._keys_of[1] != structural:
            self._keys_of, self._keys = (plan.connections, structural), {}
        key = self._keys.get(pin)
        if key is None:
            key = self._keys[pin] = self._find_buffer_key(pin, plan)
        return key

    def _find_buffer_key(self, pin: Pin, plan: LivePlan) -> str:
        keys = self.buffer_keys(pin)
        if len(keys) > 1:
            outside = [key for key in keys if key in plan.buffers and plan.buffers[key].lifetime == "graph"]
            keys = outside or keys
        if len(keys) > 1:
            help = "expose it, and read it there"
            raise UsageError(
                f"`{pin}` exists in several places", where=caller_origin(), found=", ".join(keys), help=help
            )
        return keys[0]


def graph_containing(block: Block, graph: Graph) -> Graph:
    """The graph that contains a block directly, if that is this graph or inside it; else raises."""
    require_block(block)
    if block.home is None or not find_keys(graph, block):
        raise UsageError(f"block `{block.name}` is not in this engine", where=caller_origin())
    return block.home


def _refuse_input(pin: Pin) -> NoReturn:
    """Raises for an input where an output is expected. A block may have one of the same name."""
    block = pin.block
    outputs = [f'block.outputs["{name}"]' if name in block.inputs else f'block["{name}"]' for name in block.outputs]
    raise UsageError(
        f"`{pin}` is an input",
        where=caller_origin(),
        expected="an output: " + ", ".join(outputs) if outputs else None,
        help="an input has the value that you set, or that of the output which you connected",
    )

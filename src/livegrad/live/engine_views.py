"""What an engine shows: values, listeners, parameters, explanations and saved text. `Engine` inherits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike
from types import MappingProxyType
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.compile.graph_compiler import compile_graph
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.phases import describe_phases
from livegrad.live.executor import Executable, Executor, Reading
from livegrad.live.frame import Frame, describe_frame
from livegrad.live.graph.block import Block, Pin, only_output
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.gradient_source import GradientSource
from livegrad.live.graph.journal import (
    Journal,
    Listener,
    Observer,
)
from livegrad.live.graph.sources import Numbers
from livegrad.live.output_reader import OutputReader
from livegrad.live.parameters import PinParameter, list_parameters
from livegrad.live.runtime import Runtime
from livegrad.live.update.apply import Applier
from livegrad.ops.context import FeatureLevel


class EngineViews(GradientSource):
    """The part of `Engine` that reads."""

    executor: Executor
    graph: Graph
    frame: Frame
    _journal: Journal
    _runtime: Runtime
    _reader: OutputReader
    _applier: Applier

    @property
    def _running(self) -> Executable | None:
        return self._runtime.executable

    def read(self, pin: Pin | Block, *, running: bool = False) -> Numbers:
        """Returns a copy of an output after the last frame. Waits for a frame that runs in another thread.

        Raises if the running plan does not match the described graph; `running=True` returns the value of the running
        plan.
        """
        attempt = self._runtime.attempt(self._reader.read, pin, running)
        return self._reader.request(pin, running).result() if attempt is None else attempt[0]

    def read_async(self, pin: Pin | Block, *, running: bool = False) -> Reading:
        """Like `read`, without waiting. Returns a reading with `ready()` and `result()`, which later frames do not
        change.

        >>> import livegrad as lg
        >>> engine = lg.Engine()
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        >>> _ = engine.step()
        >>> reading = engine.read_async(double)
        >>> float(reading.result()), reading.ready()
        (8.0, True)
        """
        attempt = self._runtime.attempt(self._reader.read_later, pin, running)
        return self._reader.request(pin, running) if attempt is None else attempt[0]

    def peek(self, pin: Pin | Block) -> Numbers | None:
        """Returns a copy of an output of the running plan, or None if it has no value. Unlike `read`, it computes
        nothing and does not make the block run in later frames: looking at a graph does not change what runs.

        >>> import livegrad as lg
        >>> engine = lg.Engine()
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        >>> engine.peek(double) is None, engine.step().ran, float(engine.peek(double))
        (True, ('double',), 8.0)
        """
        output = only_output(pin)
        with self._runtime.lock:
            return self._reader.peek(output) if output.direction == "output" else None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Notifies a listener of all further edits and frames, from any thread. Returns a function that removes it.

        >>> import livegrad as lg
        >>> class Printer:
        ...     def edited(self, edit, arguments):
        ...         print(edit, *arguments)
        ...     def frame_ended(self, frame):
        ...         print(frame)
        >>> engine = lg.Engine()
        >>> stop = engine.listen(Printer())
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        add <block double(x) -> result>
        >>> _ = engine.step()
        <frame 1: cold, ran double>
        >>> stop()
        """
        if not callable(getattr(listener, "edited", None)) or not callable(getattr(listener, "frame_ended", None)):
            expected = "an object with the methods edited and frame_ended"
            raise UsageError("not a listener", where=caller_origin(), expected=expected, found=type(listener).__name__)

        def stop() -> None:
            with self.graph.editing():
                self._journal.listeners = tuple(other for other in self._journal.listeners if other is not listener)

        with self.graph.editing():
            self._journal.listeners = (*self._journal.listeners, listener)
        return stop

    def observe(self, begin: Callable[[], Observer] | None) -> None:
        """Notifies an observer of all further edits and frames, one at a time. None removes the observer.

        `begin` creates the observer while no other thread edits or steps.
        """
        if begin is not None and not callable(begin):
            expected = "a function that creates an observer, or None"
            found = type(begin).__name__
            raise UsageError("not an observer", where=caller_origin(), expected=expected, found=found)
        with self._runtime.lock, self.graph.editing():
            if begin is not None and self._journal.observer is not None:
                raise UsageError(
                    "this engine is already being recorded",
                    where=caller_origin(),
                    help="close the other recording first",
                )
            observer = None if begin is None else begin()
            if observer is not None and not hasattr(observer, "frame_begins"):
                raise UsageError("not an observer", where=caller_origin(), found=type(observer).__name__)
            self._journal.observer = observer

    @property
    def features(self) -> Mapping[FeatureLevel, Any]:
        """The features of the context that have a value."""
        return MappingProxyType(self._applier.wanted_features)

    @property
    def reuse_memory(self) -> bool:
        """Whether buffers may share bytes."""
        return self._applier.reuse_memory

    def save(self, path: str | PathLike[str]) -> None:
        """Saves the graph as a readable text file, which `lg.load_document` opens: blocks with their source code,
        connections, values, initial states and positions.

        The file is TOML, in the order of the graph, so that two versions of it can be compared line by line. An
        existing file is replaced atomically. Memory that inputs are bound to is not saved.

        >>> import tempfile, livegrad as lg
        >>> folder = tempfile.TemporaryDirectory()
        >>> engine = lg.Engine()
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        >>> engine.set(double["x"], 5.0)
        >>> engine.save(folder.name + "/scene.lg")
        >>> print(open(folder.name + "/scene.lg").read().split("[functions")[0].strip())
        livegrad = 1
        kind = "engine"
        backend = "cpu"
        reuse_memory = false
        <BLANKLINE>
        [blocks.double]
        function = "double"
        outputs = ["result"]
        <BLANKLINE>
        [blocks.double.inputs]
        x = 5.0
        >>> folder.cleanup()
        """
        # Imported on demand: it describes all kinds of blocks, whose modules import this one.
        import_module("livegrad.live.documents.save").save_engine(self, path)

    def parameters(self) -> dict[Pin, PinParameter]:
        """Returns the inputs that have no connection, and for each how a panel shows it, as plain data.

        It follows the order of the graph, into composites. Bound inputs are left out; so are pins inside a composite
        that an exposed pin feeds.

        >>> from typing import Annotated
        >>> import livegrad as lg
        >>> def amplify(x=1.0, gain: Annotated[float, lg.Control(0, 10, unit="dB", group="Sound")] = 2.0):
        ...     return x * gain
        >>> engine = lg.Engine()
        >>> _ = engine.add(lg.block(amplify))
        >>> for pin, shown in engine.parameters().items():
        ...     print(shown["key"], shown["group"], shown["kind"], shown["value"], shown["high"], shown["unit"] or "-")
        amplify.x amplify number 1.0 None -
        amplify.gain Sound slider 2.0 10 dB
        """
        with self.graph.editing():
            return list_parameters(self.graph)

    def explain(self) -> str:
        """Explains what happened to every step in the last frame, at which level, and why."""
        with self._runtime.lock:
            return describe_frame(self.frame, self.plan, self._runtime.failed)

    def phases(self) -> str:
        """Returns the output of each compiler phase for the current graph, as text.

        >>> import livegrad as lg
        >>> engine = lg.Engine()
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        >>> print(engine.phases())
        flatten
          double(x ← double.x)
        validate
          no problems
        sort
          level 0: double
        propagate shapes
          double.result: tensor<f32, []>
        allocate
          double.result: tensor<f32, []>, graph, 4 bytes, from double until it is read
          4 bytes in total
        wire
          plan: 1 step, 1 buffer
            0: double(double.x) -> double.result: tensor<f32, []>
        build
          1 calls of functions
          1 functions to compile
        """
        with self.graph.editing():
            return describe_phases(compile_graph(self.graph, self._applier.reuse_memory, frozenset(self._applier.kept)))

    @property
    def plan(self) -> LivePlan | None:
        """The running plan."""
        return None if self._running is None else self._running.plan

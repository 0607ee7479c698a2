"""The live engine: holds a description, keeps its plan running, and applies all changes once per frame.

Users create an `Engine`, add and connect blocks, and call `step` and `read`. A frame takes the journal of edits,
updates the running plan at the cheapest correct level, and runs the stale steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from os import PathLike
from threading import RLock
from types import MappingProxyType
from typing import Any, Literal

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, shown
from livegrad.ir.source_lines import ambient
from livegrad.live.compile.graph_compiler import compile_graph
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.phases import describe_phases
from livegrad.live.cpu.cpu_executor import CpuExecutor
from livegrad.live.executor import Executable, Executor, Reading
from livegrad.live.frame import Frame, describe_frame
from livegrad.live.graph.block import AnyBlock, Block, Pin, State, Watch, only_output, require_block
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.drawing import draw_blocks
from livegrad.live.graph.gradient_source import GradientSource
from livegrad.live.graph.journal import (
    MERGE_THRESHOLD,
    Journal,
    Listener,
    Observer,
    StateValue,
    StructureChange,
    merge_entries,
)
from livegrad.live.graph.nesting import with_inner_blocks
from livegrad.live.graph.sources import ExternalBuffer, Numbers, feature_value
from livegrad.live.history import History
from livegrad.live.output_reader import OutputReader, graph_containing
from livegrad.live.parameters import PinParameter, list_parameters
from livegrad.live.poll_watches import poll_watches, report_watch_errors
from livegrad.live.runtime import Runtime
from livegrad.live.update.apply import Applier
from livegrad.ops.context import FeatureLevel, feature_named, parse_feature
from livegrad.state import renew_lock_after_fork


def _make_cuda_executor() -> Executor:
    """Creates the executor of the first GPU. Imports it on demand, so that CPU programs do not load the driver."""
    return import_module("livegrad.live.cuda").CudaExecutor()


EXECUTORS: dict[str, Callable[[], Executor]] = {"cpu": CpuExecutor, "cuda": _make_cuda_executor}


class Engine(GradientSource):
    """Runs a live graph.

    >>> from livegrad.live.blocks import block
    >>> engine = Engine()
    >>> double = engine.add(block(lambda x: x * 2.0, name="double"))
    >>> engine.set(double["x"], 4.0)
    >>> engine.step().ran
    ('double',)
    >>> float(engine.read(double))
    8.0
    >>> engine.step().ran
    ()
    """

    def __init__(self, backend: str | Executor = "cpu", *, reuse_memory: bool = False) -> None:
        if isinstance(backend, str):
            make = EXECUTORS.get(backend)
            if make is None:
                raise UsageError(
                    f"there is no backend `{backend}`", where=caller_origin(), expected="one of " + ", ".join(EXECUTORS)
                )
            backend = make()
        if not all(hasattr(backend, attribute) for attribute in ("name", "build")):
            expected = "one of " + ", ".join(EXECUTORS)
            raise UsageError("not a backend", where=caller_origin(), expected=expected, found=shown(backend))
        if not isinstance(reuse_memory, bool):
            raise UsageError("`reuse_memory` must be True or False", where=caller_origin(), found=shown(reuse_memory))
        self.executor: Executor = backend
        self._journal = Journal()
        self.graph = Graph(self._journal)
        self.graph.is_engine = self.graph.journal.belongs_to_engine = True
        self.frame = Frame(0)
        self.before_frame: list[Callable[[], None]] = []  # called first in each frame
        self._runtime = Runtime()
        self._reader = OutputReader(self.graph, self._runtime)
        self._applier = Applier(self.graph, self.executor, self._runtime, reuse_memory)
        self.history = self._journal.history = History(self)
        renew_lock_after_fork(self._runtime, "lock", RLock)
        renew_lock_after_fork(self._journal, "lock", RLock)

    def __repr__(self) -> str:
        return f"<engine on {self.executor.name}: {len(self.graph.blocks)} blocks, {self.frame.number} frames>"

    def _repr_svg_(self) -> str:
        with self.graph.editing():
            return draw_blocks(self.graph)

    # --- editing ---

    def edits(self) -> AbstractContextManager[None]:
        """Groups edits of one thread: no frame sees only some of them, and they are one entry of the history.

        >>> from livegrad.live.blocks import block
        >>> engine = Engine()
        >>> with engine.edits():
        ...     double = engine.add(block(lambda x: x * 2.0, name="double"))
        ...     engine.set(double["x"], 4.0)     # a frame in between would report `double.x` as unconnected
        """
        return self._grouping_edits()

    @contextmanager
    def _grouping_edits(self) -> Iterator[None]:
        with self.graph.editing(), self.history.group():
            yield

    def add(self, block: AnyBlock) -> AnyBlock:
        """Adds a block, state, composite or region."""
        return self.graph.add(block)

    def follow(self, watch: Watch) -> None:
        """Registers an object that edits a block before each frame; `lg.live.watch` does so when its block is added."""
        if not callable(getattr(watch, "poll", None)) or not isinstance(getattr(watch, "block", None), Block):
            what, help = "not a watch", "lg.live.watch(engine, path, function) creates a block that follows a file"
            raise UsageError(what, where=caller_origin(), found=type(watch).__name__, help=help)
        with self.edits():
            if watch not in self._journal.watches:
                self._journal.watches.append(watch)

    @property
    def watch_errors(self) -> list[tuple[Block, LivegradError]]:
        """The errors of watched files, by block. They are problems of every frame until the file is saved again."""
        watches = list(self._journal.watches)
        return [(watch.block, watch.error) for watch in watches if watch.error is not None]

    def remove(self, block: Block) -> None:
        """Removes a block and its connections."""
        self.graph.remove(block)

    def rename(self, block: Block, name: str) -> None:
        """Gives a block another name. Connections stay, and states keep their values.

        >>> from livegrad.live.blocks import block
        >>> engine = Engine()
        >>> double = engine.add(block(lambda x=4.0: x * 2.0, name="double"))
        >>> engine.rename(double, "twice")
        >>> engine.step().ran, engine.graph.blocks["twice"] is double
        (('twice',), True)
        """
        require_block(block)
        with self._runtime.lock, self.graph.editing():
            graph = self.graph_of(block)
            states = [state for state in with_inner_blocks(block) if isinstance(state, State)]
            values = {state: value for state in states if (value := self._reader.peek(state["value"])) is not None}
            pending = [entry.subject for entry in self._journal.entries if entry.kind == "state"]
            values |= {change.state: change.value for change in pending if change.state in values}
            graph._rename(block, name)
            for state, value in values.items():
                self._journal.write("state", StateValue(state, value), "renamed")

    def connect(self, source: Pin | Block, target: Pin) -> None:
        """Connects an output to an input."""
        self.graph.connect(source, target)

    def disconnect(self, target: Pin) -> None:
        """Disconnects an input."""
        self.graph.disconnect(target)

    def set(self, target: Pin | State, value: Any) -> None:
        """Sets the value of an input. A number is a live parameter; an array is copied.

        For a state, sets the value that the next frame reads. It must have the shape of the state.

        >>> from livegrad.live.blocks import block
        >>> engine = Engine()
        >>> count = engine.add(State("count", 0.0))
        >>> more = engine.add(block(lambda x: x + 1.0, name="more"))
        >>> engine.connect(count, more["x"]), engine.connect(more, count["next"])
        (None, None)
        >>> _ = engine.step()
        >>> engine.set(count, 10.0)
        >>> _ = engine.step()
        >>> float(engine.read(more)), float(engine.read(count))
        (11.0, 11.0)
        """
        if isinstance(target, State):
            self._set_state(target, target.value_of(value))
        else:
            self.graph.set(target, value)

    def _set_state(self, state: State, value: Numbers) -> None:
        with self.graph.editing(), self._journal.notify_observer("state", None, state, value):
            self.graph_of(state)
            self._journal.write("state", StateValue(state, value), "set")

    def bind(self, target: Pin, external: ExternalBuffer | Any) -> ExternalBuffer:
        """Binds an input to external memory, which is read in every frame unless it has a version."""
        return self.graph.bind(target, external)

    def set_feature(self, feature: str, value: Any) -> None:
        """Sets a feature of the context. Only the steps that read it become stale."""
        if not isinstance(feature, str):
            found = type(feature).__name__
            raise UsageError("not the name of a feature", where=caller_origin(), expected="text", found=found)
        if value is None:
            raise UsageError("not a number or an array of numbers", where=caller_origin(), found="None")
        self._set_feature(parse_feature(feature), value)

    def _set_feature(self, level: FeatureLevel, value: Any) -> None:
        """Sets a feature; None removes its value, which only undoing does."""
        # Holds the lock, so that no other thread replaces the plan meanwhile.
        with self.graph.editing(), self._journal.notify_observer("feature", None, level, value):
            if value is None:
                self._journal.write("feature", level, "removed")
                self._applier.wanted_features.pop(level, None)
                return
            declared, plan = feature_named(level.feature).type, self.plan
            types = [] if declared is None else [declared]
            if plan is not None and level in plan.readers:
                types += plan.types_of_number(level)
            number = feature_value(value, types, f"feature `{level}`")
            self._journal.write("feature", level, repr(number))
            self._applier.wanted_features[level] = number

    def keep(self, pin: Pin | Block) -> None:
        """Declares that an output will be read, so that its memory is not shared."""
        with self.graph.editing(), self._journal.notify_observer("keep", None, pin):
            keys = self._reader.buffer_keys(only_output(pin))
            self._journal.write("structure", StructureChange(self.graph, ()), "kept")
            self._applier.kept.update(keys)

    def reset(self, state: State) -> None:
        """Restores the initial value of a state, from the next frame on."""
        if not isinstance(state, State):
            raise UsageError("`reset` takes a state", where=caller_origin(), found=type(state).__name__)
        with self.graph.editing(), self._journal.notify_observer("reset", None, state):
            self.graph_of(state)
            self._journal.write("state", StateValue(state, state.initial), "reset")

    # --- running ---

    def step(self) -> Frame:
        """Runs one frame: applies all changes, runs stale steps and advances states. Errors are reported in the frame.

        A frame is atomic: after an exception such as Ctrl-C, the edits are still pending, states are unchanged, and the
        next `step` does all of the work. Only one thread runs a frame at a time. Edits made during a frame apply to the
        next one.
        """
        runtime, journal, transaction = self._runtime, self._journal, self._runtime.transaction
        with runtime.lock:
            try:
                if runtime.requests:
                    runtime.answer_requests()
                if runtime.finish_run is not None or runtime.must_advance or runtime.readings:
                    runtime.conclude_last_frame()
                if self.before_frame:
                    with self.history.paused():
                        for prepare in self.before_frame:
                            prepare()
                if journal.watches:
                    poll_watches(journal)
                if transaction.is_open:
                    self._applier.recover()
                elif transaction.undo_log:
                    transaction.close()
                frame = Frame(self.frame.number + 1)
                if journal.entries or journal.applying or journal.mailbox or not runtime.is_quiet:
                    self._run_frame(frame)
                if journal.watches:
                    report_watch_errors(self.graph, frame)
                if transaction.undo_log:
                    transaction.set_attribute(self, "frame", frame)
                else:
                    self.frame = frame
                transaction.is_open = False  # last, because it commits the frame
                if journal.observer is not None:
                    journal.observer.frame_ends(frame)
                for listener in journal.listeners:
                    listener.frame_ended(frame)
            except BaseException:
                ambient.reset()  # an interrupt may have skipped the exit of a context
                raise
            finally:
                if runtime.requests:
                    runtime.answer_requests()
        return frame

    def _run_frame(self, frame: Frame) -> None:
        runtime, applier, journal, transaction = self._runtime, self._applier, self._journal, self._runtime.transaction
        quiet = runtime.is_quiet
        with journal.lock:
            if journal.deliver():
                # In this order: after an interrupt in between, some edits are applied twice, with the same result.
                entries = [*journal.applying, *journal.entries]
                journal.applying = merge_entries(entries) if len(entries) >= MERGE_THRESHOLD else entries
                journal.entries = []
            entries = journal.applying
            if journal.observer is not None:
                journal.observer.frame_begins()
            if quiet and not entries:
                return
            transaction.is_open = True
            hot_update = applier.find_hot_update(entries[0]) if quiet and len(entries) == 1 else None
            pending = applier.apply(entries, frame) if hot_update is None else []
        # The plan is compiled: from here on, edits need not wait.
        if hot_update is not None:
            applier.apply_hot_update(*hot_update, entries[0].detail, frame)
            transaction.undo_log.clear()  # keeps the number; after an interrupt, the next frame sets it again
            journal.applying = []
            return
        if runtime.executable is not None:
            runtime.mark_external_memory_stale()
            runtime.run(frame)
        else:
            frame.failed = frozenset(runtime.failed)
        frame.problems = runtime.problems
        transaction.set_attribute(journal, "applying", pending)

    @property
    def profiling(self) -> Literal["off", "block", "step"]:
        """What is measured: nothing, steps, or also the steps inside regions."""
        return self._runtime.profiling

    @profiling.setter
    def profiling(self, level: Literal["off", "block", "step"]) -> None:
        if level not in ("off", "block", "step"):
            expected = "off, block or step"
            raise UsageError("unknown profiling mode", where=caller_origin(), expected=expected, found=repr(level))
        with self._runtime.lock:
            self._runtime.profiling = level
            self._runtime.is_quiet = False

    @property
    def _running(self) -> Executable | None:
        return self._runtime.executable

    # --- reading ---

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

        >>> from livegrad.live.blocks import block
        >>> engine = Engine()
        >>> double = engine.add(block(lambda x=4.0: x * 2.0, name="double"))
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

        >>> from livegrad.live.blocks import block
        >>> engine = Engine()
        >>> double = engine.add(block(lambda x=4.0: x * 2.0, name="double"))
        >>> engine.peek(double) is None, engine.step().ran, float(engine.peek(double))
        (True, ('double',), 8.0)
        """
        output = only_output(pin)
        with self._runtime.lock:
            return self._reader.peek(output) if output.direction == "output" else None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Notifies a listener of all further edits and frames, from any thread. Returns a function that removes it.

        >>> from livegrad.live.blocks import block
        >>> class Printer:
        ...     def edited(self, edit, arguments):
        ...         print(edit, *arguments)
        ...     def frame_ended(self, frame):
        ...         print(frame)
        >>> engine = Engine()
        >>> stop = engine.listen(Printer())
        >>> double = engine.add(block(lambda x=4.0: x * 2.0, name="double"))
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

        >>> from livegrad.live.blocks import block
        >>> engine = Engine()
        >>> double = engine.add(block(lambda x=4.0: x * 2.0, name="double"))
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

    def close(self) -> None:
        """Releases all memory."""
        runtime = self._runtime
        with runtime.lock:
            runtime.is_quiet = False
            try:
                runtime.answer_requests()
                runtime.conclude_last_frame()
                runtime.take_readings(wait=True)
            finally:
                runtime.transaction.close()
                executable, runtime.executable = runtime.executable, None
                if executable is not None:
                    executable.close()

    # --- blocks and their keys ---

    def edit(self, block: Block, body: Any) -> None:
        """Replaces the body of a block. If its pins stay the same, this is a `code` update."""
        with self.graph.editing():
            self.graph_of(block).edit(block, body)

    def graph_of(self, block: Block) -> Graph:
        """Returns the graph that contains a block: that of the engine or of a composite."""
        return graph_containing(block, self.graph)

"""The edits of an engine: blocks, connections, values, names and features. `Engine` inherits it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from livegrad.diagnostics import LivegradError, UsageError, caller_origin
from livegrad.live.engine_views import EngineViews
from livegrad.live.graph.block import AnyBlock, Block, Pin, State, Watch, only_output, require_block
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import (
    StateValue,
    StructureChange,
)
from livegrad.live.graph.sources import ExternalBuffer, Numbers, feature_value
from livegrad.live.history import History
from livegrad.live.output_reader import graph_containing
from livegrad.ops.context import FeatureLevel, feature_named, parse_feature


class EngineEdits(EngineViews):
    """The part of `Engine` that edits."""

    history: History

    def edits(self) -> AbstractContextManager[None]:
        """Groups edits of one thread: no frame sees only some of them, and they are one entry of the history.

        >>> import livegrad as lg
        >>> engine = lg.Engine()
        >>> with engine.edits():
        ...     double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
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

        >>> import livegrad as lg
        >>> engine = lg.Engine()
        >>> double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
        >>> engine.rename(double, "twice")
        >>> engine.step().ran, engine.graph.blocks["twice"] is double
        (('twice',), True)
        """
        require_block(block)
        with self.graph.editing():
            self.graph_of(block)._rename(block, name)

    def connect(self, source: Pin | Block, target: Pin) -> None:
        """Connects an output to an input."""
        self.graph.connect(source, target)

    def disconnect(self, target: Pin) -> None:
        """Disconnects an input."""
        self.graph.disconnect(target)

    def set(self, target: Pin | State, value: Any) -> None:
        """Sets the value of an input. A number is a live parameter; an array is copied.

        For a state, sets the value that the next frame reads. It must have the shape of the state.

        >>> import livegrad as lg
        >>> engine = lg.Engine()
        >>> count = engine.add(lg.State("count", 0.0))
        >>> more = engine.add(lg.block(lambda x: x + 1.0, name="more"))
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

    def edit(self, block: Block, body: Any) -> None:
        """Replaces the body of a block. If its pins stay the same, this is a `code` update."""
        with self.graph.editing():
            self.graph_of(block).edit(block, body)

    def graph_of(self, block: Block) -> Graph:
        """Returns the graph that contains a block: that of the engine or of a composite."""
        return graph_containing(block, self.graph)

"""Random sessions that are undone and redone: the plain model of a history is a list of what the graph looked like.

`run_one(seed)` edits an engine at random, in gestures and without, with frames between them. Then it undoes and redoes
everything, compares the graph with the list after each entry, and its values with those of an engine made anew.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import livegrad as lg
from livegrad.live.graph.block import Block
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.sources import Binding
from livegrad.live.recording.exact_values import NotRecordable
from tests.fuzz.engine import Session, random_engine
from tests.fuzz.engine_documents import compare_with_loaded
from tests.fuzz.engine_kept import compare_with_scratch

SHORT = 12
EDITS = 30
Look = tuple[Any, ...]


def run_one(seed: int) -> Mapping[str, int]:
    """One session; raises AssertionError where undo or redo gives another graph."""
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(random_engine("cpu", seed % 4 == 1, seed))
        session = _Session(engine, seed)
        if session.watches:
            stack.enter_context(lg.debug_nans())
        try:
            return _Walk(engine, session).run(seed)
        except Exception as error:
            lines = "\n  ".join(session.log[-60:])
            raise AssertionError(f"seed {seed}: {error}\n  {lines}") from error


class _Session(Session):
    """Random edits, without the comparison of frames with a model that knows nothing of undo."""

    def frame(self) -> None:
        self.engine.step()


class _Walk:
    """A session with what the graph looked like after each entry; None: not known, because entries were merged."""

    def __init__(self, engine: lg.Engine, session: Session) -> None:
        self.engine, self.session, self.chance = engine, session, session.chance
        engine.history.clear()
        self.looks: list[Look | None] = [look_of(engine)]
        self.counts: Counter[str] = Counter()

    def run(self, seed: int) -> Mapping[str, int]:
        for _ in range(EDITS):
            self.edit()
            if self.chance.random() < 0.3:
                self.engine.step()
            if self.chance.random() < 0.1:
                self.walk_back(self.chance.randrange(4))
                self.walk_forward(9)
        while self.walk_back(len(self.looks)):
            if self.chance.random() < 0.2:
                self.engine.step()
        self.check_values(seed)
        self.walk_forward(len(self.looks))
        self.engine.step()
        self.check_values(seed)
        return self.counts

    # --- edits ---

    def edit(self) -> None:
        kind = self.chance.choice(("gesture", "gesture", "gesture", "cancel", "single", "appearance"))
        self.counts[kind] += 1
        history, entries = self.engine.history, len(self.engine.history.entries)
        before = look_of(self.engine)
        if kind == "cancel":
            gesture = history.gesture("cancelled")
            self.some_appearance()
            if self.session.real:
                self.rename_and_back()
            gesture.cancel()
            assert look_of(self.engine) == before, "a cancelled gesture left something behind"
            assert len(history.entries) == entries
            return
        if kind == "single":
            self.session.edit()
        else:
            with history.gesture("gesture"):
                for _ in range(self.chance.randrange(1, 4)):
                    (self.session.edit if kind == "gesture" else self.some_appearance)()
        added = len(history.entries) - entries
        if kind == "single":  # it may have become part of earlier entries
            self.looks[1:] = [None] * (len(self.looks) - 1)
        self.looks += [None] * (added - 1)
        after = look_of(self.engine)
        if added:
            self.looks.append(after)
        elif kind == "single" and len(self.looks) > 1:
            self.looks[-1] = after
        else:
            assert after == before, "an edit was not recorded"

    def some_appearance(self) -> None:
        with self.engine.graph.editing():
            blocks = _blocks(self.engine.graph)
        for block in self.chance.sample(blocks, min(2, len(blocks))):
            block.position = self.chance.choice((None, (self.chance.random(), 2.0)))
            for pin in block.inputs.values():
                pin.control = self.chance.choice((None, lg.Control(0.0, self.chance.random() + 0.5)))

    def rename_and_back(self) -> None:
        """Renames a block inside a gesture that is cancelled, which the model need not know."""
        with self.engine.graph.editing():
            blocks = list(self.engine.graph.blocks.values())
        if blocks:
            self.engine.rename(self.chance.choice(blocks), "another name")

    # --- undo and redo ---

    def walk_back(self, count: int) -> bool:
        for _ in range(count):
            done = sum(not entry.is_undone for entry in self.engine.history.entries)
            if done == 0:
                return False
            self.engine.history.undo()
            self.counts["undone"] += 1
            self.compare(done - 1)
        return True

    def walk_forward(self, count: int) -> None:
        for _ in range(count):
            if self.engine.history.redo() is None:
                return
            self.counts["redone"] += 1
            self.compare(sum(not entry.is_undone for entry in self.engine.history.entries))

    def compare(self, index: int) -> None:
        expected = self.looks[index]
        if expected is not None:
            found = look_of(self.engine)
            for one, other in zip(found, expected, strict=True):
                assert one == other, f"entry {index}:\n  {one}\nexpected\n  {other}"
            self.counts["compared"] += 1

    def check_values(self, seed: int) -> None:
        frame = self.engine.step()
        if frame.problems or self.engine.plan is None:
            return
        if not self.engine.reuse_memory:
            compare_with_scratch(self.engine)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scene.lg"
            try:
                self.engine.save(path)
            except NotRecordable:
                return
            compare_with_loaded(self.engine, path, seed)
            self.counts["values"] += 1


# --- what a graph looks like -----------------------------------------------------------------------------------------


def look_of(engine: lg.Engine) -> Look:
    """Everything that a history keeps, as plain values, by identity where objects have one."""
    with engine.graph.editing():
        features = sorted((str(feature), repr(value)) for feature, value in engine.features.items())
        return (*_look_of_graph(engine.graph), features)


def _look_of_graph(graph: Graph) -> Look:
    blocks = [_look_of_block(block) for block in graph.blocks.values()]
    fed = [
        sorted((*_pin(pin), _source(source)) for pin, source in table.items())
        for table in (graph.sources, graph.dormant)
    ]
    return blocks, *fed


def _look_of_block(block: Block) -> Look:
    exposed: Any = None
    if isinstance(block, Composite) and hasattr(block, "inner_inputs"):
        inputs = [(name, [_pin(pin) for pin in pins]) for name, pins in block.inner_inputs.items()]
        exposed = inputs, [(name, _pin(pin)) for name, pin in block.inner_outputs.items()]
    controls = [(name, repr(pin.own_control)) for name, pin in block.inputs.items()]
    body = id(vars(block).get("body"))
    pins = list(block.inputs), list(block.outputs)
    inner = [_look_of_graph(graph) for _, graph in block.inner_graphs()]
    return block.name, id(block), body, block.shapes, pins, block.position, controls, exposed, inner


def _pin(pin: Any) -> tuple[str, int, str]:
    return pin.block.name, id(pin.block), pin.name


def _source(source: Source) -> str:
    if isinstance(source, Edge):
        return f"edge {_pin(source.source)}"
    if isinstance(source, Binding):
        return f"bound {id(source.external)}"
    value = source.value
    plain = getattr(value, "tolist", lambda: value)()
    return f"{type(value)} {getattr(value, 'dtype', '')} {getattr(value, 'shape', '')} {plain!r}"


def _blocks(graph: Graph) -> list[Block]:
    inner = [one for block in graph.blocks.values() for _, inside in block.inner_graphs() for one in _blocks(inside)]
    return [*graph.blocks.values(), *inner]

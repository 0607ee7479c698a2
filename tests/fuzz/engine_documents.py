"""Random live graphs saved to documents and loaded again: the text stays the same, and so does every output.

`run_one(seed)` edits an engine at random, valid edits and not, saves it, and loads it into a second engine. Both start
their states anew and run two frames.
"""

from __future__ import annotations

import contextlib
import difflib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import livegrad as lg
from livegrad.live.graph.block import Block, State
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.sources import Binding
from livegrad.live.recording.exact_values import NotRecordable
from livegrad.live.recording.record import read_outputs
from tests.fuzz.engine import Session, random_engine

SHORT = 10
EDITS = 30
UNFINISHED = ("not in a graph of this engine", "no longer exists", "expose different outputs")


def run_one(seed: int) -> Mapping[str, int]:
    """One graph; raises AssertionError where the loaded one differs."""
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(random_engine("cpu", seed % 2 == 1, seed))
        session = Session(engine, seed)
        if session.watches:
            stack.enter_context(lg.debug_nans())
        for _ in range(EDITS):
            session.edit()
            if session.chance.random() < 0.3:
                session.frame()
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "scene.lg"
        try:
            engine.save(path)
        except NotRecordable as error:  # the graph is wrong, and frames say so too
            if path.exists() or not any(reason in str(error) for reason in UNFINISHED):
                raise AssertionError(f"seed {seed}: {error}") from error
            return {"not saved": 1}
        return compare_with_loaded(engine, path, seed)


def compare_with_loaded(engine: lg.Engine, path: Path, seed: int) -> Mapping[str, int]:
    text = path.read_text("utf-8")
    loaded = lg.load_document(path).engine(trust=True)
    counts = Counter(saved=1)
    with engine.edits(), loaded.edits():
        for original, copy in zip(_blocks(engine.graph), _blocks(loaded.graph), strict=True):
            assert original.name == copy.name, f"seed {seed}: {original.name} became {copy.name}"
            counts["bound"] += _bind_again(original, copy)
            counts["blocks"] += 1
            if isinstance(original, State):
                engine.reset(original)
    again = path.with_name("again.lg")
    loaded.save(again)
    differences = "\n".join(difflib.unified_diff(text.split("\n"), again.read_text("utf-8").split("\n")))
    assert not differences, f"seed {seed}: saved again, the text differs\n{differences}"
    for frame in range(2):
        found = [_outcome(one) for one in (engine, loaded)]
        assert found[0] == found[1], f"seed {seed}, frame {frame}: {found[0]}\nloaded: {found[1]}\n{text}"
        if any("error" in value for _, value in found[0][1]):
            break
    return counts


def _outcome(engine: lg.Engine) -> tuple[Any, ...]:
    frame = engine.step()
    problems = sorted(f"{problem.node}.{problem.pin}" for problem in frame.problems)
    if problems:  # an engine shows what ran before, which a new one cannot
        return problems, []
    with engine.edits():
        outputs = [(str(pin), value) for pin, value in read_outputs(engine)]
    # A block that fails keeps states from advancing, but only in frames that need it: if somebody has read it before.
    failed = [entry for entry in outputs if "error" in entry[1]]
    return problems, failed or outputs


def _bind_again(original: Block, copy: Block) -> int:
    """Binds the inputs of the copy that are bound in the original to the same memory."""
    assert original.home is not None
    assert copy.home is not None
    bound = 0
    for name, pin in original.inputs.items():
        source = original.home.sources.get(pin)
        if isinstance(source, Binding):
            copy.home.bind(copy[name], source.external)
            bound += 1
    return bound


def _blocks(graph: Graph) -> Iterator[Block]:
    for block in graph.blocks.values():
        yield block
        for _, inner in block.inner_graphs():
            yield from _blocks(inner)

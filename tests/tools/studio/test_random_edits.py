"""Random edits of pages and programs: what pages were told piece by piece equals a description from scratch."""

from __future__ import annotations

import random
from typing import Any

import pytest

import livegrad as lg
from livegrad.live.graph.block import Block
from livegrad.live.graph.edges import Edge
from livegrad.tools.studio.open_studio import Studio
from livegrad.tools.studio.values import summarize
from tests.long_forms import LONG
from tests.tools.studio.client import Json, TestPage

ENTRIES = ("number", "add", "multiply", "mix", "state", "expression", "sum", "color")


def random_operation(page: TestPage, choose: random.Random) -> Json:
    """An edit that may or may not be valid."""
    blocks = {id: entry for id, entry in page.entries.items() if "inputs" in entry}
    id, block = choose.choice(list(blocks.items()))
    other_id, other = choose.choice(list(blocks.items()))
    pin = choose.choice([input["name"] for input in block["inputs"]] or ["x"])
    match choose.randrange(9):
        case 0 | 1:
            return {"op": "set", "pin": [id, pin], "value": choose.choice([0, 1.5, -2, "NaN", [1, 2, 3]])}
        case 2:
            output = choose.choice(other["outputs"] or ["result"])
            return {"op": "connect", "from": [other_id, output], "to": [id, pin]}
        case 3:
            return {"op": "disconnect", "to": [id, pin]}
        case 4:
            return {"op": "add", "entry": choose.choice(ENTRIES), "at": [choose.randrange(500), choose.randrange(500)]}
        case 5:
            return {"op": "remove", "block": id}
        case 6:
            return {"op": "rename", "block": id, "name": f"n{choose.randrange(12)}"}
        case 7:
            return {"op": "move", "block": id, "at": [choose.randrange(500), choose.randrange(500)]}
    text = choose.choice(["a + b", "sin(x) * gain", "value", "x / 0", "a +", "where(x > y, x, y)"])
    return {"op": "expression", "block": id, "text": text}


def edit_as_program(engine: lg.Engine, choose: random.Random) -> None:
    """An edit that a program makes meanwhile."""
    blocks = list(engine.graph.blocks.values())
    block: Any = choose.choice(blocks)
    free = [pin for pin in block.inputs.values() if not isinstance(engine.graph.sources.get(pin), Edge)]
    match choose.randrange(5):
        case 0 if free and not isinstance(block, lg.State):
            engine.set(choose.choice(free), choose.random())
        case 1:
            engine.step()
        case 2:
            engine.history.undo()
        case 3:
            engine.history.redo()
        case _:
            name = f"p{len(blocks)}{choose.randrange(1000)}"
            engine.add(lg.block(lambda x=1.0, y=2.0: x - y, name=name))


def compare(studio: Studio, page: TestPage) -> None:
    """Waits until the page knows everything, and compares it with descriptions and summaries from scratch."""
    session = studio._engine_thread.session
    assert session is not None
    page.subscribe(*(entry["name"] for entry in page.entries.values() if "inputs" in entry))
    answer = page.ask({"type": "clock", "playing": False})
    assert answer["type"] == "done"

    def expected() -> dict[str, Json]:
        with session.engine.graph.editing():
            return session.describer.describe()

    def current_values() -> dict[str, Json]:
        blocks = {id: session.describer.find(id) for id in page.entries}
        return {
            id: {name: value_of(session.engine, session._held, block, name) for name in block.outputs}
            for id, block in blocks.items()
            if isinstance(block, Block)
        }

    page.wait(lambda: page.entries == expected())
    page.subscribe(*(entry["name"] for entry in page.entries.values() if "inputs" in entry))
    page.wait(lambda: all(page.values.get(id) == outputs for id, outputs in current_values().items()))
    assert page.history == {"undo": session.engine.history.next_undo, "redo": session.engine.history.next_redo}


def value_of(engine: lg.Engine, held: dict[Any, Any], block: Block, name: str) -> Json | None:
    value = held.get(block)
    value = engine.peek(block.outputs[name]) if value is None else value
    return None if value is None else summarize(value)


@pytest.mark.parametrize("seed", range(40 if LONG else 4))
def test_pages_know_the_graph_after_random_edits(seed):
    choose = random.Random(seed)
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0, gain=2.0: x * gain, name="first"))
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        for _ in range(60):
            if choose.random() < 0.25 and engine.graph.blocks:
                edit_as_program(engine, choose)
            elif choose.random() < 0.15:
                page.ask({"type": choose.choice(["undo", "redo"])})
            elif any("inputs" in entry for entry in page.entries.values()):
                page.edit(*(random_operation(page, choose) for _ in range(choose.choice([1, 1, 1, 2, 3]))))
            else:
                page.edit({"op": "add", "entry": "number", "at": [0, 0]})
        compare(studio, page)

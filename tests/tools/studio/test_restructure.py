"""Edits of several blocks at once: groups, bridges, insertion, sliders, layout and copies; and what pages ask."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.graph.edges import Edge
from livegrad.tools.studio.open_studio import Studio
from tests.tools.studio.client import TestPage
from tests.tools.studio.test_undo import text_of


def shade(x: Any, gain: Any = 2.0) -> Any:
    return x * gain + 1.0


@pytest.fixture
def engine() -> lg.Engine:
    """source → shade → last, with a state that counts."""
    engine = lg.Engine()
    source = engine.add(lg.block(lambda value=3.0: value * 1.0, name="source"))
    shaded = engine.add(lg.block(shade))
    last = engine.add(lg.block(lambda y: y - 1.0, name="last"))
    engine.connect(source, shaded["x"])
    engine.connect(shaded, last["y"])
    engine.history.clear()
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


@pytest.fixture
def page(studio: Studio) -> Iterator[TestPage]:
    with TestPage(studio) as opened:
        opened.subscribe("source", "shade", "last")
        opened.wait_for_value("last", 6.0)
        yield opened


def ids(page: TestPage, *names: str) -> list[str]:
    return [page.id(name) for name in names]


def sources(engine: lg.Engine) -> dict[str, str]:
    return {str(pin): str(source.source) for pin, source in engine.graph.sources.items() if isinstance(source, Edge)}


def require_undo(page: TestPage, engine: lg.Engine, before: str) -> None:
    after = text_of(engine)
    assert after != before
    page.ask({"type": "undo"})
    assert text_of(engine) == before
    page.ask({"type": "redo"})
    assert text_of(engine) == after
    assert len(engine.history.entries) == 1


def test_a_removed_block_can_be_bridged(page, engine):
    before = text_of(engine)
    assert page.edit({"op": "dissolve", "block": page.id("shade")})["type"] == "done"
    assert sources(engine) == {"last.y": "source.result"}
    page.wait_for_value("last", 2.0)
    require_undo(page, engine, before)


def test_a_block_is_inserted_into_a_wire(page, engine):
    page.edit({"op": "add", "entry": "multiply", "at": [0, 0]})
    engine.history.clear()
    before = text_of(engine)
    page.edit({"op": "insert", "block": page.id("multiply"), "to": [page.id("last"), "y"]})
    assert sources(engine) == {"shade.x": "source.result", "multiply.a": "shade.result", "last.y": "multiply.result"}
    require_undo(page, engine, before)
    for op in ({"to": [page.id("last"), "y"]}, {"to": [page.id("multiply"), "a"]}, {"to": [page.id("shade"), "gain"]}):
        assert page.edit({"op": "insert", "block": page.id("multiply"), **op})["type"] == "rejected"


def test_an_input_becomes_a_slider(page, engine):
    page.edit({"op": "set", "pin": [page.id("shade"), "gain"], "value": 1.5})
    page.wait_for_value("last", 4.5)
    engine.history.clear()
    before = text_of(engine)
    page.edit({"op": "slider", "pin": [page.id("shade"), "gain"], "at": [1, 2]})
    assert sources(engine)["shade.gain"] == "gain.result"
    slider = page.input("gain", "gain")
    assert (slider["value"], slider["control"]["low"], slider["control"]["high"]) == (1.5, 0.0, 4.0)
    page.edit({"op": "set", "pin": [page.id("gain"), "gain"], "value": 2.5})
    page.wait_for_value("last", 7.5)
    page.ask({"type": "undo"})
    page.ask({"type": "undo"})
    assert text_of(engine) == before
    answer = page.edit({"op": "slider", "pin": [page.id("shade"), "x"], "at": [0, 0]})
    assert answer["error"]["message"] == "`shade.x` has no number"


def test_blocks_are_grouped_and_ungrouped(page, engine):
    before = text_of(engine)
    page.edit({"op": "group", "blocks": ids(page, "shade", "last"), "at": [5, 6]})
    assert list(engine.graph.blocks) == ["source", "group"]
    assert str(engine.graph.blocks["group"]) == "<block group(x) -> result>"
    page.subscribe("group")
    page.wait_for_value("group", 6.0)
    require_undo(page, engine, before)
    inside = engine.graph.blocks["group"].graph
    inside.set(inside.blocks["shade"]["gain"], 4.0)
    page.wait_for_value("group", 12.0)
    page.edit({"op": "ungroup", "block": page.id("group")})
    assert set(engine.graph.blocks) == {"source", "shade", "last"}
    assert sources(engine) == {"shade.x": "source.result", "last.y": "shade.result"}
    assert engine.step().ok
    assert float(engine.read(engine.graph.blocks["last"])) == 12.0
    for _ in range(3):
        page.ask({"type": "undo"})
    assert text_of(engine) == before


def test_a_group_inside_a_group_keeps_the_pins_that_are_exposed(page, engine):
    page.edit({"op": "group", "blocks": ids(page, "shade", "last"), "at": [0, 0]})
    page.wait(lambda: any(entry.get("name") == "group" for entry in page.entries.values()))
    engine.history.clear()
    before = text_of(engine)
    page.edit({"op": "group", "blocks": ids(page, "shade"), "at": [0, 0]})
    inner = engine.graph.blocks["group"].graph
    assert set(inner.blocks) == {"group", "last"}
    assert engine.step().ok
    assert float(engine.read(engine.graph.blocks["group"])) == 6.0
    require_undo(page, engine, before)
    last = page.id("last")
    page.wait(lambda: page.entries[page.entries[last]["inputs"][0]["from"][0]]["name"] == "group")
    page.edit({"op": "ungroup", "block": page.entries[last]["inputs"][0]["from"][0]})
    assert set(inner.blocks) == {"shade", "last"}
    assert engine.step().ok
    assert float(engine.read(engine.graph.blocks["group"])) == 6.0


def test_a_state_keeps_its_value_in_a_group_and_outside(page, engine):
    count = engine.add(lg.State("count", np.float32(0.0)))
    more = engine.add(lg.block(lambda q: q + 1.0, name="more"))
    with engine.edits():
        engine.connect(count, more["q"])
        engine.connect(more, count["next"])
    page.wait(lambda: any(entry.get("name") == "more" for entry in page.entries.values()))
    engine.set(count, 40.0)
    page.edit({"op": "group", "blocks": ids(page, "count", "more"), "at": [0, 0]})
    page.subscribe("more")
    page.wait_for_value("more", 41.0)
    page.edit({"op": "ungroup", "block": page.id("group")})
    page.edit({"op": "set", "pin": [page.id("source"), "value"], "value": 9})
    page.subscribe("more", "last")
    page.wait_for_value("last", 18.0)
    page.wait_for_value("more", 41.0)


def test_the_layout_is_one_entry_of_the_history(page, engine):
    for name, at in (("source", (500.0, 0.0)), ("shade", (0.0, 0.0)), ("last", (90.0, 3.0))):
        engine.graph.blocks[name].position = at
    engine.history.clear()
    before = text_of(engine)
    page.edit({"op": "arrange", "heights": {page.id("source"): 300, "b999": 3, page.id("last"): "high"}})
    columns = [engine.graph.blocks[name].position[0] for name in ("source", "shade", "last")]
    assert columns == sorted(set(columns))
    require_undo(page, engine, before)


# --- copies -----------------------------------------------------------------------------------------------------------


def test_copied_blocks_are_readable_text_that_can_be_pasted_elsewhere(page, engine):
    text = page.ask({"type": "copy", "blocks": ids(page, "shade", "last")})["text"]
    tables = tomllib.loads(text)
    assert (tables["kind"], list(tables["blocks"])) == ("blocks", ["shade", "last"])
    assert "x * gain + 1.0" in tables["functions"]["shade"]["text"]
    answer = page.edit({"op": "paste", "text": text, "at": [10, 20]})
    assert len(answer["results"][0]["blocks"]) == 2
    assert set(engine.graph.blocks) == {"source", "shade", "last", "shade2", "last2"}
    assert sources(engine)["last2.y"] == "shade2.result"
    assert engine.graph.blocks["shade2"]["x"] not in engine.graph.sources  # a wire from outside is not copied
    page.ask({"type": "undo"})
    assert set(engine.graph.blocks) == {"source", "shade", "last"}


def test_python_that_the_studio_did_not_write_runs_only_after_agreement(page, engine, tmp_path):
    marker = tmp_path / "ran"
    text = page.ask({"type": "copy", "blocks": ids(page, "shade")})["text"]
    attack = text.replace("    return", f"    open({str(marker)!r}, 'w')\n    return")
    answer = page.edit({"op": "paste", "text": attack, "at": [0, 0]})
    assert "open(" in answer["results"][0]["untrusted"]["shade"]
    assert set(engine.graph.blocks) == {"source", "shade", "last"}
    assert engine.history.entries == ()
    assert not marker.exists()
    page.edit({"op": "paste", "text": attack, "at": [0, 0], "trust": True})
    assert "shade2" in engine.graph.blocks


@pytest.mark.parametrize("permission", ["tune", "edit"])
def test_pages_that_may_not_write_code_paste_only_expressions(engine, permission):
    engine.add(lg.block(lambda a=1.0: a * 2.0, name="formula"))
    with lg.studio(engine, open_browser=False, permission=permission) as studio, TestPage(studio) as page:
        for name, may in (("shade", False), ("formula", permission == "edit")):
            text = page.ask({"type": "copy", "blocks": ids(page, name)})["text"]
            answer = page.edit({"op": "paste", "text": text, "at": [0, 0], "trust": True})
            assert (answer["type"] == "done") is may
            assert (f"{name}2" in engine.graph.blocks) is may


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("x=None: x * 2.0", "x=print(1): x * 2.0"),
        lambda text: text.replace("x * 2.0", "open(x)"),
        lambda text: text.replace("recorded = ", "import os; recorded = "),
        lambda text: text + '\n[functions.formula.names]\nsin = { import = "os:system" }\n',
        lambda text: text.replace("text = ", 'import = "os:system"\ntext = '),
        lambda text: text.replace("text = ", 'decorator = "function"\ntext = '),
    ],
)
def test_a_changed_expression_is_python(engine, change):
    engine.add(lg.block(lambda x=1.0: x * 2.0, name="formula"))
    with lg.studio(engine, open_browser=False, permission="edit") as studio, TestPage(studio) as page:
        text = page.ask({"type": "copy", "blocks": ids(page, "formula")})["text"]
        assert change(text) != text
        assert page.edit({"op": "paste", "text": change(text), "at": [0, 0]})["type"] == "rejected"


def test_text_without_blocks_is_refused(page):
    for text, what in (
        ("hello", "the text has no blocks"),
        ("livegrad = 1\nkind = 'blocks'", "the text has no blocks"),
        ("livegrad = 1\nkind = 'blocks'\n[blocks.a]\nkind = 'state'", "the text has no blocks"),
        ("livegrad = 99\nkind = 'blocks'", "the blocks were copied by a newer version of livegrad"),
    ):
        assert page.edit({"op": "paste", "text": text, "at": [0, 0]})["error"]["message"] == what


def test_duplicates_read_what_the_originals_read(page, engine):
    before = text_of(engine)
    page.edit({"op": "duplicate", "blocks": ids(page, "last", "shade"), "at": [[1, 2], [3, 4]]})
    assert engine.graph.blocks["last2"].position == (1.0, 2.0)
    assert engine.graph.blocks["shade2"].position == (3.0, 4.0)
    assert sources(engine)["shade2.x"] == "source.result"
    assert sources(engine)["last2.y"] == "shade2.result"
    require_undo(page, engine, before)


# --- questions --------------------------------------------------------------------------------------------------------


def test_pins_say_why_they_do_not_fit(page, engine):
    engine.add(lg.block(lambda a=1.0: lg.asarray([1.0, 2.0, 3.0]) * a, name="three"))
    engine.add(lg.block(lambda m, v=1.0: (lg.asarray([1.0, 2.0]) + m) * v, name="two"))
    with engine.edits():
        kept = engine.add(lg.State("kept", 0.0))
        engine.connect(engine.graph.blocks["source"], kept["next"])
        engine.connect(engine.graph.blocks["source"], engine.graph.blocks["two"]["m"])
    page.subscribe("three", "two")
    page.wait(lambda: "result" in (page.values.get(page.id("two")) or {}))
    answer = page.ask({"type": "fits", "from": [page.id("three"), "result"]})
    refused = answer["refused"]
    two = page.id("two")
    assert refused.keys() == {f"{page.id('three')}.a", f"{two}.m", f"{two}.v", f"{page.id('kept')}.next"}
    assert "put a state into the cycle" in refused[f"{page.id('three')}.a"]
    assert "holds tensor<f32, []>" in refused[f"{page.id('kept')}.next"]
    assert {"sum", "multiply", "function"} <= set(answer["entries"])
    assert "state" not in answer["entries"]
    answer = page.ask({"type": "fits", "to": [page.id("shade"), "x"]})
    assert answer["refused"].keys() >= {f"{page.id('last')}.result", f"{page.id('shade')}.result"}
    assert f"{page.id('source')}.result" not in answer["refused"]
    assert {"number", "state"} <= set(answer["entries"])


def test_the_history_can_be_listed_and_travelled(page, engine):
    before = text_of(engine)
    block = page.id("last")
    for name in ("a", "b", "c"):
        page.edit({"op": "rename", "block": block, "name": name})
    entries = page.ask({"type": "history"})["entries"]
    assert [entry["label"] for entry in entries] == ["rename last", "rename a", "rename b"]
    travelled = page.ask({"type": "travel", "steps": 3})["entries"]
    assert [entry["undone"] for entry in travelled] == [True] * 3
    assert text_of(engine) == before
    page.ask({"type": "travel", "steps": -2})
    assert "b" in engine.graph.blocks
    assert page.ask({"type": "travel", "steps": "all"})["type"] == "rejected"


def test_every_frame_says_why_each_block_ran_or_did_not(page, engine):
    page.edit({"op": "set", "pin": [page.id("shade"), "gain"], "value": 5})
    page.wait_for_value("last", 15.0)
    number = page.frame["number"]
    page.edit({"op": "set", "pin": [page.id("source"), "value"], "value": 1})
    page.wait_for_value("last", 5.0)
    frames = page.ask({"type": "frames"})["frames"]
    assert frames[-2]["number"] == number
    assert frames[-2]["level"] == "hot"
    reasons = page.ask({"type": "why", "frame": number})["reasons"]
    assert reasons[page.id("source")] == {"ran": False, "level": None, "text": "none of its inputs changed"}
    assert reasons[page.id("shade")] == {"ran": True, "level": "hot", "text": "shade.gain: 2.0 → 5.0"}
    assert reasons[page.id("last")]["ran"]
    last = page.ask({"type": "why", "block": page.id("source")})["reasons"]
    assert last[page.id("source")]["ran"]
    assert page.ask({"type": "why", "frame": 10**9})["error"]["message"] == "this frame is no longer remembered"

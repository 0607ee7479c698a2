"""Undo and redo from pages."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import livegrad as lg
from tests.tools.studio.client import TestPage


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    more = engine.add(lg.block(lambda y: y + 1.0, name="more"))
    engine.connect(double, more["y"])
    engine.history.clear()
    return engine


@pytest.fixture
def page(engine: lg.Engine) -> Iterator[TestPage]:
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.subscribe("double", "more")
        page.wait_for_value("more", 9.0)
        yield page


def labels(engine: lg.Engine) -> list[str]:
    return [entry.label for entry in engine.history.entries]


def turn(page: TestPage, *values: float, end: str = "commit") -> None:
    page.ask({"type": "gesture", "do": "begin", "label": "turn double.x"})
    for value in values:
        page.send({"type": "edit", "ops": [{"op": "set", "pin": [page.id("double"), "x"], "value": value}]})
    page.ask({"type": "gesture", "do": end})


def test_a_drag_is_one_entry_and_two_drags_are_two(page, engine):
    turn(page, 5, 6, 7)
    turn(page, 8, 9)
    page.wait_for_value("more", 19.0)
    assert labels(engine) == ["turn double.x", "turn double.x"]
    assert page.ask({"type": "undo"})["label"] == "turn double.x"
    page.wait_for_value("more", 15.0)
    page.ask({"type": "undo"})
    page.wait_for_value("more", 9.0)
    page.ask({"type": "redo"})
    page.wait_for_value("more", 15.0)


def test_an_aborted_drag_leaves_nothing(page, engine):
    turn(page, 5, 6, end="cancel")
    page.wait(lambda: page.input("double", "x")["value"] == 4.0)
    assert labels(engine) == []


def test_every_edit_of_a_page_can_be_undone_and_redone(page, engine):
    double, more = page.id("double"), page.id("more")
    steps = (
        {"op": "rename", "block": double, "name": "twice"},
        {"op": "move", "block": double, "at": [300, 40]},
        {"op": "expression", "block": double, "text": "x * 3 + offset"},
        {"op": "disconnect", "to": [more, "y"]},
        {"op": "add", "entry": "multiply", "at": [0, 0], "to": [more, "y"]},
        {"op": "remove", "block": double},
    )

    states = []
    for step in steps:
        states.append(text_of(engine))
        assert page.edit(step)["type"] == "done", step
    end = text_of(engine)
    for state in reversed(states):
        assert page.ask({"type": "undo"})["type"] == "done"
        assert text_of(engine) == state
    for _ in steps:
        page.ask({"type": "redo"})
    assert text_of(engine) == end


def text_of(engine: lg.Engine) -> str:
    """The engine as a document."""
    with tempfile.TemporaryDirectory() as folder:
        engine.save(f"{folder}/scene.lg")
        return (Path(folder) / "scene.lg").read_text()


def test_the_page_knows_what_undo_would_do(page, engine):
    page.edit({"op": "rename", "block": page.id("double"), "name": "twice"})
    page.wait(lambda: page.history.get("undo") == "rename double")
    page.ask({"type": "undo"})
    page.wait(lambda: page.history.get("redo") == "rename double")
    assert page.ask({"type": "undo"})["label"] is None


def test_edits_that_belong_together_happen_together_or_not_at_all(page, engine):
    answer = page.edit(
        {"op": "add", "entry": "number", "at": [0, 0]},
        {"op": "remove", "block": page.id("more")},
        {"op": "remove", "block": "b999"},
    )
    assert answer["error"]["message"] == "this block no longer exists"
    assert list(engine.graph.blocks) == ["double", "more"]
    assert labels(engine) == []


def test_a_page_that_leaves_ends_its_gesture(engine):
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        with TestPage(studio) as leaving:
            leaving.ask({"type": "gesture", "do": "begin", "label": "turn"})
            leaving.edit({"op": "set", "pin": [leaving.id("double"), "x"], "value": 6})
        page.wait(lambda: page.input("double", "x")["value"] == 6.0)
        assert page.ask({"type": "undo"})["label"] == "turn"


def test_the_studio_opens_documents_with_an_empty_history(tmp_path, engine):
    engine.save(tmp_path / "scene.lg")
    with lg.studio(tmp_path / "scene.lg", trust=True, open_browser=False) as studio, TestPage(studio) as page:
        assert page.snapshot["history"].items() >= {"undo": None, "redo": None}.items()


def test_running_fills_no_history(tmp_path):
    engine = lg.Engine()
    engine.add(lg.State("count", 0.0))
    engine.add(lg.block(lambda x=1.0: lg.contexts.context_tensor("animation_time") * x, name="timed"))
    engine.history.clear()
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.wait(lambda: page.frame["number"] > 5)
        page.ask({"type": "clock", "playing": False})
        page.edit({"op": "rewind"})
        page.ask({"type": "clock", "step": True})
        assert [entry.label for entry in engine.history.entries] == []

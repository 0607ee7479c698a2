"""Slopes, pulls and fits, without a browser: each is compared with finite differences or a known solution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.tools.studio.open_studio import Studio
from tests.tools.studio.client import TestPage


def shade(x: Any, tint: Any = (0.2, 0.5, 0.9), gain: Annotated[float, lg.Control(0.0, 4.0)] = 1.5) -> Any:
    line = lg.linspace(0.1, 1.0, 6)
    return lg.expand_dims(line[:, None] * line[None, :] * x * gain, axis=-1) * tint


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    source = engine.add(lg.block(lambda a=0.5, n=2: lg.sin(a) + n, name="source"))
    picture = engine.add(lg.block(shade, name="picture"))
    loss = engine.add(lg.block(lambda p, goal=0.25: lg.mean((p - goal) ** 2), name="loss"))
    engine.connect(source, picture["x"])
    engine.connect(picture, loss["p"])
    engine.history.clear()
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


@pytest.fixture
def page(studio: Studio) -> Iterator[TestPage]:
    with TestPage(studio) as page:
        yield page


def choose(page: TestPage, block: str, output: str = "result", **options: Any) -> None:
    answer = page.ask({"type": "target", "of": {"pin": [page.id(block), output], **options}})
    assert answer["type"] == "done", answer
    page.wait(lambda: page.tuning.get("slopes") or page.tuning.get("problem"))


def slope(page: TestPage, block: str, pin: str) -> Any:
    return page.tuning["slopes"][f"{page.id(block)}.{pin}"]


def by_differences(engine: lg.Engine, output: Any, pin: Any, read: Any, step: float = 1e-3) -> float:
    value = engine.parameters()[pin]["value"]
    ends = []
    for sign in (1.0, -1.0):
        engine.set(pin, value + sign * step)
        engine.step()
        ends.append(read(engine.read(output)))
    engine.set(pin, value)
    engine.step()
    return float((ends[0] - ends[1]) / (2 * step))


def test_every_slider_shows_its_slope_and_follows_edits(page, engine):
    choose(page, "loss")
    blocks = engine.graph.blocks
    assert set(page.tuning["slopes"]) == {
        f"{page.id(block)}.{pin}"
        for block, pin in (("source", "a"), ("picture", "tint"), ("picture", "gain"), ("loss", "goal"))
    }
    expected = by_differences(engine, blocks["loss"], blocks["picture"]["gain"], float)
    page.wait(lambda: slope(page, "picture", "gain") == pytest.approx(expected, rel=2e-3))
    page.edit({"op": "set", "pin": [page.id("picture"), "gain"], "value": 0.2})
    expected = by_differences(engine, blocks["loss"], blocks["picture"]["gain"], float)
    page.wait(lambda: slope(page, "picture", "gain") == pytest.approx(expected, rel=2e-3))
    page.edit({"op": "expression", "block": page.id("source"), "text": "a * a * c"})
    page.wait(lambda: f"{page.id('source')}.c" in page.tuning["slopes"])


def test_a_pixel_has_slopes_of_its_own(page, engine):
    choose(page, "picture", index=[4, 5])
    picture = engine.graph.blocks["picture"]
    for name in ("gain",):
        expected = by_differences(engine, picture, picture[name], lambda array: np.mean(array[4, 5]))
        assert slope(page, "picture", name) == pytest.approx(expected, rel=2e-3)
    assert page.tuning["value"] == pytest.approx(engine.read(picture)[4, 5].tolist(), rel=1e-5)
    assert page.tuning["target"]["label"] == "picture.result[4, 5]"


def test_wires_show_how_much_they_matter(page, engine):
    choose(page, "loss")
    wires = page.tuning["wires"]
    assert set(wires) == {f"{page.id('picture')}.x", f"{page.id('loss')}.p"}
    pixels, goal = engine.read(engine.graph.blocks["picture"]), 0.25
    expected = np.linalg.norm(2 * (pixels - goal) / pixels.size * pixels)
    assert wires[f"{page.id('loss')}.p"] == pytest.approx(float(expected), rel=1e-4)


def test_a_pull_arrives_and_is_one_entry(page, engine):
    choose(page, "picture", index=[4, 5])
    before = engine.read(engine.graph.blocks["picture"])[4, 5]
    wanted = [0.9, 0.4, 0.7]
    page.ask({"type": "pull", "do": "begin"})
    for share in (0.3, 0.6, 1.0):
        page.send({"type": "pull", "do": "move", "to": (before + share * (np.array(wanted) - before)).tolist()})
    page.ask({"type": "pull", "do": "commit"})
    page.wait(lambda: not page.tuning["pulling"])
    engine.step()
    assert engine.read(engine.graph.blocks["picture"])[4, 5] == pytest.approx(wanted, abs=1e-4)
    assert [entry.label for entry in engine.history.entries] == ["pull picture.result[4, 5]"]
    page.ask({"type": "undo"})
    engine.step()
    assert engine.read(engine.graph.blocks["picture"])[4, 5] == pytest.approx(before.tolist())


def test_pinned_sliders_stay_and_bounds_hold(page, engine):
    choose(page, "picture", index=[4, 5, 0])
    for block, pin in (("source", "a"), ("picture", "tint")):
        page.ask({"type": "pin", "pin": [page.id(block), pin], "pinned": True})
    page.wait(lambda: len(page.tuning["pinned"]) == 2)
    page.ask({"type": "pull", "do": "begin"})
    page.send({"type": "pull", "do": "move", "to": 1000.0})
    page.ask({"type": "pull", "do": "commit"})
    page.wait(lambda: not page.tuning["pulling"])
    values = {pin.name: shown["value"] for pin, shown in engine.parameters().items()}
    assert values["gain"] == 4.0  # the end of its range
    assert values["a"] == 0.5
    assert values["tint"] == pytest.approx([0.2, 0.5, 0.9])


def test_a_cancelled_pull_leaves_nothing(page, engine):
    choose(page, "loss")
    page.ask({"type": "pull", "do": "begin"})
    page.ask({"type": "pull", "do": "move", "to": 0.0})
    page.wait(lambda: page.input("picture", "gain")["value"] != 1.5)
    page.ask({"type": "pull", "do": "cancel"})
    page.wait(lambda: page.input("picture", "gain")["value"] == 1.5)
    assert engine.history.entries == ()


def test_a_fit_runs_pauses_continues_and_is_one_entry(page, engine):
    choose(page, "loss")
    start = page.tuning["value"]
    page.ask({"type": "fit", "do": "start"})
    page.wait(lambda: page.tuning["fit"] and page.tuning["fit"]["steps"] > 3)
    page.ask({"type": "fit", "do": "pause"})
    page.wait(lambda: page.tuning["fit"]["state"] == "paused")
    page.ask({"type": "fit", "do": "continue"})
    page.wait(lambda: page.tuning["fit"]["state"] == "done")
    engine.step()
    end = float(engine.read(engine.graph.blocks["loss"]))
    assert end < 0.3 * start
    assert [entry.label for entry in engine.history.entries] == ["fit loss.result"]
    losses = page.tuning["fit"]["losses"]
    assert losses[0] == pytest.approx(start)
    page.ask({"type": "undo"})
    engine.step()
    assert float(engine.read(engine.graph.blocks["loss"])) == pytest.approx(start)


def test_a_stopped_fit_keeps_what_it_found_and_a_cancelled_one_does_not(page, engine):
    choose(page, "loss")
    for how, label in (("cancel", None), ("stop", "fit loss.result")):
        page.ask({"type": "fit", "do": "start"})
        page.wait(lambda: page.tuning["fit"] and page.tuning["fit"]["steps"] > 0)
        page.ask({"type": "fit", "do": how})
        page.wait(lambda: not page.tuning["fit"] or page.tuning["fit"]["state"] == "done")
        assert engine.history.next_undo == label


def test_what_has_no_slopes_says_why(page, engine):
    engine.add(lg.block(lambda n=3: n * 2, name="whole"))
    page.wait(lambda: any(entry.get("name") == "whole" for entry in page.entries.values()))
    choose(page, "whole")
    assert "depends on no number that can move" in page.tuning["problem"]["message"]
    page.ask({"type": "target", "of": None})
    page.wait(lambda: page.tuning["target"] is None)
    assert page.ask({"type": "pull", "do": "begin"})["error"]["message"] == "no output is chosen"
    assert page.ask({"type": "fit", "do": "start"})["error"]["message"] == "no output is chosen"


def test_slopes_reach_through_frames():
    engine = lg.Engine()
    x = engine.add(lg.State("x", 1.0))
    grow = engine.add(lg.block(lambda x, rate=2.0: x * rate, name="grow"))
    engine.connect(x, grow["x"])
    engine.connect(grow, x["next"])
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.ask({"type": "clock", "playing": False})
        page.edit({"op": "rewind"})
        choose(page, "grow", frames=3)
        page.wait(lambda: page.tuning["value"] == pytest.approx(8.0))
        assert slope(page, "grow", "rate") == pytest.approx(12.0)  # rate³

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


def test_a_fit_runs_pauses_continues_and_is_one_entry(page, engine, endless_fit):
    choose(page, "loss")
    start = page.tuning["value"]
    page.ask({"type": "fit", "do": "start"})
    page.wait(lambda: page.tuning["fit"] and page.tuning["fit"]["steps"] > 3)
    page.ask({"type": "fit", "do": "pause"})
    page.wait(lambda: page.tuning["fit"]["state"] == "paused")
    endless_fit.set()
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


def test_a_stopped_fit_keeps_what_it_found_and_a_cancelled_one_does_not(page, engine, endless_fit):
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


# --- surfaces -------------------------------------------------------------------------------------------------------


def ball() -> lg.Part:
    radius = lg.shapes.Parameter("radius", 0.6, lg.Control(0.2, 1.0))
    return lg.shapes.sphere(radius).part(((-1.2, -1.2, -1.2), (1.2, 1.2, 1.2)), "ball")


def test_a_point_of_a_surface_shows_how_far_sliders_move_it():
    with lg.studio(ball(), open_browser=False) as studio, TestPage(studio) as page:
        assert page.ask({"type": "target", "of": {"point": [0.0, 0.6, 0.0]}})["type"] == "done"
        page.wait(lambda: page.tuning.get("slopes"))
        assert page.tuning["slopes"] == {f"{page.id('distance')}.radius": pytest.approx(1.0)}
        assert page.tuning["target"]["label"] == "surface at (0, 0.6, 0)"
        answer = page.ask({"type": "fit", "do": "start"})
        assert answer["error"]["message"] == "only an output can be fitted"


@pytest.mark.parametrize(
    ("to", "expected"), [([0.0, 0.9, 0.0], 0.9), ([0.3, 0.3, 0.3], 0.27**0.5), ([0.0, 5.0, 0.0], 1.0)]
)
def test_a_pulled_surface_goes_through_the_point_as_far_as_its_range_allows(to, expected):
    with lg.studio(ball(), open_browser=False) as studio, TestPage(studio) as page:
        page.ask({"type": "target", "of": {"point": [0.0, 0.6, 0.0]}})
        page.ask({"type": "pull", "do": "begin"})
        page.send({"type": "pull", "do": "move", "to": to})
        page.ask({"type": "pull", "do": "commit"})
        page.wait(lambda: page.input("distance", "radius")["value"] == pytest.approx(expected, abs=1e-5))
        page.wait(lambda: page.tuning["target"]["point"] == to and not page.tuning["pulling"])
        assert page.ask({"type": "undo"})["label"] == "pull surface at (0, 0.6, 0)"


def test_a_surface_is_pulled_through_blocks_that_compute_its_parameters():
    with lg.studio(ball(), open_browser=False) as studio, TestPage(studio) as page:
        session = studio._engine_thread.session
        assert session is not None
        engine = session.engine
        source = engine.add(lg.block(lambda size=0.3: size * size + 0.51, name="source"))
        engine.connect(source, engine.graph.blocks["distance"]["radius"])
        page.wait(lambda: page.input("distance", "radius")["source"] == "edge")
        engine.settle()
        page.ask({"type": "target", "of": {"point": [0.0, 0.6, 0.0]}})
        page.wait(lambda: page.tuning.get("slopes"))
        assert page.tuning["slopes"] == {f"{page.id('source')}.size": pytest.approx(0.6, rel=1e-5)}
        page.ask({"type": "pull", "do": "begin"})
        page.send({"type": "pull", "do": "move", "to": [0.0, 0.0, 0.76]})
        page.ask({"type": "pull", "do": "commit"})
        page.wait(lambda: page.input("source", "size")["value"] == pytest.approx(0.5, abs=1e-4))


def test_the_shader_shows_the_slope_that_a_page_asks_for():
    with lg.studio(ball(), open_browser=False) as studio, TestPage(studio) as page:
        page.wait(lambda: page.part and page.part["shader"])
        assert (page.part["parameters"], page.part["shader"]["slopes"]) == (["radius"], [])
        page.ask({"type": "heat", "parameter": "radius"})
        page.wait(lambda: page.part["shader"]["slopes"] == ["radius"])
        assert page.ask({"type": "heat", "parameter": "nothing"})["error"]["expected"] == "radius"


# --- presets, comparison, animation ---------------------------------------------------------------------------------


def gain(page: TestPage) -> Any:
    return page.input("picture", "gain")["value"]


def set_gain(page: TestPage, value: float) -> None:
    page.edit({"op": "set", "pin": [page.id("picture"), "gain"], "value": value})
    page.wait(lambda: gain(page) == value)


def test_presets_are_saved_applied_and_undone(page, engine):
    page.ask({"type": "preset", "do": "save", "name": "start"})
    page.wait(lambda: page.tuning.get("presets") == ["start"])
    set_gain(page, 3.0)
    page.ask({"type": "preset", "do": "apply", "name": "start"})
    page.wait(lambda: gain(page) == 1.5)
    assert page.ask({"type": "undo"})["label"] == "preset start"
    page.wait(lambda: gain(page) == 3.0)
    page.ask({"type": "preset", "do": "remove", "name": "start"})
    page.wait(lambda: page.tuning["presets"] == [])
    page.ask({"type": "undo"})
    page.wait(lambda: page.tuning["presets"] == ["start"])
    assert page.ask({"type": "preset", "do": "apply", "name": "x"})["error"]["message"] == "there is no such preset"


def test_two_settings_are_compared(page, engine):
    page.ask({"type": "compare", "slot": "B"})
    set_gain(page, 3.0)
    page.ask({"type": "compare", "slot": "A"})
    page.wait(lambda: gain(page) == 1.5 and page.tuning["compared"] == "A")
    set_gain(page, 0.5)
    page.ask({"type": "compare", "slot": "B"})
    page.wait(lambda: gain(page) == 3.0)
    page.ask({"type": "compare", "slot": "A"})
    page.wait(lambda: gain(page) == 0.5)
    assert page.ask({"type": "undo"})["label"] == "compare A"
    page.ask({"type": "compare", "slot": None})
    page.wait(lambda: page.tuning["compared"] is None)
    assert page.ask({"type": "compare", "slot": "C"})["type"] == "rejected"


def test_an_animated_number_follows_the_clock_and_fills_no_history(page, engine):
    animation = {"shape": "ramp", "low": 1.0, "high": 3.0, "period": 2.0}
    page.ask({"type": "animate", "pin": [page.id("picture"), "gain"], "animation": animation})
    page.wait(lambda: page.tuning.get("animations"))
    assert page.tuning["animations"] == {f"{page.id('picture')}.gain": animation}
    for time, expected in ((0.5, 1.5), (1.0, 2.0), (2.5, 1.5)):
        page.ask({"type": "clock", "seek": time})
        page.wait(lambda expected=expected: gain(page) == pytest.approx(expected))
    page.ask({"type": "clock", "speed": 6.0})
    page.ask({"type": "clock", "step": True})  # a tenth of a second
    page.wait(lambda: gain(page) == pytest.approx(1.6))
    engine.step()
    page.ask({"type": "animate", "pin": [page.id("picture"), "gain"], "animation": None})
    page.wait(lambda: page.tuning["animations"] == {})
    page.ask({"type": "clock", "seek": 0.1})
    page.wait(lambda: page.frame["time"] == pytest.approx(0.1))
    assert gain(page) == pytest.approx(1.6)
    assert engine.history.entries == ()


def torus(p: lg.vec3, major: lg.f32 = 0.7, minor: Annotated[lg.f32, lg.Control(0.05, 0.4)] = 0.2) -> Any:  # type: ignore[assignment]
    across = lg.sqrt(p.x * p.x + p.y * p.y) - major
    return lg.sqrt(across * across + p.z * p.z) - minor


def test_a_function_of_a_position_is_a_part_whose_arguments_are_sliders():
    with lg.studio(torus, open_browser=False) as studio, TestPage(studio) as page:
        assert page.snapshot["part"]["parameters"] == ["major", "minor"]
        assert page.input("distance", "minor")["control"]["high"] == 0.4
        page.ask({"type": "target", "of": {"point": [0.9, 0.0, 0.0]}})
        page.wait(lambda: page.tuning.get("slopes"))
        assert page.tuning["slopes"] == {
            f"{page.id('distance')}.{name}": pytest.approx(1.0, abs=1e-5) for name in ("major", "minor")
        }

"""Slopes, pulls, fits and heat maps in the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import livegrad as lg
from livegrad.tools.studio.open_studio import Studio
from tests.tools.studio.in_browser import node, select, wait_for_exact_picture


def shade(x: Any, tint: Any = (0.2, 0.5, 0.9), gain: Annotated[float, lg.Control(0.0, 4.0)] = 1.5) -> Any:
    line = lg.linspace(0.1, 1.0, 16)
    return lg.expand_dims(line[:, None] * line[None, :] * x * gain, axis=-1) * tint


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    source = engine.add(lg.block(lambda a=0.5: lg.sin(a), name="source"))
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


def choose_loss(page: Page) -> None:
    select(page, "loss")
    page.get_by_role("region", name="outputs").get_by_role("button", name="Slopes").click()
    page.locator(".svelte-flow__pane").click(position={"x": 30, "y": 300})
    expect(page.get_by_role("region", name="chosen output")).to_contain_text("loss.result")
    expect(page.get_by_label("slope of picture gain")).not_to_have_text("")


def test_a_chosen_output_shows_slopes_at_sliders_and_wires(open_page, studio, engine):
    page = open_page(studio.url)
    choose_loss(page)
    for name in ("source a", "picture tint", "picture gain", "loss goal"):
        expect(page.get_by_label(f"slope of {name}")).to_be_visible()
    before = page.get_by_label("slope of picture gain").inner_text()
    expect(page.locator("style[data-wires=influence]")).to_have_count(1)
    widths = page.locator(".svelte-flow__edge path.svelte-flow__edge-path").evaluate_all(
        "paths => paths.map(path => parseFloat(getComputedStyle(path).strokeWidth))"
    )
    assert max(widths) == pytest.approx(5.0)
    page.get_by_role("slider", name="picture gain").press("End")
    expect(page.get_by_label("slope of picture gain")).not_to_have_text(before)
    page.get_by_role("button", name="choose no output").click()
    expect(page.locator(".slope")).to_have_count(0)


def test_a_pulled_number_arrives_and_pinned_sliders_stay(open_page, studio, engine):
    page = open_page(studio.url)
    choose_loss(page)
    for name in ("source a", "picture tint", "loss goal"):
        page.get_by_role("button", name=f"pin {name}").click()
        expect(page.get_by_role("button", name=f"pin {name}")).to_have_attribute("aria-pressed", "true")
    field = page.get_by_role("spinbutton", name="pull loss.result")
    field.press("Enter")
    page.keyboard.type("0.05")
    page.keyboard.press("Enter")
    expect(field).to_have_text("0.05")
    engine.step()
    assert float(engine.read(engine.graph.blocks["loss"])) == pytest.approx(0.05, abs=1e-5)
    values = {pin.name: shown["value"] for pin, shown in engine.parameters().items()}
    assert values["a"] == 0.5
    assert values["gain"] != 1.5
    undo = page.get_by_role("button", name="undo")
    expect(undo).to_have_attribute("title", "Undo pull loss.result (Ctrl Z)")
    undo.click()
    expect(page.get_by_role("slider", name="picture gain")).to_have_value("1.5")


def test_a_pixel_is_chosen_and_its_colour_pulled(open_page, studio, engine):
    page = open_page(studio.url)
    page.get_by_role("button", name="show picture result as a picture").click()
    wait_for_exact_picture(page)
    canvas = page.get_by_label(re.compile("^picture of picture "))
    box = canvas.bounding_box()
    assert box is not None
    side = min(box["width"], box["height"])
    left, top = (box["width"] - side) / 2, (box["height"] - side) / 2
    canvas.click(position={"x": left + 11.5 / 16 * side, "y": top + 4.5 / 16 * side})
    page.get_by_role("status", name="pixel").get_by_role("button", name="slopes").click()
    card = page.get_by_role("region", name="chosen output")
    expect(card).to_contain_text("picture.result[4, 11]")
    expect(page.get_by_test_id("chosen pixel")).to_be_visible()
    page.get_by_label("colour of the pixel").fill("#336699")
    picture = engine.graph.blocks["picture"]
    expect(card.get_by_role("spinbutton", name="pull picture.result[4, 11] g")).to_have_text("0.4")
    engine.step()
    assert engine.read(picture)[4, 11] == pytest.approx([0.2, 0.4, 0.6], abs=1e-3)
    card.get_by_label("element, axis 0").fill("5")
    card.get_by_label("element, axis 0").press("Enter")
    expect(card).to_contain_text("picture.result[5, 11]")


def test_a_fit_shows_its_curve_pauses_and_continues(open_page, studio, engine, endless_fit):
    page = open_page(studio.url)
    choose_loss(page)
    start = float(engine.read(engine.graph.blocks["loss"]))
    card = page.get_by_role("region", name="chosen output")
    card.get_by_role("button", name="Minimise").click()
    expect(card.get_by_role("img", name=re.compile("^loss curve"))).to_be_visible()
    card.get_by_role("button", name="Pause").click()
    expect(card.get_by_role("status")).to_have_text("paused")
    endless_fit.set()
    card.get_by_role("button", name="Continue").click()
    expect(card.get_by_role("status")).to_have_text("done", timeout=60_000)
    engine.step()
    assert float(engine.read(engine.graph.blocks["loss"])) < 0.3 * start
    page.get_by_role("button", name="undo").click()
    expect(page.get_by_role("slider", name="picture gain")).to_have_value("1.5")
    engine.step()
    assert float(engine.read(engine.graph.blocks["loss"])) == pytest.approx(start)


def ball() -> lg.Part:
    radius = lg.shapes.Parameter("radius", 0.6, lg.Control(0.2, 1.0))
    return lg.shapes.sphere(radius).part(((-1.2, -1.2, -1.2), (1.2, 1.2, 1.2)), "ball")


def test_a_dragged_point_of_a_surface_moves_the_slider(open_page):
    with lg.studio(ball(), open_browser=False) as studio:
        page = open_page(studio.url)
        expect(page.locator("[data-picture]")).to_have_attribute("data-picture", "fine")
        view = page.get_by_role("img", name=re.compile("^3D view"))
        box = view.bounding_box()
        assert box is not None
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        pixels = min(box["width"], box["height"]) / 2.8  # roughly, of one unit
        page.mouse.click(middle[0] + 0.4 * pixels, middle[1])
        page.get_by_role("button", name="Pull this point").click()
        point = page.get_by_role("button", name=re.compile("^pull the surface at"))
        expect(page.get_by_label("slope of distance radius")).to_have_text("1")
        place = point.bounding_box()
        assert place is not None
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 0.1 * pixels, y, steps=3)
        page.mouse.move(x + 0.2 * pixels, y, steps=3)
        page.mouse.up()
        expect(page.get_by_role("button", name="undo")).to_have_attribute("title", re.compile("^Undo pull surface at"))
        label = point.get_attribute("aria-label")
        assert label is not None
        at = np.array([float(text) for text in label.removeprefix("pull the surface at ").split(", ")])
        session = studio._engine_thread.session
        assert session is not None
        radius = session.engine.graph.blocks["distance"]["radius"]
        value = session.engine.parameters()[radius]["value"]
        assert value == pytest.approx(float(np.linalg.norm(at)), abs=0.01)  # the surface goes through the point
        assert value > 0.62
        point.press("ArrowLeft")
        expect(page.get_by_role("slider", name="distance radius")).not_to_have_value(str(value))


def test_the_surface_shows_how_far_a_slider_moves_it(open_page):
    with lg.studio(ball(), open_browser=False) as studio:
        page = open_page(studio.url)
        expect(page.locator("[data-picture]")).to_have_attribute("data-picture", "fine")
        view = page.get_by_role("img", name=re.compile("^3D view"))
        page.get_by_label("Colour").select_option("slope radius")
        # Growing by one moves the surface of a ball by one: the strongest red.
        page.wait_for_function(
            """canvas => {
                const copy = new OffscreenCanvas(canvas.width, canvas.height), context = copy.getContext("2d");
                context.drawImage(canvas, 0, 0);
                const pixel = context.getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data;
                return pixel[0] > 2 * pixel[1] && pixel[0] > 2 * pixel[2];
            }""",
            arg=view.element_handle(),
        )


def test_a_page_that_may_only_look_sees_slopes_and_moves_nothing(open_page, engine):
    with lg.studio(engine, open_browser=False, permission="view") as studio:
        page = open_page(studio.url)
        expect(node(page, "loss")).to_be_visible()
        select(page, "loss")
        expect(page.get_by_role("region", name="outputs").get_by_role("button", name="Slopes")).to_be_disabled()


# --- presets, comparison, time --------------------------------------------------------------------------------------


def test_presets_are_named_applied_and_removed(open_page, studio, engine):
    page = open_page(studio.url)
    gain = page.get_by_role("slider", name="picture gain")
    page.get_by_role("button", name="save a preset").click()
    page.keyboard.type("start")
    page.keyboard.press("Enter")
    expect(page.get_by_label("preset", exact=True)).to_have_value("start")
    gain.press("End")
    expect(gain).to_have_value("4")
    page.get_by_label("preset", exact=True).select_option("presets")
    page.get_by_label("preset", exact=True).select_option("start")
    expect(gain).to_have_value("1.5")
    page.get_by_role("button", name="remove preset start").click()
    expect(page.get_by_label("preset", exact=True)).to_have_count(0)
    page.get_by_role("button", name="undo").click()
    expect(page.get_by_label("preset", exact=True)).to_have_count(1)


def test_two_settings_are_compared(open_page, studio, engine):
    page = open_page(studio.url)
    gain = page.get_by_role("slider", name="picture gain")
    slots = page.get_by_role("group", name="compare two settings")
    slots.get_by_role("button", name="B").click()
    gain.press("End")
    for slot, value in (("A", "1.5"), ("B", "4"), ("A", "1.5")):
        slots.get_by_role("button", name=slot, exact=True).click()
        expect(gain).to_have_value(value)
    slots.get_by_role("button", name="end the comparison").click()
    expect(slots.get_by_role("button", name="end the comparison")).to_have_count(0)


def test_a_number_is_animated_and_the_time_line_scrubbed(open_page, studio, engine):
    page = open_page(studio.url)
    gain = page.get_by_role("slider", name="picture gain")
    page.get_by_role("button", name="animate picture gain").click()
    expect(gain).not_to_have_value("1.5")
    page.get_by_role("button", name="pause").click()
    page.get_by_label("shape of the animation of picture gain").select_option("ramp")
    line = page.get_by_role("region", name="time line")
    line.get_by_label("time", exact=True).press("Home")
    expect(gain).to_have_value("0")
    line.get_by_label("speed of time").select_option("2×")
    expect(line.get_by_label("speed of time")).to_have_value("2")
    page.get_by_role("button", name="animate picture gain").click()
    expect(page.get_by_label("shape of the animation of picture gain")).to_have_count(0)
    assert engine.history.entries == ()

"""The viewport of the Studio in a browser: its picture, its controls, sliders, picks and frames of a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import livegrad as lg
from livegrad.implicit import fit_bounds, viewport_shader
from tests.shaders.browser import Browser, reason_for_no_browser
from tests.shaders.draw_viewport import draw
from tests.shaders.viewport_page import reason_for_no_node, serve

_REASON = reason_for_no_browser() or reason_for_no_node()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=str(_REASON))
SIZE = (320, 240)


def ball_in_box() -> lg.Part:
    ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 0.6))
    return fit_bounds(lg.shapes.union(lg.shapes.box((1.6, 1.2, 0.8)), ball).part(((-2, -2, -2), (2, 2, 2))))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the whole module."""
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Any]:
    """The test page with the part, once its fine picture is drawn."""
    with serve(viewport_shader(ball_in_box(), slopes=["radius"])) as address:
        yield open_page(browser, address)


def open_page(browser: Browser, address: str) -> Any:
    page = browser.page
    page.set_viewport_size({"width": SIZE[0], "height": SIZE[1] + 60})
    page.goto(address)
    page.add_style_tag(content=f"#view {{ width: {SIZE[0]}px; height: {SIZE[1]}px; }}")
    page.wait_for_function("window.viewport !== undefined")
    wait_for_fine(page)
    return page


def wait_for_fine(page: Any) -> None:
    """Waits until the view rests and its picture is whole."""
    page.evaluate("window.frames.length = 0; window.viewport.setSettings({})")
    page.wait_for_function("window.frames.some((frame) => !frame.coarse)", timeout=60_000)


def picture(page: Any) -> NDArray[np.uint8]:
    """The pixels of the canvas that is shown."""
    script = """async () => {
        const bitmap = await createImageBitmap(await window.viewport.toBlob());
        const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
        const context = canvas.getContext("2d");
        context.drawImage(bitmap, 0, 0);
        const {data} = context.getImageData(0, 0, bitmap.width, bitmap.height);
        return [bitmap.width, bitmap.height, Array.from(data)];
    }"""
    width, height, data = page.evaluate(script)
    return np.array(data, np.uint8).reshape(height, width, 4)


def test_the_picture_is_that_of_the_shader(page: Any, browser: Browser) -> None:
    page.evaluate("window.viewport.setSettings({plate: false})")
    wait_for_fine(page)
    height = page.evaluate("window.viewport.camera.height")
    found = picture(page)
    expected, _ = draw_in_new_page(browser, SIZE, height / SIZE[1])
    assert found.shape == (SIZE[1], SIZE[0], 4)
    assert (np.abs(found / 255.0 - expected).max(-1) > 0.03).mean() < 0.005


def draw_in_new_page(browser: Browser, size: tuple[int, int], pixel: float) -> Any:
    return draw(browser, viewport_shader(ball_in_box()), size, lg_pixel=pixel)


def test_a_slider_changes_the_picture_and_compiles_nothing(page: Any) -> None:
    before = picture(page)
    page.evaluate("window.compiled = 0; window.sources.length = 0")
    page.get_by_label("radius").fill("0.75")
    wait_for_fine(page)
    assert (picture(page) != before).any()
    assert page.evaluate("window.sources.length") == 0


def test_dragging_turns_and_the_wheel_zooms(page: Any) -> None:
    before = page.evaluate("window.viewport.camera")
    page.mouse.move(160, 120)
    page.mouse.down()
    page.mouse.move(220, 150, steps=4)
    page.mouse.up()
    turned = page.evaluate("window.viewport.camera")
    assert turned["target"] == before["target"]
    assert np.linalg.norm(np.subtract(turned["direction"], before["direction"])) > 0.2
    assert page.evaluate("window.picked.length") == 0
    page.mouse.wheel(0, 300)
    page.wait_for_function(f"window.viewport.camera.height > {turned['height']}")
    page.mouse.down(button="right")
    page.mouse.move(160, 100, steps=3)
    page.mouse.up(button="right")
    assert page.evaluate("window.viewport.camera.target") != before["target"]
    page.keyboard.press("Home")
    np.testing.assert_allclose(page.evaluate("window.viewport.camera.target"), before["target"], atol=1e-6)


def test_keys_turn_the_view(page: Any) -> None:
    page.locator("#view canvas").first.focus()
    before = page.evaluate("window.viewport.camera.direction")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("window.viewport.camera.direction") != before


def test_a_click_picks_a_point_of_the_surface(page: Any) -> None:
    part = ball_in_box()
    page.mouse.click(160, 118)
    page.wait_for_function("window.picked.length === 1")
    picked = page.evaluate("window.picked[0]")
    assert abs(part(picked["point"])) < 1e-3
    gradient = part.gradient(picked["point"])
    np.testing.assert_allclose(picked["normal"], gradient / np.linalg.norm(gradient), atol=1e-3)
    page.mouse.click(3, 3)
    page.wait_for_function("window.picked.length === 2")
    assert page.evaluate("window.picked[1]") is None


def test_settings_change_what_is_shown(page: Any) -> None:
    seen = [picture(page)]
    for settings in (
        {"section": {"normal": [0, -1, 0], "offset": 0.1}},
        {"field": True},
        {"field": False, "section": None, "display": "normals"},
        {"display": {"slope": "radius"}},
    ):
        page.evaluate("(settings) => window.viewport.setSettings(settings)", settings)
        wait_for_fine(page)
        seen.append(picture(page))
        assert all((seen[-1] != other).any() for other in seen[:-1])


@pytest.mark.parametrize(("query", "reason"), [("?limit=10", "more than 10"), ("?broken", "ERROR")])
def test_the_server_draws_what_the_client_cannot(browser: Browser, query: str, reason: str) -> None:
    with serve(viewport_shader(ball_in_box())) as address:
        page = open_page(browser, address + query)
        source = page.evaluate("window.viewport.source")
        assert source["kind"] == "server"
        assert reason in source["reason"]
        assert page.evaluate("window.requests") > 0
        assert picture(page)[10, 10].tolist() == [20, 120, 220, 255]


def test_a_resting_picture_is_smooth(browser: Browser) -> None:
    """Each pixel is the mean of four samples."""
    with serve(viewport_shader(ball_in_box())) as address:
        page = open_page(browser, address + "?smooth")
        page.evaluate("window.viewport.setSettings({plate: false})")
        page.add_style_tag(content="#view { width: 80px !important; height: 60px !important; }")
        page.wait_for_timeout(200)
        page.evaluate("window.viewport.fit()")
        wait_for_fine(page)
        page.wait_for_function("window.frames.filter((frame) => !frame.coarse).length === 2", timeout=60_000)
        found = picture(page)[..., :3] / 255.0
        height = page.evaluate("window.viewport.camera.height")
    expected, _ = draw_in_new_page(browser, (160, 120), height / 120)
    mean = expected[..., :3].reshape(60, 2, 80, 2, 3).mean((1, 3))
    assert (np.abs(found - mean).max(-1) > 0.03).mean() < 0.005


def test_a_viewport_leaves_nothing_behind(page: Any) -> None:
    page.evaluate("window.viewport.dispose()")
    assert page.locator("#view canvas").count() == 0

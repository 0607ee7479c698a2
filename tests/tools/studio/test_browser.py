"""The page in a browser: Debian's Chromium, driven through playwright. Nothing here waits for a time to pass."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import livegrad as lg
from livegrad.tools.studio.gallery import EXAMPLES
from livegrad.tools.studio.open_studio import Studio
from tests.tools.studio.in_browser import node, pixels, select, wait_for_exact_picture, wait_for_other_pixels


def picture(gain: Any = 0.5, phase: Any = 0.0) -> Any:
    line = lg.linspace(0.0, 6.0, 64)
    waves = lg.sin(line[:, None] + phase) * lg.cos(line[None, :])
    return 0.5 + 0.5 * gain * waves


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    phase = engine.add(lg.block(lambda turn=0.25: turn * 4.0, name="phase"))
    drawn = engine.add(lg.block(picture))
    engine.connect(phase, drawn["phase"])
    engine.add(lg.block(lambda y=1.0: y - 1.0, name="other"))
    engine.history.clear()
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


def text_of(engine: lg.Engine, folder: Path) -> str:
    engine.save(folder / "scene.lg")
    return (folder / "scene.lg").read_text()


def replace_code(page: Page, old: str, new: str) -> None:
    """Replaces a part of the text in the editor, and applies it."""
    editor = page.locator(".cm-content")
    expect(editor).to_contain_text(old)
    text = "\n".join(page.locator(".cm-line").all_inner_texts())
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text.replace(old, new))
    page.keyboard.press("Control+Enter")


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_example_opens_and_draws(open_page, example):
    with lg.studio(open_browser=False) as studio:
        page = open_page(studio.url)
        page.get_by_role("button", name=re.compile(f"^{re.escape(example.title)}")).click()
        expect(page.locator("figure canvas")).to_have_attribute("data-frame", re.compile(r"\d+"))
        expect(page.get_by_role("button", name="No problems")).to_be_visible()
        assert page.title() == f"{example.title} – livegrad Studio"
        page.get_by_role("button", name="‹ Examples").click()
        expect(page.locator(".card")).to_have_count(len(EXAMPLES))


def test_dragging_a_slider_changes_the_picture_and_is_one_step_of_undo(open_page, studio, engine):
    page = open_page(studio.url)
    wait_for_exact_picture(page)
    before = pixels(page)
    slider = page.get_by_role("slider", name="phase turn")
    box = slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.3, 0.5, 0.7, 0.9):
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    page.mouse.up()
    wait_for_other_pixels(page, before)
    expect(page.get_by_role("button", name="undo")).to_have_attribute("title", "Undo turn phase.turn (Ctrl Z)")
    assert engine.parameters()[engine.graph.blocks["phase"]["turn"]]["value"] > 0.8
    assert len(engine.history.entries) == 1
    page.get_by_role("button", name="undo").click()
    expect(page.get_by_role("slider", name="phase turn")).to_have_value("0.25")
    wait_for_exact_picture(page)
    page.wait_for_function("before => document.querySelector('figure canvas').toDataURL() === before", arg=before)


def test_numbers_are_scrubbed_typed_stepped_reset_and_aborted(open_page, studio, engine):
    page = open_page(studio.url)
    turn = engine.graph.blocks["phase"]["turn"]
    field = page.locator("aside").get_by_role("spinbutton", name="phase turn")

    def value() -> float:
        return engine.parameters()[turn]["value"]

    field.click()
    page.keyboard.type("2*pi/5")
    page.keyboard.press("Enter")
    expect(field).to_have_text("1.2566")
    field.focus()
    page.keyboard.press("ArrowUp")
    expect(field).to_have_text("1.2666")
    box = field.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 10)
    page.mouse.move(box["x"] + 120, box["y"] + 10)
    expect(field).not_to_have_text("1.2666")
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(field).to_have_text("1.2666")
    field.focus()
    page.keyboard.press("Backspace")
    expect(field).to_have_text("0.25")
    undo = page.get_by_role("button", name="undo")
    for text in ("1.2666", "1.2566", "0.25"):  # the aborted drag is no entry
        undo.click()
        expect(field).to_have_text(text)
    expect(undo).to_be_disabled()
    assert value() == 0.25


def test_wires_are_connected_and_cut(open_page, studio, engine):
    page = open_page(studio.url)
    expect(page.locator(".svelte-flow__edge")).to_have_count(1)
    source = node(page, "other").locator(".svelte-flow__handle.source")
    target = node(page, "picture").locator(".svelte-flow__handle[data-handleid=gain]")
    source.drag_to(target)
    expect(page.locator(".svelte-flow__edge")).to_have_count(2)
    gain = engine.graph.blocks["picture"]["gain"]
    assert str(engine.graph.sources[gain].source) == "other.result"
    select(page, "picture")
    page.get_by_role("button", name="disconnect gain").click()
    expect(page.locator(".svelte-flow__edge")).to_have_count(1)
    assert gain not in engine.graph.sources


def test_a_wire_dropped_on_the_canvas_adds_a_connected_block(open_page, studio, engine):
    page = open_page(studio.url)
    source = node(page, "phase").locator(".svelte-flow__handle.source").bounding_box()
    assert source is not None
    page.mouse.move(source["x"] + 5, source["y"] + 5)
    page.mouse.down()
    page.mouse.move(source["x"] + 60, source["y"] + 200, steps=4)
    page.mouse.move(source["x"] + 80, source["y"] + 320, steps=4)
    page.mouse.up()
    page.keyboard.type("multi")
    page.keyboard.press("Enter")
    expect(node(page, "multiply")).to_be_visible()
    assert str(engine.graph.sources[engine.graph.blocks["multiply"]["a"]].source) == "phase.result"
    page.locator("body").press("Control+z")
    expect(node(page, "multiply")).to_have_count(0)


def test_a_broken_body_is_an_error_at_its_node_and_line_while_the_rest_runs(open_page, studio, engine):
    page = open_page(studio.url)
    wait_for_exact_picture(page)
    select(page, "picture")
    replace_code(page, "return 0.5 +", "return waves.nothing +")
    problem = node(page, "picture").locator(".problem")
    expect(problem).to_contain_text("line 4")
    expect(problem).to_contain_text("nothing")
    expect(page.locator(".cm-lintRange-error, .cm-lint-marker-error").first).to_be_visible()
    before = pixels(page)
    page.keyboard.press("Escape")
    page.locator(".svelte-flow__pane").click(position={"x": 30, "y": 200})
    slider = page.get_by_role("slider", name="phase turn")
    slider.focus()
    slider.press("End")
    wait_for_other_pixels(page, before)  # the last good code runs on
    page.get_by_role("region", name="problems").get_by_role("button").click()
    expect(page.get_by_label("name of the block")).to_have_value("picture")
    replace_code(page, "waves.nothing", "0.25")
    expect(problem).to_have_count(0)
    expect(page.get_by_role("button", name="No problems")).to_be_visible()


def test_an_expression_gets_pins_for_its_names(open_page, studio, engine):
    page = open_page(studio.url)
    select(page, "phase")
    editor = page.locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("turn * speed + offset")
    page.keyboard.press("Enter")
    expect(node(page, "phase").locator(".pin.in")).to_have_count(3)
    assert list(engine.graph.blocks["phase"].inputs) == ["turn", "speed", "offset"]
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("open('x')")
    page.keyboard.press("Enter")
    expect(page.locator(".refused")).to_contain_text("an expression cannot call `open`")
    expect(editor).to_contain_text("open")  # what was typed stays
    page.get_by_role("button", name="Revert").click()
    expect(editor).to_have_text("turn * speed + offset")


def test_undo_and_redo_lead_to_equal_documents(open_page, studio, engine, tmp_path):
    page = open_page(studio.url)
    select(page, "other")
    before = text_of(engine, tmp_path)
    name = page.get_by_label("name of the block")
    name.fill("renamed")
    name.press("Enter")
    expect(node(page, "renamed")).to_be_visible()
    page.get_by_role("button", name="Remove block").click()
    expect(node(page, "renamed")).to_have_count(0)
    after = text_of(engine, tmp_path)
    for count in (2, 1):
        page.get_by_role("button", name="undo").click()
        expect(page.locator(".svelte-flow__node")).to_have_count(3)
        expect(node(page, "other" if count == 1 else "renamed")).to_be_visible()
    assert text_of(engine, tmp_path) == before
    page.get_by_role("button", name="redo").click()
    expect(node(page, "renamed")).to_be_visible()
    page.get_by_role("button", name="redo").click()
    expect(page.locator(".svelte-flow__node")).to_have_count(2)
    assert text_of(engine, tmp_path) == after


def test_nodes_are_moved_and_two_pages_agree(open_page, studio, engine):
    first, second = open_page(studio.url), open_page(studio.url)
    expect(node(second, "other")).to_be_visible()
    box = node(first, "other").locator("header").bounding_box()
    assert box is not None
    first.mouse.move(box["x"] + 40, box["y"] + 10)
    first.mouse.down()
    first.mouse.move(box["x"] + 90, box["y"] + 60, steps=5)
    first.mouse.up()
    expect(first.get_by_role("button", name="undo")).to_have_attribute("title", "Undo move other (Ctrl Z)")
    position = engine.graph.blocks["other"].position
    assert position is not None
    place = node(second, "other")
    second.wait_for_function(
        "([node, x]) => Math.abs(new DOMMatrix(getComputedStyle(node).transform).m41 - x) < 1",
        arg=[place.element_handle(), position[0]],
    )
    for page in (first, second):
        page.locator(".svelte-flow__pane").click(position={"x": 30, "y": 200})
    first.get_by_role("slider", name="phase turn").press("Home")
    expect(second.get_by_role("slider", name="phase turn")).to_have_value("0")
    engine.set(engine.graph.blocks["phase"]["turn"], 1.0)
    for page in (first, second):
        expect(page.get_by_role("slider", name="phase turn")).to_have_value("1")


def test_the_clock_plays_pauses_and_steps(open_page):
    engine = lg.Engine()
    count = engine.add(lg.State("count", np.float32(0.0)))
    more = engine.add(lg.block(lambda x: x + 1.0, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    with lg.studio(engine, open_browser=False) as studio:
        page = open_page(studio.url)
        expect(page.get_by_role("button", name="pause")).to_be_visible()
        page.locator("body").press(" ")
        expect(page.get_by_role("button", name="play")).to_be_visible()
        page.get_by_role("button", name="rewind").click()
        expect(node(page, "more").locator(".pin.out .value")).to_have_text("1")
        for value in ("1", "2", "3"):
            page.get_by_role("button", name="step one frame").click()
            expect(node(page, "count").locator(".pin.out .value")).to_have_text(value)
        page.get_by_role("button", name="play").click()
        page.wait_for_function("() => Number(document.querySelector('output').textContent) > 20")


def test_composites_are_entered_and_left(open_page):
    engine = lg.Engine()
    both = lg.Composite("both")
    inner = both.graph.add(lg.block(lambda q=2.0: q * 3.0, name="inner"))
    both.expose(inner["q"])
    both.expose(inner["result"])
    engine.add(both)
    with lg.studio(engine, open_browser=False) as studio:
        page = open_page(studio.url)
        page.get_by_role("button", name="open both").click()
        expect(node(page, "inner").locator(".pin.out .value")).to_have_text("6")
        page.get_by_role("navigation", name="enclosing graphs").get_by_role("button", name="engine").click()
        expect(node(page, "both")).to_be_visible()


# --- connections and safety -------------------------------------------------------------------------------------------


def test_a_reload_and_a_lost_connection_lose_nothing(open_page, studio, engine):
    page = open_page(studio.url)
    assert "#" not in page.url  # the key is gone from the address at once
    page.reload()
    select(page, "picture")
    editor = page.locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.insert_text("  # not applied")
    expect(page.get_by_text("not applied yet")).to_be_visible()
    connections = list(studio._server._connections)
    for connection in connections:
        studio._server._loop.call_soon_threadsafe(connection.transport.abort)
    page.wait_for_function("() => document.querySelector('.lost') === null && document.querySelector('.block')")
    engine.set(engine.graph.blocks["phase"]["turn"], 0.75)
    expect(editor).to_contain_text("# not applied")
    page.locator(".svelte-flow__pane").click(position={"x": 30, "y": 200})
    expect(page.get_by_role("slider", name="phase turn")).to_have_value("0.75")


def test_names_and_messages_are_never_html(open_page, errors):
    attack = "<img src=x onerror=\"document.title='attacked'\">"
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0: x, name=attack))

    def broken(x: Any = 1.0) -> Any:
        raise ValueError(attack)

    engine.add(lg.block(broken))
    with lg.studio(engine, open_browser=False) as studio:
        page = open_page(studio.url)
        expect(node(page, attack)).to_be_visible()
        expect(node(page, "broken").locator(".problem")).to_contain_text("onerror")
        select(page, attack)
        assert page.locator("img").count() == 0
        assert page.title() != "attacked"


def test_a_page_of_another_server_reaches_nothing(open_page, browser, studio, tmp_path, errors):
    port = studio._server.gate.port
    token = studio._server.gate.token
    (tmp_path / "index.html").write_text("<!doctype html><title>evil</title>")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://evil.test:{server.server_port}/")
        script = """([url, token]) => new Promise(resolve => {
            const socket = new WebSocket(url, ["livegrad.studio.1", "token." + token]);
            socket.onopen = () => resolve("open");
            socket.onerror = () => resolve("refused");
        })"""
        # Even with the key: a page of another origin, and a name that resolves to this machine.
        assert page.evaluate(script, [f"ws://127.0.0.1:{port}/socket", token]) == "refused"
        assert page.evaluate(script, [f"ws://evil.test:{port}/socket", token]) == "refused"
        blocked = page.evaluate(
            "url => fetch(url).then(() => 'read', () => 'blocked')", f"http://127.0.0.1:{port}/studio.js"
        )
        assert blocked == "blocked"
        response = page.goto(f"http://evil.test:{port}/")
        assert response is not None
        assert response.status == 403
        context.close()
    finally:
        server.shutdown()
        server.server_close()


# --- for everybody ----------------------------------------------------------------------------------------------------


def test_the_keyboard_alone_adds_tunes_and_removes(open_page, studio, engine):
    page = open_page(studio.url)
    expect(node(page, "phase")).to_be_visible()
    page.keyboard.press("s")
    page.keyboard.type("igm")
    page.keyboard.press("Enter")
    expect(page.get_by_label("name of the block")).to_have_value("sigmoid")
    node(page, "sigmoid").focus()
    page.keyboard.press("Delete")
    expect(node(page, "sigmoid")).to_have_count(0)
    assert "sigmoid" not in engine.graph.blocks
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="keyboard shortcuts")).to_have_count(0)
    slider = page.get_by_role("slider", name="phase turn")
    slider.focus()
    page.keyboard.press("End")
    expect(slider).to_have_value("1")


NAMELESS = """() => [...document.querySelectorAll('button, input, select, textarea, [role=spinbutton], canvas')]
    .filter(element => element.checkVisibility())
    .filter(element => !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length))
    .map(element => element.outerHTML.slice(0, 200))"""


def test_every_control_has_a_name(open_page, studio):
    page = open_page(studio.url)
    wait_for_exact_picture(page)
    assert page.evaluate(NAMELESS) == []
    select(page, "picture")
    expect(page.locator(".cm-content")).to_be_visible()
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="+ Add").click()
    assert page.evaluate(NAMELESS) == []


@pytest.mark.parametrize("width", [1600, 1024, 520])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_narrow_and_wide_windows_in_both_themes(open_page, studio, width, theme):
    page = open_page(studio.url, width=width, color_scheme=theme)
    wait_for_exact_picture(page)
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(
        "document.querySelector('aside').scrollWidth <= document.querySelector('aside').clientWidth + 1"
    )
    page.get_by_role("button", name="light theme" if theme == "dark" else "dark theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") != theme


def test_a_document_is_read_before_it_is_trusted(open_page, engine, tmp_path):
    engine.save(tmp_path / "scene.lg")
    with lg.studio(tmp_path / "scene.lg", open_browser=False) as studio:
        page = open_page(studio.url)
        expect(page.get_by_role("heading", name="scene.lg")).to_be_visible()
        expect(page.locator("pre").filter(has_text="waves")).to_be_visible()
        page.get_by_role("button", name="Trust this document and run it").click()
        wait_for_exact_picture(page)


# --- parts ------------------------------------------------------------------------------------------------------------


def ball_in_box() -> lg.Part:
    ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 0.6, lg.Control(0.2, 1.0)))
    return lg.shapes.union(lg.shapes.box((1.6, 1.2, 0.8)), ball).part(((-1, -1, -1), (1, 1, 1)), "ball")


def wait_for_fine_part(page: Page) -> None:
    expect(page.locator("[data-picture]")).to_have_attribute("data-picture", "fine")


def part_pixels(page: Page) -> str:
    return page.get_by_role("img", name=re.compile("^3D view")).evaluate("canvas => canvas.toDataURL()")


def wait_for_other_part(page: Page, before: str) -> None:
    canvas = page.get_by_role("img", name=re.compile("^3D view")).element_handle()
    page.wait_for_function("([canvas, before]) => canvas.toDataURL() !== before", arg=[canvas, before])


COLORS_OF_PART = """canvas => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext("2d");
    context.drawImage(canvas, 0, 0);
    return new Set(new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
}"""


def test_a_part_file_opens_in_3d_and_turns(open_page, tmp_path):
    lg.save_3mf(lg.implicit.assembly_of_part(ball_in_box()), tmp_path / "part.3mf")
    with lg.studio(tmp_path / "part.3mf", open_browser=False) as studio:
        page = open_page(studio.url)
        wait_for_fine_part(page)
        view = page.get_by_role("img", name=re.compile("^3D view"))
        assert view.evaluate(COLORS_OF_PART) > 20
        expect(page.get_by_role("region", name="3D view").get_by_role("status")).to_have_count(0)
        before = part_pixels(page)
        view.focus()
        page.keyboard.press("ArrowLeft")
        wait_for_other_part(page, before)
        assert page.evaluate(NAMELESS) == []


def test_sliders_of_a_part_draw_without_the_server(open_page):
    with lg.studio(ball_in_box(), open_browser=False) as studio:
        page = open_page(studio.url)
        wait_for_fine_part(page)
        wait_for_exact_picture(page)
        before, section = part_pixels(page), pixels(page)
        session = studio._engine_thread.session
        assert session is not None
        with session.engine.graph.editing():  # the engine thread waits here for the graph
            slider = page.get_by_role("slider", name="distance radius")
            slider.focus()
            page.keyboard.press("End")
            wait_for_other_part(page, before)
            assert pixels(page) == section
        wait_for_other_pixels(page, section)
        wait_for_fine_part(page)


def test_a_part_says_why_it_is_not_drawn(open_page):
    no_webgl = """const original = HTMLCanvasElement.prototype.getContext;
    HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
        return kind === "webgl2" ? null : original.call(this, kind, ...rest);
    };"""
    with lg.studio(ball_in_box(), open_browser=False) as studio:
        page = open_page(studio.url, script=no_webgl)
        region = page.get_by_role("region", name="3D view")
        expect(region.get_by_role("status")).to_have_text("3D view: the browser has no WebGL 2")
        wait_for_exact_picture(page)  # the section is there all the same
        page.get_by_role("button", name="close the 3D view").click()
        expect(region).to_have_count(0)

"""Views in a browser: plots, tables, meshes, picked pixels and points, recordings, downloads, sections of parts."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import livegrad as lg
from tests.tools.studio.in_browser import node, select, wait_for_exact_picture


def waves(gain: Any = 0.5) -> Any:
    line = lg.linspace(0.0, 6.0, 48)
    return 0.5 + 0.5 * gain * lg.sin(line[:, None]) * lg.cos(line[None, :])


def sheet(height: Any = 1.0) -> tuple[Any, Any]:
    """Two triangles."""
    zero = lg.asarray(height) * 0.0
    corners = [[zero, zero, zero], [zero + 1, zero, zero], [zero, zero + 1, zero], [zero + 1, zero + 1, height + zero]]
    return lg.stack([lg.stack(corner) for corner in corners]), lg.asarray(np.array([[0, 1, 2], [1, 3, 2]], np.int32))


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    count = engine.add(lg.State("count", np.float32(0.0)))
    more = engine.add(lg.block(lambda x: x + 1.0, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    engine.add(lg.block(waves))
    engine.add(lg.block(lambda size=1.0: lg.arange(400.0, dtype=lg.float32).reshape((200, 2)) * size, name="grid"))
    engine.add(lg.block(sheet, outputs=("vertices", "triangles")))
    return engine


@pytest.fixture
def page(open_page: Any, engine: lg.Engine) -> Any:
    with lg.studio(engine, open_browser=False) as studio:
        page = open_page(studio.url, width=1500, height=900)
        expect(page.get_by_role("button", name="pause")).to_be_visible()
        page.get_by_role("button", name="pause").click()
        expect(page.get_by_role("button", name="play")).to_be_visible()
        yield page


def show(page: Page, block: str, output: str, kind: str) -> None:
    node(page, block).get_by_role("button", name=f"show {block} {output} as a {kind}").click()


def download(page: Page, name: str, folder: Path) -> Path:
    with page.expect_download() as started:
        page.get_by_role("button", name=name).click()
    path = folder / started.value.suggested_filename
    started.value.save_as(path)
    return path


def test_a_number_is_plotted_over_frames(page, engine, tmp_path):
    show(page, "more", "result", "plot")
    plot = page.get_by_role("img", name=re.compile("^plot of more result"))
    expect(plot).to_have_attribute("data-points", "1")
    for count in ("2", "3", "4"):
        page.get_by_role("button", name="step one frame").click()
        expect(plot).to_have_attribute("data-points", count)
    expect(plot.locator("canvas")).to_be_visible()
    rows = download(page, "save the plot of more as CSV", tmp_path).read_text().splitlines()
    values = [float(row.split(",")[1]) for row in rows[1:]]
    assert np.diff(values).tolist() == [1.0, 1.0, 1.0]


def test_an_array_is_a_table_that_is_moved_and_changes_its_kind(page, engine):
    select(page, "grid")
    page.get_by_role("button", name="Show plot").click()
    expect(page.get_by_role("img", name=re.compile("^plot of grid"))).to_have_attribute("data-points", "400")
    page.get_by_label("kind of view of grid result").select_option("table")
    table = page.get_by_role("region", name="table of grid result")
    expect(table.locator("tbody tr").first.locator("td").nth(1)).to_have_text("1")
    page.get_by_role("button", name="rows after").click()
    expect(table.locator("tbody tr").first.locator("td").first).to_have_text("40")
    table.focus()
    page.keyboard.press("Home")
    expect(table.locator("tbody tr").first.locator("td").first).to_have_text("0")
    engine.set(engine.graph.blocks["grid"]["size"], 2.0)
    expect(table.locator("tbody tr").first.locator("td").nth(1)).to_have_text("2")


COLORS = """canvas => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext("2d");
    context.drawImage(canvas, 0, 0);
    return new Set(new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
}"""


def test_a_mesh_is_drawn_turned_and_put_beside_the_graph(page, engine):
    show(page, "sheet", "vertices", "3D view")
    figure = page.get_by_role("figure", name="3D view of sheet")
    canvas = figure.get_by_role("img", name="3D view of sheet vertices")
    expect(figure.get_by_text("2 triangles")).to_be_visible()
    handle = canvas.element_handle()
    page.wait_for_function(f"canvas => ({COLORS})(canvas) >= 3", arg=handle)
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("([canvas, before]) => canvas.toDataURL() !== before", arg=[handle, before])
    page.get_by_role("button", name="show sheet vertices beside the graph").click()
    expect(page.locator("main figure canvas")).to_be_visible()
    expect(page.locator("aside figure").filter(has_text="sheet")).to_have_count(0)


def test_a_clicked_pixel_shows_its_value_which_follows_and_its_block(page, engine):
    show(page, "waves", "result", "picture")
    wait_for_exact_picture(page, "waves")
    canvas = page.get_by_label("picture of waves result")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] / 2 + 2, "y": box["height"] / 2 + 2})
    pixel = page.get_by_role("status", name="pixel")
    expect(pixel).to_contain_text("made by waves")
    match = re.search(r"\((\d+), (\d+)\)", pixel.inner_text())
    assert match is not None
    x, y = map(int, match.groups())
    for gain in (0.5, 1.0):
        engine.set(engine.graph.blocks["waves"]["gain"], gain)
        line = np.linspace(0.0, 6.0, 48)
        value = 0.5 + 0.5 * gain * np.sin(line[y]) * np.cos(line[x])
        expect(pixel).to_contain_text(f"{value:.6f}"[:5])


def test_frames_are_recorded_compared_and_saved(page, engine, tmp_path):
    show(page, "waves", "result", "picture")
    wait_for_exact_picture(page, "waves")
    bar = page.get_by_role("group", name="recording of waves")
    bar.get_by_role("button", name="Record").click()
    slider = page.get_by_role("slider", name="waves gain")
    slider.focus()
    for key, count in (("Home", r"[2-9]|\d\d+"), ("End", r"[3-9]|\d\d+")):
        slider.press(key)
        expect(bar.get_by_text(re.compile(f"^({count}) frames$"))).to_be_visible()
    bar.get_by_role("button", name="Stop").click()
    canvas = page.get_by_label("recorded picture of waves")
    expect(canvas).to_be_visible()
    last = bar.locator("output").first.inner_text()
    expect(canvas).to_have_attribute("data-frame", last)
    bar.get_by_label("compare two frames").check()
    expect(canvas).to_have_attribute("data-compared", re.compile(r"\d+"))
    assert int(canvas.get_attribute("data-compared") or 0) < int(last)
    left = "canvas => canvas.getContext('2d').getImageData(1, 6, 1, 1).data.join()"
    right = "canvas => canvas.getContext('2d').getImageData(canvas.width - 2, 6, 1, 1).data.join()"
    before = canvas.evaluate(left), canvas.evaluate(right)
    page.get_by_role("slider", name="where the pictures meet").fill("0")
    page.wait_for_function(
        f"([canvas, before]) => ({left})(canvas) !== before", arg=[canvas.element_handle(), before[0]]
    )
    assert canvas.evaluate(right) == before[1]
    archive = download(page, "Frames (PNG, zip)", tmp_path)
    assert len(zipfile.ZipFile(archive).namelist()) >= 3
    animation = download(page, "Animation (PNG)", tmp_path)
    assert animation.read_bytes().count(b"fcTL") >= 3


def part() -> lg.Part:
    ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 0.6, lg.Control(0.2, 1.0)))
    return lg.shapes.union(lg.shapes.box((1.6, 1.2, 0.8)), ball).part(((-1, -1, -1), (1, 1, 1)), "ball")


def test_a_part_is_cut_coloured_measured_and_exported(open_page, tmp_path):
    with lg.studio(part(), open_browser=False) as studio:
        page = open_page(studio.url, width=1600, height=900)
        view = page.get_by_role("img", name=re.compile("^3D view"))
        fine = page.locator("[data-picture]")
        expect(fine).to_have_attribute("data-picture", "fine")
        tools = page.get_by_role("toolbar", name="how the part is shown")
        shown = [view.evaluate("canvas => canvas.toDataURL()")]

        def wait_for_another() -> None:
            page.wait_for_function(
                "([canvas, shown]) => !shown.includes(canvas.toDataURL())", arg=[view.element_handle(), shown]
            )
            expect(fine).to_have_attribute("data-picture", "fine")
            shown.append(view.evaluate("canvas => canvas.toDataURL()"))

        tools.get_by_label("Colour").select_option("normals")
        wait_for_another()
        tools.get_by_label("Section").select_option("z")
        wait_for_another()
        tools.get_by_label("field").uncheck()
        wait_for_another()
        tools.get_by_label("plate").uncheck()
        wait_for_another()
        box = view.bounding_box()
        assert box is not None
        view.click(position={"x": box["width"] / 2, "y": box["height"] / 2})
        note = page.get_by_role("status", name="picked point")
        expect(note).to_contain_text("made by")
        view.click(position={"x": box["width"] / 2 + 60, "y": box["height"] / 2})
        expect(note).to_contain_text("distance")
        page.get_by_role("button", name="Export", exact=True).click()
        expect(page.get_by_role("menu", name="export")).to_be_visible()
        page.keyboard.press("End")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Export", exact=True).click()
        with page.expect_download() as started:
            page.get_by_role("menuitem", name="Slice (SVG)").click()
        assert started.value.suggested_filename == "ball.svg"
        started.value.save_as(tmp_path / "slice.svg")
        assert "<svg" in (tmp_path / "slice.svg").read_text()


NAMELESS = """() => [...document.querySelectorAll('button, input, select, textarea, [role=spinbutton], canvas')]
    .filter(element => element.checkVisibility())
    .filter(element => !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length))
    .filter(element => !element.closest('[role=img]'))
    .map(element => element.outerHTML.slice(0, 200))"""


def test_controls_of_views_have_names_and_fit(page):
    for block, output, kind in (
        ("more", "result", "plot"),
        ("sheet", "vertices", "3D view"),
        ("waves", "result", "picture"),
    ):
        show(page, block, output, kind)
    wait_for_exact_picture(page, "waves")
    assert page.evaluate(NAMELESS) == []
    for width in (1500, 1024, 520):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        aside = page.evaluate("(a => [a.scrollWidth, a.clientWidth])(document.querySelector('aside'))")
        assert aside[0] <= aside[1] + 1, json.dumps([width, aside])

"""Editing the graph in the browser: adding, wires, copies, groups, layout, values at the pointer, and explanations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

import livegrad as lg
from livegrad.live.graph.edges import Edge
from livegrad.tools.studio.open_studio import Studio
from tests.tools.studio.in_browser import node, select


@pytest.fixture
def engine() -> lg.Engine:
    """source → double → last, and an array with NaN."""
    engine = lg.Engine()
    source = engine.add(lg.block(lambda value=3.0: value * 1.0, name="source"))
    double = engine.add(lg.block(lambda x, gain=2.0: x * gain, name="double"))
    last = engine.add(lg.block(lambda y: y - 1.0, name="last"))
    engine.add(lg.block(lambda s=1.0: lg.sqrt(lg.linspace(-1.0, 3.0, 40) * s), name="roots"))
    engine.connect(source, double["x"])
    engine.connect(double, last["y"])
    for index, block in enumerate(engine.graph.blocks.values()):
        block.position = (300.0 * (index % 3), 320.0 * (index // 3))
    engine.history.clear()
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


@pytest.fixture
def page(open_page: Any, studio: Studio) -> Page:
    page: Page = open_page(studio.url, width=1400, height=900)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("5")
    return page


def pin(page: Page, block: str, name: str) -> Locator:
    return node(page, block).locator(f"[data-pin={name}]")


def handle(page: Page, block: str, name: str) -> Locator:
    return pin(page, block, name).locator(".svelte-flow__handle")


def centre(place: Locator) -> tuple[float, float]:
    box = place.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Page, start: tuple[float, float], *stops: tuple[float, float], release: bool = True) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    for stop in stops:
        page.mouse.move(*stop, steps=5)
    if release:
        page.mouse.up()


def choose(page: Page, *names: str) -> None:
    node(page, names[0]).locator("header").click()
    for name in names[1:]:
        node(page, name).locator("header").click(modifiers=["Control"])
    expect(page.locator(".svelte-flow__node.selected")).to_have_count(len(names))


def sources(engine: lg.Engine) -> dict[str, str]:
    return {str(pin): str(source.source) for pin, source in engine.graph.sources.items() if isinstance(source, Edge)}


def undo(page: Page) -> None:
    page.locator("body").press("Control+z")


def test_typing_on_the_canvas_adds_a_block(page, engine):
    page.locator("body").press("s")
    expect(page.get_by_role("combobox", name="search blocks")).to_have_value("s")
    page.keyboard.type("igm")
    page.keyboard.press("Enter")
    expect(node(page, "sigmoid")).to_be_visible()
    undo(page)
    expect(node(page, "sigmoid")).to_have_count(0)


def test_a_dropped_wire_offers_only_blocks_that_fit(page, engine):
    drag(page, centre(handle(page, "roots", "result")), (700, 700), (720, 720))
    expect(page.get_by_role("option", name=re.compile("^mean"))).to_be_visible()
    expect(page.get_by_role("option", name=re.compile("^state"))).to_have_count(0)
    page.keyboard.type("mean")
    page.keyboard.press("Enter")
    expect(node(page, "mean")).to_be_visible()
    assert sources(engine)["mean.x"] == "roots.result"


def test_only_pins_that_fit_light_up_and_a_refusal_says_why(page, engine):
    start, end = centre(handle(page, "last", "result")), centre(handle(page, "double", "x"))
    drag(page, start, (start[0] + 40, start[1] + 60), end, release=False)
    expect(pin(page, "double", "x")).to_have_class(re.compile("refused"))
    expect(pin(page, "roots", "s")).to_have_class(re.compile("fits"))
    expect(page.get_by_role("tooltip")).to_contain_text("put a state into the cycle")
    page.mouse.up()
    expect(page.locator(".notice")).to_contain_text("put a state into the cycle")
    assert sources(engine) == {"double.x": "source.result", "last.y": "double.result"}


def test_a_wire_may_be_dropped_beside_a_pin(page, engine):
    drag(page, centre(handle(page, "last", "result")), (500, 500), centre(pin(page, "roots", "s").locator(".pin-name")))
    expect(page.locator(".svelte-flow__edge")).to_have_count(3)
    assert sources(engine)["roots.s"] == "last.result"


def test_a_block_dropped_on_a_wire_is_inserted(page, engine):
    engine.add(lg.block(lambda z=1.0: z * 10.0, name="ten")).position = (300.0, 520.0)
    expect(node(page, "ten")).to_be_visible()
    wire = page.get_by_role("group", name="wire from double to last y").locator(".svelte-flow__edge-path")
    header = node(page, "ten").locator("header .name")
    drag(page, centre(header), (600, 600), centre(wire))
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("59")
    assert sources(engine)["last.y"] == "ten.result"
    undo(page)  # the block moves back, too
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("5")
    assert engine.graph.blocks["ten"].position == (300.0, 520.0)


def test_a_block_is_removed_and_its_wires_bridged(page, engine):
    choose(page, "double")
    page.locator("body").press("Control+Delete")
    expect(node(page, "double")).to_have_count(0)
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("2")
    undo(page)
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("5")


def test_values_appear_at_the_pointer(page):
    tip = page.get_by_role("tooltip")
    pin(page, "roots", "result").hover()
    for text in ("roots.result", "40 f32", "NaN"):
        expect(tip).to_contain_text(text)
    expect(tip.get_by_role("img", name="histogram")).to_be_visible()
    pin(page, "last", "y").locator(".pin-name").hover()
    expect(tip).to_contain_text("double.result")
    expect(tip).to_contain_text("6")
    page.get_by_role("group", name="wire from source to double x").dispatch_event("pointerover")
    expect(tip).to_contain_text("source.result")


def test_arrays_are_summarised_and_nodes_have_badges(page, engine):
    result = pin(page, "roots", "result")
    expect(result.get_by_role("img", name="histogram")).to_be_visible()
    expect(result).to_contain_text("10 NaN")
    expect(node(page, "roots").locator("header .badge")).to_have_text("NaN")
    engine.disconnect(engine.graph.blocks["last"]["y"])
    expect(node(page, "last").locator("header .badge")).to_have_text("!")
    for _ in range(8):
        page.get_by_role("button", name="Zoom Out").click()
    expect(node(page, "last").locator(".far-name strong")).to_be_visible()
    expect(node(page, "last").locator("header .name")).not_to_be_visible()
    page.locator("body").press("Home")
    expect(node(page, "last").locator("header .name")).to_be_visible()


def test_copies_go_through_the_clipboard_as_readable_text(page, engine, open_page):
    choose(page, "double", "last")
    page.locator("body").press("Control+c")
    expect(page.locator(".notice")).to_contain_text("Copied 2 blocks")
    text = page.evaluate("navigator.clipboard.readText()")
    assert "[blocks.double]" in text
    assert "x * gain" in text
    other = lg.Engine()
    with lg.studio(other, open_browser=False) as second:
        elsewhere = open_page(second.url)
        elsewhere.context.grant_permissions(["clipboard-read", "clipboard-write"])
        expect(elsewhere.get_by_role("button", name="No problems")).to_be_visible()
        elsewhere.evaluate("text => navigator.clipboard.writeText(text)", text)
        elsewhere.locator("body").press("Control+v")
        # These are lambdas of this file, which only compute expressions: they need no agreement.
        expect(node(elsewhere, "last")).to_be_visible()
        assert sources(other) == {"last.y": "double.result"}
    page.locator("body").press("Control+v")
    expect(node(page, "last2")).to_be_visible()
    expect(page.locator(".svelte-flow__node.selected")).to_have_count(2)
    page.locator("body").press("Control+x")
    expect(node(page, "last2")).to_have_count(0)
    page.locator("body").press("Control+d")
    undo(page)
    expect(node(page, "last2")).to_be_visible()


def test_pasted_python_asks_first(page, engine):
    text = page.evaluate("text => navigator.clipboard.writeText(text)", PYTHON)
    assert text is None
    page.locator("body").press("Control+v")
    dialog = page.get_by_role("dialog", name="paste Python code")
    expect(dialog).to_contain_text("def loud(x=1.0)")
    assert "loud" not in engine.graph.blocks
    dialog.get_by_role("button", name="Paste and run it").click()
    expect(node(page, "loud")).to_be_visible()


PYTHON = '''livegrad = 1
kind = "blocks"

[blocks.loud]
function = "loud"
outputs = ["result"]
at = [0.0, 0.0]

[blocks.loud.inputs]
x = {}

[functions.loud]
text = """
def loud(x=1.0):
    return x * 100.0
"""
'''


def test_a_copy_is_dragged_with_alt(page, engine):
    start = centre(node(page, "double").locator("header .name"))
    page.keyboard.down("Alt")
    drag(page, start, (start[0] + 30, start[1] + 120), (start[0] + 60, start[1] + 330))
    page.keyboard.up("Alt")
    expect(node(page, "double2")).to_be_visible()
    assert sources(engine)["double2.x"] == "source.result"
    assert engine.graph.blocks["double"].position == (300.0, 0.0)
    undo(page)
    expect(node(page, "double2")).to_have_count(0)


def test_blocks_are_grouped_entered_left_and_ungrouped(page, engine):
    choose(page, "double", "last")
    page.locator("body").press("Control+g")
    expect(page.get_by_label("name of the block")).to_have_value("group")
    expect(node(page, "group").locator(".pin.out .value")).to_have_text("5")
    page.locator("body").press("Control+ArrowDown")
    expect(node(page, "double")).to_be_visible()
    expect(page.get_by_role("navigation", name="enclosing graphs")).to_contain_text("group")
    page.locator("body").press("Control+ArrowUp")
    expect(page.get_by_label("name of the block")).to_have_value("group")
    page.locator("body").press("Control+Shift+g")
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("5")
    expect(node(page, "group")).to_have_count(0)
    undo(page)
    expect(node(page, "group")).to_be_visible()
    undo(page)
    expect(node(page, "group")).to_have_count(0)


def test_blocks_are_found_in_all_graphs(page, engine):
    inner = lg.Composite("outer")
    inner.graph.add(lg.block(lambda q=2.0: q * 3.0, name="hidden"))
    engine.add(inner)
    expect(node(page, "outer")).to_be_visible()
    page.locator("body").press("Control+f")
    page.keyboard.type("hidd")
    expect(page.get_by_role("option", name="hidden")).to_contain_text("in outer")
    page.keyboard.press("Enter")
    expect(page.get_by_label("name of the block")).to_have_value("hidden")
    expect(node(page, "hidden")).to_be_in_viewport()


def test_the_layout_and_alignment_can_be_undone(page, engine):
    blocks = engine.graph.blocks
    before = {name: block.position for name, block in blocks.items()}
    page.locator("body").press("Control+Shift+l")
    expect(page.get_by_role("button", name="undo")).to_have_attribute("title", re.compile("arrange"))
    assert blocks["source"].position[0] < blocks["double"].position[0] < blocks["last"].position[0]
    undo(page)
    expect(page.get_by_role("button", name="undo")).to_be_disabled()
    assert {name: block.position for name, block in blocks.items()} == before
    choose(page, "source", "roots", "last")
    page.locator("body").press("Shift+ArrowLeft")
    expect(page.get_by_role("button", name="undo")).to_have_attribute("title", re.compile("move 3 blocks"))
    assert {blocks[name].position[0] for name in ("source", "roots", "last")} == {0.0}
    node(page, "double").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="undo")).to_have_attribute("title", re.compile("move double"))
    assert blocks["double"].position == (300.0, 10.0)


def test_blocks_are_selected_by_a_box_and_all_at_once(page):
    canvas = page.locator(".svelte-flow__pane").bounding_box()
    assert canvas is not None
    page.keyboard.down("Shift")
    drag(
        page,
        (canvas["x"] + 5, canvas["y"] + 80),
        (canvas["x"] + canvas["width"] - 20, canvas["y"] + canvas["height"] - 120),
    )
    page.keyboard.up("Shift")
    expect(page.locator(".svelte-flow__node.selected")).to_have_count(4)
    page.locator(".svelte-flow__pane").click(position={"x": 20, "y": 60})
    expect(page.locator(".svelte-flow__node.selected")).to_have_count(0)
    page.locator("body").press("Control+a")
    expect(page.locator(".svelte-flow__node.selected")).to_have_count(4)


def test_the_history_is_a_list_to_travel(page, engine):
    field = page.locator("aside").get_by_role("spinbutton", name="source value")
    for value in ("4", "5", "6"):
        field.click()
        page.keyboard.type(value)
        page.keyboard.press("Enter")
        expect(field).to_have_text(value)
    page.locator("body").press("Control+Shift+h")
    dialog = page.get_by_role("dialog", name="history")
    expect(dialog.get_by_role("listitem")).to_have_count(4)
    dialog.get_by_role("button", name="at the beginning").click()
    expect(field).to_have_text("3")
    dialog.get_by_role("button", name="turn source.value").nth(1).click()
    expect(field).to_have_text("5")
    expect(dialog.locator("[aria-current]")).to_have_count(1)


def test_an_input_becomes_a_slider(page, engine):
    select(page, "double")
    page.get_by_role("button", name="make a slider of gain").click()
    expect(page.get_by_label("name of the block")).to_have_value("gain")
    slider = page.get_by_role("slider", name="gain gain")
    slider.press("End")
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("11")


def test_numbers_are_fine_with_shift_snap_with_ctrl_and_reset_by_a_double_click(page, engine):
    field = page.locator("aside").get_by_role("spinbutton", name="double gain")

    def scrub(modifier: str, distance: float) -> float:
        x, y = centre(field)
        page.keyboard.down(modifier)
        drag(page, (x, y), (x + 10, y), (x + 10 + distance, y))
        page.keyboard.up(modifier)
        return float(field.inner_text())

    fine = scrub("Shift", 100.0)
    assert 2.0 < fine <= 2.25
    snapped = scrub("Control", 33.0)
    assert snapped * 25 == pytest.approx(round(snapped * 25), abs=1e-4)  # one hundredth of the range from 0 to 4
    field.dblclick()
    expect(field).to_have_text("2")


def test_why_blocks_ran_is_known_for_each_frame(page, engine):
    engine.set(engine.graph.blocks["double"]["gain"], 4.0)
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("11")
    page.locator("body").press("Control+Shift+y")
    dialog = page.get_by_role("dialog", name="why blocks ran")
    row = dialog.get_by_role("row").filter(has=page.get_by_role("button", name="double", exact=True))
    expect(row).to_contain_text("double.gain: 2.0 → 4.0")
    expect(row).to_contain_text("hot")
    expect(dialog.get_by_role("row").filter(has_text="source")).to_contain_text("none of its inputs changed")
    dialog.get_by_role("button", name="previous frame").click()
    expect(dialog.locator("output")).to_contain_text("cold")
    row.get_by_role("button").click()
    expect(page.get_by_label("name of the block")).to_have_value("double")


def test_times_are_heat_levels_flash_and_wires_move(page, engine):
    page.get_by_role("button", name="Times").click()
    expect(node(page, "roots").locator(".time")).to_have_text(re.compile("µs|ms"))
    page.evaluate(
        """() => { window.seen = new Set(); new MutationObserver(() => {
            for (const flash of document.querySelectorAll(".flash")) window.seen.add(flash.title);
            for (const wire of document.querySelectorAll(".wire.moving")) window.seen.add(wire.id || "moving");
        }).observe(document.body, {subtree: true, childList: true, attributes: true}); }"""
    )
    engine.set(engine.graph.blocks["source"]["value"], 7.0)
    expect(node(page, "last").locator(".pin.out .value")).to_have_text("13")
    page.wait_for_function("() => window.seen.has('hot') && window.seen.has('ran') && window.seen.size > 2")
    expect(page.locator(".wire.moving")).to_have_count(0)  # it rests again


def test_the_context_menu_and_the_shortcuts_list_all_commands(page, engine):
    node(page, "double").locator("header").click(button="right")
    menu = page.get_by_role("menu", name="commands")
    expect(menu.get_by_role("menuitem", name="Group", exact=False).first).to_be_visible()
    expect(menu.get_by_role("menuitem", name="Leave the group")).to_have_count(0)
    menu.get_by_role("menuitem", name="Duplicate").click()
    expect(node(page, "double2")).to_be_visible()
    page.locator("body").press("?")
    sheet = page.get_by_role("dialog", name="keyboard shortcuts")
    for text in ("Remove and bridge the wires", "Ctrl Shift G", "Arrange the graph", "Drop a block on a wire"):
        expect(sheet).to_contain_text(text)


def test_a_minimap_shows_the_graph_and_can_be_hidden(page):
    expect(page.locator(".svelte-flow__minimap-node")).to_have_count(4)
    page.locator("body").press("Control+Shift+m")
    expect(page.locator(".svelte-flow__minimap")).to_have_count(0)


def test_a_thousand_blocks_have_no_minimap(open_page):
    engine = lg.Engine()
    with engine.edits():
        for index in range(301):
            engine.add(lg.block(lambda x=1.0: x, name=f"b{index}")).position = (
                260.0 * (index % 20),
                150.0 * (index // 20),
            )
    with lg.studio(engine, open_browser=False) as studio:
        page = open_page(studio.url)
        expect(page.locator(".svelte-flow__node").first).to_be_visible()
        expect(page.locator(".svelte-flow__minimap")).to_have_count(0)


def test_a_watched_file_changes_the_page(open_page, tmp_path):
    path = tmp_path / "shade.py"
    path.write_text("def shade(x=2.0):\n    return x * 2.0\n")
    engine = lg.Engine()
    lg.live.watch(engine, path, "shade")
    with lg.studio(engine, open_browser=False) as studio:
        page = open_page(studio.url)
        expect(node(page, "shade").locator(".pin.out .value")).to_have_text("4")
        path.write_text("def shade(x=2.0):\n    return x * 5.0 + 0\n")
        engine.set(engine.graph.blocks["shade"]["x"], np.float32(3.0).item())
        expect(node(page, "shade").locator(".pin.out .value")).to_have_text("15")


def test_a_document_is_saved_by_a_key_and_its_draft_by_itself(open_page, engine, tmp_path):
    engine.save(tmp_path / "scene.lg")
    before = (tmp_path / "scene.lg").read_text()
    with lg.studio(tmp_path / "scene.lg", trust=True, open_browser=False) as studio:
        page = open_page(studio.url)
        select(page, "last")
        page.get_by_role("button", name="Remove block").click()
        expect(page.get_by_text("draft saved")).to_be_visible()
        assert (tmp_path / "scene.lg").read_text() == before
        page.locator("body").press("Control+s")
        expect(page.get_by_role("button", name="Save", exact=True)).to_be_disabled()
        assert "blocks.last" not in (tmp_path / "scene.lg").read_text()

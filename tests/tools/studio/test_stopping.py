"""A frame that hangs: pages say so, and can stop it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from playwright.sync_api import expect

import livegrad as lg
from livegrad.tools.studio import server
from tests.tools.studio.client import TestPage
from tests.tools.studio.in_browser import node


def hang(x: Any = 1.0) -> Any:
    while True:
        time.sleep(0.001)


def count_forever(x: Any = 1.0) -> Any:
    return lg.while_loop(lambda value: value < 1e9, lambda value: value * 0.5 + x * 0.0, x * 1.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.04)


@pytest.mark.parametrize("function", [hang, count_forever], ids=["in Python", "in native code"])
def test_a_page_stops_a_frame_that_hangs(function):
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.subscribe("double")
        page.wait_for_value("double", 2.0)
        lg.live.edit(engine, block, function)
        page.wait(lambda: page.messages[-1].get("type") == "busy")
        while not any(message["type"] == "stopped" for message in page.messages):
            page.send({"type": "stop"})
            page.receive()
        stopped = next(message for message in page.messages if message["type"] == "stopped")
        assert stopped["error"]["message"] == "the frame was stopped"
        lg.live.edit(engine, block, lambda x=1.0: x * 5.0)
        page.wait_for_value("double", 5.0)
        page.wait(lambda: [m for m in page.messages if m["type"] == "busy"][-1]["seconds"] == 0)


def test_the_page_stays_responsive_and_has_a_button(open_page):
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    with lg.studio(engine, open_browser=False) as studio:
        page = open_page(studio.url)
        expect(node(page, "double").locator(".pin.out .value")).to_have_text("2")
        lg.live.edit(engine, block, hang)
        page.get_by_role("button", name="Stop it").click()
        expect(page.get_by_role("region", name="problems")).to_contain_text("the frame was stopped")
        expect(page.get_by_role("button", name="Stop it")).to_have_count(0)
        lg.live.edit(engine, block, lambda x=1.0: x * 7.0)
        expect(node(page, "double").locator(".pin.out .value")).to_have_text("7")

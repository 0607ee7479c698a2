"""The Studio in notebooks: a notebook that is executed with the widget, and the widget's page in a browser."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import nbclient
import nbformat
import numpy as np
import pytest
from playwright.sync_api import expect

import livegrad as lg
from livegrad.diagnostics import UsageError
from livegrad.tools.studio import open_studio
from livegrad.tools.studio.notebook import MAX_PAGES, StudioWidget
from tests.tools.studio.client import TIMEOUT
from tests.tools.studio.in_browser import node, wait_for_exact_picture

EXECUTED = """
import livegrad as lg
engine = lg.Engine()
double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
page = lg.studio(engine)
page
"""

# What the front end does, from the kernel itself: messages of the channel reach the engine, and answers come back.
DRAGGED = """
import json, time
sent = []
page.widget.send = lambda content, buffers=None: sent.append(content)
say = lambda **message: page.widget._handle_custom_msg({"page": "p", "text": json.dumps(message)}, [])
say(type="hello", protocol=1, build=page.widget.build)
while not sent:
    time.sleep(0.001)
block = page._engine_thread.session.describer.id_of(double)
say(type="edit", ops=[{"op": "set", "pin": [block, "x"], "value": 7}])
while engine.peek(double) != 14.0:
    time.sleep(0.001)
print(float(engine.peek(double)), page._is_serving)
"""


def test_a_notebook_shows_the_studio_and_a_slider_reaches_the_engine():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (EXECUTED, DRAGGED)])
    kernel = {"name": "python3", "display_name": "Python", "language": "python"}
    notebook.metadata["kernelspec"] = kernel
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = notebook.cells[0].outputs[0]["data"]
    model = shown["application/vnd.jupyter.widget-view+json"]["model_id"]
    states = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    assert states[model]["model_module"] == "anywidget"
    assert "render" in states[model]["state"]["_esm"]
    assert notebook.cells[1].outputs[0]["text"] == "14.0 False\n"


# --- the channel ------------------------------------------------------------------------------------------------------


def picture(gain: Any = 0.5) -> Any:
    line = lg.linspace(0.0, 6.0, 64)
    return 0.5 + 0.5 * gain * lg.sin(line[:, None]) * lg.cos(line[None, :])


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    engine.add(lg.block(picture))
    return engine


@pytest.fixture
def widget(engine: lg.Engine) -> Iterator[StudioWidget]:
    with lg.studio(engine, open_browser=False) as studio:
        yield studio.widget


class FakeComm:
    """The kernel's end of a comm, which keeps what is sent."""

    comm_id = "fake"

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None:
        if data["method"] == "custom":
            self.sent.append((data["content"], buffers))

    def on_msg(self, callback: Any) -> None:
        pass  # the test calls the widget itself

    def close(self, *_: Any, **__: Any) -> None:
        pass


def test_the_widget_in_a_page_shows_the_graph_and_its_slider_reaches_the_engine(open_page, widget, engine, tmp_path):
    comm = FakeComm()
    widget.comm = comm
    with lg.studio(open_browser=False) as server:  # serves the script, which the page may load
        page = open_page(server.url, width=1200, height=800)
        expect(page.get_by_role("heading").first).to_be_visible()

        def from_page(content: dict[str, Any]) -> None:
            widget._handle_custom_msg(content, [])

        page.expose_function("toKernel", from_page)
        state = {"build": widget.build, "styles": widget.styles, "height": 700}
        page.evaluate(
            """async (state) => {
                document.body.replaceChildren();
                const listeners = new Set();
                window.fromKernel = (content, binary) => {
                    const bytes = binary === null ? null : Uint8Array.from(atob(binary), (c) => c.charCodeAt(0));
                    for (const listener of listeners) listener(content, bytes ? [new DataView(bytes.buffer)] : []);
                };
                const model = {
                    get: (name) => state[name],
                    send: (content) => void window.toKernel(content),
                    on: (_, listener) => listeners.add(listener),
                    off: (_, listener) => listeners.delete(listener),
                };
                const cell = document.createElement("div");
                document.body.append(cell);
                const { default: widget } = await import("/studio.js");
                window.leave = widget.render({ model, el: cell });
            }""",
            state,
        )

        def deliver() -> None:
            while comm.sent:
                content, buffers = comm.sent.pop(0)
                binary = None if not buffers else base64.b64encode(buffers[0]).decode()
                page.evaluate("([content, binary]) => window.fromKernel(content, binary)", [content, binary])

        def deliver_until(condition: Any) -> None:
            until = time.monotonic() + TIMEOUT  # of a test that hangs
            while not condition():
                assert time.monotonic() < until
                deliver()

        slider = page.get_by_role("slider", name="picture gain")
        deliver_until(lambda: slider.count() == 1)
        canvas = page.get_by_label("picture of picture result")
        deliver_until(lambda: canvas.count() == 1 and canvas.get_attribute("data-format") == "rgba")
        wait_for_exact_picture(page)
        expect(node(page, "picture")).to_be_visible()
        before = canvas.evaluate("canvas => canvas.toDataURL()")
        slider.focus()
        page.keyboard.press("End")
        gain = engine.graph.blocks["picture"]["gain"]
        deliver_until(lambda: engine.parameters()[gain]["value"] == 1.0)
        deliver_until(lambda: canvas.evaluate("canvas => canvas.toDataURL()") != before)
        assert page.evaluate("document.documentElement.dataset.theme") is not None  # the page's own, not the cell's
        page.evaluate("window.leave()")
        deliver_until(lambda: not widget._pages)
        assert page.locator("[aria-label='livegrad Studio']").count() == 0


def say(widget: StudioWidget, page: str, **message: Any) -> None:
    widget._handle_custom_msg({"page": page, "text": json.dumps(message)}, [])


@pytest.mark.parametrize("content", [None, 5, {}, {"page": 1, "text": "{}"}, {"page": "p"}, {"page": "p", "text": 3}])
def test_messages_that_are_none_are_ignored(widget, content):
    widget._handle_custom_msg(content, [])
    assert not widget._pages


def test_a_page_that_sends_nonsense_leaves_and_others_stay(widget):
    say(widget, "good", type="hello", protocol=1, build=widget.build)
    widget._handle_custom_msg({"page": "bad", "text": "{"}, [])
    widget._handle_custom_msg({"page": "bad", "text": "[" * 100_000}, [])
    assert set(widget._pages) == {"good"}


def test_a_widget_forgets_the_oldest_of_many_pages(widget):
    for number in range(MAX_PAGES + 3):
        say(widget, f"p{number}", type="hello", protocol=1, build=widget.build)
    assert len(widget._pages) == MAX_PAGES
    assert "p0" not in widget._pages


def test_without_the_package_the_cell_says_what_to_install(engine, monkeypatch):
    monkeypatch.setattr(open_studio, "_is_installed", lambda _: False)
    with lg.studio(engine, open_browser=False) as studio, pytest.raises(UsageError, match=r"livegrad\[notebook\]"):
        _ = studio.widget


@pytest.mark.parametrize("name", ["marimo", "IPython"])
def test_a_notebook_needs_no_server_and_opens_no_browser(engine, monkeypatch, name):
    class Notebook:
        kernel = object()

        @staticmethod
        def running_in_notebook() -> bool:
            return True

        @classmethod
        def get_ipython(cls) -> Any:
            return cls

    monkeypatch.setitem(sys.modules, name, Notebook)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(open_studio.webbrowser, "open", lambda _: pytest.fail("it opened the browser"))
    with lg.studio(engine) as studio:
        assert not studio._is_serving
        assert repr(studio) == "<studio in a notebook>"
        assert studio._display_() is studio.widget
        assert studio.url.startswith("http://127.0.0.1:")  # for those who ask
        assert studio._is_serving
    assert np.isfinite(engine.frame.number)

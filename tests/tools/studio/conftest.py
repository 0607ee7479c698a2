"""Fixtures for tests that drive the page in a browser: Debian's Chromium, through playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from livegrad.tools.studio.tuning.solving import Descent

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT = 20_000.0  # milliseconds, of a test that hangs
expect.set_options(timeout=TIMEOUT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None and "LIVEGRAD_REQUIRE_BROWSER" not in os.environ:
        pytest.skip("no browser: apt-get install chromium")
    assert CHROMIUM is not None, "no browser: apt-get install chromium"
    with sync_playwright() as playwright:
        rules = "--host-resolver-rules=MAP evil.test 127.0.0.1"
        shaders = "--enable-unsafe-swiftshader"  # WebGL without a GPU
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rules, shaders])
        yield browser
        browser.close()


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def open_page(browser: Browser, errors: list[str]) -> Iterator[Any]:
    """Opens pages, and fails if one of them reported an error or asked another server."""
    contexts = []
    foreign: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # Without a GPU, Chromium reads canvases back to compose the page, and says that this is slow.
        is_ours = "WebSocket connection" not in message.text and "GPU stall due to ReadPixels" not in message.text
        if message.type in ("error", "warning") and is_ours:
            errors.append(message.text)

    def open_page(url: str, width: int = 1280, height: int = 860, script: str = "", **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.add_init_script(script)
        page.on("console", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        origin = url.split("#")[0]
        page.on("request", lambda request: foreign.append(request.url) if _is_foreign(request.url, origin) else None)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert foreign == []


@pytest.fixture
def endless_fit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Fits do not end by themselves until the event is set, however fast the machine is."""
    may_end = Event()
    shorten = Descent._shorten

    def shorten_if_it_may(descent: Descent) -> None:
        rate = descent.rate
        shorten(descent)
        if not may_end.is_set():
            descent.rate, descent.is_done = rate, False

    monkeypatch.setattr(Descent, "_shorten", shorten_if_it_may)
    yield may_end
    may_end.set()


def _is_foreign(url: str, origin: str) -> bool:
    return not url.startswith((origin, "blob:", "data:"))

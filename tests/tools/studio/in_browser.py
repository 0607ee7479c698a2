"""What browser tests do to the page: find its nodes, and wait for its pictures, never for a time to pass."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect


def node(page: Page, name: str) -> Locator:
    return page.locator(".svelte-flow__node").filter(
        has=page.locator("header .name", has_text=re.compile(f"^{re.escape(name)}$"))
    )


def select(page: Page, name: str) -> None:
    node(page, name).locator("header").click()
    expect(page.get_by_label("name of the block")).to_have_value(name)


def pixels(page: Page, name: str = "picture") -> str:
    return page.get_by_label(re.compile(f"^picture of {name} ")).evaluate("canvas => canvas.toDataURL()")


def wait_for_other_pixels(page: Page, before: str, name: str = "picture") -> str:
    canvas = page.get_by_label(re.compile(f"^picture of {name} ")).element_handle()
    page.wait_for_function("([canvas, before]) => canvas.toDataURL() !== before", arg=[canvas, before])
    return pixels(page, name)


def wait_for_exact_picture(page: Page, name: str = "picture") -> None:
    expect(page.get_by_label(re.compile(f"^picture of {name} "))).to_have_attribute("data-format", "rgba")

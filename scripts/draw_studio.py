"""Draws the pictures of the Studio that the documentation shows, in the light theme.

    python -m scripts.draw_studio [FOLDER]

In: the built page and a browser (Chromium). Out: PNG files, in `docs/pictures` by default.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

import livegrad as lg

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SIZE = (1440, 900)
TIMEOUT = 60_000.0  # milliseconds


def show_wheel(page: Page) -> None:
    """The tour's wheel, with its exact picture."""
    expect(page.locator("figure canvas")).to_have_attribute("data-format", "rgba", timeout=TIMEOUT)
    page.get_by_role("slider", name=re.compile("turn")).first.wait_for()


def show_views(page: Page) -> None:
    """A fit with its picture beside the graph, and its loss as a plot over frames."""
    page.get_by_role("button", name="show loss result as a plot").click()
    plot = page.get_by_role("img", name=re.compile("^plot of loss"))
    expect(plot).to_have_attribute("data-points", re.compile(r"[2-9]\d\d"), timeout=TIMEOUT)
    page.get_by_role("button", name="pause").click()
    page.get_by_role("button", name="show picture result beside the graph").click()
    expect(page.get_by_label("picture of picture result")).to_have_attribute("data-format", "rgba")
    page.locator(".svelte-flow__pane").click(position={"x": 20, "y": 20})


def show_slopes(page: Page) -> None:
    """A loss that is chosen, while a fit moves the data."""
    page.get_by_label("function loss", exact=True).locator("header").click()
    page.get_by_role("region", name="outputs").get_by_role("button", name="Slopes").click()
    page.locator(".svelte-flow__pane").click(position={"x": 30, "y": 300})
    page.get_by_label("slope of points amplitude").wait_for()
    page.get_by_role("button", name="Minimise").click()
    page.get_by_text(re.compile(r"\b[2-9]\d\d steps")).wait_for()


def show_part(page: Page) -> None:
    """A part that is cut open, with the field on the section plane and a picked point."""
    view = page.locator("[data-picture]")
    expect(view).to_have_attribute("data-picture", "fine", timeout=TIMEOUT)
    page.get_by_label("Section").select_option("y")
    page.get_by_role("slider", name="section at y").fill("0.5")
    box = view.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.62 * box["height"])
    expect(page.get_by_role("status", name="picked point")).to_contain_text("made by")
    page.mouse.move(10, 500)
    expect(view).to_have_attribute("data-picture", "fine", timeout=TIMEOUT)


SHOWN: dict[str, tuple[str, Callable[[Page], None]]] = {
    "studio.png": ("The tour's wheel", show_wheel),
    "studio-views.png": ("Gradient descent", show_views),
    "studio-slopes.png": ("Gradient descent", show_slopes),
    "studio-part.png": ("Inside a part", show_part),
}


def draw(folder: Path, names: Sequence[str]) -> None:
    """Opens examples in the Studio, waits until their pictures rest, and saves the page."""
    browser_program = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_program is None:
        raise SystemExit("drawing the Studio needs a browser: apt-get install chromium")
    options = ["--no-sandbox", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_program, args=options)
        for name in names:
            title, show = SHOWN[name]
            with lg.studio(open_browser=False) as studio:
                page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
                page.set_default_timeout(TIMEOUT)
                page.goto(studio.url)
                page.get_by_role("button", name=re.compile(f"^{re.escape(title)}")).click()
                show(page)
                page.evaluate("document.activeElement.blur()")
                page.screenshot(path=folder / name, animations="disabled")
                page.close()
        browser.close()


def main() -> None:
    """Draws the pictures and says how large they are."""
    parser = argparse.ArgumentParser(description="Draws the pictures of the Studio for the documentation.")
    parser.add_argument("folder", nargs="?", type=Path, default=PICTURES)
    parser.add_argument("--only", choices=list(SHOWN), help="draw one picture")
    options = parser.parse_args()
    folder, names = options.folder, [options.only] if options.only else list(SHOWN)
    draw(folder, names)
    for name in names:
        print(f"{folder / name}: {(folder / name).stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()

"""Draws the pictures of the Studio that the documentation shows: the tour's wheel, and the slopes of a loss.

    python -m scripts.draw_studio [FOLDER]

In: the built page and a browser (Chromium). Out: PNG files, in `docs/pictures` by default.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

import livegrad as lg

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SIZE = (1440, 900)
TIMEOUT = 60_000.0  # milliseconds


def draw_wheel(page: Page) -> None:
    """Opens the wheel, and waits until its picture is exact."""
    page.get_by_role("button", name=re.compile("^The tour's wheel")).click()
    expect(page.locator("figure canvas")).to_have_attribute("data-format", "rgba", timeout=TIMEOUT)
    page.get_by_role("slider", name=re.compile("turn")).first.wait_for()


def draw_slopes(page: Page) -> None:
    """Opens the gradient descent, chooses its loss, and fits the data for a while."""
    page.get_by_role("button", name=re.compile("^Gradient descent")).click()
    page.get_by_label("function loss", exact=True).locator("header").click()
    page.get_by_role("region", name="outputs").get_by_role("button", name="Slopes").click()
    page.locator(".svelte-flow__pane").click(position={"x": 30, "y": 300})
    page.get_by_label("slope of points amplitude").wait_for()
    page.get_by_role("button", name="Minimise").click()
    page.get_by_text(re.compile(r"\b[2-9]\d\d steps")).wait_for()


SCENES = {"studio.png": draw_wheel, "studio-slopes.png": draw_slopes}


def draw(file: Path) -> None:
    """Opens the Studio, prepares the scene of a picture, and saves the page."""
    browser_program = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_program is None:
        raise SystemExit("drawing the Studio needs a browser: apt-get install chromium")
    with lg.studio(open_browser=False) as studio, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        page.set_default_timeout(TIMEOUT)
        page.goto(studio.url)
        SCENES[file.name](page)
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=file, animations="disabled")
        browser.close()


def main() -> None:
    """Draws the pictures and says how large they are."""
    parser = argparse.ArgumentParser(description="Draws the pictures of the Studio for the documentation.")
    parser.add_argument("folder", nargs="?", type=Path, default=PICTURES)
    parser.add_argument("--only", choices=list(SCENES), help="draw one picture")
    options = parser.parse_args()
    for name in [options.only] if options.only else SCENES:
        draw(options.folder / name)
        print(f"{options.folder / name}: {(options.folder / name).stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()

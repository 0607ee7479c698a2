"""Draws the picture of the Studio that the documentation shows: the tour's wheel, in the light theme.

    python -m scripts.draw_studio [FILE]

In: the built page and a browser (Chromium). Out: a PNG file, `docs/pictures/studio.png` by default.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

import livegrad as lg

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "studio.png"
SIZE = (1440, 900)
TIMEOUT = 60_000.0  # milliseconds


def draw(file: Path) -> None:
    """Opens the wheel in the Studio, waits until its picture is exact, and saves the page."""
    browser_program = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_program is None:
        raise SystemExit("drawing the Studio needs a browser: apt-get install chromium")
    with lg.studio(open_browser=False) as studio, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        page.set_default_timeout(TIMEOUT)
        page.goto(studio.url)
        page.get_by_role("button", name=re.compile("^The tour's wheel")).click()
        expect(page.locator("figure canvas")).to_have_attribute("data-format", "rgba", timeout=TIMEOUT)
        page.get_by_role("slider", name=re.compile("turn")).first.wait_for()
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=file, animations="disabled")
        browser.close()


def main() -> None:
    """Draws the picture and says how large it is."""
    parser = argparse.ArgumentParser(description="Draws the picture of the Studio for the documentation.")
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE)
    file = parser.parse_args().file
    draw(file)
    print(f"{file}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()

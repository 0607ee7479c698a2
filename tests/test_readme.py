"""The README is correct: its example runs and prints what it shows; its commands and its picture exist."""

import contextlib
import io
import os
import re
import runpy
from pathlib import Path

import pytest

from livegrad.tools.tour import Tour, run_tour
from livegrad.tools.tour.script import Scale

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = README.split("example: begin")[1].split("example: end")[0]


def test_the_example_prints_what_the_readme_says_when_it_is_saved_and_run(tmp_path: Path) -> None:
    code, output = re.findall(r"```(?:python|text)\n(.*?)```", EXAMPLE, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        script = tmp_path / "example.py"
        script.write_text(code, encoding="utf-8")
        runpy.run_path(str(script))
    assert printed.getvalue() == output


def test_the_example_is_about_ten_lines() -> None:
    code = re.findall(r"```python\n(.*?)```", EXAMPLE, re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_the_commands_are_there_and_can_be_run() -> None:
    commands = re.findall(r"^(\./\w+)", README, re.MULTILINE)
    assert commands[:2] == ["./run", "./test"]
    assert all(os.access(ROOT / command, os.X_OK) for command in commands)
    modules = re.findall(r"python -m ([\w.]+)", README)
    assert all((ROOT / module.replace(".", "/")).exists() for module in modules)


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Tour:
    small = Scale((48, 32), fit=3, turn=2, hold=1, feature_size=0.3)
    return run_tour(tmp_path_factory.mktemp("tour"), "cpu", lambda what, share: None, small)


def test_the_table_of_edits_is_what_the_tour_prints(tour: Tour) -> None:
    """Times are those of one machine; what was edited, at which level, and what ran is the same on each."""
    printed = {(entry.edit, entry.level, " ".join(entry.ran) or "-") for entry in tour.ledger}
    table = README.split("| edit | level | ms | ran |")[1].split("\n\n")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()[2:]]
    assert len(rows) == 5
    assert {(edit, level, ran) for edit, level, _, ran in rows} <= printed


def test_it_opens_with_a_picture() -> None:
    first = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", README)[0]
    assert README.index(first[1]) < README.index("## Quick start")
    assert (ROOT / first[1]).read_bytes().startswith(b"\x89PNG")


def test_the_page_of_the_tour_shows_what_was_seen_after_each_edit_and_the_code_behind_it(tour: Tour) -> None:
    page = tour.page.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == len(tour.ledger) == 9
    assert "def distance(p: lg.vec3, wheel: Wheel) -&gt; lg.f32:" in page
    assert "np.float32" not in page
    for name in re.findall(r'(?:src|href)="([^"#:]+)"', page):
        assert (tour.page.parent / name).exists(), name

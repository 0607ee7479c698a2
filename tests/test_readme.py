"""The README tells the truth: its example runs and prints what it says, its commands are there, its picture is."""

import contextlib
import io
import os
import re
import runpy
from pathlib import Path

from livegrad.tools.tour import run_tour
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


def test_the_table_of_edits_is_what_the_tour_prints(tmp_path: Path) -> None:
    """Times are those of one machine; what was edited, at which level, and what ran is the same on each."""
    small = Scale((48, 32), fit=3, turn=2, hold=1, feature_size=0.3)
    made = run_tour(tmp_path, "cpu", lambda what, share: None, small)
    printed = {(entry.edit, entry.level, " ".join(entry.ran) or "-") for entry in made.ledger}
    table = README.split("| edit | level | ms | ran |")[1].split("\n\n")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()[2:]]
    assert len(rows) == 5
    assert {(edit, level, ran) for edit, level, _, ran in rows} <= printed


def test_it_opens_with_a_picture() -> None:
    first = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", README)[0]
    assert README.index(first[1]) < README.index("## Two commands")
    assert (ROOT / first[1]).read_bytes().startswith(b"\x89PNG")

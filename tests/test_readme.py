"""The README tells the truth: its example runs and prints what it says."""

import contextlib
import io
import re
import runpy
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    section = README.read_text(encoding="utf-8").split("example: begin")[1].split("example: end")[0]
    code, output = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        script = tmp_path / "example.py"
        script.write_text(code, encoding="utf-8")
        runpy.run_path(str(script))
    assert printed.getvalue() == output


def test_the_example_is_about_ten_lines() -> None:
    section = README.read_text(encoding="utf-8").split("example: begin")[1].split("example: end")[0]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10

"""The documentation is correct: every block of Python in it runs and prints what the page shows."""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.tools.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
OWN_TESTS = {"docs/functions.md"}  # tests/frontend/function/test_document.py runs its blocks
OWN_PROCESS = {"CONTRIBUTING.md"}  # it adds an op, a device and a node type
# A block of Python, and the block of text below it, if there is one: what it prints. Or commands with their output.
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```$)?|^```console\n(?P<session>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"^\$ livegrad (?P<arguments>.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)


def run_block(block: re.Match[str], names: dict[str, Any], page: str, line: int) -> None:
    """A block with prompts is a doctest; any other is run, and its output compared. Names are those of the page."""
    if block["session"] is not None:
        run_commands(block["session"])
        return
    code, output = block["code"], block["output"]
    if ">>>" in code:
        run_session(code, names, page, line)
        return
    source = "\n" * line + code
    file = f"{page}:{line}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # functions are read from there
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, file, "exec"), names)
    if output is not None:
        compare(printed.getvalue(), output, file)


def compare(printed: str, told: str, where: str) -> None:
    agrees = doctest.OutputChecker().check_output(told, printed, doctest.ELLIPSIS)
    assert agrees, f"{where} prints\n{printed}\nwhere the page says\n{told}"


def run_commands(session: str) -> None:
    """Lines that begin with a dollar are commands of ours, run here; what follows each is its output."""
    assert session.count("$ ") == len(list(COMMAND.finditer(session))), "only `livegrad` can be run"
    for command in COMMAND.finditer(session):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main(shlex.split(command["arguments"]))
        compare(printed.getvalue(), command["output"], command["arguments"])


def run_session(code: str, names: dict[str, Any], page: str, line: int) -> None:
    test = doctest.DocTestParser().get_doctest(code, names, page, page, line)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(report)


def run_page(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "documentation", "lg": lg, "np": np}
    for block in BLOCK.finditer(text):
        run_block(block, names, page, text[: block.start()].count("\n") + 1)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OWN_TESTS | OWN_PROCESS])
def test_every_block_of_python_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("page", sorted(OWN_PROCESS))
def test_a_page_that_adds_to_tables_does_so_in_a_process_of_its_own(page, tmp_path):
    code = f"from tests.test_docs import run_page; run_page({page!r})"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_a_page_that_says_something_else_is_found(tmp_path):
    page = "```python\nprint(1 + 1)\n```\n```text\n3\n```\n"
    (block,) = BLOCK.finditer(page)
    with pytest.raises(AssertionError, match="where the page says"):
        run_block(block, {}, "page.md", 1)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for target, heading in re.findall(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)", prose):
        if "://" in target:
            continue
        file = (ROOT / page).parent / target
        assert file.exists(), target
        if heading and file.suffix == ".md":
            assert heading in headings(file), f"{target}#{heading}"


def headings(page: Path) -> set[str]:
    """What a link to a heading of a page may name, as GitHub and the site spell it."""
    actual = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in actual}


def test_no_block_is_left_out_by_the_way_it_is_fenced():
    """Python of ours is fenced as `python`; other libraries' as `py`, which is coloured alike and not run."""
    fences = {
        page: re.findall(r"^```(\S+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES
    }
    actual = {fence for page in fences.values() for fence in page}
    assert actual <= {"python", "py", "text", "console", "hlsl"}

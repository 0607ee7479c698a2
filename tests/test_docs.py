"""The documentation tells the truth: every block of Python in docs/ runs, and prints what it says."""

from __future__ import annotations

import doctest
import linecache
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
OWN_TESTS = {"functions.md"}  # tests/authoring/function/test_document.py runs its blocks
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_block(code: str, names: dict[str, Any], page: str, line: int) -> None:
    """A block with prompts is a doctest; any other is run. Blocks of one page see each other's names."""
    if ">>>" not in code:
        source = "\n" * line + code
        file = f"{page}:{line}"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for those who ask for it
        exec(compile(source, file, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(code, names, page, page, line)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OWN_TESTS])
def test_every_block_of_python_runs(page, tmp_path, monkeypatch):
    text = (DOCS / page).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "documentation", "lg": lg, "np": np}
    for block in BLOCK.finditer(text):
        run_block(block.group(1), names, page, text[: block.start()].count("\n") + 1)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert os.path.exists(DOCS / target), target

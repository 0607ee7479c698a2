"""Pages of the site that are generated from other files: lessons, the catalogue, pages of the repository's root."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from scripts.documentation import __main__, catalogue, lesson, reference
from scripts.documentation.__main__ import ROOT, assemble


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "source"
    assemble(folder)
    return folder


def test_examples_of_the_tools_are_true():
    assert [doctest.testmod(module).failed for module in (lesson, catalogue, __main__)] == [0, 0, 0]


def test_the_repository_lists_the_names_of_the_reference():
    listed = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    command = "python -m scripts.documentation.reference > docs/reference.md"
    assert listed == reference.overview(), f"regenerate it: {command}"


def test_the_site_links_to_the_pages_that_the_repository_only_lists(site):
    page = (site / "engine.md").read_text(encoding="utf-8")
    assert "](reference/engine.md)" in page
    assert not (site / "reference.md").exists()


def test_the_lesson_is_the_whole_program_in_order(site):
    page = (site / "from-scratch.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    program = (ROOT / "examples" / "from_scratch.py").read_text(encoding="utf-8")
    own = [line for line in program.split('"""', 2)[2].splitlines() if line.strip() and not line.startswith("#")]
    assert [line for line in code.splitlines() if line.strip()] == own


def test_every_diagnostic_of_the_catalogue_that_has_a_test_has_an_example(site):
    page = (site / "diagnostics.md").read_text(encoding="utf-8")
    codes = {path.name[:5] for path in (ROOT / "tests" / "diagnostics" / "functions").glob("LG*.txt")}
    sections = {section[3:8]: section for section in re.findall(r"^## LG(?:.|\n(?!## ))*", page, re.MULTILINE)}
    assert codes <= {code for code, section in sections.items() if "```python" in section}


def test_the_readme_is_the_first_page_with_the_contents_below_it(site):
    page = (site / "index.md").read_text(encoding="utf-8")
    assert "](tutorial.md)" in page
    assert "](docs/" not in page
    assert page.count("```{toctree}") == 5

"""`python -m scripts.documentation [DIRECTORY]`: assembles the pages, builds the site, fails on any warning.

In: docs/, README, CONTRIBUTING, CHANGELOG, `examples/from_scratch.py`, docstrings. Out: `out/site/index.html`.
"""

import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from scripts.documentation import reference
from scripts.documentation.catalogue import with_examples
from scripts.documentation.contents import CHAPTERS, PAGES
from scripts.documentation.lesson import gallery, lesson

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)]+)")


def assemble(target: Path) -> None:
    """Writes every page of the site, made or copied, to a directory of its own: the repository stays as it is."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target)
    made = {page: from_root(source) for page, source in ROOT_PAGES.items()} | reference.pages()
    examples = {f"examples/{path.name}": path.read_text("utf-8") for path in sorted((ROOT / "examples").glob("*.py"))}
    made["from-scratch.md"] = lesson(examples.pop("examples/from_scratch.py"))
    made["examples.md"] = gallery(examples)
    catalogue = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
    made["diagnostics.md"] = with_examples(catalogue, ROOT / "tests" / "diagnostics" / "functions")
    made["index.md"] += contents()
    made["reference/index.md"] += toctree(None, {page.title: page.file.removeprefix("reference/") for page in PAGES})
    for name, text in made.items():
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")
    (target / "reference.md").unlink()  # the pages that it stands for are here
    for page in target.rglob("*.md"):
        page.write_text(BLOCK.sub(coloured, with_made_pages(page.read_text(encoding="utf-8"))), encoding="utf-8")


def with_made_pages(text: str) -> str:
    """A page with links to those that exist on the site alone, in place of what the repository has for them.

    >>> with_made_pages("[the engine](reference.md#engine), [a program](../examples/from_scratch.py)")
    '[the engine](reference/engine.md), [a program](from-scratch.md)'
    """
    text = re.sub(r"\]\(reference\.md#([\w-]+)\)", r"](reference/\1.md)", text)
    text = text.replace("](reference.md)", "](reference/index.md)")
    return text.replace("](../examples/from_scratch.py)", "](from-scratch.md)")


def coloured(block: re.Match[str]) -> str:
    """Sessions are fenced as such, without the empty line that ends a doctest; IR in a session is no prompt."""
    fence, code = block.groups()
    if fence == "python" and code.startswith(">>>"):
        return f"```pycon\n{code.rstrip()}\n```"
    return f"```text\n{code}```" if fence == "console" and "\n  %" in code else block.group()


def from_root(source: str) -> str:
    """A page from the root of the repository, with links as they are seen from the site."""
    pages = {target: page for page, target in ROOT_PAGES.items()} | {"examples/from_scratch.py": "from-scratch.md"}

    def moved(match: re.Match[str]) -> str:
        target = match.group(2).removeprefix("docs/")
        return match.group(1) + pages.get(target, target)

    return LINK.sub(moved, (ROOT / source).read_text(encoding="utf-8"))


def contents() -> str:
    return "".join(toctree(chapter, pages) for chapter, pages in CHAPTERS.items())


def toctree(caption: str | None, pages: dict[str, str]) -> str:
    named = f":caption: {caption}\n" if caption else ""
    lines = "\n".join(f"{title} <{file}>" for title, file in pages.items())
    return f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n{named}\n{lines}\n```\n"


def main() -> int:
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "out" / "site"
    source = site.with_name(site.name + "-source")
    assemble(source)
    settings = str(Path(__file__).parent)
    return build_main(["-b", "html", "-W", "--keep-going", "-q", "-j", "2", "-c", settings, str(source), str(site)])


if __name__ == "__main__":
    sys.exit(main())

"""Programs as pages: one whose comments between the sections are prose, and all examples one below the other.

In: the text of `examples/*.py`. Out: Markdown. Called by the build of the site.
"""

import ast
import re
from collections.abc import Mapping

_HEADING = re.compile(r"^# ---+ (.*?) -*$")


def lesson(source: str) -> str:
    """Markdown: the docstring first, then for each section its heading, the comment below it, and its code.

    >>> print(lesson('"Title.\\n\\nOpening."\\n# --- One ---\\n# Why.\\nx = 1\\n').replace("`", "'"))
    # Title
    <BLANKLINE>
    Opening.
    <BLANKLINE>
    ## One
    <BLANKLINE>
    Why.
    <BLANKLINE>
    '''python
    x = 1
    '''
    <BLANKLINE>
    """
    docstring, body = _docstring(source)
    title, _, opening = docstring.partition("\n")
    parts = [f"# {title.rstrip('.')}\n", opening.strip() + "\n"]
    for section in _sections(body):
        parts.append(_section(section))
    return "\n".join(parts)


def _docstring(source: str) -> tuple[str, str]:
    quote = '"""' if source.startswith('"""') else '"'
    _, text, rest = source.split(quote, 2)
    return text, rest


def _sections(body: str) -> list[list[str]]:
    sections: list[list[str]] = [[]]
    for line in body.splitlines():
        if _HEADING.match(line):
            sections.append([])
        sections[-1].append(line)
    return [section for section in sections if any(line.strip() for line in section)]


def _section(lines: list[str]) -> str:
    heading = _HEADING.match(lines[0])
    rest = lines[1:] if heading else lines
    prose: list[str] = []
    while rest and rest[0].startswith("#"):
        prose.append(rest.pop(0).removeprefix("#").removeprefix(" "))
    code = "\n".join(rest).strip("\n")
    title = f"## {heading.group(1)}\n\n" if heading else ""
    told = "\n".join(prose) + "\n\n" if prose else ""
    return f"{title}{told}```python\n{code}\n```\n"


def gallery(programs: Mapping[str, str]) -> str:
    """All examples on a page: what each is for, how it is run, and its code behind a fold.

    >>> quote = chr(34) * 3
    >>> program = f"{quote}Draws.\\n\\n    python examples/one.py\\n\\nMore.\\n{quote}\\nx = 1\\n"
    >>> text = gallery({"examples/one.py": program})
    >>> [line for line in text.splitlines() if line][2:7]
    ['## `examples/one.py`', 'Draws.', '```text', 'python examples/one.py', '```']
    """
    opening = (
        "# Examples\n\nPrograms to run in a checkout, with `.venv/bin/python`. Each is tested. One more has a page "
        "of its own: [from scratch](from-scratch.md).\n"
    )
    parts = [opening]
    for path, source in programs.items():
        documented = (ast.get_docstring(ast.parse(source)) or "").strip()
        told = re.sub(r"^    (.+)$", r"```text\n\1\n```", documented, flags=re.MULTILINE)
        code = source.split('"""', 2)[2].strip("\n")
        parts.append(
            f"## `{path}`\n\n{told}\n\n<details><summary>the code</summary>\n\n```python\n{code}\n```\n\n</details>\n"
        )
    return "\n".join(parts)

"""The catalogue of diagnostics with a program and its exact message below each code, from the files that tests compare.

In: the text of `docs/diagnostics.md`, the folder `tests/diagnostics/functions`. Out: the page of the site.
"""

import re
from pathlib import Path

_SECTION = re.compile(r"^## (LG\d+): .*\n(?:(?!## ).*\n)*", re.MULTILINE)


def with_examples(page: str, folder: Path) -> str:
    """The page with an example at the end of each section that has one."""

    def section(match: re.Match[str]) -> str:
        files = sorted(folder.glob(f"{match.group(1)}_*.txt"))
        return match.group() if not files else f"{match.group().rstrip()}\n\n{example(files[0].read_text('utf-8'))}\n"

    return _SECTION.sub(section, page)


def example(text: str) -> str:
    """A program that ends with a call, and what is said of it.

    >>> print(example("def f():\\n    return x\\n>>> f()\\nLG104: no `x`\\n").replace("`" * 3, "---"))
    ---python
    def f():
        return x
    <BLANKLINE>
    f()
    ---
    <BLANKLINE>
    ---text
    LG104: no `x`
    ---
    <BLANKLINE>
    """
    program, rest = text.split(">>> ", 1)
    call, message = rest.split("\n", 1)
    return f"```python\n{program}\n{call}\n```\n\n```text\n{message.rstrip()}\n```\n"

"""Writes an HTML page of the program after each compiler pass, which marks added and removed lines.

In: the stages of a pipeline's trace. Out: HTML. Used by `livegrad passes … -o page.html`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from html import escape

from livegrad.passes.pipeline import PassOutput

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2530; --soft: #667085; --paper: #fff; --card: #f6f7f9; --line: #dfe3ea;
  --added: #dff3e3; --removed: #fbe3e1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --paper: #12151b; --card: #1a1f28;
  --line: #2e3644; --added: #17382a; --removed: #44211f; } }
body { margin: 0 auto; max-width: 1200px; padding: 32px 24px; background: var(--paper); color: var(--ink);
  font: 16px/1.5 ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 32px 0 6px; }
nav a { margin-right: 14px; } a { color: inherit; } .soft { color: var(--soft); }
pre { margin: 0; padding: 12px 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  overflow-x: auto; font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre span { display: block; padding: 0 14px; white-space: pre; } .added { background: var(--added); }
.removed { background: var(--removed); text-decoration: line-through; text-decoration-color: var(--soft); }
"""


def passes_html(name: str, stages: Sequence[PassOutput]) -> str:
    """One page with the input, followed by the changes of each pass.

    >>> page = passes_html("f", [PassOutput("input", "a\\nb\\n"), PassOutput("simplify", "a\\nc\\n")])
    >>> page.count('class="added"'), page.count('class="removed"')
    (1, 1)
    """
    links = "".join(f'<a href="#{escape(stage.name)}">{escape(stage.name)}</a>' for stage in stages)
    sections = "\n".join(_section(before, stage) for before, stage in zip([None, *stages], stages, strict=False))
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>the passes of {escape(name)}</title><style>{_STYLE}</style></head>
<body><h1>The passes of <code>{escape(name)}</code></h1><nav class="soft">{links}</nav>
{sections}
</body></html>
"""


def _section(before: PassOutput | None, stage: PassOutput) -> str:
    title = f'<h2 id="{escape(stage.name)}">{escape(stage.name)}</h2>'
    after = stage.text.splitlines()
    if before is None:
        return f"{title}<pre>{''.join(f'<span>{escape(line)}</span>' for line in after)}</pre>"
    if before.text == stage.text:
        return f'{title}<p class="soft">no changes</p>'
    lines = list(_differences(before.text.splitlines(), after))
    added, removed = (sum(mark == kind for mark, _ in lines) for kind in ("added", "removed"))
    body = "".join(
        f'<span class="{mark}">{escape(line)}</span>' if mark else f"<span>{escape(line)}</span>"
        for mark, line in lines
    )
    return f'{title}<p class="soft">{added} lines added, {removed} removed; {len(after)} now</p><pre>{body}</pre>'


def _differences(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str]]:
    """All lines in order, marked `added` or `removed` if only one side has them."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal":
            yield from (("", line) for line in after[start:end])
        else:
            yield from (("removed", line) for line in before[first:last])
            yield from (("added", line) for line in after[start:end])

"""Writes the HTML page of the tour: the results, and the cost of each edit, in light and dark mode.

The page is self-contained, except for the animation in the same folder.
"""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from livegrad.implicit.formats.png import write_png
from livegrad.tools.tour import fit, picture, wheel
from livegrad.tools.tour.script import FRAMES_PER_SECOND, Entry, Picture, Show

FILES = {
    "wheel.3mf": "the fitted part, as functions of nodes with named measures",
    "wheel.stl": "its surface, as a closed mesh",
    "target.3mf": "the target of the fit",
    "animation.png": "all frames, as an animated PNG",
    "poster.png": "the last frame, at twice the size",
    "loss.svg": "the loss at every step",
    "graph.svg": "the blocks of the live graph",
    "fit.svg": "the blocks inside the region <code>fit</code>",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1f2530; --soft: #667085; --paper: #fff; --card: #f6f7f9; --line: #dfe3ea;
  --none: #98a2b3; --hot: #d9534a; --warm: #d98a2b; --code: #2f6bd8; --cold: #6d5bd0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --paper: #12151b; --card: #1a1f28;
  --line: #2e3644; --none: #667085; --hot: #f0766d; --warm: #e9a856; --code: #7aa5f7; --cold: #a394f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 8px; letter-spacing: -0.02em; }
h2 { font-size: 20px; margin: 48px 0 8px; letter-spacing: -0.01em; }
p { margin: 0 0 14px; max-width: 46em; } .lead { color: var(--soft); font-size: 18px; }
img { width: 100%; height: auto; display: block; border-radius: 10px; }
.hero { display: grid; grid-template-columns: minmax(0, 66fr) minmax(0, 34fr); gap: 28px; margin-top: 20px; }
@media (max-width: 760px) { .hero { grid-template-columns: minmax(0, 1fr); } }
.facts { margin: 0; display: grid; align-content: start; gap: 2px; } .facts div { padding: 9px 0;
  border-bottom: 1px solid var(--line); } .facts div:last-child { border: 0; } .facts dt { font-size: 21px;
  font-weight: 650; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.facts dd { margin: 0; color: var(--soft); font-size: 14px; line-height: 1.4; }
figure { margin: 0; } figcaption { margin-top: 8px; }
figcaption, td small, .soft { color: var(--soft); font-size: 14px; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 24px; align-items: start; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px; overflow-x: auto; }
.sheet { background: #fff; border-radius: 10px; padding: 12px; border: 1px solid var(--line); overflow-x: auto; }
.sheet svg { display: block; margin: 0 auto; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; }
th { text-align: left; font-weight: 600; color: var(--soft); } td, th { padding: 7px 14px 7px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); } tr:last-child td { border: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.level { font-weight: 600; } .level.none { color: var(--none); } .level.hot { color: var(--hot); }
.level.warm { color: var(--warm); } .level.code { color: var(--code); } .level.cold { color: var(--cold); }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; } pre { margin: 8px 0 0;
  white-space: pre-wrap; } .kept { color: var(--soft); } details { margin-top: 8px; } summary { cursor: pointer; }
a { color: var(--code); } td img { width: 132px; border-radius: 6px; } td.shot { padding-right: 18px; }
.ledger td { vertical-align: middle; }
pre.code { margin: 0; white-space: pre; } dl.soft { margin: 14px 0 0; } dl.soft div { margin: 2px 0; }
dl.soft dt { display: inline; font-weight: 600; } dl.soft dd { display: inline; margin: 0 0 0 6px; }
"""
COLUMNS = {
    "level": "the update level: none, hot (parameters), warm (sizes), code (kernels), cold (steps)",
    "prepared": "functions that were compiled, or bound to other sizes",
    "ms": "time of the whole frame: planning, compiling, running, reading the picture",
    "ran, kept": "steps of the plan that ran, and steps whose values were still valid",
    "view nodes": "nodes of the context graph of the view, such as the camera, that were computed",
}


@dataclass(frozen=True)
class Outcome:
    """The results of the fit, which the tour prints and the page shows."""

    measures: dict[str, tuple[float, float]]  # initial and final value by name
    losses: np.ndarray[Any, Any]
    agreement: float  # the fraction of test points that are inside both shapes or outside both
    difference: float  # between the part and the part that was read back from its file
    triangles: int
    closed: bool


def page_html(show: Show, outcome: Outcome, folder: Path) -> str:
    """The page, for a folder that already has the files."""
    backend = show.stage.engine.executor.name
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>livegrad: fitting and rendering a hand wheel in one live graph</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Fitting and rendering a hand wheel in one live graph</h1>
<p class="lead">livegrad runs one live, differentiable graph on the {escape(backend)} backend. Gradient descent fits six
measures of a wheel to a part from a 3MF file, and the same graph renders the picture. Parameters, code and blocks
change while it runs.</p>
<div class="hero">
<figure><img src="animation.png" alt="the wheel while it is fitted and edited" width="1200" height="800">
<figcaption>{len(show.frames)} frames, {len(show.frames) / FRAMES_PER_SECOND:.0f} seconds. First the fit: the part is
red where it is too large, blue where it is too small, and grey where it matches. Then the edits, in the order of the
table.</figcaption></figure>
<dl class="facts">{_facts(show, outcome)}</dl>
</div>

<h2>The cost of each edit</h2>
<p>The engine compares the new plan with the running plan, applies each difference at the cheapest correct update level,
and runs only stale steps; all other steps keep their values.</p>
<div class="card ledger">{_ledger(show.ledger, show.shots)}</div>
<dl class="soft">{"".join(f"<div><dt>{name}</dt><dd>{meaning}</dd></div>" for name, meaning in COLUMNS.items())}</dl>
<details class="soft"><summary>The output of <code>engine.explain()</code> for each edit</summary>
{"".join(_explanation(entry) for entry in show.ledger)}</details>

<h2>The code</h2>
<p>The part is a plain Python function, compiled from its source. The fit uses its exact gradient with respect to the
measures, and the picture its gradient with respect to the point. The loss is an expression of lazy tensors. A function
of one pixel shades the whole picture, and the script replaces it with another.</p>
<div class="card"><pre class="code">{escape(_code())}</pre></div>

<h2>The fit</h2>
<div class="two">
<div class="card">{_measures(outcome)}
<p class="soft" style="margin:12px 0 0">{outcome.agreement:.2%} of 50,000 test points are inside both shapes, or outside
both. The 3MF file reads back with a difference of {outcome.difference:.1g}.</p></div>
<div class="card">{(folder / "loss.svg").read_text(encoding="utf-8")}</div>
</div>

<h2>The graph</h2>
<p><code>fit</code> is a For region: {len(outcome.losses)} iterations of gradient descent are one step of the plan.
<code>miss</code> is the function from the target's file.</p>
<div class="sheet">{(folder / "graph.svg").read_text(encoding="utf-8")}</div>
<p style="margin-top:20px">Inside <code>fit</code>:</p>
<div class="sheet">{(folder / "fit.svg").read_text(encoding="utf-8")}</div>

<h2>Files</h2>
<div class="card"><table>{"".join(_file(folder, name, text) for name, text in FILES.items())}</table></div>

<h2>Next</h2>
<p>The source of the tour is in <code>src/livegrad/tools/tour/</code>; read it and change it.
<code>docs/tutorial.md</code> explains these features in ten minutes. The command line tools, such as
<code>livegrad mesh wheel.3mf</code>, read the files of the tour.</p>
</main>
</body>
</html>
"""


def _facts(show: Show, outcome: Outcome) -> str:
    """The most important numbers, with their meanings."""
    costs = {entry.edit.partition(":")[0]: entry for entry in show.ledger}
    parameter, kernel, added, unchanged = (
        costs[name] for name in ("set shade.warmth", "edit a kernel", "add a block", "nothing")
    )
    steps = len(parameter.ran) + len(parameter.kept)
    facts = [
        (f"{outcome.losses[0] / outcome.losses[-1]:,.0f} ×", f"lower loss after {len(outcome.losses)} descent steps"),
        (f"{outcome.agreement:.2%}", "of test points agree with the target"),
        (_milliseconds(parameter), f"change a parameter: {len(parameter.ran)} of {steps} steps run, none is compiled"),
        (_milliseconds(kernel), "replace a kernel: compile, swap and render"),
        (_milliseconds(added), f"add a block: {len(added.kept)} steps keep their values"),
        (_milliseconds(unchanged), "change nothing: nothing runs"),
    ]
    return "".join(f"<div><dt>{figure}</dt><dd>{escape(meaning)}</dd></div>" for figure, meaning in facts)


def _milliseconds(entry: Entry) -> str:
    return f"{entry.seconds * 1e3:.1f} ms"


def _ledger(entries: Sequence[Entry], shots: Sequence[Picture]) -> str:
    rows = "".join(
        f'<tr><td class="shot">{_thumbnail(shot)}</td><td>{escape(entry.edit)}</td>'
        f'<td><span class="level {entry.level}">{entry.level}</span></td>'
        f'<td class="number">{entry.prepared}</td><td class="number">{entry.seconds * 1e3:.1f}</td>'
        f'<td>{_names(entry.ran)}</td><td class="kept">{_names(entry.kept)}</td>'
        f'<td class="kept">{_names(entry.computed)}</td></tr>'
        for entry, shot in zip(entries, shots, strict=True)
    )
    return (
        '<table><tr><th>result</th><th>edit</th><th>level</th><th class="number">prepared</th>'
        '<th class="number">ms</th>'
        f"<th>ran</th><th>kept</th><th>view nodes</th></tr>{rows}</table>"
    )


def _thumbnail(shot: Picture) -> str:
    """The middle of a picture, about 300 pixels wide, embedded in the page."""
    height, width, _ = shot.shape
    across, down = width // 6, height // 16
    middle = shot[down : height - down, across : width - across]
    step = max(1, middle.shape[1] // 300)
    rows, columns = (size // step * step for size in middle.shape[:2])
    cells = middle[:rows, :columns].reshape(rows // step, step, columns // step, step, 3)
    content = b64encode(write_png(np.rint(cells.mean((1, 3))).astype(np.uint8))).decode()
    return f'<img src="data:image/png;base64,{content}" alt="" width="132">'


def _code() -> str:
    """The core of the tour's source code."""
    return "\n\n".join(inspect.getsource(part) for part in (wheel.distance, fit.loss, picture.shade, picture.engraved))


def _names(steps: tuple[str, ...]) -> str:
    return " ".join(map(escape, steps)) or "nothing"


def _explanation(entry: Entry) -> str:
    return f"<p><strong>{escape(entry.edit)}</strong></p><pre>{escape(entry.explanation)}</pre>"


def _measures(outcome: Outcome) -> str:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{first:.3f}</td><td class="number">{last:.3f}</td></tr>'
        for name, (first, last) in outcome.measures.items()
    )
    return (
        f'<table><tr><th>measure</th><th class="number">initial</th><th class="number">fitted</th></tr>{rows}</table>'
    )


def _file(folder: Path, name: str, description: str) -> str:
    size = (folder / name).stat().st_size / 1024
    size_text = f"{size:,.0f} KiB" if size >= 10 else f"{size:.1f} KiB"
    return f'<tr><td><a href="{name}">{name}</a></td><td>{description}</td><td class="number">{size_text}</td></tr>'

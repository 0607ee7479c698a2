"""The tour: one live, differentiable graph that uses every part of livegrad. Run by `./run` and `livegrad run`.

Read it in this order: `wheel.py` (the part), `fit.py` (gradient descent), `view.py` (contexts), `picture.py` (kernels),
`stage.py` (the graph), `script.py` (edits while it runs), `results.py` and `page.py` (the output).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import livegrad as lg
from livegrad.tools.tour.page import Outcome
from livegrad.tools.tour.results import write_results, write_target
from livegrad.tools.tour.script import Entry, Scale, perform
from livegrad.tools.tour.stage import Stage

FULL_SCALE = Scale()


@dataclass(frozen=True)
class Tour:
    """The results of a tour; `str` gives a summary."""

    page: Path
    outcome: Outcome
    ledger: list[Entry]
    frames: int
    seconds: float

    def __str__(self) -> str:
        outcome = self.outcome
        measures = ", ".join(f"{name} {first:.2f} → {last:.3f}" for name, (first, last) in outcome.measures.items())
        return (
            f"fitted in {len(outcome.losses)} steps, loss {outcome.losses[0]:.1e} → {outcome.losses[-1]:.1e}\n"
            f"{measures}\n"
            f"{outcome.agreement:.2%} of test points agree with the target; "
            f"the 3MF file reads back with a difference of {outcome.difference:.1g}\n\n"
            f"{ledger_text(self.ledger)}\n\n"
            f"{self.frames} frames, {outcome.triangles:,} triangles, {self.seconds:.0f} s; open {self.page}"
        )


def run_tour(folder: Path, backend: str, progress: Callable[[str, float], None], scale: Scale = FULL_SCALE) -> Tour:
    """Runs the whole tour, and writes its files to a folder."""
    started = time.perf_counter()
    engine = lg.Engine(backend)
    folder.mkdir(parents=True, exist_ok=True)
    progress("the target, as 3MF and back", 0.0)
    target = write_target(folder)
    progress("the graph", 0.02)
    show, poster = perform(Stage(engine, target), scale, progress)
    outcome = write_results(folder, show, poster, target, scale.feature_size, progress)
    engine.close()
    return Tour(folder / "index.html", outcome, show.ledger, len(show.frames), time.perf_counter() - started)


def ledger_text(entries: Sequence[Entry]) -> str:
    """A table with one line per edit.

    It has the update level, the cost, the steps that ran, the steps that kept their values, and the nodes of the view
    that were computed.
    """
    head = ("edit", "level", "prepared", "ms", "ran", "kept", "view nodes")
    rows = [
        (
            e.edit,
            e.level,
            str(e.prepared),
            f"{e.seconds * 1e3:.1f}",
            *(" ".join(n) or "-" for n in (e.ran, e.kept, e.computed)),
        )
        for e in entries
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(_align(row, widths) for row in (head, *rows))


def _align(row: tuple[str, ...], widths: Sequence[int]) -> str:
    """Aligns text to the left and numbers to the right."""
    cells = [
        cell.rjust(width) if column in (2, 3) else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()

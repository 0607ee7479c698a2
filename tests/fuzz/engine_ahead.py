"""The random sessions of `engine.py`, with every edit planned and compiled ahead of the frame that applies it.

`Engine(compile="background")` does so in a thread. Planning ahead must change nothing: the frames still agree with the
model, and so do their errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest import mock

from livegrad.diagnostics import LivegradError
from livegrad.live.update.apply import Applier
from tests.fuzz import engine

SHORT = 8


def run_one(seed: int) -> Mapping[str, int]:
    """One session; raises AssertionError where the engine differs from the model."""
    counts: Counter[str] = Counter()
    apply = Applier.apply

    def plan_and_apply(applier: Applier, entries: list[Any], frame: Any) -> list[Any]:
        others = [entry for entry in entries if not applier._keeps_plan(entry)]
        if others and applier._runtime.executable is not None and entries is not applier._rejected:
            try:
                for job in applier.plan_ahead(others):
                    job()
                counts["planned"] += 1
            except LivegradError:
                counts["rejected"] += 1
        return apply(applier, entries, frame)

    with mock.patch.object(Applier, "apply", plan_and_apply):
        return {**engine.run_one(seed, reuse_memory=seed % 4 == 3), **counts}

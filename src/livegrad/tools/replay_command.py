"""The command `replay`, which replays a recorded session of a live engine. In: parsed arguments. Out: a report."""

from __future__ import annotations

import argparse

from livegrad.live.recording import replay
from livegrad.tools.report import Report

_MOST_SHOWN = 20


def replay_file(arguments: argparse.Namespace) -> Report:
    """Replays a recording. It fails if any output differs."""
    result = replay(arguments.file, trust=arguments.trust, backend=arguments.backend)
    lines = [str(difference) for difference in result.differences[:_MOST_SHOWN]]
    if len(result.differences) > len(lines):
        lines.append(f"and {len(result.differences) - len(lines)} more")
    frames = "1 frame" if result.frames == 1 else f"{result.frames} frames"
    lines.append(f"{frames}, {len(result.differences) or 'no'} differences")
    facts = {"frames": result.frames, "differences": [vars(difference) for difference in result.differences]}
    return Report(facts, lines, failed=bool(result.differences))

"""The command `replay`: replays a recorded session of a live engine. In: parsed arguments. Out: a report."""

from __future__ import annotations

import argparse

from livegrad.live.recording import replay
from livegrad.tools.report import Report

_MOST_SHOWN = 20


def replay_file(arguments: argparse.Namespace) -> Report:
    """Replays a recording. Every output that differs is a failure."""
    done = replay(arguments.file, trust=arguments.trust, backend=arguments.backend)
    lines = [str(difference) for difference in done.differences[:_MOST_SHOWN]]
    if len(done.differences) > len(lines):
        lines.append(f"and {len(done.differences) - len(lines)} more")
    frames = "1 frame" if done.frames == 1 else f"{done.frames} frames"
    lines.append(f"{frames}, {len(done.differences) or 'no'} differences")
    facts = {"frames": done.frames, "differences": [vars(difference) for difference in done.differences]}
    return Report(facts, lines, failed=bool(done.differences))

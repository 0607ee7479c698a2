"""The commands `run` (the tour) and `bench` (the benchmarks, in a checkout of the repository)."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from livegrad.diagnostics import UsageError
from livegrad.tools.progress import ProgressLine
from livegrad.tools.report import CommandError, Report
from livegrad.tools.tour import run_tour


def run(arguments: argparse.Namespace) -> Report:
    """Runs the tour."""
    if arguments.out.exists() and not arguments.out.is_dir():
        raise CommandError(f"`{arguments.out}` is a file, not a folder", help="choose another --out")
    with ProgressLine(shown=arguments.progress, stages=arguments.progress is None) as progress:
        tour = run_tour(arguments.out, arguments.backend, progress)
    facts = {
        "page": str(tour.page),
        "seconds": round(tour.seconds, 1),
        "frames": tour.frames,
        "measures": {name: last for name, (_, last) in tour.outcome.measures.items()},
        "first_loss": float(tour.outcome.losses[0]),
        "last_loss": float(tour.outcome.losses[-1]),
        "agreement": tour.outcome.agreement,
        "edits": [asdict(entry) for entry in tour.ledger],
    }
    return Report(facts, str(tour).splitlines())


def bench(arguments: argparse.Namespace) -> Report:
    """Runs the repository's benchmarks."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "benchmarks" / "__main__.py").is_file():
        raise UsageError(
            "the benchmarks are part of the repository, which was not found",
            help="clone the repository and run ./bench there",
        )
    options = arguments.arguments
    command = (
        [str(root / "bench"), *options] if "--peers" in options else [sys.executable, "-m", "benchmarks", *options]
    )
    process = subprocess.run(command, cwd=root, check=False)
    return Report({"exit_code": process.returncode}, [], failed=process.returncode != 0)

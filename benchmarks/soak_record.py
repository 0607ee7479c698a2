"""A soak in several processes at once, kept for the record.

    python -m benchmarks.soak_record --backend cuda [--frames 100000] [--engines 8] [--seconds 240]

The frames are shared out among engines with seeds of their own. Writes
`results/<date>T<time>-soak-<backend>.json`, with the memory after every comparison; fails when an engine does.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import machine
from benchmarks.record import write_record


def start(seed: int, options: argparse.Namespace) -> subprocess.Popen[str]:
    arguments = {
        "frames": options.frames // options.engines, "seed": seed, "backend": options.backend, "every": options.every,
        "seconds": options.seconds,
    }  # fmt: skip
    soak = [sys.executable, "-X", "faulthandler", "-m", "benchmarks.engine_soak"]
    command = [*soak, *(f"--{name}={value}" for name, value in arguments.items())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def record_of(seed: int, process: subprocess.Popen[str]) -> dict[str, Any] | None:
    """The final record of an engine; None, after printing its output, if it failed."""
    output, _ = process.communicate()
    lines = output.strip().splitlines()
    if process.returncode == 0 and lines and lines[-1].startswith("{"):
        return json.loads(lines[-1])
    print(f"seed {seed} ended with {process.returncode}: {output[-3000:]}", flush=True)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random edits of live engines, compared with fresh ones.")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--every", type=int, default=1_000, help="frames between comparisons")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="engines stop at their first comparison from then on"
    )
    options = parser.parse_args(arguments)
    running = {seed: start(seed, options) for seed in range(options.engines)}
    results = {seed: record_of(seed, process) for seed, process in running.items()}
    records = [record for record in results.values() if record is not None]
    command = f"python -m benchmarks.soak_record --backend {options.backend} --engines {options.engines}"
    path = write_record(f"soak-{options.backend}", machine.describe({}), {}, command=command, soak=records)
    frames, compared = (sum(record[name] for record in records) for name in ("frames", "compared"))
    print(f"{frames:,} frames, {compared:,} buffers equal; wrote benchmarks/results/{path.name}")
    return 0 if len(records) == options.engines else 1


if __name__ == "__main__":
    sys.exit(main())

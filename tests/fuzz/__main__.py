"""`python -m tests.fuzz [NAMES] [--seeds 0:1000] [--seconds 600] [--jobs 2] [--set backend=cuda] [--json]`

Runs fuzzers long. `--json` keeps what they counted in `benchmarks/results`, with the machine and the seeds. Ctrl-C and
SIGTERM end the fuzzer that runs, and what it counted until then is kept.
"""

import argparse
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.record import write_record
from tests.fuzz.fuzzers import Fuzzer, find_fuzzers
from tests.fuzz.pool import Outcome, Pool


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random cases, compared with oracles.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(find_fuzzers())} (default: all)")
    parser.add_argument("--seeds", default="0:", help="first:last, the last one left out (default: no end)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each fuzzer (default: 60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a processor)")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="options of `run_one`, as JSON")
    parser.add_argument("--failures", type=int, default=20, help="stop after so many (default: 20)")
    parser.add_argument("--json", action="store_true", help="keep the counts in benchmarks/results")
    return parser.parse_args(arguments)


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _progress(name: str) -> Callable[[Outcome], None]:
    """Says how far it is, every ten seconds, and every failure at once."""
    shown, last = set[int](), [time.perf_counter()]

    def report(outcome: Outcome) -> None:
        for seed in outcome.failures.keys() - shown:
            shown.add(seed)
            print(f"{name} {seed} FAILED\n{outcome.failures[seed]}", flush=True)
        if time.perf_counter() - last[0] > 10.0:
            last[0] = time.perf_counter()
            print(f"{name}: {outcome.seeds:,} seeds, {len(outcome.failures)} failed", flush=True)

    return report


def _run(fuzzer: Fuzzer, asked: argparse.Namespace) -> bool:
    first, _, last = asked.seeds.partition(":")
    seeds = range(int(first), int(last)) if last else itertools.count(int(first or 0))
    options = dict(map(_option, asked.set))
    outcome = Pool(fuzzer, options, asked.jobs).run(seeds, asked.seconds, asked.failures, _progress(fuzzer.name))
    failed = f"{len(outcome.failures)} failed: {sorted(outcome.failures)}" if outcome.failures else "none failed"
    print(f"{fuzzer.name}: {outcome.seeds:,} seeds in {outcome.seconds:.0f} s, {failed}", flush=True)
    if asked.json:
        record = {
            "seeds": [int(first or 0), int(first or 0) + outcome.seeds], "options": options, "jobs": asked.jobs,
            "seconds": round(outcome.seconds, 1), "slowest": outcome.slowest,
            "failures": {str(seed): text for seed, text in sorted(outcome.failures.items())},
            "counts": dict(sorted(outcome.counts.items())),
        }  # fmt: skip
        suite = "-".join(["fuzz", fuzzer.name, *(str(value) for value in options.values())])
        path = write_record(suite, machine.describe({}), {}, command=f"python -m tests.fuzz {fuzzer.name}", fuzz=record)
        print(f"wrote benchmarks/results/{path.name}", flush=True)
    return not outcome.failures


def main(arguments: Sequence[str] | None = None) -> int:
    asked, fuzzers = _parse(arguments), find_fuzzers()
    if unknown := [name for name in asked.names if name not in fuzzers]:
        sys.exit(f"no fuzzer is called {', '.join(unknown)}; there are: {', '.join(fuzzers)}")
    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let what they start in the background ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    passed = [_run(fuzzers[name], asked) for name in asked.names or fuzzers]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())

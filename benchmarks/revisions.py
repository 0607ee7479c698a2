"""`./bench --against REVISION [NAMES]`: this working tree's livegrad beside that of another revision of the repository.

In: rows of the suites. Out: for each row, samples of both, taken in turn, in several pairs of new processes. Each
revision runs its own contenders, so that a renamed function is no obstacle; a row that the other revision does not have
is reported as missing. Peers are not started."""

import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.contenders import Unavailable
from benchmarks.harness import Benchmark, Effort, Outcome, Result, Sampler, calls_a_sample, interleave, join_outcomes
from benchmarks.problems import Problem, agrees, expected, inputs
from benchmarks.record import write_record
from benchmarks.report import format_seconds, result_record
from benchmarks.worker import ROOT, THREAD_LIMITS, Process

PAIRS = 3  # of processes; code and memory have other addresses in each
SLOWER = 1.05  # a row above is named

# Runs in the folder of either revision. It uses only what the harness of every revision has.
SERVER = """
import gc, json, os, sys
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
from benchmarks.harness import LocalSampler, limit_threads
from benchmarks.problems import Problem
limit_threads()
sampler = LocalSampler("livegrad")
print(json.dumps({"version": "livegrad"}), file=answers)
for line in sys.stdin:
    request = json.loads(line)
    try:
        if "load" in request:
            seconds, probe = sampler.load(Problem(**request["load"]))
            gc.collect()
            gc.freeze()
            reply = {"first_seconds": seconds, "probe": list(map(float, probe))}
        else:
            reply = {"seconds": sampler.sample(request["sample"])}
    except Exception as error:
        reply = {"unavailable": str(error)[:200] or type(error).__name__}
    print(json.dumps(reply), file=answers)
"""


class RevisionProcess(Process):
    """livegrad of one revision, in a process of its own."""

    processor: float | None = None

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join((str(folder / "src"), str(folder)))
        super().__init__([sys.executable, "-c", SERVER], THREAD_LIMITS | {"PYTHONPATH": path}, folder=folder)

    def load(self, problem: Problem) -> tuple[float, list[float]]:
        answer = self.ask({"load": {"kind": problem.kind, "size": problem.size}})
        return float(answer["first_seconds"]), list(answer["probe"])

    def sample(self, calls: int) -> float:
        return float(self.ask({"sample": calls})["seconds"])


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A folder with the files of a revision, which is removed afterwards."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        sys.exit(f"git has no revision {revision}: {packed.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory() as above:
        folder = Path(above, "revision")
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        Path(above, "shared").symlink_to(ROOT.parent / "shared")  # sample files beside the checkout
        yield folder


def measure_row(benchmark: Benchmark, processes: dict[str, RevisionProcess], effort: Effort) -> Outcome:
    problem = benchmark.problem
    wanted = expected(problem, inputs(problem))
    results = {name: Result() for name in processes}
    samplers: dict[str, Sampler] = {}
    calls: dict[str, int] = {}
    for name, process in processes.items():
        try:
            results[name].first_seconds, values = process.load(problem)
            if not agrees(problem, values, wanted):
                raise Unavailable("its result is wrong")
            samplers[name], calls[name] = process, calls_a_sample(process, benchmark)
        except Unavailable as reason:
            results[name].reason = str(reason)
    if len(samplers) == len(processes):  # a row that only one revision has is not worth the time
        interleave(samplers, results, calls, effort)
    return Outcome(benchmark, results)


def row_line(outcome: Outcome) -> str:
    """The times of a row in both revisions, and their ratio."""
    before, now = outcome.results["before"], outcome.results["now"]
    if not (before.samples and now.samples):
        return f"{outcome.benchmark.name}: {before.reason or now.reason or 'not measured'}"
    times = f"{format_seconds(before.median)} → {format_seconds(now.median)}"
    ratio = now.median / before.median
    return f"{outcome.benchmark.name}: {times}, {ratio:.2f} × as long{'  SLOWER' if ratio > SLOWER else ''}"


def comparable(rows: Sequence[Benchmark]) -> list[Benchmark]:
    """The rows that livegrad competes in and that can run here."""
    return [replace(row, contenders=("before", "now")) for row in rows if not row.skip and "livegrad" in row.contenders]


def measure_against(revision: str, rows: Sequence[Benchmark], effort: Effort) -> list[Outcome]:
    share = replace(effort, rounds=-(-effort.rounds // PAIRS), seconds=effort.seconds / PAIRS)
    measured: list[list[Outcome]] = []
    with checked_out(revision) as folder:
        for index in range(PAIRS):
            print(f"pair {index + 1} of {PAIRS} of processes", flush=True)
            processes = {"before": RevisionProcess(folder), "now": RevisionProcess(ROOT)}
            try:
                measured.append([])
                for row in comparable(rows):
                    measured[-1].append(measure_row(row, processes, share))
                    print(row_line(measured[-1][-1]), flush=True)
            finally:
                for process in processes.values():
                    process.close()
    return [join_outcomes(outcomes) for outcomes in zip(*measured, strict=True)]


def run(revision: str, rows: Sequence[Benchmark], effort: Effort, keep: bool) -> int:
    """Measures, prints and keeps the rows. The exit status says whether one has become slower."""
    outcomes = measure_against(revision, rows, effort)
    print("\n".join(["", "medians of all samples", *map(row_line, outcomes)]))
    both = [item for item in outcomes if all(result.samples for result in item.results.values())]
    ratios = [item.results["now"].median / item.results["before"].median for item in both]
    if keep:
        path = write_record(f"against-{revision}", machine.describe({}), {}, compared=rows_record(outcomes))
        print(f"wrote benchmarks/results/{path.name}")
    if ratios:
        print(f"{len(ratios)} rows, geometric mean of the times {statistics.geometric_mean(ratios):.2f} ×")
    return int(any(ratio > SLOWER for ratio in ratios))


def rows_record(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    records: dict[str, Any] = {}
    for outcome in outcomes:
        seconds = {name: result_record(result) for name, result in outcome.results.items()}
        records[outcome.benchmark.name] = {"title": outcome.benchmark.title, "seconds": seconds}
    return records

"""Measures rows in this process, or in several new ones one after another, whose samples are joined.

Code and memory have other addresses in each process, so a median over several does not depend on one layout."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from benchmarks.harness import Benchmark, Effort, Outcome, join_outcomes, measure
from benchmarks.worker import Workers

Measured = tuple[list[Outcome], dict[str, str]]  # and the versions of the peers


def measure_rows(benchmarks: Sequence[Benchmark], effort: Effort, tell: Callable[[Outcome], str]) -> Measured:
    workers = Workers()
    outcomes: list[Outcome] = []
    try:
        for benchmark in benchmarks:
            outcomes.append(measure(benchmark, workers, effort))
            print(tell(outcomes[-1]), flush=True)
        return outcomes, workers.versions()
    finally:
        workers.close()


def tell_progress(outcome: Outcome) -> str:
    medians = [f"{name} {1e3 * seconds:.4g} ms" for name, seconds in outcome.medians().items()]
    return f"{outcome.benchmark.name}: {', '.join(medians)}"


def measure_in_processes(benchmarks: Sequence[Benchmark], effort: Effort) -> Measured:
    """Measures every row in its number of processes, which share the effort."""
    count = max(row.processes for row in benchmarks)
    share = replace(effort, rounds=-(-effort.rounds // count), seconds=effort.seconds / count)
    measured: list[Measured] = []
    for index in range(count):
        print(f"process {index + 1} of {count}", flush=True)
        # A new pool of one, so that the next process does not inherit compiled code.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            measured.append(pool.submit(measure_rows, benchmarks, share, tell_progress).result())
    outcomes = [join_outcomes(row) for row in zip(*(outcomes for outcomes, _ in measured), strict=True)]
    return outcomes, measured[0][1]

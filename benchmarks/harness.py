"""Measures contenders in turn, so that noise of the machine affects all of them alike.

In: a `Benchmark`. Out: an `Outcome` with every raw sample, or the reason why a contender has none."""

import gc
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from benchmarks import (
    contenders,
    context_contenders,
    eager_contenders,
    engine_cpu_contenders,
    engine_cuda_contenders,
    gradient_contenders,
    handwritten,
    host_contenders,
    loop_contenders,
    loop_gradient_contenders,
    parts_contenders,
    pass_contenders,
    sdf_cuda,
    tensor_contenders,
)
from benchmarks.contenders import Unavailable
from benchmarks.memory import bytes_of_call
from benchmarks.problems import PRIMAL, Problem, Run, agrees, expected, inputs, probe, time_calls
from benchmarks.worker import Workers

THREADS = 2
SETTLE = 0.02  # seconds between samples: peers' idle threads spin for a while before they sleep
LOCAL = {
    "livegrad": contenders.BUILDERS
    | gradient_contenders.BUILDERS
    | tensor_contenders.BUILDERS
    | loop_contenders.BUILDERS
    | loop_gradient_contenders.REVERSE
    | eager_contenders.BUILDERS
    | host_contenders.BUILDERS
    | context_contenders.BUILDERS["livegrad"]
    | engine_cpu_contenders.BUILDERS
    | engine_cuda_contenders.BUILDERS
    | parts_contenders.BUILDERS["livegrad"]
    | pass_contenders.BUILDERS["livegrad"]
    | sdf_cuda.BUILDERS["livegrad"],
    "livegrad_forward": loop_gradient_contenders.FORWARD,
    "without": pass_contenders.BUILDERS["without"],
    "handwritten": handwritten.BUILDERS,
    "memcpy": handwritten.BUILDERS,
    "adjoint": gradient_contenders.ADJOINTS,
    **{name: builders for name, builders in context_contenders.BUILDERS.items() if name != "livegrad"},
    **{name: builders for name, builders in parts_contenders.BUILDERS.items() if name != "livegrad"},
    **{name: builders for name, builders in sdf_cuda.BUILDERS.items() if name != "livegrad"},
}


@dataclass(frozen=True)
class Benchmark:
    """One row: a problem, its contenders, and the work of one run (`work` of `unit`; without a unit, time is shown)."""

    name: str
    title: str
    problem: Problem
    contenders: tuple[str, ...]
    work: float = 0.0
    unit: str = ""
    calls: int = 1
    skip: str | None = None
    processes: int = 1  # measure the row one after another; their samples are joined
    sample_seconds: float = 0.0  # if given, each contender makes as many calls per sample as fit in this time
    memory: bool = False  # whether to count what one call of each contender in this process writes
    processor: bool = False  # whether to show the time on processors: other programs disturb it less


@dataclass(frozen=True)
class Effort:
    """The measuring effort: at most `rounds` samples, and `seconds` for each contender."""

    rounds: int
    seconds: float


@dataclass
class Result:
    """One contender's samples, in seconds per run; `reason` says why there are none.

    Programs on a GPU also have samples of `queued_calls` calls back to back; they and rows that ask for it, the most
    memory in use."""

    samples: list[float] = field(default_factory=list)
    first_seconds: float | None = None
    reason: str | None = None
    processor: list[float] = field(default_factory=list)  # seconds that all threads spent on processors, by sample
    queued: list[float] = field(default_factory=list)
    queued_calls: int = 0
    peak_bytes: int | None = None
    note: str | None = None

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


@dataclass(frozen=True)
class Outcome:
    benchmark: Benchmark
    results: dict[str, Result]

    def medians(self) -> dict[str, float]:
        return self.figures("median")

    def samples(self, measure: str) -> dict[str, list[float]]:
        """The samples of the contenders that have some: of calls (`median`), of their time on processors
        (`processor`), of calls back to back (`queued`), the seconds to the first result (`first`) or the bytes in use
        (`peak`)."""
        of = {
            "median": lambda result: result.samples,
            "processor": lambda result: result.processor,
            "queued": lambda result: result.queued,
            "first": lambda result: [result.first_seconds],
            "peak": lambda result: [result.peak_bytes],
        }[measure]
        taken = {name: of(result) for name, result in self.results.items() if result.samples}
        return {name: samples for name, samples in taken.items() if samples and samples[0] is not None}

    def figures(self, measure: str) -> dict[str, float]:
        return {name: statistics.median(samples) for name, samples in self.samples(measure).items()}


def join_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Joins the outcomes of several processes for one row. A contender that failed in one of them has no samples."""
    results: dict[str, Result] = {}
    for name, first in outcomes[0].results.items():
        parts = [outcome.results[name] for outcome in outcomes]
        failed = next((part for part in parts if part.reason), None)
        samples = [sample for part in parts for sample in part.samples]
        processor = [sample for part in parts for sample in part.processor]
        joined = replace(first, samples=samples, processor=processor)
        results[name] = Result(reason=failed.reason) if failed else joined
    return Outcome(outcomes[0].benchmark, results)


class Sampler(Protocol):
    """A contender with its problem loaded, in this process or in a worker.

    `sample` gives the seconds of a call; `processor` has those on processors in the same calls, if they are known."""

    processor: float | None

    def load(self, problem: Problem) -> tuple[float, list[float]]: ...
    def sample(self, calls: int) -> float: ...


def _nothing() -> None:
    """Waits for nothing, as most runs are synchronous."""


class LocalSampler:
    """A contender that runs in this process."""

    def __init__(self, name: str) -> None:
        self.builders = LOCAL[name]
        self.processor: float | None = None
        self.run: Run | None = None

    def load(self, problem: Problem) -> tuple[float, list[float]]:
        if problem.kind not in self.builders:
            raise Unavailable("no such contender")
        start = time.perf_counter()
        run = self.builders[problem.kind](problem)
        result = run()
        seconds = time.perf_counter() - start
        self.run = run
        return seconds, probe(result)

    def sample(self, calls: int) -> float:
        assert self.run is not None
        run = self.run
        getattr(run, "settle", _nothing)()
        timing = time_calls(run, calls)
        self.processor = timing.processor
        return timing.seconds


def limit_threads() -> None:
    """Pins this process, and the workers it will start, to two processors where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])


def problem_of(name: str, benchmark: Benchmark) -> Problem:
    """The problem for a contender: the undifferentiated function if its name ends in `:primal`."""
    problem = benchmark.problem
    return Problem(problem.kind + PRIMAL, problem.size) if name.endswith(PRIMAL) else problem


def prepare(name: str, problem: Problem, workers: Workers, wanted: list[float]) -> tuple[Sampler, float]:
    local = name.removesuffix(PRIMAL)
    sampler = LocalSampler(local) if local in LOCAL else workers.get(name)
    first_seconds, values = sampler.load(problem)
    if not agrees(problem, values, wanted):
        raise Unavailable("its result is wrong")
    return sampler, first_seconds


def calls_a_sample(sampler: Sampler, benchmark: Benchmark) -> int:
    """The number of calls per sample; fast calls are timed over many, if the row requests it."""
    if not benchmark.sample_seconds:
        return benchmark.calls
    seconds = sampler.sample(1)
    if seconds < benchmark.sample_seconds:
        seconds = sampler.sample(1)  # the first one after loading is slower
    return max(1, int(benchmark.sample_seconds / seconds))


def bytes_of_samples(sampler: Sampler) -> int | None:
    """What a call of a contender in this process writes."""
    if not isinstance(sampler, LocalSampler) or sampler.run is None:
        return None
    return bytes_of_call(sampler.run)


def interleave(
    samplers: dict[str, Sampler],
    results: dict[str, Result],
    calls: Mapping[str, int],
    effort: Effort,
    settle: float = SETTLE,
) -> None:
    """Round after round, one sample of each contender that still has time."""
    for _ in range(effort.rounds):
        for name, sampler in samplers.items():
            result = results[name]
            if result.reason or sum(result.samples) * calls[name] >= effort.seconds:
                continue
            time.sleep(settle)
            try:
                result.samples.append(sampler.sample(calls[name]))
                result.processor += [sampler.processor] if sampler.processor is not None else []
            except Unavailable as reason:
                result.reason = str(reason)


def measure(benchmark: Benchmark, workers: Workers, effort: Effort) -> Outcome:
    if benchmark.skip:
        return Outcome(benchmark, {name: Result(reason=f"skipped: {benchmark.skip}") for name in benchmark.contenders})
    problems = {name: problem_of(name, benchmark) for name in benchmark.contenders}
    wanted = {problem: expected(problem, inputs(problem)) for problem in set(problems.values())}
    results = {name: Result() for name in benchmark.contenders}
    samplers: dict[str, Sampler] = {}
    calls: dict[str, int] = {}
    for name, result in results.items():
        try:
            problem = problems[name]
            samplers[name], result.first_seconds = prepare(name, problem, workers, wanted[problem])
            calls[name] = calls_a_sample(samplers[name], benchmark)
            if benchmark.memory:
                result.peak_bytes = bytes_of_samples(samplers[name])
        except Unavailable as reason:
            result.reason = str(reason)
    # Objects of this row and earlier rows are frozen, so that garbage collections during samples do not traverse them.
    gc.collect()
    gc.freeze()
    interleave(samplers, results, calls, effort)
    gc.unfreeze()
    return Outcome(benchmark, results)

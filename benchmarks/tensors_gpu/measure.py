"""Measures rows of the suite, each contender in its own process.

Some rows at a time are loaded side by side, as compilers need one processor each; then the device serves one row after
the other, and contenders take turns. A contender that fails or is too slow is a line of the table, never the end."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.contenders import Unavailable
from benchmarks.harness import Benchmark, Effort, Outcome, Result, Sampler, interleave
from benchmarks.tensors_gpu.catalogue import program_of
from benchmarks.tensors_gpu.digest import Digest, reasons_for_wrong
from benchmarks.tensors_gpu.rows import CONTENDERS
from benchmarks.worker import PYTHON, Process

QUEUED = 20  # calls back to back
SAMPLE_SECONDS = 0.02  # of synchronised calls in one sample
EFFORT = Effort(rounds=15, seconds=0.6)
KEPT = ("torch", "torch_graphs")  # their processes take long to start: one serves many rows, with its caches emptied
ENVIRONMENT = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # others use the device too
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "4",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


@dataclass(frozen=True)
class Options:
    """How rows are measured; times are in seconds."""

    device: str = "cuda"
    contenders: tuple[str, ...] = CONTENDERS
    effort: Effort = EFFORT  # of each row and contender, for both kinds of samples
    lanes: int = 6  # rows that are loaded side by side
    slowest: float = 10.0  # a longer call is not repeated
    patience: float = 150.0  # for a first result, compiling included
    limit: float = math.inf  # no row is started later


class Contender:
    """A contender's process with a row loaded."""

    def __init__(self, name: str, options: Options) -> None:
        # Where CUDA is, all contenders run in this Python; the peers' own environment has no CUDA.
        python = PYTHON if options.device == "cpu" and name != "livegrad" else sys.executable
        if python == PYTHON and not PYTHON.exists():
            raise Unavailable("not installed; run ./bench --peers")
        command = [python, "-m", "benchmarks.tensors_gpu.contender", name, options.device]
        self.options = options
        self.process = Process(command, ENVIRONMENT, options.patience)
        self.first = self.seconds = 0.0
        self.digest: Digest = []

    def load(self, row: str) -> None:
        answer = self.process.ask({"load": row}, self.options.patience)
        self.first, self.seconds, self.digest = answer["first"], answer["seconds"], answer["digest"]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return self.process.ask(request, 60.0 + 100.0 * self.seconds)


class Synchronised:
    """Samples of calls that each wait for the device."""

    processor: float | None = None

    def __init__(self, contender: Contender) -> None:
        self.contender = contender

    def load(self, problem: Any) -> tuple[float, list[float]]:
        raise NotImplementedError("a row is loaded together with others")

    def sample(self, calls: int) -> float:
        return self.contender.ask({"sample": calls})["seconds"]


class BackToBack(Synchronised):
    """Samples of calls that the device works off while the host goes on."""

    def sample(self, calls: int) -> float:
        return self.contender.ask({"queue": calls})["seconds"]


class Lane:
    """The processes for one row at a time."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.contenders: dict[str, Contender] = {}
        self.versions: dict[str, str] = {}

    def start(self, name: str) -> str | None:
        """The reason if it does not start."""
        if name in self.contenders:
            return None
        try:
            self.contenders[name] = Contender(name, self.options)
        except Unavailable as reason:
            return str(reason)
        self.versions[name] = self.contenders[name].process.version
        return None

    def load(self, name: str, row: str) -> str | None:
        try:
            self.contenders[name].load(row)
        except Unavailable as reason:
            self.close(name)
            return str(reason)
        return None

    def release(self) -> None:
        """Frees the memory of the row; processes that start quickly end."""
        for name in list(self.contenders):
            if name in KEPT:
                try:
                    self.contenders[name].ask({"drop": 1})
                    continue
                except Unavailable:
                    pass  # a new process serves the next row
            self.close(name)

    def close(self, name: str) -> None:
        self.contenders.pop(name).process.close()


def measure_rows(
    rows: Sequence[Benchmark], options: Options, tell: Callable[[Outcome, Mapping[str, str]], None]
) -> None:
    """Measures all rows and tells each outcome at once, with the versions of the libraries."""
    lanes = [Lane(options) for _ in range(min(options.lanes, len(rows)))]
    started = time.monotonic()
    try:
        for begin in range(0, len(rows), len(lanes)):
            wave = rows[begin : begin + len(lanes)]
            late = time.monotonic() - started > options.limit
            for outcome in unmeasured(wave, "no time was left") if late else measure_wave(wave, lanes, options):
                versions = {name: version for lane in lanes for name, version in lane.versions.items()}
                tell(outcome, versions)
    finally:
        for lane in lanes:
            for name in list(lane.contenders):
                lane.close(name)


def unmeasured(rows: Sequence[Benchmark], reason: str) -> Iterator[Outcome]:
    for row in rows:
        yield Outcome(row, {name: Result(reason=reason) for name in row.contenders})


def measure_wave(rows: Sequence[Benchmark], lanes: Sequence[Lane], options: Options) -> Iterator[Outcome]:
    """Starts all processes, loads all rows, and then measures row by row while nothing else runs."""
    jobs = [(row, lane, name) for row, lane in zip(rows, lanes, strict=False) for name in options.contenders]
    with ThreadPoolExecutor(len(jobs)) as pool:
        reasons = list(pool.map(lambda job: job[1].start(job[2]), jobs))
        loaded = pool.map(lambda job, reason: reason or job[1].load(job[2], job[0].name), jobs, reasons)
        results = {(job[0].name, job[2]): Result(reason=reason) for job, reason in zip(jobs, loaded, strict=True)}
    for row, lane in zip(rows, lanes, strict=False):
        own = {name: results[row.name, name] for name in options.contenders}
        measure_row(row, own, lane, options)
        lane.release()
        yield Outcome(replace(row, contenders=options.contenders, skip=None), own)


def measure_row(row: Benchmark, results: Mapping[str, Result], lane: Lane, options: Options) -> None:
    """Fills in the results of the contenders that have loaded the row."""
    loaded = {name: lane.contenders[name] for name, result in results.items() if not result.reason}
    wrong = reasons_for_wrong(program_of(row.name), {name: one.digest for name, one in loaded.items()})
    samplers: dict[str, Sampler] = {}
    calls: dict[str, int] = {}
    queued = {name: Result() for name in loaded}
    for name, contender in loaded.items():
        result, seconds = results[name], contender.seconds
        result.first_seconds, result.reason = contender.first, wrong.get(name)
        if result.reason:
            continue
        if seconds > options.slowest:
            result.samples, result.note = [seconds], f"one call takes more than {options.slowest:g} s"
            continue
        samplers[name], calls[name] = Synchronised(contender), _calls(SAMPLE_SECONDS, seconds)
        samplers[name + QUEUE], calls[name + QUEUE] = BackToBack(contender), _calls(options.effort.seconds, seconds)
    both = dict(results) | {name + QUEUE: result for name, result in queued.items()}
    interleave(samplers, both, calls, options.effort, settle=0.0)
    for name in loaded:
        results[name].queued, results[name].queued_calls = queued[name].samples, calls.get(name + QUEUE, 0)
        results[name].reason = results[name].reason or queued[name].reason
        if not results[name].reason:
            _note_peak(results[name], loaded[name])


QUEUE = ":queued"


def _calls(budget: float, seconds: float) -> int:
    return max(1, min(QUEUED, int(budget / seconds)))


def _note_peak(result: Result, contender: Contender) -> None:
    try:
        result.peak_bytes = contender.ask({"peak": 1})["bytes"]
    except Unavailable as reason:
        result.note = f"no peak of memory: {reason}"


def lanes_here() -> int:
    """Rows that this machine can load side by side: each has three compilers, of which one has helpers."""
    return max(1, min(6, (os.cpu_count() or 1) // 2))

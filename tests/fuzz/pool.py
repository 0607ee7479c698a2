"""Runs seeds of one fuzzer in worker processes: a worker that crashes or hangs is named by its seed and replaced."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from tests.fuzz.fuzzers import ROOT, Fuzzer


@dataclass
class Outcome:
    """What a run found."""

    seeds: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)  # seconds, seed


class _Worker:
    """One process; `run` gives its answer to a seed."""

    def __init__(self, fuzzer: Fuzzer, options: dict[str, Any], limit: float) -> None:
        python = fuzzer.interpreter(sys.executable)
        if python is None:
            raise LookupError(f"{fuzzer.name} needs {', '.join(fuzzer.missing)}: make .venv-peers with ./bench --peers")
        paths = [str(ROOT / "src"), str(ROOT)]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-m", "tests.fuzz.worker", fuzzer.name, json.dumps(options), str(limit)],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the pool, which lets its workers finish their seeds
        )  # fmt: skip

    def run(self, seed: int) -> dict[str, Any] | None:
        """None when the process ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{seed}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def last_words(self) -> str:
        """Why it ended, with the end of what it wrote."""
        status = self._process.wait()
        self._errors.seek(0)
        return f"the process ended with {status}:\n{self._errors.read().decode(errors='replace')[-6000:]}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


class Pool:
    """Hands seeds to workers until there are none left, time is up, too many failed, or Ctrl-C ends the run."""

    def __init__(self, fuzzer: Fuzzer, options: dict[str, Any], jobs: int, limit: float = 120.0) -> None:
        self._fuzzer, self._options, self._jobs, self._limit = fuzzer, options, jobs, limit
        self._lock = threading.Lock()

    def run(
        self, seeds: Iterable[int], seconds: float, most_failures: int, report: Callable[[Outcome], None]
    ) -> Outcome:
        outcome, started = Outcome(), time.perf_counter()
        shared = iter(seeds)
        broken: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        interrupted = threading.Event()

        def is_over() -> bool:
            late = time.perf_counter() - started > seconds
            return late or len(outcome.failures) >= most_failures or not broken.empty() or interrupted.is_set()

        def serve() -> None:
            try:
                self._serve(shared, outcome, is_over, report)
            except BaseException as error:
                broken.put(error)

        threads = [threading.Thread(target=serve) for _ in range(self._jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:  # what was counted until now is kept
            interrupted.set()
            for thread in threads:
                thread.join()
        if not broken.empty():
            raise broken.get()
        outcome.seconds = time.perf_counter() - started
        return outcome

    def _serve(
        self, seeds: Iterator[int], outcome: Outcome, is_over: Callable[[], bool], report: Callable[[Outcome], None]
    ) -> None:
        worker = _Worker(self._fuzzer, self._options, self._limit)
        try:
            while not is_over():
                with self._lock:
                    seed = next(seeds, None)
                if seed is None:
                    return
                answer = worker.run(seed)
                if answer is None:
                    answer = {"error": worker.last_words(), "seconds": 0.0}
                    worker.close()
                    worker = _Worker(self._fuzzer, self._options, self._limit)
                with self._lock:
                    _add(outcome, seed, answer)
                    report(outcome)
        finally:
            worker.close()


def _add(outcome: Outcome, seed: int, answer: dict[str, Any]) -> None:
    outcome.seeds += 1
    outcome.counts.update(answer.get("counts", {}))
    outcome.slowest = max(outcome.slowest, (answer["seconds"], seed))
    if "error" in answer:
        outcome.failures[seed] = answer["error"]

"""A worker: `python -m benchmarks.peers NAME` reads one JSON request a line and answers with one JSON line.

{"load": {kind, size}} builds and runs a problem once, {"sample": n} times n calls. Called by `benchmarks.worker`."""

import gc
import importlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.problems import Problem, Run, probe, time_calls
from benchmarks.serve import serve


class Session:
    """The problem that is loaded, if any."""

    def __init__(self, builders: Mapping[str, Callable[[Problem], Run]]) -> None:
        self.builders = builders
        self.run: Run | None = None

    def load(self, problem: Problem) -> dict[str, Any]:
        self.run = None
        gc.unfreeze()
        gc.collect()
        if problem.kind not in self.builders:
            return {"unavailable": "this peer has no such contender"}
        start = time.perf_counter()
        run = self.builders[problem.kind](problem)
        result = run()
        seconds = time.perf_counter() - start
        self.run = run
        gc.collect()
        gc.freeze()
        return {"first_seconds": seconds, "probe": probe(result)}

    def sample(self, calls: int) -> dict[str, Any]:
        if self.run is None:
            return {"unavailable": "no problem is loaded"}
        return time_calls(self.run, calls)._asdict()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "load" in request:
            return self.load(Problem(**request["load"]))
        return self.sample(int(request["sample"]))


def start() -> tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    peer = importlib.import_module(f"benchmarks.peers.{sys.argv[1]}_peer")
    return peer.VERSION, Session(peer.BUILDERS).answer


if __name__ == "__main__":
    serve(start)

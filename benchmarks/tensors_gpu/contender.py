"""One contender in one process: `python -m benchmarks.tensors_gpu.contender NAME DEVICE`, asked by `measure`.

{"load": row} builds a program and returns the seconds of its first result; {"sample": n} times n calls, each until the
device has done the work; {"queue": n} times n calls with one wait at the end; {"peak": 1} tells the memory in use."""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from benchmarks.serve import serve
from benchmarks.tensors_gpu.catalogue import program_of
from benchmarks.tensors_gpu.digest import digest
from benchmarks.tensors_gpu.program import Array, Program, Run, Sizes, Tree, leaves, map_tree


class Library(Protocol):
    """What a session needs of a library. Its constructor starts the device."""

    version: str

    def forget(self) -> None:
        """Empties the caches of compiled code, so that the next first call compiles."""
        ...

    def put(self, array: Array) -> Any: ...
    def build(self, program: Program, sizes: Sizes, arguments: tuple[Tree, ...]) -> Run: ...
    def wait(self, result: Tree) -> None: ...
    def host(self, result: Tree) -> Tree: ...
    def reset_peak(self) -> None: ...
    def peak_bytes(self) -> int | None: ...


class Session:
    """The program that is loaded, if any."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.run: Run | None = None

    def load(self, row: str) -> dict[str, Any]:
        self.run = None
        gc.unfreeze()
        gc.collect()
        self.library.forget()
        program = program_of(row)
        sizes = program.sizes_of(row)
        arguments = map_tree(self.library.put, program.inputs(sizes))
        self.library.wait(arguments)
        start = time.perf_counter()
        run = self.library.build(program, sizes, arguments)
        result = run()
        self.library.wait(result)
        first = time.perf_counter() - start
        del arguments
        checked = [self.host(program, result)]
        del result
        if program.state_count:  # the second step shows whether the first left the right state
            checked.append(self.host(program, run()))
        self.run = run
        gc.collect()
        gc.freeze()
        seconds = self.timed(1)
        if seconds < 1.0:
            seconds = self.timed(1)  # the first one after loading is slower
        self.library.reset_peak()
        return {"first": first, "seconds": seconds, "digest": digest(leaves(checked), program.is_random)}

    def host(self, program: Program, result: Tree) -> Tree:
        return self.library.host(program.checked(result.trees() if hasattr(result, "trees") else result))

    def timed(self, calls: int) -> float:
        """Seconds of several calls and one wait."""
        assert self.run is not None
        start = time.perf_counter()
        for _ in range(calls - 1):
            self.run()
        self.library.wait(self.run())
        return time.perf_counter() - start

    def sample(self, calls: int) -> dict[str, Any]:
        self.timed(1)  # the device comes from another process
        return {"seconds": statistics.median(self.timed(1) for _ in range(calls))}

    def queue(self, calls: int) -> dict[str, Any]:
        self.timed(1)
        return {"seconds": self.timed(calls) / calls}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "load" in request:
            return self.load(request["load"])
        if "drop" in request:
            self.run = None
            gc.unfreeze()
            self.library.forget()
            return {}
        if self.run is None:
            return {"unavailable": "no program is loaded"}
        if "peak" in request:
            return {"bytes": self.library.peak_bytes()}
        return self.sample(request["sample"]) if "sample" in request else self.queue(request["queue"])


LIBRARIES: dict[str, str] = {
    "livegrad": "benchmarks.tensors_gpu.livegrad_library",
    "jax": "benchmarks.tensors_gpu.jax_library",
    "torch": "benchmarks.tensors_gpu.torch_library",
    "torch_graphs": "benchmarks.tensors_gpu.torch_library",
}


def start() -> tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    name, device = sys.argv[1:]
    library: Library = import_module(LIBRARIES[name]).start(name, device)
    return library.version, Session(library).answer


if __name__ == "__main__":
    serve(start)

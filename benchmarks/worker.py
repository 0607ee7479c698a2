"""The parent's side of a contender's process: starts it, requests samples, and reports why there are none."""

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import Unavailable
from benchmarks.problems import Problem

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
PATIENCE = 900.0  # seconds; the slowest peer compiles 310 operations in about a minute
THREAD_LIMITS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "2")
FRESH_STATE = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "JAX_PLATFORMS": "cpu"}


class Process:
    """A process that answers one JSON request a line, as `benchmarks.serve` does. Its first answer has its version."""

    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        patience: float = PATIENCE,
        folder: Path = ROOT,
    ) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.version = str(self.read(patience)["version"])

    def read(self, patience: float = PATIENCE) -> dict[str, Any]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(patience):
                self.close()
                raise Unavailable(f"no answer within {patience:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise Unavailable(f"its process ended: {self.last_error()}")
        answer = json.loads(line)
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        return answer

    def last_error(self) -> str:
        if self.errors.closed:
            return "it took too long and was stopped"
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"

    def ask(self, request: dict[str, Any], patience: float = PATIENCE) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise Unavailable(f"its process ended: {self.last_error()}") from None
        return self.read(patience)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()


class Worker(Process):
    """One peer in one process, which holds one loaded problem at a time."""

    def __init__(self, peer: str) -> None:
        if not PYTHON.exists():
            raise Unavailable("not installed; run ./bench --peers")
        command = [PYTHON, "-m", "benchmarks.peers", peer.partition(":")[0]]
        self.processor: float | None = None
        super().__init__(command, THREAD_LIMITS | FRESH_STATE)

    def load(self, problem: Problem) -> tuple[float, list[float]]:
        """Seconds of the first run, compiling included, and the probed values."""
        answer = self.ask({"load": {"kind": problem.kind, "size": problem.size}})
        return float(answer["first_seconds"]), list(answer["probe"])

    def sample(self, calls: int) -> float:
        answer = self.ask({"sample": calls})
        self.processor = float(answer["processor"])
        return float(answer["seconds"])


class Workers:
    """Starts each peer's worker when it is first asked for, and remembers why one did not start.

    A name such as `jax:primal` is another process of the same peer."""

    def __init__(self) -> None:
        self.started: dict[str, Worker | Unavailable] = {}

    def get(self, peer: str) -> Worker:
        if peer not in self.started:
            try:
                self.started[peer] = Worker(peer)
            except Unavailable as reason:
                self.started[peer] = reason
        worker = self.started[peer]
        if isinstance(worker, Unavailable):
            raise worker
        return worker

    def versions(self) -> dict[str, str]:
        return {peer: worker.version for peer, worker in self.started.items() if isinstance(worker, Worker)}

    def close(self) -> None:
        for worker in self.started.values():
            if isinstance(worker, Worker):
                worker.close()

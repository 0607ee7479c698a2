"""Contenders of the engine suite on a GPU: a chain of blocks, each a kernel of its own, one kind of change a frame.

Each run is one frame and waits only for its launch. Its result is the chain's last value, fetched on demand. The result
of the first run is checked."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from benchmarks.problems_engine import POINTS, target_of, turning
from livegrad.live.blocks import block, replace_body
from livegrad.live.engine import Engine
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import While
from livegrad.live.update.diff_plans import Level
from livegrad.runtime.cuda.result_memory import memory_in_use


class Later:
    """The value of an output, read on demand."""

    def __init__(self, engine: Engine, output: Any) -> None:
        self.engine, self.output = engine, output

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.engine.read(self.output), dtype)


def body(index: int, more: float = 0.0) -> Callable[..., Any]:
    """A different function for each block: its index is part of the code, and only adds rounding."""
    return eval(f"lambda x, gain=1.0: x * gain + {index + 1.0 + more!r} - {float(index)!r}")


def chain(blocks: int, points: int = POINTS, **options: Any) -> tuple[Engine, list[Any]]:
    """Blocks one after the other, each with a parameter."""
    engine = Engine("cuda", **options)
    chained: list[Any] = []
    for index in range(blocks):
        chained.append(engine.add(block(body(index), name=f"b{index}")))
        if index:
            engine.connect(chained[-2], chained[-1]["x"])
    engine.set(chained[0]["x"], np.zeros(points, np.float32))
    frame = engine.step()
    assert frame.ok, frame.problems
    engine.read(chained[-1])
    return engine, chained


def frame_of(engine: Engine, last: Any, change: Callable[[int], None], expected_level: str) -> Callable[[], Any]:
    """A run: one change and one frame, which does only the work that the change requires."""
    frames, later, level = count(), Later(engine, last), Level[expected_level]

    def run() -> Any:
        change(next(frames))
        if engine.step().level is not level:
            raise AssertionError(engine.explain())
        return later

    # The device finishes its work before each sample; else the host waits for space in its queue.
    run.settle = lambda: engine.read(last)  # type: ignore[attr-defined]
    return run


def build_hot(problem: Any) -> Callable[[], Any]:
    """One number of the last block: a single kernel is launched."""
    engine, chained = chain(problem.size)
    return frame_of(engine, chained[-1], turning(engine, chained[-1]["gain"]), "HOT")


def build_hot_all(problem: Any) -> Callable[[], Any]:
    """One number of the first block: the whole graph is launched."""
    engine, chained = chain(problem.size)
    return frame_of(engine, chained[-1], turning(engine, chained[0]["gain"]), "HOT")


def build_new_set(problem: Any) -> Callable[[], Any]:
    """Changes a parameter of another block every frame, from the middle on: each frame has a new stale set."""
    engine, chained = chain(problem.size)
    half = problem.size // 2

    def change(frame: int) -> None:
        engine.set(chained[half + frame % (half - 1)]["gain"], 1.0 + 1e-6 * (frame + 1))

    return frame_of(engine, chained[-1], change, "HOT")


def build_code(problem: Any) -> Callable[[], Any]:
    """The last block computes another function, one of two that are compiled already."""
    engine, chained = chain(problem.size)
    last = chained[-1]
    bodies = [replace_body(last, body(problem.size, 1.0)), replace_body(last, body(problem.size - 1))]
    for variant in bodies:
        engine.edit(last, variant)
        engine.step()
    return frame_of(engine, last, lambda frame: engine.edit(last, bodies[frame % 2]), "CODE")


def build_cold(problem: Any) -> Callable[[], Any]:
    """Connects the first block to another source: the graph is rebuilt, and every block runs."""
    engine, chained = chain(problem.size)
    sources = [engine.add(block(lambda x: x * 1.0, name=name)) for name in ("one", "other")]
    for source in sources:
        engine.set(source["x"], np.zeros(POINTS, np.float32))
    engine.connect(sources[1], chained[0]["x"])
    engine.step()
    return frame_of(engine, chained[-1], lambda frame: engine.connect(sources[frame % 2], chained[0]["x"]), "COLD")


def build_loop(problem: Any) -> Callable[[], Any]:
    """Gradient descent on (x - 3)² in a While: gradient, step and test of convergence run without the host."""
    engine = Engine("cuda")
    inside = Composite("inside")
    step = inside.graph.add(block(_descend, name="descend", outputs=("better", "left", "condition")))
    for pin in (*step.inputs.values(), *step.outputs.values()):
        inside.expose(pin)
    loop = engine.add(While("loop", inside, {"x": "better", "n": "left"}))
    engine.set(loop["condition"], True)
    engine.set(loop["n"], np.int64(problem.size))
    engine.set(loop["x"], np.zeros(POINTS, np.float32))
    engine.set(loop["rate"], 0.25)
    rates = count()

    def run() -> Any:
        engine.set(loop["rate"], target_of(next(rates)))
        engine.step()
        return engine.read(loop["better"])

    return run


def _descend(x: Any, n: Any, rate: Any = 0.25) -> Any:
    return x - rate * 2.0 * (x - 3.0), n - 1, n > 1


def peak_bytes(blocks: int, points: int, reuse: bool) -> int:
    """The device memory of a chain. All blocks are stale together, so that buffers may share memory."""
    before = memory_in_use()[0]
    engine = Engine("cuda", reuse_memory=reuse)
    chained: list[Any] = []
    for index in range(blocks):
        chained.append(engine.add(block(lambda x: x + 1.0, name=f"b{index}")))
        if index:
            engine.connect(chained[-2], chained[-1]["x"])
    engine.set(chained[0]["x"], np.zeros(points, np.float32))
    engine.step()
    assert engine.read(chained[-1])[0] == blocks
    taken = memory_in_use()[0] - before
    engine.close()
    return taken


BUILDERS = {
    "engine_cuda_hot": build_hot,
    "engine_cuda_hot_all": build_hot_all,
    "engine_cuda_new_set": build_new_set,
    "engine_cuda_code": build_code,
    "engine_cuda_cold": build_cold,
    "engine_cuda_loop": build_loop,
}

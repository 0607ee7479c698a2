"""Contenders of the engine suite on the CPU: a chain of blocks under one kind of change a frame.

Each run is one frame and gives the chain's last value; that of the first run is checked."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from benchmarks.problems_engine import POINTS, turning
from livegrad.live.blocks import block, edit
from livegrad.live.engine import Engine


def chain(blocks: int) -> tuple[Engine, list[Any]]:
    """Blocks one after the other, each with a parameter."""
    engine = Engine("cpu")
    chained: list[Any] = []
    for index in range(blocks):
        chained.append(engine.add(block(lambda x, gain=1.0: x * gain + 1.0, name=f"b{index}")))
        if index:
            engine.connect(chained[-2], chained[-1]["x"])
    engine.set(chained[0]["x"], np.zeros(POINTS, np.float32))
    engine.step()
    return engine, chained


def frame_of(engine: Engine, last: Any, change: Callable[[int], None], expected_level: str) -> Callable[[], Any]:
    """A run: one change and one frame, which does only the work that the change requires."""
    frames = count()

    def run() -> Any:
        change(next(frames))
        if engine.step().level.name != expected_level:
            raise AssertionError(engine.explain())
        return engine.read(last)

    return run


def build_nothing(problem: Any) -> Callable[[], Any]:
    engine, chained = chain(problem.size)
    return frame_of(engine, chained[-1], lambda frame: None, "NONE")


def build_hot(problem: Any) -> Callable[[], Any]:
    """One number of the last block: a single block is stale."""
    engine, chained = chain(problem.size)
    return frame_of(engine, chained[-1], turning(engine, chained[-1]["gain"]), "HOT")


def build_hot_all(problem: Any) -> Callable[[], Any]:
    """One number of the first block: the whole chain is stale."""
    engine, chained = chain(problem.size)
    return frame_of(engine, chained[-1], turning(engine, chained[0]["gain"]), "HOT")


def build_code(problem: Any) -> Callable[[], Any]:
    """The last block computes another function, one of two that are compiled already."""
    engine, chained = chain(problem.size)
    bodies = [lambda x, gain=1.0: x * gain + 2.0, lambda x, gain=1.0: x * gain + 1.0]
    return frame_of(engine, chained[-1], lambda frame: edit(engine, chained[-1], bodies[frame % 2]), "CODE")


def build_cold(problem: Any) -> Callable[[], Any]:
    """The last block is connected to another one: one block is stale."""
    engine, chained = chain(problem.size)
    extra = engine.add(block(lambda x: x + 1.0, name="extra"))
    engine.connect(chained[-2], extra["x"])
    engine.step()
    sources = [extra, chained[-2]]
    return frame_of(engine, chained[-1], lambda frame: engine.connect(sources[frame % 2], chained[-1]["x"]), "COLD")


def build_cold_add(problem: Any) -> Callable[[], Any]:
    """Replaces the block that reads the last one: adds and connects a new block, and removes the old one."""
    engine, chained = chain(problem.size)
    added: list[Any] = []

    def change(frame: int) -> None:
        if added:
            engine.remove(added.pop())
        added.append(engine.add(block(lambda x: x + 1.0, name=f"added{frame}")))
        engine.connect(chained[-1], added[-1]["x"])

    def run() -> Any:
        change(next(frames))
        if engine.step().level.name != "COLD":
            raise AssertionError(engine.explain())
        return engine.read(added[-1])

    frames = count()
    return run


BUILDERS = {
    "engine_cpu_nothing": build_nothing,
    "engine_cpu_hot": build_hot,
    "engine_cpu_hot_all": build_hot_all,
    "engine_cpu_code": build_code,
    "engine_cpu_cold": build_cold,
    "engine_cpu_cold_add": build_cold_add,
}

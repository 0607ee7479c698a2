"""What the tests of seed 004 share: a graph of four blocks, what it gives, and the levels of a frame's changes."""

from __future__ import annotations

import numpy as np

from livegrad.ir.dimension import Dimension
from livegrad.ir.types import Tensor, f32
from livegrad.live.blocks import block
from livegrad.live.engine import Engine
from livegrad.live.graph.composite import Composite
from livegrad.live.update.diff_plans import Level

N = Dimension.symbol("n")
NUMBERS = np.arange(4, dtype=np.float32)


def chain(executor_name: str) -> tuple[Engine, dict]:
    """a → b → d and a → c → d, with a parameter on b; a's size may change without new code."""
    engine = Engine(executor_name)
    row = {"x": Tensor(f32, (N,))}
    blocks = {
        "a": engine.add(block(lambda x: x + 1.0, name="a", inputs=row)),
        "b": engine.add(block(lambda x, gain=2.0: x * gain, name="b", inputs=row)),
        "c": engine.add(block(lambda x: x * x, name="c", inputs=row)),
        "d": engine.add(block(lambda x, y: x + y, name="d", inputs={"x": row["x"], "y": row["x"]})),
    }
    engine.set(blocks["a"]["x"], NUMBERS)
    engine.connect(blocks["a"], blocks["b"]["x"])
    engine.connect(blocks["a"], blocks["c"]["x"])
    engine.connect(blocks["b"], blocks["d"]["x"])
    engine.connect(blocks["c"], blocks["d"]["y"])
    return engine, blocks


def expected(x: np.ndarray, gain: float = 2.0) -> np.ndarray:
    return (x + 1) * np.float32(gain) + (x + 1) ** 2


def levels(engine: Engine) -> dict[str, Level]:
    return {key: change.level for key, change in engine.frame.changes.items()}


def summing_body() -> Composite:
    body = Composite("body")
    add = body.graph.add(block(lambda total, x: total + x, name="add"))
    body.expose(add["total"])
    body.expose(add["x"])
    body.expose(add["result"], "sum")
    return body

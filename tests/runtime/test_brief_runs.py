"""Brief kernels that threads share have the bits of one thread, for any number of chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu.native import pool
from livegrad.schedule.loops import split_into_items
from livegrad.state import fresh_session


def random_program(choose: np.random.Generator) -> Any:
    """Stencils, sums along either axis, scans and transposed reads of a small grid, some of them in a loop."""
    kinds = [str(kind) for kind in choose.choice(["blur", "rows", "columns", "scan", "turn", "roll", "steps"], size=3)]

    def program(x: Any) -> Any:
        for kind in kinds:
            match kind:
                case "blur":
                    x = lg.concat([0.25 * (x[2:] + x[:-2]) + 0.5 * x[1:-1], x[:2]], axis=0)
                case "rows":
                    x = x - lg.mean(x, axis=1, keepdims=True)
                case "columns":
                    x = x / (1.0 + lg.sum(x * x, axis=0))
                case "scan":
                    x = 0.1 * lg.cumulative_sum(x, axis=1)
                case "turn":
                    x = lg.sin(x.T) + x.T
                case "roll":
                    x = x + 0.5 * lg.roll(x, 1, axis=0) * lg.roll(x, -2, axis=1)
                case _:
                    x = lg.fori_loop(0, 4, lambda _, u: 0.5 * (u + lg.roll(u, 1, axis=1)), x)
        return x

    return program


@pytest.mark.parametrize("seed", range(12))
def test_chunks_and_threads_do_not_change_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = np.random.default_rng(seed)
    program = random_program(choose)
    shape = tuple(int(size) for size in choose.choice([3, 17, 64, 131, 260], size=2))
    grid = choose.normal(size=shape)
    threads = pool.threads()
    actual = []
    try:
        for chunk_cost, brief_cost, count in ((1e18, 0.0, 1), (10.0, 1e18, 3), (10.0, 0.0, 2), (1e5, 1e18, 2)):
            monkeypatch.setattr(split_into_items, "CHUNK_COST", chunk_cost)
            monkeypatch.setattr(split_into_items, "BRIEF_COST", brief_cost)
            pool.set_threads(count)
            with fresh_session():
                run = lg.jit(program)
                actual += [np.array(run(lg.asarray(grid))) for _ in range(3)]
    finally:
        pool.set_threads(threads)
    for other in actual[1:]:
        np.testing.assert_array_equal(other, actual[0])

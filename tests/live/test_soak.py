"""Random edits of every kind over many frames, compared with a fresh engine: a short soak test."""

from __future__ import annotations

import pytest

from benchmarks.engine_soak import Soak


@pytest.mark.parametrize(("seed", "reuse_memory"), [(1, False), (2, False), (3, True)])
def test_an_engine_under_random_edits_equals_a_fresh_one(seed, reuse_memory, executor_name):
    soak = Soak(seed, executor_name, reuse_memory)
    compared = 0
    for number in range(1, 151):
        soak.frame()
        if number % 30 == 0:
            compared += soak.compare()
    assert compared > 50
    assert {"NONE", "HOT", "WARM", "CODE", "COLD"} <= set(soak.levels)
    soak.engine.close()

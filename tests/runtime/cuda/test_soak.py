"""Random edits of all kinds on a simulated driver: values equal those of a new engine on the CPU."""

from __future__ import annotations

import pytest

from benchmarks.engine_soak import Soak
from tests.runtime.cuda.simulate import COMPILER, simulated


def soaked(seed: int, frames: int, every: int) -> tuple[int, set[str]]:
    """The number of compared values, and the levels of the frames."""
    soak, compared = Soak(seed, "cuda"), 0
    for number in range(1, frames + 1):
        if number % 4 == 0:
            soak.toggle_profiling()  # whose timings are not read before graphs are rebuilt
        soak.frame()
        if number % every == 0:
            compared += soak.compare("cpu")
    soak.engine.close()
    return compared, set(soak.levels)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")
def test_an_engine_on_the_device_under_random_edits_equals_a_fresh_one_on_the_cpu():
    with simulated(5):
        compared, levels = soaked(seed=5, frames=30, every=10)
    assert compared > 30
    assert {"HOT", "COLD"} <= levels

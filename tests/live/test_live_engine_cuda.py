"""Runs the test suites of the live engine on CUDA with a simulated driver. With the mark `gpu` they also run on a GPU.

The simulation runs the nodes of a graph in any order that their dependencies allow, and as late as possible.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from tests.live import (
    test_descriptions,
    test_frames_are_transactions,
    test_live_engine,
    test_misuse,
    test_needless_runs,
    test_regions,
    test_states,
    test_threads,
    test_upstream_defects,
    test_work_of_a_frame,
)
from tests.live.test_threads import frequent_switches as frequent_switches
from tests.runtime.cuda.simulate import COMPILER, simulated
from tests.seeds import test_seed_004_graph_compiler

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")


@pytest.fixture
def executor_name(request: pytest.FixtureRequest) -> Iterator[str]:
    with simulated(seed=len(request.node.name)):
        yield "cuda"


_MODULES = (
    test_descriptions, test_frames_are_transactions, test_live_engine, test_misuse, test_needless_runs, test_regions,
    test_states, test_seed_004_graph_compiler, test_threads, test_upstream_defects, test_work_of_a_frame,
)  # fmt: skip
for _module in _MODULES:
    for _name, _test in vars(_module).items():
        # Tests that call a library need a real device.
        if _name.startswith("test_") and {"executor_name", "negate"} & {*inspect.signature(_test).parameters} == {
            "executor_name"
        }:
            globals()[_name] = _test

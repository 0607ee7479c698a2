"""Random graphs under random edits, on CUDA: on a simulated driver, and on a GPU if there is one."""

from __future__ import annotations

import pytest
from hypothesis import settings

from livegrad.live.engine import Engine
from tests.live.test_live_engine_model import LiveEngine
from tests.long_forms import LONG
from tests.runtime.cuda.simulate import COMPILER, simulated


class OnCuda(LiveEngine):
    """The state machine of the CPU with another executor, which does not compare results on the device."""

    cuts_off = False

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine("cuda", reuse_memory=self.reuse_memory)

    def teardown(self) -> None:
        self.engine.close()


class Simulated(OnCuda):
    """Uses a driver that runs work as late as possible, in any valid order."""

    def __init__(self) -> None:
        self.driver = simulated(seed=7)
        self.driver.__enter__()
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        self.driver.__exit__(None, None, None)


class SimulatedThatSharesMemory(Simulated):
    reuse_memory = True


class OnCudaThatSharesMemory(OnCuda):
    reuse_memory = True


_ON_HOST = settings(max_examples=60 if LONG else 3, stateful_step_count=25, deadline=None)
_ON_DEVICE = settings(max_examples=25, stateful_step_count=40, deadline=None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler to run kernels with")

TestSimulated = needs_compiler(Simulated.TestCase)
TestSimulatedThatSharesMemory = needs_compiler(SimulatedThatSharesMemory.TestCase)
TestOnCuda = pytest.mark.gpu(OnCuda.TestCase)
TestOnCudaThatSharesMemory = pytest.mark.gpu(OnCudaThatSharesMemory.TestCase)
TestSimulated.settings = TestSimulatedThatSharesMemory.settings = _ON_HOST
TestOnCuda.settings = TestOnCudaThatSharesMemory.settings = _ON_DEVICE

"""The CUDA executor of the live engine: compiles steps with NVRTC and builds executables made of CUDA Graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import BlockStep
from livegrad.live.cuda.executable import CudaExecutable
from livegrad.live.cuda.source_code import make_source_code
from livegrad.live.cuda.step_code import CodeCache, StepCode, make_code
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.ops.context import FeatureLevel
from livegrad.runtime.cuda.driver import device


class CudaExecutor:
    """Compiles steps and builds executables for the first CUDA device."""

    name = "cuda"
    edits_in_place = False  # adding or removing nodes requires another instantiation of a CUDA graph

    def __init__(self) -> None:
        device()
        self._codes = CodeCache(_compile_step)

    def prepare(self, step: BlockStep) -> StepCode:
        """The step's kernels, compiled and loaded."""
        return self._codes.get(step)

    def build(
        self,
        plan: LivePlan,
        codes: Mapping[str, StepCode],
        features: Mapping[FeatureLevel, Any],
        previous: CudaExecutable | None,
    ) -> CudaExecutable:
        """Builds an executable, which reuses fitting buffers of `previous`."""
        return CudaExecutable(plan, codes, features, previous)


def _compile_step(step: BlockStep, in_memory: Sequence[bool]) -> StepCode:
    if isinstance(step.function, CudaKernel):
        return make_source_code(step, step.function)
    return make_code(step, in_memory)

"""Long straight-line kernels with many square roots interleave two halves of their lanes, and have the same bits."""

from collections.abc import Callable

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.runtime.cpu import CpuFunction, kernel_code
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from tests.codegen.llvm_instructions import calls, instructions


def _spheres(count: int) -> lg.ir.Function:
    """A smooth union of spheres in a row."""

    def distance(x: lg.ir.Node, y: lg.ir.Node, radius: lg.ir.Node) -> lg.ir.Node:
        total = x
        for number in range(count):
            offset = x - 0.1 * number
            sphere = ops.sqrt(offset * offset + y * y) - radius
            blend = ops.max(0.2 - ops.abs(total - sphere), lg.ir.constant(0.0, lg.f32))
            total = ops.min(total, sphere) - blend * blend * 1.25
        return total

    return lg.ir.map_over(lg.ir.trace(distance, lg.f32, lg.f32, lg.f32))


def _module(function: lg.ir.Function, vector_bytes: int, is_baseline: bool = False) -> str:
    (step,) = CpuFunction(function).schedule({"n": 1 << 16}).steps
    assert isinstance(step, KernelStep)
    nest = lower_loops(for_cpu(step, CPU, vector_bytes))
    return emit_kernel(nest, is_baseline).text


def _operations_on_both_halves(module: str) -> set[str]:
    return {instruction.opcode for instruction in instructions(module) if instruction.type == "<64 x float>"}


def _many_values(x: lg.ir.Node) -> lg.ir.Node:
    values = [ops.sqrt(x * number + 1.0) for number in range(1, 40)]
    total = x
    for first, second in zip(values, reversed(values), strict=True):
        total = ops.max(total, first * second)
    return total


def test_square_roots_of_the_second_half_follow_those_of_the_first() -> None:
    module = _module(_spheres(12), 64)
    assert {"load", "store"} <= _operations_on_both_halves(module)
    assert [root.type for root in calls(module, "llvm.sqrt")] == ["<32 x float>"] * 24


@pytest.mark.parametrize(
    ("function", "vector_bytes", "is_baseline"),
    [
        (_spheres(3), 64, False),
        (_spheres(12), 32, False),
        (_spheres(12), 64, True),
        (lg.ir.map_over(lg.ir.trace(_many_values, lg.f32)), 64, False),
    ],
    ids=["short", "few registers", "baseline", "many values alive"],
)
def test_other_kernels_are_not_interleaved(function: lg.ir.Function, vector_bytes: int, is_baseline: bool) -> None:
    assert not _operations_on_both_halves(_module(function, vector_bytes, is_baseline))


@pytest.fixture
def recompile(monkeypatch: pytest.MonkeyPatch, without_caches: None) -> Callable[[str], None]:
    def choose(code: str) -> None:
        monkeypatch.setenv("LIVEGRAD_CODE", code)
        kernel_code.forget_kernels()

    return choose


def test_interleaving_does_not_change_a_bit_for_any_number_of_points(recompile: Callable[[str], None]) -> None:
    random = np.random.default_rng(1)
    results: dict[str, list[bytes]] = {"optimised": [], "baseline": []}
    points = [random.uniform(-2.0, 2.0, (2, size)).astype(np.float32) for size in (1, 31, 33, 64, 65, 100, 5003)]
    for code, found in results.items():
        recompile(code)
        run = CpuFunction(_spheres(12))
        found += [run(x, y, np.full_like(x, 0.3)).tobytes() for x, y in points]
    assert results["optimised"] == results["baseline"]


def test_a_target_can_disable_interleaving() -> None:
    (step,) = CpuFunction(_spheres(12)).schedule({"n": 1 << 16}).steps
    assert isinstance(step, KernelStep)
    nest = lower_loops(for_cpu(step, CPU.without("interleave_lanes"), 64))
    assert not _operations_on_both_halves(emit_kernel(nest).text)

"""The first call of a function: each kernel is emitted once and compiled in the background, alone or with others."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.runtime.cpu import CpuFunction, row_chains, tiers
from livegrad.runtime.cpu import kernel_code as kernels_module
from livegrad.runtime.cpu.native import matmul
from livegrad.runtime.cpu.plan_serialiser import PlanSerialiser
from livegrad.schedule import plan_passes
from livegrad.schedule.plan import KernelStep

ROWS = lg.ir.types.Tensor(lg.f32, (20, 300))
VALUES = np.random.default_rng(5).standard_normal((20, 300)).astype(np.float32)
pytestmark = pytest.mark.usefixtures("without_caches")


class Log:
    """Events in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self._patch = patch

    def watch(self, owner: Any, name: str, event: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.events.append(event)
            return original(*arguments, **named)

        self._patch.setattr(owner, name, watched)

    def count(self, event: str) -> int:
        return self.events.count(event)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log(monkeypatch)
    log.watch(kernels_module, "emit_kernel", "written")
    log.watch(tiers, "PendingModule", "compiled")
    return log


def _three_kernels(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
    """A sum over rows, a sum over columns, and a cumulative sum."""
    down = ops.reduce(x * 1.25, kind="sum", axes=(0,))
    running = ops.cumulative(x, kind="sum", axis=0, reverse=False, exclusive=False)
    return ops.reduce(ops.sin(x), kind="sum", axes=(1,)), down, running


def _expected() -> tuple[np.ndarray, ...]:
    wide = VALUES.astype(np.float64)
    return np.sin(wide).sum(1), (wide * 1.25).sum(0), wide.cumsum(0)


def test_kernels_that_arrive_during_a_compilation_share_a_module(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: False)
    monkeypatch.setattr(tiers, "_FULL_MODULE_LINES", 10_000)
    results = CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.events == ["written", "written", "written", "compiled"]
    for actual, expected in zip(results, _expected(), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


def test_kernels_are_compiled_at_once_while_the_thread_is_idle(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: True)
    results = CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.events == ["written", "compiled"] * 3
    for actual, expected in zip(results, _expected(), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-3)


def test_a_long_module_is_compiled_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: False)
    monkeypatch.setattr(tiers, "_FULL_MODULE_LINES", 1)
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.count("compiled") == 3


def test_equal_kernels_are_emitted_and_compiled_once(log: Log) -> None:
    def twice(x: lg.ir.Node, y: lg.ir.Node) -> tuple[lg.ir.Node, lg.ir.Node]:
        first, second = (ops.reduce(z * 0.75, kind="sum", axes=(1,)) for z in (x, y))
        return first, second

    other = lg.ir.types.Tensor(lg.f32, (9, 500))
    CpuFunction(lg.ir.trace(twice, ROWS, other))(VALUES, np.ones((9, 500), np.float32))
    assert log.events == ["written", "compiled"]


def test_a_cached_function_emits_nothing(log: Log) -> None:
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    del log.events[:]
    CpuFunction(lg.ir.trace(_three_kernels, lg.ir.types.Tensor(lg.f32, (21, 300))))(np.ones((21, 300), np.float32))
    assert log.events == []


def test_a_plan_is_bound_before_its_code_is_compiled(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trampolines have addresses before there is code, so argument slots are filled during the compilation."""
    log.watch(tiers.BaselineCompiler, "finish", "waited for")
    log.watch(PlanSerialiser, "_argument_slots", "words")
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.count("words") == 3
    assert log.events.index("waited for") > max(n for n, event in enumerate(log.events) if event == "words")


def test_threads_that_need_the_same_code_all_wait_for_it() -> None:
    functions = [CpuFunction(lg.ir.trace(_three_kernels, ROWS)) for _ in range(4)]
    actual: list[Any] = []
    threads = [threading.Thread(target=lambda f=f: actual.append(f(VALUES))) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(actual) == 4
    for results in actual[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results, actual[0], strict=True))


def test_each_product_considers_each_strategy_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct and transposed: the chosen strategy is not computed again."""
    log = Log(monkeypatch)
    log.watch(matmul, "_tiled", "tiles")
    product = matmul.Product("float32", 1, 1, 48, 40, 32, matmul.Operand(128, 4, 0, 0), matmul.Operand(160, 4, 0, 0))
    matmul.arrange(product)
    assert log.count("tiles") == 2


def test_kernels_are_emitted_before_the_plan_is_complete(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: True)
    log.watch(plan_passes, "allocate_arena", "planned")
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.events == [*["written", "compiled"] * 3, "planned"]


def test_a_kernel_in_a_chain_is_emitted_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        row_chains, "default_threads", lambda: 2
    )  # with many processors, blocks of rows would be too small

    def layers(x: lg.ir.Node, first: lg.ir.Node, second: lg.ir.Node) -> lg.ir.Node:
        return ops.matmul(ops.tanh(ops.matmul(x, first)), second)

    shapes = (256, 64), (64, 96), (96, 64)
    arguments = [np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in shapes]
    compiled = CpuFunction(lg.ir.trace(layers, *[lg.ir.types.Tensor(lg.f32, shape) for shape in shapes]))
    result = compiled(*arguments)
    assert any(kernel.members for kernel in compiled.plan().serialised.kernels)
    assert log.count("written") == 1
    np.testing.assert_allclose(result, np.tanh(arguments[0] @ arguments[1]) @ arguments[2], rtol=1e-3, atol=1e-3)


def test_pending_kernels_are_compiled_when_a_cached_kernel_comes_and_the_thread_is_idle(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_idle = False
    monkeypatch.setattr(tiers, "is_idle", lambda: is_idle)
    plan = CpuFunction(lg.ir.trace(lambda x: ops.sin(x) * 1.375, ROWS)).schedule()
    (step,) = (step for step in plan.steps if isinstance(step, KernelStep))
    compiler = kernels_module.KernelCompiler()
    first = compiler.compile_step(step, None)
    assert log.events == ["written"]
    is_idle = True
    assert compiler.add(first.nest) is first.code
    assert log.events == ["written", "compiled"]
    compiler.close()
    first.code.native.wait()

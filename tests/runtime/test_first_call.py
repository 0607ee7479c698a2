"""The first call of a function: kernels are written once, and compiled beside Python, alone or together."""

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
    """What happened, in order."""

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
    """A sum along rows, one down columns, and a running one."""
    down = ops.reduce(x * 1.25, kind="sum", axes=(0,))
    running = ops.cumulative(x, kind="sum", axis=0, reverse=False, exclusive=False)
    return ops.reduce(ops.sin(x), kind="sum", axes=(1,)), down, running


def _expected() -> tuple[np.ndarray, ...]:
    wide = VALUES.astype(np.float64)
    return np.sin(wide).sum(1), (wide * 1.25).sum(0), wide.cumsum(0)


def test_what_comes_while_something_is_compiled_is_compiled_together(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: False)
    monkeypatch.setattr(tiers, "_FULL_MODULE_LINES", 10_000)
    results = CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.events == ["written", "written", "written", "compiled"]
    for found, expected in zip(results, _expected(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_what_comes_while_nothing_is_compiled_is_compiled_at_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: True)
    results = CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.events == ["written", "compiled"] * 3
    for found, expected in zip(results, _expected(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_a_long_text_does_not_wait_for_others(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: False)
    monkeypatch.setattr(tiers, "_FULL_MODULE_LINES", 1)
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.count("compiled") == 3


def test_kernels_that_are_alike_are_written_and_compiled_once(log: Log) -> None:
    def twice(x: lg.ir.Node, y: lg.ir.Node) -> tuple[lg.ir.Node, lg.ir.Node]:
        first, second = (ops.reduce(z * 0.75, kind="sum", axes=(1,)) for z in (x, y))
        return first, second

    other = lg.ir.types.Tensor(lg.f32, (9, 500))
    CpuFunction(lg.ir.trace(twice, ROWS, other))(VALUES, np.ones((9, 500), np.float32))
    assert log.events == ["written", "compiled"]


def test_a_function_that_is_known_writes_nothing(log: Log) -> None:
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    del log.events[:]
    CpuFunction(lg.ir.trace(_three_kernels, lg.ir.types.Tensor(lg.f32, (21, 300))))(np.ones((21, 300), np.float32))
    assert log.events == []


def test_a_plan_is_bound_before_its_code_is_there(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses are known before there is code: argument slots are filled meanwhile."""
    log.watch(tiers.BaselineCompiler, "finish", "waited for")
    log.watch(PlanSerialiser, "_argument_slots", "words")
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.count("words") == 3
    assert log.events.index("waited for") > max(n for n, event in enumerate(log.events) if event == "words")


def test_threads_that_need_the_same_code_all_wait_for_it() -> None:
    functions = [CpuFunction(lg.ir.trace(_three_kernels, ROWS)) for _ in range(4)]
    found: list[Any] = []
    threads = [threading.Thread(target=lambda f=f: found.append(f(VALUES))) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for results in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results, found[0], strict=True))


def test_products_look_at_each_way_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands and turned: what is chosen is not worked out again."""
    log = Log(monkeypatch)
    log.watch(matmul, "_tiled", "tiles")
    product = matmul.Product("float32", 1, 1, 48, 40, 32, matmul.Operand(128, 4, 0, 0), matmul.Operand(160, 4, 0, 0))
    matmul.arrange(product)
    assert log.count("tiles") == 2


def test_kernels_are_written_before_there_is_a_whole_plan(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: True)
    log.watch(plan_passes, "allocate_arena", "planned")
    CpuFunction(lg.ir.trace(_three_kernels, ROWS))(VALUES)
    assert log.events == [*["written", "compiled"] * 3, "planned"]


def test_a_kernel_in_a_chain_is_written_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        row_chains, "default_threads", lambda: 2
    )  # with many processors, blocks of rows would be too small

    def layers(x: lg.ir.Node, first: lg.ir.Node, second: lg.ir.Node) -> lg.ir.Node:
        return ops.matmul(ops.tanh(ops.matmul(x, first)), second)

    shapes = (256, 64), (64, 96), (96, 64)
    given = [np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in shapes]
    compiled = CpuFunction(lg.ir.trace(layers, *[lg.ir.types.Tensor(lg.f32, shape) for shape in shapes]))
    result = compiled(*given)
    assert any(kernel.members for kernel in compiled.plan().serialised.kernels)
    assert log.count("written") == 1
    np.testing.assert_allclose(result, np.tanh(given[0] @ given[1]) @ given[2], rtol=1e-3, atol=1e-3)


def test_what_waits_is_compiled_when_a_known_kernel_comes_and_nothing_else_is(
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

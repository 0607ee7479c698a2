"""The baseline and optimised tiers compute the same bits at the same address, also after a fork."""

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegrad as lg
from livegrad import ops
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.runtime.cpu import CpuFunction, tiers
from livegrad.runtime.cpu import kernel_code as kernels_module
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.cpu.native import llvm_jit
from livegrad.runtime.cpu.native.invoke import invoker
from livegrad.runtime.cpu.native.trampolines import release_trampoline, take_trampoline
from livegrad.runtime.cpu.tier_up import BackgroundCompiler, background_compiler
from livegrad.runtime.cpu.tiers import TieredFunction
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from tests.codegen.llvm_instructions import instructions
from tests.conformance.graphs import float_graph
from tests.forked import run_in_fork
from tests.runtime.subprocesses import run_python

RNG = np.random.default_rng(3)
ROWS = (6, 1037)


def _codes() -> list[TieredFunction]:
    return [code for code in kernels_module.kernel_cache.current.loaded.values() if isinstance(code, TieredFunction)]


def _bits(result: Any) -> bytes:
    return b"".join(np.asarray(part).tobytes() for part in (result if isinstance(result, tuple) else (result,)))


def _agree(run: Callable[[], Any]) -> None:
    """The optimised tier computes the bits of the baseline tier."""
    before = _bits(run())
    codes = _codes()
    assert codes
    assert not any(code.is_optimized for code in codes)
    background_compiler.current.wait()
    assert all(code.is_optimized for code in codes)
    assert _bits(run()) == before


def _softmax(x: lg.ir.Node) -> lg.ir.Node:
    weights = ops.exp(x - ops.spread_back(ops.reduce(x, kind="max", axes=(1,)), ROWS, (1,)))
    return weights / ops.spread_back(ops.reduce(weights, kind="sum", axes=(1,)), ROWS, (1,))


PROGRAMS: dict[str, Callable[[lg.ir.Node], Any]] = {
    "fused products": lambda x: x * 3.1 + x * x - 2.5 * (x - x * 0.7),
    "a sum of products along rows": lambda x: ops.reduce(x * (x + 0.1), kind="sum", axes=(1,)),
    "a sum across rows": lambda x: ops.reduce(x * x * 0.3, kind="sum", axes=(0,)),
    "one number": lambda x: ops.reduce(x * 1.7, kind="sum", axes=(0, 1)),
    "a place": lambda x: ops.arg_reduce(x, kind="argmax", axis=1),
    "softmax": _softmax,
    "functions": lambda x: ops.sin(x) * ops.exp(x * 0.2) + ops.tanh(x),
    "a running sum": lambda x: ops.cumulative(x, kind="sum", axis=1, reverse=False, exclusive=False),
}


@pytest.mark.parametrize("element", [lg.f32, lg.f64, lg.f16], ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.usefixtures("without_caches")
def test_optimised_code_computes_the_same_bits(program: str, element: Any) -> None:
    values = RNG.standard_normal(ROWS).astype(element.dtype)
    compiled = CpuFunction(lg.ir.trace(PROGRAMS[program], lg.ir.types.Tensor(element, ROWS)))
    _agree(lambda: compiled(values))


@settings(max_examples=10)
@given(st.data())
def test_random_graphs_give_the_same_bits(data: st.DataObject) -> None:
    graph = float_graph(data, lg.f32)
    compiled = CpuFunction(graph.function)
    with np.errstate(all="ignore"):
        before = _bits(compiled(*graph.arguments))
        background_compiler.current.wait()
        assert _bits(compiled(*graph.arguments)) == before


@pytest.mark.usefixtures("without_caches")
def test_a_plan_keeps_its_addresses_when_its_code_tiers_up() -> None:
    compiled = CpuFunction(lg.ir.trace(lambda x: x * x + 0.125, lg.ir.types.Tensor(lg.f32, (40,))))
    compiled(np.ones(40, np.float32))
    (code,) = _codes()
    before = code.address
    background_compiler.current.wait()
    assert code.is_optimized
    assert code.address == before


@pytest.mark.usefixtures("without_caches")
def test_kernels_of_a_plan_share_a_module_while_the_compiler_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "is_idle", lambda: False)

    def two(x: lg.ir.Node) -> tuple[lg.ir.Node, lg.ir.Node]:
        return ops.reduce(ops.sin(x), kind="sum", axes=(1,)), ops.cumulative(
            x, kind="sum", axis=0, reverse=False, exclusive=False
        )

    compiled = CpuFunction(lg.ir.trace(two, lg.ir.types.Tensor(lg.f32, (5, 300))))
    compiled(np.ones((5, 300), np.float32))
    first, second = _codes()
    assert first._baseline is not None
    assert second._baseline is not None
    assert first._baseline.image is second._baseline.image


@pytest.mark.usefixtures("without_caches")
def test_a_freed_kernel_is_not_recompiled() -> None:
    compiled = CpuFunction(lg.ir.trace(lambda x: x * x - 0.375, lg.ir.types.Tensor(lg.f32, (40,))))
    compiled(np.ones(40, np.float32))
    recompiled: list[TieredFunction] = []
    before, TieredFunction.tier_up = TieredFunction.tier_up, lambda self: recompiled.append(self)
    try:
        forget_kernels()
        del compiled
        background_compiler.current.wait()
    finally:
        TieredFunction.tier_up = before
    assert not recompiled


def test_pruned_code_has_fewer_instructions() -> None:
    function = CpuFunction(lg.ir.trace(_softmax, lg.ir.types.Tensor(lg.f32, ROWS)))
    plan = function.plan().plan
    assert plan is not None
    step = plan.steps[0]
    assert isinstance(step, KernelStep)
    nest = lower_loops(for_cpu(step, CPU, llvm_jit.host_target().vector_bytes))
    slow, quick = (len(instructions(emit_kernel(nest, quick).text)) for quick in (False, True))
    assert quick < 0.7 * slow


LEAVING = """
from livegrad.runtime.cpu.native import llvm_jit
from livegrad.runtime.cpu.tier_up import background_compiler
background_compiler.current.quiet_seconds = float(os.environ["QUIET"])
run = lg.ir.compile(lg.ir.trace(lambda x: ops.exp(x) * 0.8125, lg.ir.types.Tensor(lg.f32, (50,))))
run(np.ones(50, np.float32))
from livegrad.runtime.cpu import kernel_code
from livegrad.runtime.cpu.tiers import TieredFunction
baseline = sum(isinstance(code, TieredFunction) for code in kernel_code.kernel_cache.current.loaded.values())
compiled = llvm_jit.stats().compiled
if os.environ.get("WAIT"):
    background_compiler.current.wait()
print(compiled, baseline)
"""


def test_pending_optimisations_are_stored_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIET", "3600")
    first = run_python(LEAVING, tmp_path).split()
    assert first[1] == "1"
    assert int(first[0]) > 0
    monkeypatch.setenv("WAIT", "1")
    assert run_python(LEAVING, tmp_path).split() == ["0", "1"], "the baseline code was stored, and is recompiled"
    assert run_python(LEAVING, tmp_path).split() == ["0", "0"], "the optimised code is there"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.usefixtures("without_caches")
def test_the_child_of_a_fork_tiers_up_its_own_kernels() -> None:
    compiled = CpuFunction(lg.ir.trace(lambda x: x * 0.28125 + 1.0, lg.ir.types.Tensor(lg.f32, (40,))))
    values = np.arange(40, dtype=np.float32)
    expected = compiled(values).tobytes()

    def recompiles() -> bool:
        background_compiler.current.wait()
        return all(code.is_optimized for code in _codes()) and compiled(values).tobytes() == expected

    assert run_in_fork(recompiles) == 0
    assert not any(code.is_optimized for code in _codes())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_job_is_reported_and_later_jobs_run() -> None:
    compiler = BackgroundCompiler(quiet_seconds=3600.0)
    done: list[str] = []
    compiler.later(lambda: done.append(1 / 0))  # type: ignore[arg-type]
    compiler.later(lambda: done.append("second"))
    compiler.wait()
    assert done == ["second"]
    compiler.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_waiting_restarts_a_thread_that_died() -> None:
    compiler = BackgroundCompiler(quiet_seconds=3600.0)
    done: list[str] = []

    def end_the_thread() -> None:
        raise SystemExit

    compiler.later(end_the_thread)
    compiler.later(lambda: done.append("second"))
    compiler.wait()
    assert done == ["second"]
    compiler.stop()


def test_jobs_wait_for_a_quiet_period_and_tasks_run_at_exit() -> None:
    compiler = BackgroundCompiler(quiet_seconds=3600.0)
    done: list[str] = []
    compiler.later(lambda: done.append("first"))
    compiler.later(lambda: done.append("second"))
    assert not done
    compiler.stop()
    assert done == ["first", "second"]


def test_jobs_run_eventually_while_new_ones_arrive() -> None:
    ticks = itertools.count()
    compiler = BackgroundCompiler(quiet_seconds=0.02, clock=lambda: next(ticks) / 1000)  # jobs arrive more often
    done = threading.Event()
    compiler.later(done.set)
    while not done.is_set():
        compiler.later(lambda: None)
    compiler.stop()


@pytest.mark.parametrize("uptime", [0.0, 1.0, 1e9])
def test_waiting_for_all_jobs_does_not_depend_on_how_long_the_machine_has_been_up(uptime: float) -> None:
    compiler = BackgroundCompiler(quiet_seconds=3600.0, clock=lambda: uptime)
    done: list[str] = []
    compiler.later(lambda: done.append("first"))
    compiler.later(lambda: (compiler.later(lambda: done.append("third")), done.append("second"))[0])
    compiler.wait()
    assert done == ["first", "second", "third"]
    compiler.stop()


def test_a_trampoline_calls_its_target_and_is_reused() -> None:
    first = llvm_jit.compile_kernel("define void @k(i64 %b, i64 %e, ptr %a, i64 %w) {\n ret void\n}", "k", speed=0)
    trampoline = take_trampoline()
    trampoline.point_to(first.address)
    address = trampoline.address
    invoker().invoke(address, 1, 1, 0)
    release_trampoline(trampoline)
    again = take_trampoline()
    assert again.address == address
    release_trampoline(again)

"""Golden files: each `*.loops` holds a function, and what each loop pass makes of the kernels of its plan.

The CPU has vectors of 64 bytes here, and tiles of 32 rows.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.codegen.cuda.kernel import emit_kernel as emit_cuda
from livegrad.codegen.llvm.kernel_module import emit_kernel as emit_llvm
from livegrad.compiler import LOOP_PASSES, compile_plan, lower_loops
from livegrad.diagnostics import VerifyError
from livegrad.ir.text import parse_module
from livegrad.passes.pipeline import PipelineTrace
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.cost_model import NON_TEMPORAL_BYTES
from livegrad.schedule.loops.nest import LoopNest, LoopPass, for_cpu, for_device
from livegrad.schedule.plan import KernelStep, RowChain
from livegrad.schedule.target import Target
from livegrad.tools.describe_loop_passes import trace_loops

GOLDEN = sorted(Path(__file__).parent.glob("*.loops"))
FOR = "\n# for "
MARK = "\n# after "
NAMES = [step.name for passes in LOOP_PASSES.values() for step in passes]


def rows_of_tile(chain: RowChain) -> int:
    return 32


TARGETS = {"cpu": replace(CPU, rows_of_tile=rows_of_tile), "cuda": CUDA}


def loop_stages(source: str, target: Target) -> str:
    recorded = PipelineTrace()
    (function,) = parse_module(source).functions
    trace_loops(compile_plan(function, target), target, 64, recorded)
    text = before = ""
    for stage in recorded.stages:
        if stage.text != before:
            text += f"{MARK}{stage.name}\n{stage.text}"
            before = stage.text
    return text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_loop_passes_make_the_expected_text(path: Path, check_golden: Callable[[Path, str], None]) -> None:
    source = path.read_text(encoding="utf-8").split(FOR, 1)[0]
    check_golden(path, source + "".join(f"{FOR}{name}\n{loop_stages(source, TARGETS[name])}" for name in TARGETS))


def test_every_loop_pass_changes_a_golden_file() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in GOLDEN)
    assert [name for name in NAMES if f"{MARK}{name}\n" not in text] == []


def test_a_loop_pass_that_accesses_memory_outside_a_buffer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def widen(nest: LoopNest) -> LoopNest:
        return nest.replace(step=replace(nest.step, domain=(1 << 30,)))

    (function,) = parse_module(GOLDEN[0].read_text(encoding="utf-8").split(FOR, 1)[0]).functions
    step = next(step for step in compile_plan(function, CPU).steps if isinstance(step, KernelStep))
    monkeypatch.setitem(LOOP_PASSES, "cpu", (LoopPass(widen),))
    with pytest.raises(VerifyError, match="after `widen`, kernel"):
        lower_loops(for_cpu(step, CPU, 64))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("target", TARGETS)
def test_nests_of_equal_keys_have_equal_code_and_their_keys_hold_no_extents(path: Path, target: str) -> None:
    (function,) = parse_module(path.read_text(encoding="utf-8").split(FOR, 1)[0]).functions
    steps = [step for step in compile_plan(function, TARGETS[target]).steps if isinstance(step, KernelStep)]
    for step in steps:
        nest = nest_of(step, target)
        if not nest.step.domain:
            continue  # one point, whose loops are part of the code
        # Twice as many rows of the same strides: another number of items or blocks, and nothing else.
        first, *others = nest.step.domain
        longer = nest.replace(step=replace(nest.step, domain=(2 * first, *others)))
        longer = longer.change(longer.rows, extent=2 * longer.rows.extent, grain=3)
        assert longer.key == nest.key
        assert code_of(longer, target) == code_of(nest, target)


def test_a_single_element_is_stored_beside_a_tensor_that_is_too_large_for_the_caches() -> None:
    long = np.arange(NON_TEMPORAL_BYTES // 8, dtype=np.float64)
    joined = lg.jit(lambda x: lg.concat([x + 1.0, lg.sum(x[:3], keepdims=True)]))(long)
    assert np.array_equal(np.from_dlpack(joined), [*(long + 1.0), 3.0])


@pytest.mark.parametrize("target", TARGETS)
def test_keys_distinguish_decisions_that_change_code(target: str) -> None:
    (function,) = parse_module(GOLDEN[0].read_text(encoding="utf-8").split(FOR, 1)[0]).functions
    step = next(step for step in compile_plan(function, TARGETS[target]).steps if isinstance(step, KernelStep))
    nest = nest_of(step, target)
    if target == "cpu":
        others = [nest.change(nest.vector, extent=2 * nest.lanes), nest.replace(vector_bytes=16)]
    else:
        others = [nest.change(nest.rows, by="warp"), nest.replace(heavy=not nest.heavy)]
    for other in others:
        assert other.key != nest.key
        assert code_of(other, target) != code_of(nest, target)


def nest_of(step: KernelStep, target: str) -> LoopNest:
    return lower_loops(for_cpu(step, CPU, 64) if target == "cpu" else for_device(step, CUDA, shares_rows=True))


def code_of(nest: LoopNest, target: str) -> str:
    return emit_llvm(nest).text if target == "cpu" else emit_cuda(nest).text

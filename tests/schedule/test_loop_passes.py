"""Golden files: each `*.loops` holds a function, and what each loop pass makes of the kernels of its plan.

The CPU has vectors of 64 bytes here, and tiles of 32 rows.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from livegrad.compiler import LOOP_PASSES, compile_plan, lower_loops, trace_loops
from livegrad.diagnostics import VerifyError
from livegrad.ir.text import parse_module
from livegrad.passes.pipeline import PipelineTrace
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.loops.cpu_nest import CpuNest
from livegrad.schedule.loops.nest import LoopPass
from livegrad.schedule.plan import KernelStep, RowChain
from livegrad.schedule.target import CUDA, Target

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


def test_a_loop_pass_that_leaves_a_buffer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def widen(nest: CpuNest) -> CpuNest:
        return nest.replace(step=replace(nest.step, domain=(1 << 30,)))

    (function,) = parse_module(GOLDEN[0].read_text(encoding="utf-8").split(FOR, 1)[0]).functions
    step = next(step for step in compile_plan(function, CPU).steps if isinstance(step, KernelStep))
    monkeypatch.setitem(LOOP_PASSES, "cpu", (LoopPass(widen),))
    with pytest.raises(VerifyError, match="after `widen`, kernel"):
        lower_loops(CpuNest(step, 64), CPU)

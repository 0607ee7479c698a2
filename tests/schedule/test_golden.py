"""Golden files: each `*.plan` holds a function, and what each plan pass makes of it for a target.

The CPU tiles chains by 32 rows here: how many it takes depends on the machine.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import PLAN_PASSES, compile_plan
from livegrad.ir.text import parse_module
from livegrad.passes.pipeline import PipelineTrace
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import RowChain

GOLDEN = sorted(Path(__file__).parent.glob("*.plan"))
MARK = "\n# for "
NAMES = [step.name for step in PLAN_PASSES]


def rows_of_tile(chain: RowChain) -> int:
    return 32


TARGETS = {"cpu": replace(CPU, rows_of_tile=rows_of_tile), "cuda": CUDA}


def plan_stages(source: str, target: str) -> str:
    recorded = PipelineTrace()
    (function,) = parse_module(source).functions
    plan = compile_plan(function, TARGETS[target], trace=recorded)
    lines: list[str] = []
    before = ""
    for stage in recorded.stages:
        if stage.name in NAMES and stage.text != before:
            lines += [f"# after {stage.name}", stage.text]
            before = stage.text
    return "\n".join([*lines, f"{plan}\n"])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_plan_passes_make_the_expected_text(path: Path, check_golden: Callable[[Path, str], None]) -> None:
    source = path.read_text(encoding="utf-8").split(MARK, 1)[0]
    check_golden(path, source + "".join(f"{MARK}{name}\n\n{plan_stages(source, name)}" for name in TARGETS))


def test_every_plan_pass_changes_a_golden_file() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in GOLDEN)
    assert [name for name in NAMES if f"# after {name}\n" not in text] == []

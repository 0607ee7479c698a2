"""Golden files: each `*.ir` holds a module, a line `# after <pass>`, and the text that the pass must make of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from livegrad.ir.text import parse_module, print_module
from livegrad.passes.pipeline import PIPELINE, Pass, run_pipeline

GOLDEN = sorted(Path(__file__).parent.glob("*.ir"))
PASSES = {step.name: (step,) for step in PIPELINE} | {"pipeline": PIPELINE}
MARK = "\n# after "


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_pass_makes_the_expected_text(path: Path, check_golden: Callable[[Path, str], None]) -> None:
    before, rest = path.read_text(encoding="utf-8").split(MARK, 1)
    name = rest.split("\n", 1)[0]
    passes: tuple[Pass, ...] = PASSES[name]
    after = run_pipeline(parse_module(before, file=path.name), passes)
    check_golden(path, f"{before}{MARK}{name}\n\n{print_module(after)}")

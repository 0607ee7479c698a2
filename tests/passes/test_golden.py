"""Golden files: each `*.ir` has a module, a line `# after <pass>`, and the expected output of the pass.

Names are no part of a function's identity, so a derived function may bear the name of an equal one that another test
made: all but the module's own functions are numbered in the expected text.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from livegrad.compiler import VALUE_PASSES, passes_for
from livegrad.ir.text import parse_module, print_module
from livegrad.passes.pipeline import Pass, run_passes
from livegrad.schedule.target import PORTABLE

GOLDEN = sorted(Path(__file__).parent.glob("*.ir"))
PASSES = {step.name: (step,) for step in VALUE_PASSES} | {"pipeline": passes_for(PORTABLE)[0]}
SIZES = {"n": 6}
MARK = "\n# after "
NAME = re.compile(r'@("(?:[^"\\]|\\.)*"|[\w.]+)')


def numbered(text: str) -> str:
    """The text with internal functions renamed in order of appearance."""
    inner = [NAME.findall(line)[0] for line in text.splitlines() if line.startswith("function ")]
    names = {name: f"inner{number}" for number, name in enumerate(inner)}
    return NAME.sub(lambda match: "@" + names.get(match[1], match[1]), text)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_pass_makes_the_expected_text(path: Path, check_golden: Callable[[Path, str], None]) -> None:
    before, rest = path.read_text(encoding="utf-8").split(MARK, 1)
    name = rest.split("\n", 1)[0]
    passes: tuple[Pass, ...] = PASSES[name]
    after = run_passes(parse_module(before, file=path.name), passes, SIZES)
    check_golden(path, f"{before}{MARK}{name}\n\n{numbered(print_module(after))}")


def test_every_value_pass_has_a_golden_file() -> None:
    shown = {path.read_text(encoding="utf-8").split(MARK, 1)[1].split("\n", 1)[0] for path in GOLDEN}
    assert set(PASSES) == shown

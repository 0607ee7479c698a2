"""Golden files: each `*.ir` holds a module, a line `# after <pass>`, and the text that the pass must make of it.

Names are no part of a function's identity, so a derived function may bear the name of an equal one that another test
made: all but the module's own functions are numbered in the expected text.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from livegrad.ir.text import parse_module, print_module
from livegrad.passes.pipeline import PIPELINE, Pass, run_pipeline

GOLDEN = sorted(Path(__file__).parent.glob("*.ir"))
PASSES = {step.name: (step,) for step in PIPELINE} | {"pipeline": PIPELINE}
MARK = "\n# after "
NAME = re.compile(r'@("(?:[^"\\]|\\.)*"|[\w.]+)')


def numbered(text: str) -> str:
    """The text with functions that are not exported renamed in the order in which they stand."""
    inner = [NAME.findall(line)[0] for line in text.splitlines() if line.startswith("function ")]
    names = {name: f"inner{number}" for number, name in enumerate(inner)}
    return NAME.sub(lambda match: "@" + names.get(match[1], match[1]), text)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_pass_makes_the_expected_text(path: Path, check_golden: Callable[[Path, str], None]) -> None:
    before, rest = path.read_text(encoding="utf-8").split(MARK, 1)
    name = rest.split("\n", 1)[0]
    passes: tuple[Pass, ...] = PASSES[name]
    after = run_pipeline(parse_module(before, file=path.name), passes)
    check_golden(path, f"{before}{MARK}{name}\n\n{numbered(print_module(after))}")

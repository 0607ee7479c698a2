"""prospero.vm, a text of 7,866 operations drawn as one implicit shape: reads the sample and makes its pixel grid.

The file is not part of this repository. The benchmark expects it next to the repository, and is skipped without it."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.sdf import Instruction, Program, round_to_float32

PATH = Path(__file__).resolve().parents[2] / "shared" / "samples" / "prospero.vm"
AXES = {"var-x": 0, "var-y": 1, "var-z": 2}


def missing() -> str | None:
    """Why the benchmark cannot run, or None when the sample is there."""
    return None if PATH.exists() else "the sample ../shared/samples/prospero.vm does not exist"


def parse(text: str) -> Program:
    """Lines of `name op operands`, `name const number` or `name var-x`; the last line is the result."""
    positions: dict[str, int] = {}
    instructions: list[Instruction] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, op, *rest = line.split()
        if op == "const":
            instruction = Instruction("literal", (), round_to_float32(float(rest[0])))
        elif op in AXES:
            instruction = Instruction("input", (), AXES[op])
        else:
            instruction = Instruction(op, tuple(positions[operand] for operand in rest))
        positions[name] = len(instructions)
        instructions.append(instruction)
    return Program(tuple(instructions), ())


def load() -> Program:
    return parse(PATH.read_text(encoding="utf-8"))


def grid(side: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """x to the right and y upwards over the square from -1 to 1, row by row from the top."""
    axis = np.linspace(-1, 1, side, dtype=np.float32)
    x, y = np.meshgrid(axis, axis[::-1])
    return x.reshape(-1).copy(), y.reshape(-1).copy()

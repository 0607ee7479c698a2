"""Every program of the suite by name, and the program of each row."""

from typing import Any

from benchmarks.tensors_gpu import algebra, arrays, attention, images, learning, simulation
from benchmarks.tensors_gpu.program import PREFIX, TEST, Program

MODULES: tuple[Any, ...] = (attention, images, arrays, learning, algebra, simulation)
OPERATIONS: list[Program] = [program for module in MODULES for program in module.PROGRAMS]
MODELS: list[Program] = [program for module in MODULES for program in getattr(module, "MODELS", ())]
PROGRAMS: dict[str, Program] = {program.name: program for program in (*OPERATIONS, *MODELS)}
ROWS: dict[str, Program] = {row: program for program in PROGRAMS.values() for row in program.row_names()}
TEST_ROWS: dict[str, Program] = {f"{PREFIX}{name}_{TEST}": program for name, program in PROGRAMS.items()}


def program_of(row: str) -> Program:
    return TEST_ROWS[row] if row in TEST_ROWS else ROWS[row]

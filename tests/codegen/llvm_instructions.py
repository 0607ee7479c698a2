"""Parses LLVM modules into instructions, so that tests count instructions instead of searching text."""

from collections.abc import Iterator
from typing import NamedTuple

import llvmlite.binding as llvm


class Instruction(NamedTuple):
    """One instruction. Its type is that of its result; for a store, that of the stored value."""

    opcode: str
    type: str
    callee: str  # empty unless it is a call
    block: str
    has_constants: bool  # among its operands
    is_non_temporal: bool


def instructions(module: str) -> list[Instruction]:
    """All instructions of a module, in order. Parsing checks the module."""
    return list(_instructions(llvm.parse_assembly(module)))


def _instructions(module: llvm.ModuleRef) -> Iterator[Instruction]:
    for function in module.functions:
        for block in function.blocks:
            for instruction in block.instructions:
                operands = list(instruction.operands)
                callee = operands.pop().name if instruction.opcode == "call" else ""
                value = operands[0] if instruction.opcode == "store" else instruction
                has_constants = any(operand.is_constant for operand in operands)
                yield Instruction(
                    str(instruction.opcode),
                    str(value.type),
                    callee,
                    block.name,
                    has_constants,
                    is_non_temporal=instruction.opcode == "store" and "!nontemporal" in str(instruction),
                )


def calls(module: str, prefix: str) -> list[Instruction]:
    """The calls of functions or intrinsics whose names begin with a prefix."""
    return [instruction for instruction in instructions(module) if instruction.callee.startswith(prefix)]

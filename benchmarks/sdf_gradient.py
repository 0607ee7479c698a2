"""Expected gradients of the distance functions: handwritten reverse mode in NumPy, in float64.

Independent of livegrad's differentiation; the rules are those of the fourteen operations in `sdf`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import sdf

Array = NDArray[Any]
BLOCK = 1 << 14  # points at a time: temporaries stay in the cache

# From the cotangent of a result, the result and the operands: the cotangents of the operands.
RULES: dict[str, Callable[..., Sequence[Any]]] = {
    "add": lambda c, y, a, b: (c, c),
    "sub": lambda c, y, a, b: (c, -c),
    "mul": lambda c, y, a, b: (c * b, c * a),
    "sqrt": lambda c, y, a: (c * 0.5 / y,),
    "abs": lambda c, y, a: (c * np.sign(a),),
    "min": lambda c, y, a, b: (np.where(a < b, c, 0.0), np.where(a < b, 0.0, c)),
    "max": lambda c, y, a, b: (np.where(a > b, c, 0.0), np.where(a > b, 0.0, c)),
    "sin": lambda c, y, a: (c * np.cos(a),),
    "exp": lambda c, y, a: (c * y,),
    "log": lambda c, y, a: (c / a,),
    "tanh": lambda c, y, a: (c * (1 - y * y),),
    "pow": lambda c, y, a, b: (c * b * a ** (b - 1), c * y * np.log(a)),
}


def gradients(
    task: sdf.Program, points: Sequence[Array], operations: dict[str, Callable[..., Any]]
) -> tuple[Array, list[Array], Array]:
    """The values, their gradient by each coordinate, and the gradients by parameters, summed over all points."""
    count = points[0].size
    value, by_point = np.empty(count), [np.empty(count) for _ in points]
    by_parameter = np.zeros(len(task.parameters))
    for start in range(0, count, BLOCK):
        block = slice(start, start + BLOCK)
        block_points = [axis[block].astype(np.float64) for axis in points]
        # Inside a box, the square root of zero has an infinite derivative, which the select around it discards.
        with np.errstate(divide="ignore", invalid="ignore"):
            value[block], coordinates, parameters = _of_block(task, block_points, operations)
        for whole, part in zip(by_point, coordinates, strict=True):
            whole[block] = part
        by_parameter += parameters
    return value, by_point, by_parameter


def _of_block(
    task: sdf.Program, points: Sequence[Array], operations: dict[str, Callable[..., Any]]
) -> tuple[Array, list[Array], Array]:
    values: list[Any] = []
    leaves = {"input": points, "parameter": task.parameters}
    for instruction in task.instructions:
        if instruction.op == "literal":
            values.append(instruction.value)
        elif instruction.op in leaves:
            values.append(leaves[instruction.op][int(instruction.value)])
        else:
            values.append(operations[instruction.op](*(values[i] for i in instruction.operands)))
    cotangents: list[Any] = [0.0] * len(values)
    cotangents[-1] = np.ones_like(points[0])
    for position in reversed(range(len(values))):
        instruction = task.instructions[position]
        if instruction.op in sdf.LEAVES:
            continue
        operands = [values[i] for i in instruction.operands]
        for operand, part in zip(
            instruction.operands, RULES[instruction.op](cotangents[position], values[position], *operands), strict=True
        ):
            if task.instructions[operand].op != "literal":
                cotangents[operand] = cotangents[operand] + part
    by_leaf = {(i.op, int(i.value)): c for i, c in zip(task.instructions, cotangents, strict=True) if i.op in leaves}
    parameters = [np.sum(by_leaf[("parameter", index)]) for index in range(len(task.parameters))]
    return values[-1], [by_leaf[("input", axis)] for axis in range(3)], np.array(parameters)

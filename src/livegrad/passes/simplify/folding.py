"""Constant folding with the reference rule of each op, and helpers for rules on constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Node
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Scalar, Tensor, bf16, scalar_of
from livegrad.ops.aggregate import splat
from livegrad.ops.movement import broadcast

_FAILURES = (ZeroDivisionError, IndexError, OverflowError, AssertionError)


def fold_constants(node: Node) -> Node | None:
    """Replaces an op on constants by the constant that the reference computes; an op that fails is kept, and fails at
    run time.

    The same holds for tensors that are filled with one number each.
    """
    numbers: list[Any] = []
    for operand in node.operands:
        number = uniform_value(operand)
        if number is None:
            return None
        numbers.append(number)
    if not numbers or node.op.evaluate is None:
        return None
    type, scalar, operand_scalars = (
        node.type,
        scalar_of(node.type),
        [scalar_of(operand.type) for operand in node.operands],
    )
    if (
        not isinstance(type, Scalar | Tensor)
        or scalar is None
        or None in operand_scalars
        or bf16 in (scalar, *operand_scalars)
    ):
        return None  # the rules of bf16 work on what `lower_bfloat16` makes of it
    values = [
        each.dtype.type(number) for each, number in zip(operand_scalars, numbers, strict=True) if each is not None
    ]
    try:
        with np.errstate(all="ignore"):
            result = constant(scalar.dtype.type(node.op.evaluate(*values, **dict(node.attributes))), scalar)
    except _FAILURES:
        return None
    return broadcast(result, shape=type.shape, axes=()) if isinstance(type, Tensor) else result


def uniform_value(node: Node) -> Any:
    """The number that a constant, or a vector, matrix or tensor filled with one, has everywhere; None for others."""
    while node.op is broadcast or node.op is splat:
        (node,) = node.operands
    value = node.attribute("value") if node.op is constant_op else None
    return None if type(value) is SymbolicSize else value


def is_uniform(node: Node, number: float) -> bool:
    """Whether a real node equals this number everywhere; 0.0 and -0.0 are distinguished."""
    value = uniform_value(node)
    if value is None or isinstance(value, complex) or value != number:
        return False
    return math.copysign(1.0, value) == math.copysign(1.0, number)


def kind_of(node: Node) -> str | None:
    """The kind of a node's scalars; None for aggregates."""
    scalar = scalar_of(node.type)
    return None if scalar is None else scalar.kind

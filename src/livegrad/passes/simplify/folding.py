"""Constant folding by the reference evaluation of each op, and helpers for rules on constants."""

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
    """Replaces an op on constants, or on tensors of one constant, by the value that the reference computes.

    An op whose evaluation fails stays, and fails at run time.
    """
    constants: list[Any] = []
    for operand in node.operands:
        operand_value = uniform_value(operand)
        if operand_value is None:
            return None
        constants.append(operand_value)
    if not constants or node.op.evaluate is None:
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
        return None  # bf16 arithmetic is lowered before it is folded
    pairs = zip(operand_scalars, constants, strict=True)
    values = [operand_scalar.dtype.type(value) for operand_scalar, value in pairs if operand_scalar is not None]
    try:
        with np.errstate(all="ignore"):
            result = constant(scalar.dtype.type(node.op.evaluate(*values, **dict(node.attributes))), scalar)
    except _FAILURES:
        return None
    return broadcast(result, shape=type.shape, axes=()) if isinstance(type, Tensor) else result


def uniform_value(node: Node) -> Any:
    """The value of all elements of a constant, or of an aggregate or tensor of one constant; None for other nodes."""
    while node.op is broadcast or node.op is splat:
        (node,) = node.operands
    value = node.attribute("value") if node.op is constant_op else None
    return None if type(value) is SymbolicSize else value


def is_uniform(node: Node, number: float) -> bool:
    """Whether all elements of a node are this real number; distinguishes 0.0 and -0.0."""
    value = uniform_value(node)
    if value is None or isinstance(value, complex) or value != number:
        return False
    return math.copysign(1.0, value) == math.copysign(1.0, number)


def kind_of(node: Node) -> str | None:
    """The kind of a node's scalar type; None for aggregates."""
    scalar = scalar_of(node.type)
    return None if scalar is None else scalar.kind

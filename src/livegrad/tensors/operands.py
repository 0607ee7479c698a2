"""Promotes operands of tensor functions to a common element type, and checks kinds, axes and numbers.

Functions of the namespace call these first, so that errors point to the user's line.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, bool_, scalar_of
from livegrad.ops.comparison import not_equal
from livegrad.ops.conversion import cast
from livegrad.ops.movement import require_tensor
from livegrad.ops.rules import zero
from livegrad.tensors.axes_and_shapes import Axes, normalise_axes
from livegrad.tensors.dtypes import DEFAULT_FLOAT, default_type, promote_types, weak_type
from livegrad.tensors.errors import DtypeError
from livegrad.tensors.handle import Tensor, are_weak_numbers, convert_number, example_of, node_of


def element_of(node: Node) -> Scalar:
    """Returns the element type of a tensor's node."""
    return require_tensor(node.type).element


def as_type(node: Node, element: Scalar) -> Node:
    """Casts a node to an element type, unless it has it already."""
    return node if element_of(node) is element else cast(node, type=element)


def is_number(value: Any) -> bool:
    """Whether a value is a Python number, which takes the type of the tensor beside it."""
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)


def promote_operands(user: str, *values: Any) -> list[Node]:
    """Promotes operands to their common element type; each keeps its shape.

    >>> import livegrad as lg
    >>> [node.type for node in promote_operands("matmul", lg.ones((2, 3)), lg.ones(3, dtype=lg.float64))]
    [tensor<f64, [2, 3]>, tensor<f64, [3]>]
    """
    nodes = [None if are_weak_numbers(value) else node_of(value, user) for value in values]
    element: Scalar | None = None
    for node in nodes:
        if node is not None:
            element = element_of(node) if element is None else promote_types(element, element_of(node), user)
    for value in values:
        if are_weak_numbers(value):
            example = example_of(value) if isinstance(value, Tensor) else value
            element = default_type(example) if element is None else weak_type(example, element)
    assert element is not None
    converted_nodes = [
        convert_number(value, element) if node is None else as_type(node, element)
        for value, node in zip(values, nodes, strict=True)
    ]
    return [node for node in converted_nodes if node is not None]


def require_kinds(node: Node, user: str, *kinds: str) -> Node:
    """Returns the node; raises unless its kind is one of `kinds` (bool, signed, unsigned, float, complex)."""
    if element_of(node).kind not in kinds:
        raise DtypeError(
            f"`{user}` does not support {element_of(node)}",
            where=caller_origin(),
            expected=" or ".join(kinds),
            help="convert it with lg.astype",
        )
    return node


def sorted_axes(axis: Axes, rank: int, user: str) -> tuple[int, ...]:
    """Returns axes counted from the front and sorted, as reductions require: one, several, or for None all.

    >>> sorted_axes((-1, 0), 3, "sum")
    (0, 2)
    """
    return tuple(sorted(normalise_axes(axis, rank, user)))


def float_node(x: Any, user: str) -> Node:
    """Returns the node of an operand as floats; integers become float32."""
    node = require_kinds(node_of(x, user), user, "bool", "signed", "unsigned", "float")
    return node if element_of(node).kind == "float" else as_type(node, DEFAULT_FLOAT)


def require_integer(value: Any, user: str, role: str, minimum: int | None = None) -> int:
    """Converts an argument to an integer; raises if it is not an integer or below `minimum`.

    >>> import numpy as np
    >>> require_integer(np.int64(3), "diff", "n")
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"`{user}` takes an integer for {role}", where=caller_origin(), found=repr(value)) from None
    if minimum is not None and number < minimum:
        expected = f"at least {minimum}"
        raise UsageError(f"`{user}`: {role} is too small", where=caller_origin(), expected=expected, found=str(number))
    return number


def require_real(value: Any, user: str, role: str) -> float:
    """Converts an argument to a float; raises if it is not a real number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"`{user}` takes a number for {role}", where=caller_origin(), found=repr(value)) from None


def to_inexact(node: Node, user: str) -> Node:
    """Converts integers to floats of the default type; floats and complex numbers are returned unchanged."""
    scalar = scalar_of(node.type)
    assert scalar is not None
    if scalar.kind in ("float", "complex"):
        return node
    if scalar.kind == "bool":
        raise DtypeError(
            f"`{user}` takes numbers", where=caller_origin(), found="booleans", help="cast them with lg.astype"
        )
    return cast(node, type=DEFAULT_FLOAT)


def to_boolean(node: Node) -> Node:
    """Converts numbers to booleans, true unless zero; booleans are returned unchanged."""
    return node if scalar_of(node.type) is bool_ else not_equal(node, zero(node.type))

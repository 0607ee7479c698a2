"""Converts operands to the kind that an elementwise function works on."""

from __future__ import annotations

from livegrad.diagnostics import caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import bool_, scalar_of
from livegrad.ops.comparison import not_equal
from livegrad.ops.conversion import cast
from livegrad.ops.rules import zero
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.errors import DtypeError


def to_inexact(node: Node, user: str) -> Node:
    """Integers as floats of the default type; floats and complex numbers as they are."""
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
    """Truth values as they are; numbers are true unless they are zero."""
    return node if scalar_of(node.type) is bool_ else not_equal(node, zero(node.type))

"""Materialises tensors that are compared with their own extremum, so that all uses read the same bits.

The derivative of a maximum finds the elements that equal it. Recomputed elements may round differently (a product that
is fused into an addition in one kernel is rounded separately in another), and then none is equal. The scheduler
materialises what `compared_with_extrema` finds; `fuse` keeps their users out of their kernels.
"""

from __future__ import annotations

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, scalar_of
from livegrad.ir.walk import nodes_of
from livegrad.ops.comparison import equal, greater, greater_equal, less, less_equal, not_equal
from livegrad.ops.movement import broadcast, flip, pad, permute, reshape, slice_
from livegrad.ops.reduction import cumulative, reduce
from livegrad.schedule.materialise import root_kind

_COMPARISONS = frozenset((equal, not_equal, less, less_equal, greater, greater_equal))
_MOVES = frozenset((broadcast, permute, reshape, slice_, flip, pad))
_FOLDS = frozenset((reduce, cumulative))


def compared_with_extrema(function: Function) -> set[Node]:
    """Tensors of floats that would be part of the expressions of both sides of such a comparison."""
    compared: set[Node] = set()
    for node in nodes_of(function):
        if node.op in _COMPARISONS and isinstance(node.type, Tensor):
            (first, of_first), (second, of_second) = map(_source, node.operands)
            if first is second and (of_first or of_second) and _is_recomputed(first):
                compared.add(first)
    return compared


def _source(node: Node) -> tuple[Node, bool]:
    """Where a tensor's elements come from, and whether they are the largest or smallest there."""
    is_extremum = False
    while node.op in _MOVES or (node.op in _FOLDS and node.attribute("kind") in ("max", "min")):
        is_extremum = is_extremum or node.op in _FOLDS
        node = node.operands[0]
    return node, is_extremum


def _is_recomputed(node: Node) -> bool:
    scalar = scalar_of(node.type)
    return bool(node.operands) and scalar is not None and scalar.kind == "float" and root_kind(node) is None

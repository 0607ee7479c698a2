"""Finds tensors that are compared with their own extremum. They are materialised, so that all uses read the same bits.

The derivative of a maximum finds the elements that equal it. Recomputed elements may round differently if one kernel
fuses a product into an addition and another does not, and then no element is equal. `fuse` keeps the users of these
tensors out of the kernels that compute them. Expressions that have no products or no additions are recomputed.
"""

from __future__ import annotations

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, bf16, c64, c128, f16, scalar_of
from livegrad.ir.walk import nodes_of, toposort
from livegrad.ops.comparison import equal, greater, greater_equal, less, less_equal, not_equal
from livegrad.ops.elementwise import add, mul, sub
from livegrad.ops.movement import broadcast, flip, pad, permute, reshape, slice_
from livegrad.ops.reduction import cumulative, reduce
from livegrad.schedule.step_kinds import root_kind

_COMPARISONS = frozenset((equal, not_equal, less, less_equal, greater, greater_equal))
_MOVES = frozenset((broadcast, permute, reshape, slice_, flip, pad))
_REDUCTIONS = frozenset((reduce, cumulative))
_WIDENED = frozenset((f16, bf16, c64, c128))  # several ops of these may be rounded together


def find_compared_with_extrema(function: Function) -> set[Node]:
    """The float tensors that both sides of a comparison would recompute, one side for an extremum."""
    compared: set[Node] = set()
    for node in nodes_of(function):
        if node.op in _COMPARISONS and isinstance(node.type, Tensor):
            (first, first_is_extremum), (second, second_is_extremum) = map(_trace_source, node.operands)
            if first is second and (first_is_extremum or second_is_extremum) and _is_recomputed(first):
                compared.add(first)
    return compared


def _trace_source(node: Node) -> tuple[Node, bool]:
    """The tensor that has a node's elements, and whether these are extrema of it."""
    is_extremum = False
    while node.op in _MOVES or (node.op in _REDUCTIONS and node.attribute("kind") in ("max", "min")):
        is_extremum = is_extremum or node.op in _REDUCTIONS
        node = node.operands[0]
    return node, is_extremum


def _is_recomputed(node: Node) -> bool:
    """Whether kernels would recompute a node, and might round it differently."""
    scalar = scalar_of(node.type)
    if not node.operands or scalar is None or scalar.kind != "float" or root_kind(node) is not None:
        return False
    expression = [n for n in toposort([node], stop=_is_stored) if not _is_stored(n)]
    ops = {n.op for n in expression}
    if any(scalar_of(n.type) in _WIDENED for n in expression) or not all(op.elementwise or op in _MOVES for op in ops):
        return True
    return mul in ops and not ops.isdisjoint((add, sub))


def _is_stored(node: Node) -> bool:
    return not node.operands or root_kind(node) is not None

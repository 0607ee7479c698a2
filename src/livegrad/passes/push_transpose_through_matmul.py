"""The `push_transpose_through_matmul` pass: (a @ b)ᵀ becomes bᵀ @ aᵀ, whose operands libraries can read transposed.

Gradients with respect to transposed operands have this form.
"""

from __future__ import annotations

from collections import Counter

from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import shape_of
from livegrad.ir.walk import nodes_of, ops_in, substitute
from livegrad.ops.linalg import matmul, swap_last
from livegrad.ops.movement import permute


@propagates_lines
def push_transpose_through_matmul(function: Function) -> Function:
    """Rewrites `(a @ b)ᵀ` to `bᵀ @ aᵀ` if the product has no other use."""
    if not {matmul, permute} <= ops_in(function):
        return function
    nodes = nodes_of(function)
    uses = Counter([operand for node in nodes for operand in node.operands])
    uses.update(function.results)
    replacements: dict[Node, Node] = {}
    for node in nodes:
        if _is_transpose(node) and node.operands[0].op is matmul and uses[node.operands[0]] == 1:
            first, second = substitute(node.operands[0].operands, replacements)
            replacements[node] = matmul(_transpose(second), _transpose(first))
    if not replacements:
        return function
    return Function(function.name, function.parameters, substitute(function.results, replacements))


def _is_transpose(node: Node) -> bool:
    """Whether a node only swaps the last two dimensions."""
    if node.op is not permute:
        return False
    rank = len(shape_of(node.type))
    return rank >= 2 and node.attribute("axes") == (*range(rank - 2), rank - 1, rank - 2)


def _transpose(node: Node) -> Node:
    return node.operands[0] if _is_transpose(node) else swap_last(node)

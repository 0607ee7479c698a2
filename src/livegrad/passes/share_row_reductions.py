"""The `share_row_reductions` pass: prepares sibling-reduction fusion of a whole tensor and of its rows.

The tensor is reduced row by row first, so that one pass over memory serves both reductions: `fuse` puts reductions of
the same rows into one kernel.
"""

from __future__ import annotations

from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Tensor, f16
from livegrad.ir.walk import nodes_of, substitute, toposort
from livegrad.ops.movement import sizes
from livegrad.ops.reduction import reduce

# Rows that are worth a separate reduction: enough for many threads, each longer than the number of partial results.
_MIN_ROWS, _MIN_LENGTH = 64, 64


@propagates_lines
def share_row_reductions(function: Function) -> Function:
    """Rewrites `sum(x)` to a sum of row sums if another reduction sweeps the same rows of the same data."""
    reductions = [node for node in nodes_of(function) if node.op is reduce]
    by_row = [node for node in reductions if _is_by_row(node)]
    replacements: dict[Node, Node] = {}
    for node in reductions:
        sibling = next((row for row in by_row if _share_data(node, row)), None) if _is_whole(node) else None
        if sibling is not None:
            inner = sibling.attribute("axes")
            kind, (operand,) = node.attribute("kind"), substitute(node.operands, replacements)
            replacements[node] = reduce(reduce(operand, kind=kind, axes=inner), kind=kind, axes=tuple(range(inner[0])))
    if not replacements:
        return function
    return Function(function.name, function.parameters, substitute(function.results, replacements))


def _is_whole(node: Node) -> bool:
    """Whether a reduction to a scalar can be split: sums of f16 cannot, because partial sums must stay in f32."""
    type = node.operands[0].type
    assert isinstance(type, Tensor)
    return type.rank > 1 and len(node.attribute("axes")) == type.rank and type.element is not f16


def _is_by_row(node: Node) -> bool:
    shape, axes = sizes(node.operands[0]), node.attribute("axes")
    rows, length = shape[: len(shape) - len(axes)], shape[len(shape) - len(axes) :]
    return axes == tuple(range(len(rows), len(shape))) and prod(rows) >= _MIN_ROWS and prod(length) >= _MIN_LENGTH


def _share_data(whole: Node, by_row: Node) -> bool:
    """Whether both reductions sweep tensors of one shape that are computed elementwise from a common tensor."""
    if sizes(whole.operands[0]) != sizes(by_row.operands[0]):
        return False
    return not _find_sources(whole.operands[0]).isdisjoint(_find_sources(by_row.operands[0]))


def _find_sources(node: Node) -> set[Node]:
    """The tensors of the same shape that an elementwise expression reads."""
    shape = sizes(node)
    inside = toposort([node], stop=lambda below: not below.op.elementwise)
    return {below for below in inside if not below.op.elementwise and _has_shape(below, shape)}


def _has_shape(node: Node, shape: tuple[int, ...]) -> bool:
    return isinstance(node.type, Tensor) and sizes(node) == shape

"""Masks the terms of sums that are zero because a loop has not filled that part of a tensor yet.

In: the body of a loop that fills a tensor of zeros column by column, such as a factorisation. In iteration j, columns
from j on are zero, and so are products with them. At the mask, `split_index_sets` ends the loop over terms early.
"""

from __future__ import annotations

from livegrad.ir.function import map_results
from livegrad.ir.leaves import constant, constant_op, is_constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, i64
from livegrad.ir.walk import nodes_of
from livegrad.ops.assignment import assign, indices_of
from livegrad.ops.comparison import less
from livegrad.ops.control import for_loop
from livegrad.ops.elementwise import add, mul, select
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, iota, permute, reshape, sizes
from livegrad.ops.reduction import reduce
from livegrad.passes.regions import first_argument

Zeros = dict[int, Node]  # axis → the index from which on a tensor is zero along it


def mask_known_zeros(loop: Node, body: Function) -> Function:
    """Masks the zero terms of sums in the body of a loop."""
    if loop.op is not for_loop or loop.attribute("reverse"):
        return body
    zeros = {
        body.parameters[1 + position]: node_zeros for position, node_zeros in _find_filled_tensors(loop, body).items()
    }
    if not zeros:
        return body
    for node in nodes_of(body):
        node_zeros = _propagate_zeros(node, zeros)
        if node_zeros:
            zeros[node] = node_zeros

    def mask(node: Node) -> Node | None:
        if node.op is not reduce or node.attribute("kind") != "sum" or node.operands[0] not in zeros:
            return None
        terms, axes = node.operands[0], node.attribute("axes")
        node_zeros = [axis for axis in axes if axis in zeros[terms]]
        if len(axes) != 1 or not node_zeros or terms in body.parameters:
            return None
        (axis,), shape = node_zeros, sizes(terms)
        in_filled_part = less(iota(axis=axis, shape=shape, type=i64), _broadcast_scalar(zeros[terms][axis], shape))
        nothing = _broadcast_scalar(constant(0.0, terms.type.element), shape)  # type: ignore[union-attr]
        return reduce(select(in_filled_part, terms, nothing), kind="sum", axes=axes)

    return map_results(body, mask)


def _broadcast_scalar(scalar: Node, shape: tuple[int, ...]) -> Node:
    return broadcast(scalar, axes=(), shape=shape)


# --- tensors that a loop fills ---------------------------------------------------------------------------------------


def _find_filled_tensors(loop: Node, body: Function) -> dict[int, Zeros]:
    """The carried tensors that start as zeros and of which each iteration writes the next part: position → zeros."""
    filled: dict[int, Zeros] = {}
    first = first_argument(loop)
    for position, result in enumerate(body.results):
        parameter, start = body.parameters[1 + position], loop.operands[first + position]
        if _is_zero(start) and result.op is assign and result.operands[0] is parameter:
            indices = {axis: _as_loop_index(index, body.parameters[0]) for axis, index in enumerate(indices_of(result))}
            filled[position] = {axis: index for axis, index in indices.items() if index is not None}
    return {position: zeros_before for position, zeros_before in filled.items() if zeros_before}


def _is_zero(tensor: Node) -> bool:
    """Whether all elements are 0.0 by construction, and not -0.0."""
    if not isinstance(tensor.type, Tensor) or tensor.type.element.kind != "float":
        return False
    while tensor.op in (broadcast, reshape):
        (tensor,) = tensor.operands
    return is_constant(tensor, 0.0)


def _as_loop_index(index: Node, loop_index: Node) -> Node | None:
    """The index of a write as a scalar, if it is the loop index plus a non-negative constant; else None."""
    while index is not loop_index:
        if index.op in (broadcast, reshape) and len(index.operands) == 1:
            (index,) = index.operands
        elif index.op is select and _is_negative(index.operands[0], loop_index):
            index = index.operands[2]  # a loop index is never negative, so it never counts from the end
        elif index.op is add and index.operands[1].op is constant_op and index.operands[0] is loop_index:
            return index if index.operands[1].attribute("value") >= 0 else None
        else:
            return None
    return index


def _is_negative(condition: Node, loop_index: Node) -> bool:
    """Whether a condition is that a loop index is less than zero, which never holds."""
    if condition.op is not less:
        return False
    compared, zero = condition.operands
    while zero.op in (broadcast, reshape):
        (zero,) = zero.operands
    return is_constant(zero, 0) and _as_loop_index(compared, loop_index) is not None


# --- propagation of zeros --------------------------------------------------------------------------------------------


def _propagate_zeros(node: Node, zeros: dict[Node, Zeros]) -> Zeros:
    """Where a tensor is zero because its operands are: products and sums of zeros, and moved zeros."""
    if node in zeros:
        return zeros[node]
    if not node.operands or not isinstance(node.type, Tensor):
        return {}
    operand_zeros = zeros.get(node.operands[0], {})
    if node.op in (mul, add):
        second_zeros = zeros.get(node.operands[1], {})
        return {axis: index for axis, index in operand_zeros.items() if second_zeros.get(axis) is index}
    if node.op is broadcast:
        axes, source = node.attribute("axes"), node.operands[0]
        result_axes = {axis: axes[axis] for axis in operand_zeros if sizes(node)[axes[axis]] == sizes(source)[axis]}
        return {result_axes[axis]: index for axis, index in operand_zeros.items() if axis in result_axes}
    if node.op is permute:
        return {node.attribute("axes").index(axis): index for axis, index in operand_zeros.items()}
    if node.op is reshape:
        return _propagate_through_reshape(node, operand_zeros)
    if node.op is lookup:
        new_axes = {axis: _counting_axis(index) for axis, index in enumerate(indices_of(node))}
        return {new_axes[axis]: operand_zeros[axis] for axis in operand_zeros if new_axes[axis] is not None}  # type: ignore[misc]
    return {}


def _counting_axis(index: Node) -> int | None:
    """The axis along which an index counts up from zero."""
    return index.attribute("axis") if index.op is iota else None


def _propagate_through_reshape(node: Node, operand_zeros: Zeros) -> Zeros:
    """Where the result of a reshape that only adds or removes axes of size 1 is zero."""
    before, after = ([a for a, size in enumerate(sizes(n)) if size != 1] for n in (node.operands[0], node))
    if [sizes(node.operands[0])[a] for a in before] != [sizes(node)[a] for a in after]:
        return {}
    new_axes = dict(zip(before, after, strict=True))
    return {new_axes[axis]: index for axis, index in operand_zeros.items() if axis in new_axes}

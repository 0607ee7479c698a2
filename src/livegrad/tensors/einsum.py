"""Einstein summation, `einsum("ij,jk->ik", a, b)`: contracts operands pair by pair with matrix products.

A pair without a summed index is an elementwise product, which fuses with its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Size, size_product
from livegrad.ir.node import Node
from livegrad.ops.linalg import matmul
from livegrad.ops.matrices import diagonal_along
from livegrad.ops.movement import broadcast, permute, reshape
from livegrad.ops.reduction import reduce
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import Tensor, wrap
from livegrad.tensors.products import promote_numeric_operands, shape_of_node

Axis = str  # a letter, or "0", "1", … for the dimensions of an ellipsis, counted from the last one


@dataclass(frozen=True)
class _Term:
    """A factor of the product: a node with a distinct name for each dimension."""

    node: Node
    axes: tuple[Axis, ...]


def einsum(subscripts: str, /, *operands: Any) -> Tensor:
    """Computes a sum of products in Einstein notation: one letter per dimension; letters missing on the right are
    summed over.

    An ellipsis stands for dimensions that broadcast. Without `->`, the result has the ellipsis followed by every letter
    that occurs once, in alphabetical order.

    >>> import livegrad as lg
    >>> lg.einsum("ij,jk->ik", lg.ones((2, 3)), lg.ones((3, 4))).shape
    (2, 4)
    >>> lg.einsum("ii", lg.asarray([[1.0, 5.0], [7.0, 2.0]]))
    Tensor(3., dtype=float32)
    """
    nodes = promote_numeric_operands("einsum", *operands) if operands else []
    inputs, output = _parse(subscripts, [len(shape_of_node(node)) for node in nodes])
    sizes = _sizes(subscripts, inputs, nodes)
    terms = [
        _sum_unneeded(
            _take_diagonals(_broadcast_repeated_ones(node, axes, sizes), axes),
            _axes_of_others(inputs, position) | set(output),
        )
        for position, (node, axes) in enumerate(zip(nodes, inputs, strict=True))
    ]
    while len(terms) > 1:
        first, second = _cheapest_pair(terms, sizes)
        other_terms = [term for position, term in enumerate(terms) if position not in (first, second)]
        needed_axes = set(output).union(*(term.axes for term in other_terms))
        terms = [*other_terms, _contract(terms[first], terms[second], needed_axes)]
    (result,) = terms
    return wrap(_permute_term(result, output))


# --- subscripts ------------------------------------------------------------------------------------------------------


def _parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[tuple[Axis, ...]], tuple[Axis, ...]]:
    """Parses subscripts to the dimension names of each operand and of the result."""
    text = subscripts.replace(" ", "") if isinstance(subscripts, str) else ""
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks) or not ranks:
        raise _subscript_error(subscripts, f"{len(terms)} terms for {len(ranks)} operands")
    inputs = [_axes(term, rank, subscripts) for term, rank in zip(terms, ranks, strict=True)]
    ellipsis_axes = sorted({axis for axes in inputs for axis in axes if axis.isdigit()}, key=int, reverse=True)
    if not arrow:
        letters = [axis for axes in inputs for axis in axes if not axis.isdigit()]
        return inputs, (*ellipsis_axes, *sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    before, ellipsis, after = right.partition("...")
    output = (*before, *(ellipsis_axes if ellipsis else ()), *after)
    input_axes = {axis for axes in inputs for axis in axes}
    if not re.fullmatch("[A-Za-z]*", before + after) or len(set(output)) != len(output):
        raise _subscript_error(
            subscripts, f"the result `{right}` repeats a letter, or contains a character that is not one"
        )
    if ellipsis_axes and not ellipsis:
        raise _subscript_error(subscripts, "the result omits the ellipsis", help="write ... on the right, or sum first")
    if not input_axes.issuperset(output):
        raise _subscript_error(subscripts, f"the result names `{min(set(output) - input_axes)}`, which no operand has")
    return inputs, output


def _axes(term: str, rank: int, subscripts: str) -> tuple[Axis, ...]:
    before, ellipsis, after = term.partition("...")
    letters = before + after
    if not re.fullmatch("[A-Za-z]*", letters):
        raise _subscript_error(subscripts, f"`{term}` must consist of letters and at most one ellipsis")
    if len(letters) > rank or (not ellipsis and len(letters) != rank):
        raise _subscript_error(subscripts, f"`{term}` names {len(letters)} dimensions of a tensor with {rank}")
    return (*before, *(str(index) for index in reversed(range(rank - len(letters)))), *after)


def _subscript_error(subscripts: Any, problem: str, help: str | None = None) -> UsageError:
    return UsageError(f"`einsum` cannot read {subscripts!r}", where=caller_origin(), found=problem, help=help)


def _sizes(subscripts: str, inputs: Sequence[tuple[Axis, ...]], nodes: Sequence[Node]) -> dict[Axis, Size]:
    """Returns the size of each named dimension; a size of one broadcasts."""
    sizes: dict[Axis, Size] = {}
    for axes, node in zip(inputs, nodes, strict=True):
        for axis, size in zip(axes, shape_of_node(node), strict=True):
            size_before = sizes.get(axis, 1)
            if size_before != 1 and size not in (1, size_before):
                name = f"dimension {axis} of the ellipsis, from the last," if axis.isdigit() else f"`{axis}`"
                shapes = " and ".join(str(shape_of_node(batch_sizes)) for batch_sizes in nodes)
                raise ShapeError(
                    f"`einsum` got two sizes for {name} of {subscripts!r}",
                    where=caller_origin(),
                    found=f"{size_before} and {size} in shapes {shapes}",
                )
            sizes[axis] = size if size_before == 1 else size_before
    return sizes


def _axes_of_others(inputs: Sequence[tuple[Axis, ...]], position: int) -> set[Axis]:
    return {axis for index, axes in enumerate(inputs) if index != position for axis in axes}


# --- one term --------------------------------------------------------------------------------------------------------


def _broadcast_repeated_ones(node: Node, axes: tuple[Axis, ...], sizes: dict[Axis, Size]) -> Node:
    """Broadcasts dimensions of size one whose letter repeats within the operand, so that it has a diagonal."""
    shape = shape_of_node(node)
    full = tuple(sizes[a] if axes.count(a) > 1 else size for a, size in zip(axes, shape, strict=True))
    return node if full == shape else broadcast(node, shape=full, axes=tuple(range(len(full))))


def _take_diagonals(node: Node, axes: tuple[Axis, ...]) -> _Term:
    """Takes the diagonal for repeated letters, one pair of dimensions at a time."""
    while len(set(axes)) != len(axes):
        last = next(i for i in reversed(range(len(axes))) if axes.index(axes[i]) != i)
        first = axes.index(axes[last])
        if last != first + 1:
            order = (*range(first + 1), last, *(i for i in range(first + 1, len(axes)) if i != last))
            node = permute(node, axes=order)
        node = diagonal_along(node, first)
        axes = axes[:last] + axes[last + 1 :]
    return _Term(node, axes)


def _sum_unneeded(term: _Term, needed_axes: set[Axis]) -> _Term:
    """Sums a term over the dimensions that nothing else needs."""
    summed_axes = tuple(index for index, axis in enumerate(term.axes) if axis not in needed_axes)
    if not summed_axes:
        return term
    return _Term(
        reduce(term.node, kind="sum", axes=summed_axes), tuple(axis for axis in term.axes if axis in needed_axes)
    )


# --- two terms -------------------------------------------------------------------------------------------------------


def _cheapest_pair(terms: Sequence[_Term], sizes: dict[Axis, Size]) -> tuple[int, int]:
    """Returns the pair with the fewest multiplications; the first two terms if sizes are symbolic."""
    pairs = list(combinations(range(len(terms)), 2))
    if len(pairs) == 1 or not all(isinstance(size, int) for size in sizes.values()):
        return pairs[0]

    def work(pair: tuple[int, int]) -> Any:
        return size_product(tuple(sizes[axis] for axis in {*terms[pair[0]].axes, *terms[pair[1]].axes}))

    return min(pairs, key=work)


def _contract(first: _Term, second: _Term, needed_axes: set[Axis]) -> _Term:
    """Multiplies two terms and sums over dimensions that are no longer needed."""
    # A dimension of size one that broadcasts against the other term is no dimension of the matrix product.
    first, second = _drop_broadcast_ones(first, second), _drop_broadcast_ones(second, first)
    summed = tuple(axis for axis in first.axes if axis in second.axes and axis not in needed_axes)
    first = _sum_unneeded(first, needed_axes | set(second.axes))
    second = _sum_unneeded(second, needed_axes | set(first.axes))
    batch = tuple(axis for axis in first.axes if axis in second.axes and axis in needed_axes)
    rows = tuple(axis for axis in first.axes if axis not in batch and axis not in summed)
    columns = tuple(axis for axis in second.axes if axis not in batch and axis not in summed)
    axes = (*batch, *rows, *columns)
    sizes = {**_sizes_of(second), **_sizes_of(first)}
    if not summed:
        shape = tuple(sizes[axis] for axis in axes)
        return _Term(
            _broadcast_term(first, batch + rows, axes, shape) * _broadcast_term(second, batch + columns, axes, shape),
            axes,
        )

    def total(names: tuple[Axis, ...]) -> Size:
        return size_product(tuple(sizes[axis] for axis in names))

    batch_sizes = tuple(sizes[axis] for axis in batch)
    left = reshape(_permute_term(first, batch + rows + summed), shape=(*batch_sizes, total(rows), total(summed)))
    right = reshape(
        _permute_term(second, batch + summed + columns), shape=(*batch_sizes, total(summed), total(columns))
    )
    return _Term(reshape(matmul(left, right), shape=tuple(sizes[axis] for axis in axes)), axes)


def _broadcast_term(term: _Term, order: tuple[Axis, ...], axes: tuple[Axis, ...], shape: tuple[Size, ...]) -> Node:
    """Permutes a term to this order of dimensions and broadcasts it over the dimensions of the product."""
    return broadcast(_permute_term(term, order), shape=shape, axes=tuple(axes.index(axis) for axis in order))


def _sizes_of(term: _Term) -> dict[Axis, Size]:
    return dict(zip(term.axes, shape_of_node(term.node), strict=True))


def _drop_broadcast_ones(term: _Term, other: _Term) -> _Term:
    """Drops the dimensions of size one that broadcast against the other term."""
    sizes, other_sizes = _sizes_of(term), _sizes_of(other)
    kept_axes = tuple(axis for axis in term.axes if not (sizes[axis] == 1 and other_sizes.get(axis, 1) != 1))
    return (
        _Term(reshape(term.node, shape=tuple(sizes[axis] for axis in kept_axes)), kept_axes)
        if kept_axes != term.axes
        else term
    )


def _permute_term(term: _Term, axes: tuple[Axis, ...]) -> Node:
    order = tuple(term.axes.index(axis) for axis in axes)
    return term.node if order == tuple(range(len(order))) else permute(term.node, axes=order)

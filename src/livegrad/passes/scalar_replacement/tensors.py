"""Rules of scalar replacement for tensor ops: each computes the elements of a small result as scalar nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce as reduce_sequence
from math import prod
from types import MappingProxyType

import numpy as np

from livegrad.ir.leaves import constant
from livegrad.ir.node import Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Tensor, f32, i64
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import equal
from livegrad.ops.control import check
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import add, select
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, concatenate, flip, iota, pad, permute, reshape, slice_
from livegrad.ops.reduction import COMBINE, arg_reduce, fold_start, greatest, is_better, least, reduce
from livegrad.passes.index_maps import check_index
from livegrad.passes.scalar_replacement.values import (
    Elements,
    Memory,
    NotReplaced,
    Value,
    View,
    array_of,
    filled_with,
    load,
    require_small,
    scalar,
    static_shape,
    view_of,
)

Rule = Callable[[Node, Sequence[Value]], Value]


def replace_elementwise(node: Node, operands: Sequence[Value]) -> Value:
    """Applies an elementwise op to each element, with scalar operands broadcast."""
    if not isinstance(node.type, Tensor):
        return make_node(node.op, tuple(map(scalar, operands)), node.attributes)
    arrays = np.broadcast_arrays(*map(load, operands)) if operands else []
    shape = static_shape(node.type)
    rows = zip(*(array.reshape(-1) for array in arrays), strict=True)
    return array_of([make_node(node.op, row, node.attributes) for row in rows], shape)


def _move(node: Node, operands: Sequence[Value]) -> Value:
    """A movement op: NumPy moves the elements. A movement of a tensor in memory becomes a view of it."""
    (source,) = operands
    evaluate = node.op.evaluate
    assert evaluate is not None
    static_shape(node.type)
    if isinstance(source, Memory | View):
        view = view_of(source) if isinstance(source, Memory) else source
        if node.op is broadcast:
            require_small(static_shape(node.type))
        return View(view.memory, evaluate(view.positions, **dict(node.attributes)))
    require_small(static_shape(node.type))
    return evaluate(load(source), **dict(node.attributes))


def _concatenate(node: Node, operands: Sequence[Value]) -> Value:
    require_small(static_shape(node.type))
    return np.concatenate([load(operand) for operand in operands], axis=node.attribute("axis"))


def _pad(node: Node, operands: Sequence[Value]) -> Value:
    require_small(static_shape(node.type))
    assert pad.evaluate is not None
    return pad.evaluate(load(operands[0]), filled_with(scalar(operands[1])), **dict(node.attributes))


def _iota(node: Node, operands: Sequence[Value]) -> Value:
    shape, axis, type = static_shape(node.type), node.attribute("axis"), node.attribute("type")
    require_small(shape)
    row = array_of([constant(index, type) for index in range(shape[axis])], (shape[axis],))
    return np.broadcast_to(row.reshape([-1 if dimension == axis else 1 for dimension in range(len(shape))]), shape)


# --- reductions ------------------------------------------------------------------------------------------------------


def _to_rows(elements: Elements, axes: Sequence[int]) -> tuple[Elements, tuple[int, ...]]:
    """The elements as one row for each result, along the reduced axes, and the shape of the result."""
    result_axes = [axis for axis in range(elements.ndim) if axis not in axes]
    shape = tuple([elements.shape[axis] for axis in result_axes])
    counts = [prod(elements.shape[axis] for axis in group) for group in (result_axes, axes)]  # an axis may be empty
    return np.transpose(elements, (*result_axes, *axes)).reshape(counts), shape


def _reduce(node: Node, operands: Sequence[Value]) -> Value:
    kind, elements = node.attribute("kind"), load(operands[0])
    rows, shape = _to_rows(elements, node.attribute("axes"))
    element: Scalar = node.type.element  # type: ignore[attr-defined]
    return array_of([reduce_row(list(row), kind, element) for row in rows], shape)


def reduce_row(row: Sequence[Node], kind: str, element: Scalar) -> Node:
    """Reduces scalars in order; sums and products of half-precision floats are computed in float32."""
    if kind in ("max", "min") and len(row) > 2:
        return (greatest if kind == "max" else least)(*row)  # a chain of maximum would split gradients of ties unevenly
    wide = f32 if element.name in ("f16", "bf16") and kind in ("sum", "prod") else element
    # A sum always starts from +0, so that a sum of -0 is +0. Others need a start only if the row is empty.
    start = [constant(fold_start(kind, wide), wide)] if kind == "sum" or not row else []
    total = reduce_sequence(COMBINE[kind], [*start, *(_cast(scalar, wide) for scalar in row)])
    return _cast(total, element)


def _cast(node: Node, type: Scalar) -> Node:
    return node if node.type is type else cast(node, type=type)


def _arg_reduce(node: Node, operands: Sequence[Value]) -> Value:
    elements, largest = load(operands[0]), node.attribute("kind") == "argmax"
    rows, shape = _to_rows(elements, (node.attribute("axis"),))
    if not rows.size or elements.reshape(-1)[0].type.kind == "bool":
        raise NotReplaced
    return array_of([_cast(_find_extremum(row, largest), node.type.element) for row in rows], shape)  # type: ignore[attr-defined]


def _find_extremum(row: Elements, largest: bool) -> Node:
    """The position of the largest or smallest element."""
    best, position = row[0], constant(0, i64)
    for index, value in enumerate(row[1:], start=1):
        better = is_better(value, best, largest)
        best, position = select(better, value, best), select(better, constant(index, i64), position)
    return position


def _matmul(node: Node, operands: Sequence[Value]) -> Value:
    first, second = load(operands[0]), load(operands[1])
    shape, inner = static_shape(node.type), first.shape[-1]
    require_small((*shape, inner))
    element: Scalar = node.type.element  # type: ignore[attr-defined]
    left = np.broadcast_to(first, (*shape[:-2], *first.shape[-2:]))
    right = np.broadcast_to(second, (*shape[:-2], *second.shape[-2:]))
    result = np.empty(shape, object)
    for index in np.ndindex(shape):
        (*batch, row, column) = index
        pairs = zip(left[(*batch, row)], right[(*batch, slice(None), column)], strict=True)
        result[index] = reduce_row([a * b for a, b in pairs], "sum", element)
    return result


# --- indices ---------------------------------------------------------------------------------------------------------


def _lookup(node: Node, operands: Sequence[Value]) -> Value:
    source, *indices = operands
    if not indices:
        return scalar(source)
    if not isinstance(node.type, Tensor):
        return _read_element(node, source, [scalar(index) for index in indices])
    arrays = [load(index) for index in indices]
    multi_indices = zip(*(array.reshape(-1) for array in arrays), strict=True)
    return array_of([_read_element(node, source, list(index)) for index in multi_indices], arrays[0].shape)


def _read_element(node: Node, source: Value, index: list[Node]) -> Node:
    if isinstance(source, Memory):
        prefix = len(source.prefix)
        proven = node.attribute("in_range") if "in_range" in dict(node.attributes) else ()
        attributes = {"in_range": (*range(prefix), *(prefix + axis for axis in proven))} if proven or prefix else {}
        return lookup(source.tensor, *source.prefix, *index, **attributes)
    constants = [constant_integer(i) for i in index]
    shape = source.positions.shape if isinstance(source, View) else load(source).shape
    if isinstance(source, View) and all(i is not None and 0 <= i < n for i, n in zip(constants, shape, strict=True)):
        return load(View(source.memory, source.positions[tuple(constants)].reshape(()))).item()  # type: ignore[arg-type]
    elements = load(source)
    for axis, coordinate in enumerate(index):
        elements = _select_index(elements, coordinate, axis)
    return elements.item()


def _select_index(elements: Elements, position: Node, axis: int) -> Elements:
    """Selects the elements at a computed index into the first dimension."""
    size = elements.shape[0]
    if not size:
        raise NotReplaced
    position = check_index(position, size, axis)
    constant_position = constant_integer(position)
    if constant_position is not None:
        return elements[constant_position, ...]
    selected = elements[0, ...]
    for index in range(1, size):
        selected = select_elements(equal(position, index), elements[index, ...], selected)
    return selected


def select_elements(condition: Node, then: Elements, otherwise: Elements) -> Elements:
    pairs = zip(then.reshape(-1), otherwise.reshape(-1), strict=True)
    return array_of([select(condition, a, b) for a, b in pairs], then.shape)


def _lookup_or(node: Node, operands: Sequence[Value]) -> Value:
    source, otherwise, *indices = operands
    if not isinstance(source, Memory) or source.prefix:
        raise NotReplaced
    if not isinstance(node.type, Tensor):
        return lookup_or(source.tensor, scalar(otherwise), *map(scalar, indices))
    arrays = np.broadcast_arrays(*map(load, (otherwise, *indices)))
    reads = zip(*(array.reshape(-1) for array in arrays), strict=True)
    return array_of([lookup_or(source.tensor, *read) for read in reads], static_shape(node.type))


def _write(node: Node, operands: Sequence[Value]) -> Value:
    """A write at computed indices: a select for every element that an index may refer to."""
    base, updates, *indices = operands
    elements = load(base).copy()
    arrays = np.broadcast_arrays(*map(load, (updates, *indices)))
    for update, *index in zip(*(array.reshape(-1) for array in arrays), strict=True):
        bounds = enumerate(zip(index, elements.shape, strict=True))
        coordinates = [check_index(coordinate, size, axis) for axis, (coordinate, size) in bounds]
        for target in np.ndindex(elements.shape):
            old: Node = elements.item(*target)
            elements[target] = _update_element(node.op, old, update, coordinates, target)
    return elements


def _update_element(op: Op, old: Node, update: Node, coordinates: Sequence[Node], target: tuple[int, ...]) -> Node:
    """The element at `target` after an update at the index `coordinates`."""
    is_target: Node | None = None
    for coordinate, target_index in zip(coordinates, target, strict=True):
        constant_index = constant_integer(coordinate)
        if constant_index is not None and constant_index != target_index:
            return old
        if constant_index is None:
            is_equal = equal(coordinate, target_index)
            is_target = is_equal if is_target is None else is_target & is_equal
    new = update if op is assign else add(old, update)
    return new if is_target is None else select(is_target, new, old)


def _check(node: Node, operands: Sequence[Value]) -> Value:
    value, condition = operands
    holds, message = scalar(condition), node.attribute("message")
    if not isinstance(node.type, Tensor):
        return check(scalar(value), holds, message=message)
    elements = load(value)
    return array_of([check(element, holds, message=message) for element in elements.reshape(-1)], elements.shape)


TENSOR_RULES: Mapping[Op, Rule] = MappingProxyType(
    {
        **dict.fromkeys((broadcast, reshape, permute, slice_, flip), _move),
        concatenate: _concatenate, pad: _pad, iota: _iota, reduce: _reduce, arg_reduce: _arg_reduce, matmul: _matmul,
        lookup: _lookup, lookup_or: _lookup_or, assign: _write, scatter_add: _write, check: _check,
    }
)  # fmt: skip

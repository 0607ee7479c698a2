"""Indexing `x[key]` and indexed assignment of the tensor namespace.

Slices and integers become views; tensors of integers gather; masks are executed immediately, because the shape of the
result depends on their data. Assignment creates a new tensor and rebinds the handle to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import caller_origin
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import bool_, i64, shape_of
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import equal, greater_equal, less
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import mod, select
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, broadcast_to, flip, index_along, pad, reshape, slice_
from livegrad.ops.rules import filled, zero
from livegrad.tensors.broadcasting import broadcast_node_shapes, join_shapes
from livegrad.tensors.computed_slices import Window
from livegrad.tensors.creation import asarray, holds_tensors
from livegrad.tensors.deferred import integer_index
from livegrad.tensors.dtypes import common_type
from livegrad.tensors.errors import DtypeError, ShapeError
from livegrad.tensors.handle import Tensor, convert_number, node_of, wrap
from livegrad.tensors.index_keys import (
    Entry,
    Gap,
    Mask,
    Positions,
    Span,
    element_type,
    execute_mask,
    execute_scalar_mask,
    mask_node,
    parse_key,
    size_node,
)

# --- reading ---------------------------------------------------------------------------------------------------------


def get_item(x: Tensor, key: Any) -> Tensor:
    """Returns `x[key]`."""
    node = x.node
    shape = shape_of(node.type)
    if (key.__class__ is int or key.__class__ is tuple) and all(size.__class__ is int for size in shape):
        index = integer_index((), key, shape)
        if index is not None:
            return wrap(element_node(node, index))
    return wrap(read_entries(node, parse_key(key, shape)))


def read_entries(node: Node, entries: Sequence[Entry]) -> Node:
    """Reads the elements at the entries of a key: as a view if all are slices and integers, otherwise as a gather."""
    if all(isinstance(item, Span) for item, _ in entries):
        return read_spans(node, entries)
    gather = Gather(node, execute_masks(entries))
    return lookup(gather.source, *gather.indices())


def element_node(node: Node, index: tuple[int, ...]) -> Node:
    """Builds the node of `x[index]` for integers that are in range, equal to the node that `read_spans` builds."""
    shape = shape_of(node.type)
    count = len(index)
    size = (1,) * count + shape[count:]
    if size != shape:
        first = tuple(
            [position if position >= 0 else position + extent for position, extent in zip(index, shape, strict=False)]
        )
        node = slice_(node, start=first + (0,) * (len(shape) - count), size=size, step=(1,) * len(shape))
    return reshape(node, shape=shape[count:])


def read_spans(node: Node, entries: Sequence[Entry]) -> Node:
    spans = [(item, size) for item, size in entries if size is not None]
    sizes = tuple(item.count for item, _ in spans)  # type: ignore[union-attr]
    if not all(item.is_whole(size) or item.count == size == 1 for item, size in spans):  # type: ignore[union-attr]
        start = tuple(_lowest(item) for item, _ in spans)  # type: ignore[arg-type]
        node = slice_(node, start=start, size=sizes, step=tuple(abs(item.step) for item, _ in spans))  # type: ignore[union-attr]
        backward = tuple(axis for axis, (item, _) in enumerate(spans) if item.step < 0 and item.count != 1)  # type: ignore[union-attr]
        node = flip(node, axes=backward) if backward else node
    shape = tuple(item.count for item, _ in entries if item.keeps_axis)  # type: ignore[union-attr]
    return node if shape == sizes else reshape(node, shape=shape)


def _lowest(span: Span) -> Size:
    """Returns the start of a forward slice over the same positions."""
    if span.step > 0 or span.count == 0:
        return span.start if span.count != 0 else 0
    return span.start + (span.count - 1) * span.step


def execute_masks(entries: Sequence[Entry]) -> list[Entry]:
    """Executes masks and replaces them by the indices of their true elements."""
    result: list[Entry] = []
    for item, size in entries:
        if not isinstance(item, Mask):
            result.append((item, size))
        elif item.shape:
            result += [(Positions(node), extent) for node, extent in zip(execute_mask(item), item.shape, strict=True)]
        else:
            # A zero-dimensional mask selects the element of a new axis, or none.
            result.append((Positions(filled(0, TensorType(i64, (1 if execute_scalar_mask(item) else 0,)))), None))
    return result


class Gather:
    """Elements selected by index tensors along some axes and by spans along the others, in NumPy's order.

    Integers count as index tensors. Their common dimensions replace the first index tensor, or come first if a slice or
    a new axis separates the index tensors.
    """

    def __init__(self, node: Node, entries: Sequence[Entry]) -> None:
        positions = [position for position, (item, _) in enumerate(entries) if not _separates_indices(item)]
        adjacent = bool(positions) and positions == list(range(positions[0], positions[0] + len(positions)))
        self.first = sum(isinstance(item, Span | Window) for item, _ in entries[: positions[0]]) if adjacent else 0
        entries = self.entries = [(item, size) for item, size in entries if not isinstance(item, Gap)]
        sizes = iter(shape_of(node.type))
        expanded_shape = tuple(1 if size is None else next(sizes) for _, size in entries)
        self.source = node if expanded_shape == shape_of(node.type) else reshape(node, shape=expanded_shape)
        nodes = [item.node for item, _ in entries if isinstance(item, Positions)]
        self.index_shape = broadcast_node_shapes("index", *nodes)
        slice_shape = [item.count for item, _ in entries if isinstance(item, Span | Window) and item.keeps_axis]
        self.shape = (*slice_shape[: self.first], *self.index_shape, *slice_shape[self.first :])

    def indices(self) -> list[Node]:
        """Returns, for each axis of the source, the index of every element of the result."""
        index_type = TensorType(i64, self.shape)
        result: list[Node] = []
        end = self.first + len(self.index_shape)
        slot = 0
        for item, _ in self.entries:
            if isinstance(item, Positions):
                rank = len(shape_of(item.node.type))
                result.append(broadcast(item.node, shape=self.shape, axes=tuple(range(end - rank, end))))
                continue
            assert isinstance(item, Span | Window)
            start = (
                broadcast_to(item.start, self.shape) if isinstance(item, Window) else size_node(item.start, index_type)
            )
            if not item.keeps_axis:
                result.append(start)
                continue
            axis = slot if slot < self.first else slot + len(self.index_shape)
            slot += 1
            along = index_along(self.shape, axis)
            along = along if item.step == 1 else along * item.step
            result.append(along if item.start == 0 else along + start)
        return result


def _separates_indices(item: Any) -> bool:
    """Whether an item separates index tensors and is not one itself."""
    return isinstance(item, Gap) or (isinstance(item, Span | Window) and item.keeps_axis)


# --- assigning -------------------------------------------------------------------------------------------------------


def set_item(x: Tensor, key: Any, value: Any) -> Tensor:
    """Returns the tensor after `x[key] = value`. If an element is assigned several times, the last value counts."""
    new = convert_assigned_value(x.node, value)
    return wrap(write_entries(x.node, parse_key(key, x.shape), new))


def write_entries(node: Node, entries: Sequence[Entry], new: Node) -> Node:
    """Returns the tensor with new values at the entries of a key."""
    if all(isinstance(item, Span) for item, _ in entries):
        return write_spans(node, entries, new)
    mask = find_only_mask(entries)
    uniform_value = None if mask is None else reshape_uniform_value(new, mask, entries)
    if mask is not None and uniform_value is not None:
        return select_masked(node, mask, entries, uniform_value)
    return scatter_values(Gather(node, execute_masks(entries)), node, new)


def convert_assigned_value(node: Node, value: Any) -> Node:
    """Converts an assigned value to the tensor's element type; raises if the conversion is not allowed."""
    element = element_type(node)
    number = convert_number(value, element)
    if number is not None:
        return number
    if isinstance(value, list | tuple):  # NumPy keeps the precision of Python numbers
        value = asarray(value) if holds_tensors(value) else np.asarray(value)
    new = node_of(value, "assignment")
    value_element = element_type(new)
    if value_element is element:
        return new
    if common_type(value_element, element) is element or (
        value_element.kind == element.kind and element.kind in ("float", "complex")
    ):
        return cast(new, type=element)
    raise DtypeError(
        f"cannot assign {value_element.long_name} to a tensor of {element.long_name}",
        where=caller_origin(),
        help=f"cast the value with lg.astype(value, lg.{element.long_name})",
    )


def broadcast_assigned_value(value: Node, shape: tuple[Size, ...]) -> Node:
    value_shape = shape_of(value.type)
    # As in NumPy, a value may have extra leading dimensions of size one.
    while len(value_shape) > len(shape) and value_shape[0] == 1:
        value_shape = value_shape[1:]
    if value_shape != shape_of(value.type):
        value = reshape(value, shape=value_shape)
    if join_shapes("assignment", value_shape, shape) != shape:
        raise ShapeError(f"a value of shape {value_shape} cannot be assigned to shape {shape}", where=caller_origin())
    return broadcast_to(value, shape)


def write_spans(node: Node, entries: Sequence[Entry], value: Node) -> Node:
    spans = [(item, size) for item, size in entries if size is not None]
    slice_shape = tuple(item.count for item, _ in entries if item.keeps_axis)  # type: ignore[union-attr]
    value_node = broadcast_assigned_value(value, slice_shape)
    sizes = tuple(item.count for item, _ in spans)  # type: ignore[union-attr]
    if 0 in sizes:
        return node
    low = tuple(_lowest(item) for item, _ in spans)  # type: ignore[arg-type]
    if sizes != shape_of(node.type) and all(isinstance(first, int) for first in low):
        return _assign_spans(node, spans, value_node)
    values_node = value_node if slice_shape == sizes else reshape(value_node, shape=sizes)
    backward = tuple(axis for axis, (item, _) in enumerate(spans) if item.step < 0)  # type: ignore[union-attr]
    values_node = flip(values_node, axes=backward) if backward else values_node
    if sizes == shape_of(node.type):
        return values_node
    # A start that depends on a symbolic size: select between old and new at each element of the tensor.
    interior = tuple(0 if item.count == 1 else abs(item.step) - 1 for item, _ in spans)  # type: ignore[union-attr]
    used = [count + (count - 1) * between for count, between in zip(sizes, interior, strict=True)]
    high = tuple(size - a - n for (_, size), a, n in zip(spans, low, used, strict=True))  # type: ignore[operator]
    padded = pad(values_node, zero(element_type(node)), low=low, high=high, interior=interior)
    return select(_inside(node, spans), padded, node)


def _assign_spans(node: Node, sliced: Sequence[Entry], value: Node) -> Node:
    """Assigns values to slices by computing the index of each element along each axis."""
    spans = [item for item, _ in sliced if isinstance(item, Span)]
    shape = tuple(span.count for span in spans if span.keeps_axis)
    value = value if shape_of(value.type) == shape else reshape(value, shape=shape)
    backward = tuple(axis for axis, span in enumerate(filter(lambda span: span.keeps_axis, spans)) if span.step < 0)
    value = flip(value, axes=backward) if backward else value
    indices: list[Node] = []
    axis = 0
    for span in spans:
        index = size_node(_lowest(span), TensorType(i64, shape))
        if span.keeps_axis:
            along, step = index_along(shape, axis), abs(span.step)
            along = along if step == 1 else along * step
            index = along if _lowest(span) == 0 else along + index
            axis += 1
        indices.append(index)
    return assign(node, value, *indices)


def _inside(node: Node, spans: Sequence[Entry]) -> Node:
    """Returns a mask of the elements inside the spans."""
    shape = shape_of(node.type)
    inside: Node | None = None
    for axis, (item, size) in enumerate(spans):
        assert isinstance(item, Span)
        if item.count == size:
            continue
        along, low = index_along(shape, axis), _lowest(item)
        step = 1 if item.count == 1 else abs(item.step)
        first, end = (size_node(bound, along.type) for bound in (low, low + (item.count - 1) * step + 1))
        conditions = [greater_equal(along, first), less(along, end)]
        if step != 1:
            conditions.append(equal(mod(along - first, step), 0))
        for condition in conditions:
            inside = condition if inside is None else inside & condition
    return filled(True, TensorType(bool_, shape)) if inside is None else inside


def find_only_mask(entries: Sequence[Entry]) -> Mask | None:
    """Returns the mask of a key that has one mask and whole slices along the other axes; None for other keys."""
    masks = [item for item, _ in entries if isinstance(item, Mask)]
    others = [(item, size) for item, size in entries if not isinstance(item, Mask | Gap)]
    whole = all(isinstance(item, Span) and size is not None and item.is_whole(size) for item, size in others)
    return masks[0] if len(masks) == 1 and masks[0].shape and whole else None


def axes_before(mask: Mask, entries: Sequence[Entry]) -> int:
    """Counts the axes before those of the only mask."""
    items = [item for item, _ in entries if not isinstance(item, Gap)]
    return next(axis for axis, item in enumerate(items) if item is mask)


def reshape_uniform_value(value: Node, mask: Mask, entries: Sequence[Entry]) -> Node | None:
    """Reshapes a value that is the same for all selected elements so that it broadcasts over the mask's axes.

    Returns None if the value differs between selected elements.
    """
    shape = shape_of(value.type)
    after = sum(not isinstance(item, Gap) for item, _ in entries) - axes_before(mask, entries) - 1
    if len(shape) <= after:
        return value
    before, gather = shape[: len(shape) - after - 1], shape[len(shape) - after - 1]
    if gather != 1:
        return None
    return reshape(value, shape=(*before, *(1 for _ in mask.shape), *shape[len(shape) - after :]))


def select_masked(node: Node, mask: Mask, entries: Sequence[Entry], value: Node) -> Node:
    """Writes a uniform value where a mask is true, without executing the mask."""
    value_node = broadcast_assigned_value(value, shape_of(node.type))
    return node if 0 in mask.shape else select(mask_over(node, mask, entries), value_node, node)


def mask_over(node: Node, mask: Mask, entries: Sequence[Entry]) -> Node:
    """Broadcasts the only mask of a key to the shape of the tensor."""
    axis = axes_before(mask, entries)
    axes = tuple(range(axis, axis + len(mask.shape)))
    return broadcast(mask_node(mask), shape=shape_of(node.type), axes=axes)


def scatter_values(gather: Gather, node: Node, value: Node) -> Node:
    value_node = broadcast_assigned_value(value, gather.shape)
    if 0 in gather.shape:
        return node
    result = assign(gather.source, value_node, *gather.indices())
    return result if result.type is node.type else reshape(result, shape=shape_of(node.type))

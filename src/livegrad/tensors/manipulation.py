"""Manipulation functions of the tensor namespace: they move elements without changing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Dimension, Size, divide_exactly, size_product
from livegrad.ir.node import Node
from livegrad.ir.symbolic_size import as_integer
from livegrad.ir.types import shape_of
from livegrad.lazy.eviction import count_shape_from_data
from livegrad.ops import movement
from livegrad.tensors.axes_and_shapes import normalise_axes, normalise_axis, normalise_shape
from livegrad.tensors.broadcasting import broadcast_node_shapes, join_shapes
from livegrad.tensors.errors import AxisError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import promote_operands, require_integer
from livegrad.tensors.selection import take
from livegrad.tensors.updates import require_shift, roll_by_index

# --- broadcasting ----------------------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Any) -> tuple[Size, ...]:
    """Returns the shape that the shapes broadcast to.

    >>> import livegrad as lg
    >>> lg.broadcast_shapes((4, 1), (3,))
    (4, 3)
    """
    sizes = [normalise_shape(shape, "broadcast_shapes") for shape in shapes]
    return reduce(lambda first, second: join_shapes("broadcast_shapes", first, second), sizes, ())


def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """Broadcasts tensors to a common shape.

    >>> import livegrad as lg
    >>> [x.shape for x in lg.broadcast_arrays(lg.ones((4, 1)), lg.ones(3))]
    [(4, 3), (4, 3)]
    """
    nodes = [node_of(array, "broadcast_arrays") for array in arrays]
    shape = broadcast_node_shapes("broadcast_arrays", *nodes)
    return tuple(wrap(movement.broadcast_to(node, shape)) for node in nodes)


def broadcast_to(x: Any, /, shape: Any) -> Tensor:
    """Broadcasts a tensor to a shape.

    >>> import livegrad as lg
    >>> lg.broadcast_to(lg.asarray([1, 2]), (2, 2))
    Tensor([[1, 2],
            [1, 2]], dtype=int64)
    """
    node, target_shape = node_of(x, "broadcast_to"), normalise_shape(shape, "broadcast_to")
    old_shape = shape_of(node.type)
    if join_shapes("broadcast_to", old_shape, target_shape) != target_shape:
        raise ShapeError(f"shape {old_shape} does not broadcast to {target_shape}", where=caller_origin())
    return wrap(movement.broadcast_to(node, target_shape))


# --- shapes ----------------------------------------------------------------------------------------------------------


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """Changes the shape without copying. One size may be -1; it is computed from the others.

    >>> import livegrad as lg
    >>> lg.reshape(lg.arange(6), (2, -1)).shape
    (2, 3)
    """
    node = node_of(x, "reshape")
    old_shape = shape_of(node.type)
    sizes = _with_inferred_size(shape, old_shape)
    if size_product(sizes) != size_product(old_shape):
        raise ShapeError(
            f"a tensor of shape {old_shape} cannot be reshaped to {sizes}",
            where=caller_origin(),
            expected=f"{size_product(old_shape)} elements",
            found=str(size_product(sizes)),
        )
    return wrap(node if sizes == old_shape else movement.reshape(node, shape=sizes))


def _with_inferred_size(shape: Any, old_shape: tuple[Size, ...]) -> tuple[Size, ...]:
    sizes = tuple(shape) if isinstance(shape, Iterable) and not isinstance(shape, Tensor) else (shape,)
    inferred_axes = [i for i, size in enumerate(sizes) if not isinstance(size, Dimension) and _is_minus_one(size)]
    if not inferred_axes:
        return normalise_shape(sizes, "reshape")
    if len(inferred_axes) > 1:
        raise ShapeError("only one size can be -1", where=caller_origin(), found=repr(shape))
    (position,) = inferred_axes
    others = normalise_shape(sizes[:position] + sizes[position + 1 :], "reshape")
    remaining_size = size_product(others)
    inferred = None if remaining_size == 0 else divide_exactly(size_product(old_shape), remaining_size)
    if inferred is None:
        raise ShapeError(f"a tensor of shape {old_shape} cannot be reshaped to {sizes}", where=caller_origin())
    return (*others[:position], inferred, *others[position:])


def _is_minus_one(size: Any) -> bool:
    try:
        return as_integer(size) == -1
    except TypeError:
        return False


def expand_dims(x: Any, /, axis: int | Sequence[int] = 0) -> Tensor:
    """Adds dimensions of size one at these positions of the result.

    >>> import livegrad as lg
    >>> lg.expand_dims(lg.ones((2, 3)), axis=-1).shape
    (2, 3, 1)
    """
    node = node_of(x, "expand_dims")
    axes = axis if isinstance(axis, Sequence) else (axis,)
    old_shape, count = shape_of(node.type), len(axes)
    new_axes = normalise_axes(axes, len(old_shape) + count, "expand_dims")
    sizes = iter(old_shape)
    shape = tuple(1 if position in new_axes else next(sizes) for position in range(len(old_shape) + count))
    return wrap(movement.reshape(node, shape=shape))


def squeeze(x: Any, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Removes these dimensions, which must have size one; without an axis, removes all of them.

    >>> import livegrad as lg
    >>> lg.squeeze(lg.ones((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    node = node_of(x, "squeeze")
    shape = shape_of(node.type)
    if axis is None:
        removed_axes = tuple(position for position, size in enumerate(shape) if size == 1)
    else:
        removed_axes = normalise_axes(axis, len(shape), "squeeze")
    for position in removed_axes:
        if shape[position] != 1:
            raise ShapeError(
                f"`squeeze` cannot remove axis {position}",
                where=caller_origin(),
                expected="size 1",
                found=f"shape {shape}",
            )
    return wrap(
        movement.reshape(node, shape=tuple(size for position, size in enumerate(shape) if position not in removed_axes))
    )


# --- order of axes and elements --------------------------------------------------------------------------------------


def permute_dims(x: Any, /, axes: Sequence[int]) -> Tensor:
    """Permutes the dimensions.

    >>> import livegrad as lg
    >>> lg.permute_dims(lg.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    node = node_of(x, "permute_dims")
    rank = len(shape_of(node.type))
    order = normalise_axes(tuple(axes), rank, "permute_dims")
    if len(order) != rank:
        raise AxisError("`permute_dims` takes each axis once", where=caller_origin(), found=f"{axes} for {rank} axes")
    return wrap(movement.permute(node, axes=order))


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """Moves dimensions to new positions; the others keep their order.

    >>> import livegrad as lg
    >>> lg.moveaxis(lg.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    node = node_of(x, "moveaxis")
    rank = len(shape_of(node.type))
    sources, targets = normalise_axes(source, rank, "moveaxis"), normalise_axes(destination, rank, "moveaxis")
    if len(sources) != len(targets):
        raise AxisError(
            "`moveaxis` takes as many destinations as axes", where=caller_origin(), found=f"{source} and {destination}"
        )
    order = [axis for axis in range(rank) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return wrap(movement.permute(node, axes=tuple(order)))


def transpose_matrix(x: Any) -> Tensor:
    """Implements `x.T`, which the standard defines for matrices only."""
    node = node_of(x, "T")
    if len(shape_of(node.type)) != 2:
        help = "use .mT for stacks of matrices, lg.permute_dims for other orders"
        raise ShapeError("`.T` is for matrices", where=caller_origin(), found=f"shape {shape_of(node.type)}", help=help)
    return wrap(movement.permute(node, axes=(1, 0)))


def flip(x: Any, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverses the elements along some axes, or along all.

    >>> import livegrad as lg
    >>> lg.flip(lg.arange(3))
    Tensor([2, 1, 0], dtype=int64)
    """
    node = node_of(x, "flip")
    axes = normalise_axes(axis, len(shape_of(node.type)), "flip")
    return wrap(movement.flip(node, axes=axes) if axes else node)


def roll(x: Any, /, shift: int | Tensor | Sequence[int | Tensor], *, axis: int | Sequence[int] | None = None) -> Tensor:
    """Shifts the elements along axes (or in the flattened tensor); elements shifted past the end reappear at the start.

    A shift may be computed: an integer tensor without dimensions.

    >>> import livegrad as lg
    >>> lg.roll(lg.arange(5), 2)
    Tensor([3, 4, 0, 1, 2], dtype=int64)
    """
    node = node_of(x, "roll")
    shape = shape_of(node.type)
    shift_list = shift if isinstance(shift, Sequence) else (shift,)
    shifts = tuple(
        require_shift(each) if isinstance(each, Tensor) else require_integer(each, "roll", "a shift")
        for each in shift_list
    )
    if axis is None:
        flat = movement.reshape(node, shape=(size_product(shape),))
        return wrap(movement.reshape(_rolled(flat, sum(shifts), 0), shape=shape))
    # An axis may be repeated: the shifts add up.
    axes = [normalise_axis(each, len(shape), "roll") for each in (axis if isinstance(axis, Sequence) else (axis,))]
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(axes) == 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise UsageError("`roll` takes a shift for each axis", where=caller_origin(), found=f"{shift} and {axis}")
    for amount, position in zip(shifts, axes, strict=True):
        node = _rolled(node, amount, position)
    return wrap(node)


def _rolled(node: Node, shift: int | Tensor, axis: int) -> Node:
    size = shape_of(node.type)[axis]
    if isinstance(shift, Tensor):
        return roll_by_index(node, shift, axis)
    if isinstance(size, int):
        shift = shift % size if size else 0
    if shift == 0:
        return node
    cut = size - shift if shift > 0 else -shift
    return movement.concatenate(_part(node, axis, cut, size - cut), _part(node, axis, 0, cut), axis=axis)


def _part(node: Node, axis: int, start: Size, count: Size) -> Node:
    shape = shape_of(node.type)
    starts = tuple(start if position == axis else 0 for position in range(len(shape)))
    sizes = tuple(count if position == axis else size for position, size in enumerate(shape))
    return movement.slice_(node, start=starts, size=sizes, step=(1,) * len(shape))


# --- joining, splitting, repeating -----------------------------------------------------------------------------------


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """Joins tensors along an existing axis. With `axis=None` they are flattened first.

    >>> import livegrad as lg
    >>> lg.concat([lg.asarray([1, 2]), lg.asarray([3])])
    Tensor([1, 2, 3], dtype=int64)
    """
    nodes = _tensors(arrays, "concat")
    if axis is None:
        nodes = [movement.reshape(node, shape=(size_product(shape_of(node.type)),)) for node in nodes]
        axis = 0
    first = shape_of(nodes[0].type)
    position = normalise_axis(axis, len(first), "concat")
    for node in nodes[1:]:
        other = shape_of(node.type)
        if len(other) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(first, other, strict=True)) if i != position
        ):
            raise ShapeError(
                f"`concat` cannot join shapes {first} and {other}",
                where=caller_origin(),
                expected=f"equal sizes in all but axis {position}",
            )
    return wrap(nodes[0] if len(nodes) == 1 else movement.concatenate(*nodes, axis=position))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Tensor:
    """Joins tensors of the same shape along a new axis.

    >>> import livegrad as lg
    >>> lg.stack([lg.asarray([1, 2]), lg.asarray([3, 4])])
    Tensor([[1, 2],
            [3, 4]], dtype=int64)
    """
    nodes = _tensors(arrays, "stack")
    first = shape_of(nodes[0].type)
    for node in nodes[1:]:
        if shape_of(node.type) != first:
            raise ShapeError(f"`stack` cannot join shapes {first} and {shape_of(node.type)}", where=caller_origin())
    position = normalise_axis(axis, len(first) + 1, "stack")
    expanded = [movement.reshape(node, shape=(*first[:position], 1, *first[position:])) for node in nodes]
    return wrap(expanded[0] if len(expanded) == 1 else movement.concatenate(*expanded, axis=position))


def _tensors(arrays: Any, user: str) -> list[Node]:
    tensors = list(arrays) if isinstance(arrays, Iterable) else []
    if not tensors:
        raise UsageError(f"`{user}` needs tensors to join", where=caller_origin(), expected="a list of tensors")
    return promote_operands(user, *tensors)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Splits a tensor along an axis; the inverse of `stack`.

    >>> import livegrad as lg
    >>> lg.unstack(lg.asarray([[1, 2], [3, 4]]))
    (Tensor([1, 2], dtype=int64), Tensor([3, 4], dtype=int64))
    """
    node = node_of(x, "unstack")
    shape = shape_of(node.type)
    position = normalise_axis(axis, len(shape), "unstack")
    count = shape[position]
    if isinstance(count, Dimension):
        raise ShapeError("the number of parts must be static", where=caller_origin(), found=f"size {count}")
    part_shape = (*shape[:position], *shape[position + 1 :])
    return tuple(wrap(movement.reshape(_part(node, position, index, 1), shape=part_shape)) for index in range(count))


def tile(x: Any, repetitions: Sequence[int], /) -> Tensor:
    """Repeats the whole tensor along each axis.

    >>> import livegrad as lg
    >>> lg.tile(lg.asarray([1, 2]), (2, 2))
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], dtype=int64)
    """
    node, times = node_of(x, "tile"), normalise_shape(repetitions, "tile")
    shape = shape_of(node.type)
    rank = max(len(shape), len(times))
    sizes = (1,) * (rank - len(shape)) + shape
    times = (1,) * (rank - len(times)) + times
    pairs = tuple(zip(times, sizes, strict=True))
    expanded = movement.reshape(node, shape=tuple(size for _, own_size in pairs for size in (1, own_size)))
    expanded = movement.broadcast_to(expanded, tuple(size for pair in pairs for size in pair))
    return wrap(movement.reshape(expanded, shape=tuple(count * size for count, size in pairs)))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Repeats each element along an axis, or in the flattened tensor.

    A tensor of counts is computed immediately, because the shape of the result depends on it.

    >>> import livegrad as lg
    >>> lg.repeat(lg.asarray([1, 2]), 2)
    Tensor([1, 1, 2, 2], dtype=int64)
    """
    node = node_of(x, "repeat")
    if axis is None:
        node = movement.reshape(node, shape=(size_product(shape_of(node.type)),))
    shape = shape_of(node.type)
    position = normalise_axis(0 if axis is None else axis, len(shape), "repeat")
    if isinstance(repeats, Tensor):
        count_shape_from_data()
    counts = repeats.numpy() if isinstance(repeats, Tensor) else np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any():
        raise UsageError("`repeat` takes numbers of repetitions", where=caller_origin(), found=repr(repeats))
    if counts.size == 1:
        return wrap(_repeated(node, int(counts.reshape(-1)[0]), position))
    if counts.shape != (shape[position],):
        raise ShapeError(
            "`repeat` takes one number, or one for each element",
            where=caller_origin(),
            expected=f"shape ({shape[position]},)",
            found=f"shape {counts.shape}",
        )
    return take(wrap(node), np.repeat(np.arange(counts.size), counts), axis=position)


def _repeated(node: Node, count: int, axis: int) -> Node:
    shape = shape_of(node.type)
    expanded = movement.reshape(node, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    expanded = movement.broadcast_to(expanded, (*shape[: axis + 1], count, *shape[axis + 1 :]))
    return movement.reshape(expanded, shape=(*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))

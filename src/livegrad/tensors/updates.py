"""Functional updates `x.at[key].add(value)`, and slices with computed starts, of the tensor namespace.

If a key selects an element several times, `set` keeps the last value; the other updates combine all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livegrad import ops
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import i64, shape_of, u64
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import less
from livegrad.ops.control import make_for_loop
from livegrad.ops.elementwise import maximum, minimum, mod, select
from livegrad.ops.index_motion import are_distinct
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.movement import broadcast_to, index_along, reshape
from livegrad.ops.rules import filled
from livegrad.tensors.computed_slices import Window
from livegrad.tensors.errors import DtypeError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.index_keys import Entry, Mask, Positions, Span, element_type, parse_key, size_node
from livegrad.tensors.indexing import (
    Gather,
    broadcast_assigned_value,
    convert_assigned_value,
    execute_masks,
    find_only_mask,
    get_item,
    mask_over,
    read_entries,
    reshape_uniform_value,
    set_item,
    write_entries,
)
from livegrad.tensors.operands import as_type, require_integer, require_kinds

_NUMBERS = ("signed", "unsigned", "float", "complex")
_ORDERED = ("signed", "unsigned", "float")


class At:
    """The type of `x.at`: `x.at[key]` has the update methods.

    >>> import livegrad as lg
    >>> lg.arange(4).at[1:3].set(0)
    Tensor([0, 0, 0, 3], dtype=int64)
    """

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __getitem__(self, key: Any) -> AtKey:
        return AtKey(self._tensor, key)

    def __repr__(self) -> str:
        return f"{self._tensor!r}.at"


class AtKey:
    """Updates of a tensor at a key; each returns a new tensor.

    >>> import livegrad as lg
    >>> lg.asarray([1.0, 2.0]).at[0].mul(5.0)
    Tensor([5., 2.], dtype=float32)
    """

    __slots__ = ("_key", "_tensor")

    def __init__(self, tensor: Tensor, key: Any) -> None:
        self._tensor, self._key = tensor, key

    def get(self) -> Tensor:
        """Returns `x[key]`.

        >>> import livegrad as lg
        >>> lg.arange(4).at[2].get()
        Tensor(2, dtype=int64)
        """
        return get_item(self._tensor, self._key)

    def set(self, values: Any) -> Tensor:
        """Replaces elements. If an element gets several values, the last one counts.

        >>> import livegrad as lg
        >>> lg.zeros(3).at[lg.asarray([0, 2])].set([1.0, 2.0])
        Tensor([1., 0., 2.], dtype=float32)
        """
        return set_item(self._tensor, self._key, values)

    def add(self, values: Any) -> Tensor:
        """Adds to elements.

        >>> import livegrad as lg
        >>> lg.zeros(3).at[lg.asarray([0, 0, 2])].add(1.0)
        Tensor([2., 0., 1.], dtype=float32)
        """
        return self._combine(ops.add, values, "add", _NUMBERS)

    def mul(self, values: Any) -> Tensor:
        """Multiplies elements.

        >>> import livegrad as lg
        >>> lg.ones(3).at[lg.asarray([0, 0, 2])].mul(2.0)
        Tensor([4., 1., 2.], dtype=float32)
        """
        return self._combine(ops.mul, values, "mul", _NUMBERS)

    multiply = mul

    def max(self, values: Any) -> Tensor:
        """Replaces elements by larger values.

        >>> import livegrad as lg
        >>> lg.zeros(3).at[lg.asarray([0, 0, 2])].max([1.0, 4.0, -1.0])
        Tensor([4., 0., 0.], dtype=float32)
        """
        return self._combine(maximum, values, "max", _ORDERED)

    def min(self, values: Any) -> Tensor:
        """Replaces elements by smaller values.

        >>> import livegrad as lg
        >>> lg.zeros(3).at[lg.asarray([0, 0, 2])].min([1.0, -4.0, -1.0])
        Tensor([-4.,  0., -1.], dtype=float32)
        """
        return self._combine(minimum, values, "min", _ORDERED)

    def _combine(self, op: Op, values: Any, name: str, kinds: Sequence[str]) -> Tensor:
        node = require_kinds(self._tensor.node, f"at[...].{name}", *kinds)
        new = convert_assigned_value(node, values)
        return wrap(_update_entries(node, parse_key(self._key, shape_of(node.type)), new, op))


def _update_entries(node: Node, entries: Sequence[Entry], new: Node, op: Op) -> Node:
    """Returns the tensor with elements combined with new values."""
    mask = find_only_mask(entries)
    uniform_value = None if mask is None else reshape_uniform_value(new, mask, entries)
    if mask is not None and uniform_value is not None:
        value_node = broadcast_assigned_value(uniform_value, shape_of(node.type))
        return node if 0 in mask.shape else select(mask_over(node, mask, entries), op(node, value_node), node)
    if all(isinstance(item, Span) for item, _ in entries):
        before = read_entries(node, entries)
        return write_entries(node, entries, op(before, broadcast_assigned_value(new, shape_of(before.type))))
    gather = Gather(node, execute_masks(entries))
    value_node = broadcast_assigned_value(new, gather.shape)
    if 0 in gather.shape:
        return node
    # A mask selects no element twice.
    masks, tensors = ([item for item, _ in entries if isinstance(item, kind)] for kind in (Mask, Positions))
    distinct = len(masks) == 1 and not tensors
    updated = _combine_at(gather.source, value_node, gather.indices(), op, distinct)
    return reshape(updated, shape=shape_of(node.type)) if updated.type is not node.type else updated


def _combine_at(base: Node, updates: Node, indices: list[Node], op: Op, distinct: bool) -> Node:
    if op is ops.add:
        return scatter_add(base, updates, *indices)
    if distinct or are_distinct(indices):
        return assign(base, op(lookup(base, *indices), updates), *indices)
    count = updates_count(updates)
    updates, *indices = (reshape(value, shape=(count,)) for value in (updates, *indices))

    def step(number: Node, tensor: Node) -> Node:
        at = [lookup(index, number) for index in indices]
        return assign(tensor, op(lookup(tensor, *at), lookup(updates, number)), *at)

    (result,) = make_for_loop(constant(count, i64), step, base)
    return result


def updates_count(updates: Node) -> int:
    """Counts the elements to write, which a loop over them needs as a static number."""
    sizes = shape_of(updates.type)
    count = 1
    for size in sizes:
        if not isinstance(size, int):
            raise ShapeError(
                "updates of symbolic size at computed indices support only `set` and `add`",
                where=caller_origin(),
                found=f"shape {sizes}",
            )
        count *= size
    return count


# --- slices with computed starts -------------------------------------------------------------------------------------


def dynamic_slice(x: Any, /, starts: Any, sizes: Any) -> Tensor:
    """Returns a slice with `sizes` elements along each axis, beginning at `starts`, which may be computed.

    Negative starts count from the end. A slice that would leave the tensor is moved inside, as in JAX; `x[i:i + n]`
    raises instead.

    >>> import livegrad as lg
    >>> x = lg.arange(10)
    >>> lg.dynamic_slice(x, [lg.asarray(3)], [2]), lg.dynamic_slice(x, [9], [2])
    (Tensor([3, 4], dtype=int64), Tensor([8, 9], dtype=int64))
    """
    node = node_of(x, "dynamic_slice")
    size_list = sizes if isinstance(sizes, Sequence) else (sizes,)
    counts = [require_integer(size, "dynamic_slice", "a size", 0) for size in size_list]
    return wrap(read_entries(node, _clamp_slices(node, starts, counts, "dynamic_slice")))


def dynamic_update_slice(x: Any, /, update: Any, starts: Any) -> Tensor:
    """Returns the tensor with `update` written at `starts`, which may be computed, as in `dynamic_slice`.

    >>> import livegrad as lg
    >>> lg.dynamic_update_slice(lg.zeros(5), lg.ones(2), [lg.asarray(4)])
    Tensor([0., 0., 0., 1., 1.], dtype=float32)
    """
    node = node_of(x, "dynamic_update_slice")
    new = convert_assigned_value(node, update)
    counts = shape_of(new.type)
    return wrap(write_entries(node, _clamp_slices(node, starts, counts, "dynamic_update_slice"), new))


def _clamp_slices(node: Node, starts: Any, counts: Sequence[Any], user: str) -> list[Entry]:
    """Returns a slice along each axis, moved inside the tensor if necessary."""
    sizes = shape_of(node.type)
    if isinstance(starts, Tensor) and starts.ndim == 1 and isinstance(starts.shape[0], int):
        starts = [starts[number] for number in range(starts.shape[0])]
    start_list = list(starts) if isinstance(starts, Sequence) else [starts]
    if not len(start_list) == len(counts) == len(sizes):
        raise ShapeError(
            f"`{user}` takes a start and a size for each axis",
            where=caller_origin(),
            expected=f"{len(sizes)} for shape {sizes}",
            found=f"{len(start_list)} starts and {len(counts)} sizes",
        )
    for axis, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        if isinstance(count, int) and isinstance(size, int) and count > size:
            raise ShapeError(f"a slice of {count} does not fit axis {axis} of size {size}", where=caller_origin())
    entries: list[Entry] = []
    for start, count, size in zip(start_list, counts, sizes, strict=True):
        if not isinstance(start, Tensor) and isinstance(size, int):
            first = require_integer(start, user, "a start")
            first = max(0, min(first + size if first < 0 else first, size - count))
            entries.append((Span(first, count, 1), size))
        else:
            entries.append((Window(_start_inside(start, size, count, user), count, 1), size))
    return entries


def _start_inside(start: Any, size: Any, count: Any, user: str) -> Node:
    node = node_of(start, user)
    if shape_of(node.type) != () or element_type(node).kind not in ("signed", "unsigned"):
        found = f"{element_type(node).long_name} of shape {shape_of(node.type)}"
        raise DtypeError(f"`{user}` takes integers for starts", where=caller_origin(), found=found)
    if element_type(node) is u64:
        node = minimum(node, filled((1 << 63) - 1, node.type))  # larger starts are clamped anyway
    wide = as_type(node, i64)
    end = size_node(size, wide.type)
    first = select(less(wide, 0), wide + end, wide)
    return maximum(minimum(first, end - size_node(count, wide.type)), 0)


def require_shift(shift: Tensor) -> Tensor:
    """Returns a computed shift of `roll`; raises unless it is an integer without dimensions."""
    if shift.shape or shift.dtype.kind not in ("signed", "unsigned"):
        found = f"{shift.dtype.long_name} of shape {shift.shape}"
        raise UsageError("`roll` takes an integer for a shift", where=caller_origin(), found=found)
    return shift


def roll_by_index(node: Node, shift: Tensor, axis: int) -> Node:
    """Rolls a tensor along an axis by a computed shift, as a gather."""
    sizes = shape_of(node.type)
    if 0 in sizes:
        return node
    size = size_node(sizes[axis], TensorType(i64, ()))
    first = mod(-as_type(shift.node, i64), size)
    indices = [index_along(sizes, axis_index) for axis_index in range(len(sizes))]
    shifted, end = indices[axis] + broadcast_to(first, sizes), broadcast_to(size, sizes)
    indices[axis] = select(less(shifted, end), shifted, shifted - end)
    return lookup(node, *indices)

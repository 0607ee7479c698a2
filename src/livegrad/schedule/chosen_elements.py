"""Elements that are chosen among several expressions: padding or source, one part of a concatenation, old or new value.

Each function gets the expressions of all candidates at one index. A candidate may be read out of bounds where it is not
chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, i64, shape_of
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import equal, greater_equal, less
from livegrad.ops.control import check
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import mod, select
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup_or
from livegrad.ops.movement import sizes
from livegrad.ops.rules import zero
from livegrad.schedule.indexed_writes import ElementSelect
from livegrad.schedule.views import Affine, Index, bound_index, compose_affine

Position = Callable[[Index], Node]  # the value of an index as an i64 node

# --- padding ---------------------------------------------------------------------------------------------------------


def pad_source_index(node: Node, index: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """The index into the source of a pad, which may be out of bounds in the border; None if it always is."""
    source_index: list[Index] = []
    lows, highs = node.attribute("low"), node.attribute("high")
    for item, low, high, size in zip(index, lows, highs, sizes(node.operands[0]), strict=True):
        coordinate = compose_affine(item, -low, 1)
        if isinstance(coordinate, Affine) and (low or high):
            coordinate = bound_index(coordinate, size)
            if coordinate is None:
                return None
        source_index.append(coordinate)
    return tuple(source_index)


def select_padding(node: Node, operands: Sequence[Node], index: tuple[Index, ...], position: Position) -> Node:
    """The element of the source, or the padding value in the border."""
    source_index = pad_source_index(node, index)
    if source_index is None:
        return operands[0]
    (source, _), (value, fill) = node.operands, operands
    positions = [position(item) for item in source_index]
    if value.op is lookup_or and value.operands[2:] == tuple(positions):
        # The lookup checks the bounds of its buffer; they are those of the source if the shapes are equal.
        memory = value.operands[0]
        if shape_of(memory.type) == shape_of(source.type):
            return lookup_or(memory, fill, *positions)
    inside: Node | None = None
    for at, size, low, high in zip(
        positions, shape_of(source.type), node.attribute("low"), node.attribute("high"), strict=True
    ):
        if low or high:
            in_bounds = greater_equal(at, 0) & less(at, size)
            inside = in_bounds if inside is None else inside & in_bounds
    return value if inside is None else select(inside, value, fill)


# --- concatenation ---------------------------------------------------------------------------------------------------


def part_indices(node: Node, index: tuple[Index, ...]) -> list[tuple[Index, ...] | None]:
    """The index into each part of a concatenation; None for a part that does not have the element."""
    axis = node.attribute("axis")
    lengths = [sizes(part)[axis] for part in node.operands]
    found: list[tuple[Index, ...] | None] = []
    for start, length in zip(accumulate(lengths[:-1], initial=0), lengths, strict=True):
        at = compose_affine(index[axis], -start, 1)
        bounded = bound_index(at, length) if isinstance(at, Affine) else None
        found.append(None if bounded is None or length == 0 else (*index[:axis], bounded, *index[axis + 1 :]))
    return found


def select_part(node: Node, parts: Sequence[Node], index: tuple[Index, ...], position: Position) -> Node:
    """The element of the part that has it. Parts of one buffer, as in `roll`, are one read at the chosen position."""
    axis = node.attribute("axis")
    if not parts:
        assert isinstance(node.type, Tensor)
        return zero(node.type.element)  # at a fixed index out of bounds
    held = [part is not None for part in part_indices(node, index)]
    ends = [end for end, has in zip(accumulate(sizes(part)[axis] for part in node.operands), held, strict=True) if has]
    before = [less(position(index[axis]), constant(end, i64)) for end in ends[:-1]]
    if all(part.op is lookup_or and part.operands[:2] == parts[0].operands[:2] for part in parts):
        each = zip(*(part.operands[2:] for part in parts), strict=True)
        return lookup_or(*parts[0].operands[:2], *(_select_first(before, positions) for positions in each))
    return _select_first(before, parts)


def _select_first(conditions: Sequence[Node], values: Sequence[Node]) -> Node:
    """The value of the first condition that holds, else the last value."""
    chosen = values[-1]
    for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
        chosen = value if value is chosen else select(condition, value, chosen)
    return chosen


# --- writes ----------------------------------------------------------------------------------------------------------


def select_written(
    node: Node, choice: ElementSelect, operands: Sequence[Node], index: tuple[Index, ...], position: Position
) -> Node:
    """An element after a write: the written value if all indices match, else the old value."""
    before, value, *written_indices = operands
    is_written: Node | None = None
    for dimension, written_index in zip(choice.indexed_dimensions, written_indices, strict=True):
        wide = written_index if written_index.type is i64 else cast(written_index, type=i64)
        if constant_integer(wide) is None:
            size = constant(shape_of(node.type)[dimension], i64)
            inside = greater_equal(wide, 0) & less(wide, size)
            wide = check(wide, inside, message=f"index out of range for axis {dimension}")
        matches = equal(wide, position(index[dimension]))
        is_written = matches if is_written is None else is_written & matches
    for matches in _region_conditions(node, choice, index, position):
        is_written = matches if is_written is None else is_written & matches
    after = value if node.op is assign else before + value
    return after if is_written is None else select(is_written, after, before)


def _region_conditions(
    node: Node, choice: ElementSelect, index: tuple[Index, ...], position: Position
) -> Iterator[Node]:
    """The conditions under which an element is in the region that a write covers."""
    dimensions = zip(choice.dimensions, choice.starts, choice.steps, shape_of(node.operands[1].type), strict=True)
    for dimension, start, step, extent in dimensions:
        if dimension is not None and extent != shape_of(node.type)[dimension]:
            at = position(index[dimension])
            yield greater_equal(at, start) & less(at, start + (extent - 1) * step + 1)
            if step != 1:
                yield equal(mod(at - start, step), 0)

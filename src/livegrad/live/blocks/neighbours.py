"""Finds the exact neighbours of points within a radius, with a grid of cells and a sort.

In: positions of shape (n, 1..3) and a radius. Out: indices up to a capacity, and counts. Points are sorted by cell;
each point checks the cells around its own, whose points are contiguous in the sorted order. Cell ids are unbounded, so
the domain needs no size and ids do not collide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type, i64
from livegrad.live.blocks.bodies import TracedBody
from livegrad.live.blocks.search import integer, integer_tensor, search, take_rows
from livegrad.live.graph.block import Block
from livegrad.ops import select
from livegrad.ops.comparison import not_equal
from livegrad.ops.control import make_for_loop, make_while_loop
from livegrad.ops.indexing import lookup
from livegrad.ops.maps import make_map
from livegrad.passes.differentiate.tangents import result_nodes
from livegrad.tensors import namespace as xp
from livegrad.tensors.handle import Tensor, wrap

_KEY_BITS = 62


def neighbours(positions: Tensor, radius: Any, *, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Finds, for each point, the indices of all other points within `radius`.

    Returns the indices (n, capacity), in which unused slots hold the point's own index; the number of used slots of
    each point (n); and its number of neighbours (n), which may be larger. Indices have no derivative; values computed
    from the points at these indices do.

    >>> import livegrad as lg
    >>> points = lg.asarray([[0.0, 0.0], [0.5, 0.0], [2.0, 0.0]])
    >>> indices, count, _ = neighbours(points, 1.0, capacity=2)
    >>> indices
    Tensor([[1, 0],
            [0, 1],
            [2, 2]], dtype=int64)
    >>> count
    Tensor([1, 1, 0], dtype=int64)
    """
    _require_points(positions, capacity)
    if isinstance(radius, int | float) and not 0 < radius < math.inf:
        raise UsageError("not a radius", where=caller_origin(), expected="a finite number above 0", found=repr(radius))
    points, axes = positions.shape
    radius = xp.astype(xp.asarray(radius), positions.dtype) if isinstance(radius, Tensor) else radius
    key, strides = _cell_keys(positions, radius, axes)
    order = xp.argsort(key, stable=True)
    rows = list(product((-1, 0, 1), repeat=axes - 1))
    shifts = [
        integer_tensor(sum(shift * stride for shift, stride in zip(row, strides[1:], strict=True))) for row in rows
    ]
    indices = xp.arange(points, dtype=xp.int64)
    # Three cells along the first axis are contiguous in the sorted order: a point searches one run per row of cells.
    runs = xp.reshape(xp.stack([key + shift for shift in shifts], axis=1), (-1,))
    point_of_run = xp.reshape(xp.stack([indices] * len(rows), axis=1), (-1,))
    flat = xp.reshape(positions, (-1,))
    reach = xp.astype(xp.zeros_like(flat[0]) + radius * radius, positions.dtype)
    shared = (xp.sort(key), order, flat, reach)
    starts, hits = _map_elements(_count_in_run, [runs, point_of_run], shared, axes)
    before = xp.cumulative_sum(xp.reshape(hits, (points, len(rows))), axis=1)
    total = before[:, -1]
    slots = xp.broadcast_to(xp.reshape(xp.arange(capacity, dtype=xp.int64), (1, capacity)), (points, capacity))
    point_of_slot = xp.broadcast_to(xp.reshape(indices, (points, 1)), (points, capacity))
    lifted = [xp.reshape(slots, (-1,)), xp.reshape(point_of_slot, (-1,))]
    (neighbour_of_slot,) = _map_elements(
        _find_in_runs, lifted, (*shared[1:], starts, xp.reshape(before, (-1,))), axes, len(rows)
    )
    return xp.reshape(neighbour_of_slot, (points, capacity)), xp.minimum(total, integer_tensor(capacity)), total


def _require_points(positions: Tensor, capacity: int) -> None:
    if positions.ndim != 2 or positions.shape[1] not in (1, 2, 3) or positions.shape[0] == 0:
        raise UsageError(
            "neighbours can only be found among points",
            where=caller_origin(),
            expected="shape (n, 1), (n, 2) or (n, 3) with n above 0",
            found=str(positions.shape),
        )
    if capacity.__class__ is not int or capacity < 1:
        raise UsageError("the capacity must be a positive integer", where=caller_origin(), found=repr(capacity))


def _cell_keys(positions: Tensor, radius: Any, axes: int) -> tuple[Tensor, list[int]]:
    """The cell id of each point. Cells along the first axis have consecutive ids."""
    bits = _KEY_BITS // axes
    middle = 1 << (bits - 1)
    # Distant points share the outermost cells, which is safe because candidates are compared by distance.
    limit = float(min(middle - 2, 1 << 40))
    scaled = xp.floor(positions / radius)
    cells = xp.astype(xp.clip(xp.where(xp.isnan(scaled), xp.zeros_like(scaled), scaled), -limit, limit), xp.int64)
    strides = [1 << (bits * axis) for axis in range(axes)]
    key = cells[:, 0] + integer_tensor(middle)
    for axis in range(1, axes):
        key = key + (cells[:, axis] + integer_tensor(middle)) * integer_tensor(strides[axis])
    return key, strides


# --- one element -----------------------------------------------------------------------------------------------------


def _map_elements(
    function: Callable[..., Any], lifted: Sequence[Tensor], shared: Sequence[Tensor], *options: int
) -> list[Tensor]:
    """Maps a function over elements, with whole tensors as further arguments, as one native loop."""
    types = tuple(tensor.node.type for tensor in shared)
    mapped = _trace_element_function(function, types, options)
    value = make_map(mapped, *(tensor.node for tensor in (*lifted, *shared)))
    return [wrap(node) for node in result_nodes(value, len(mapped.results))]


@lru_cache(maxsize=256)
def _trace_element_function(
    function: Callable[..., Any], types: tuple[Type, ...], options: tuple[int, ...]
) -> Function:
    return trace(lambda first, point, *shared: function(first, point, *shared, *options), i64, i64, *types)


def _make_distance_test(point: Node, positions: Node, reach: Node, axes: int) -> Callable[[Node], Node]:
    """Returns a function that tests whether another point is near this point, whose position is loaded once."""
    limit = lookup(reach)
    position = [lookup(positions, point * integer(axes) + integer(axis)) for axis in range(axes)]

    def is_near(other: Node) -> Node:
        squared = None
        for axis in range(axes):
            apart = position[axis] - lookup(positions, other * integer(axes) + integer(axis))
            squared = apart * apart if squared is None else squared + apart * apart
        assert squared is not None
        return (squared <= limit) & not_equal(other, point)

    return is_near


def _count_in_run(
    key: Node, point: Node, ascending: Node, order: Node, positions: Node, reach: Node, axes: int
) -> tuple[Node, Node]:
    """The start of a run of three cells in the sorted order, and the number of near points in it."""
    start = search(ascending, key - integer(1))
    end = search(ascending, key + integer(2))
    is_near = _make_distance_test(point, positions, reach, axes)

    def look(index: Node, count: Node) -> Node:
        near = is_near(lookup(order, start + index))
        return select(near, count + integer(1), count)

    return start, make_for_loop(end - start, look, integer(0))[0]


def _find_in_runs(
    slot: Node, point: Node, order: Node, positions: Node, reach: Node, starts: Node, before: Node, axes: int, runs: int
) -> Node:
    """The neighbour in a slot: finds its run by the cumulative counts, then counts near points in the run."""
    first = point * integer(runs)
    run = integer(0)
    skipped = integer(0)
    for index in range(runs):
        up_to = lookup(before, first + integer(index))
        passed = up_to <= slot
        run = select(passed, integer(index + 1), run)
        skipped = select(passed, up_to, skipped)
    exists = run < integer(runs)
    start = lookup(starts, first + select(exists, run, integer(0)))

    points = order.type.shape[0]  # type: ignore[attr-defined]
    is_near = _make_distance_test(point, positions, reach, axes)

    def continues(rank: Node, remaining: Node) -> Node:
        # Bounded, because two kernels may round a distance differently: one counts a neighbour that the other rejects.
        return (remaining >= integer(0)) & (rank < integer(points))

    def look(index: Node, rank: Node, remaining: Node) -> tuple[Node, Node]:
        near = is_near(lookup(order, rank))
        remaining = select(near, remaining - integer(1), remaining)
        return select(remaining < integer(0), rank, rank + integer(1)), remaining

    to_skip = select(exists, slot - skipped, integer(-1))
    rank, remaining = make_while_loop(continues, look, start, to_skip)
    has_neighbour = exists & (remaining < integer(0))
    return select(has_neighbour, lookup(order, select(has_neighbour, rank, integer(0))), point)


def fold_neighbours(function: Callable[..., Tensor], indices: Tensor, count: Tensor, *values: Tensor) -> Tensor:
    """Sums `function(own..., other...)` over the neighbours of each point, with the rows of `values` of both points.

    `function` is called on whole arrays: the point's own rows have shape (n, 1, ...), its neighbours' rows (n,
    capacity, ...). The result is differentiable with respect to the values.

    >>> import livegrad as lg
    >>> points = lg.asarray([[0.0, 0.0], [0.5, 0.0], [2.0, 0.0]])
    >>> indices, count, _ = neighbours(points, 1.0, capacity=2)
    >>> fold_neighbours(lambda own, other: own - other, indices, count, points)
    Tensor([[-0.5,  0. ],
            [ 0.5,  0. ],
            [ 0. ,  0. ]], dtype=float32)
    """
    points, capacity = indices.shape
    centre = [xp.expand_dims(value, axis=1) for value in values]
    other = [take_rows(value, indices) for value in values]
    contributions = function(*centre, *other)
    is_neighbour = xp.reshape(xp.arange(capacity, dtype=xp.int64), (1, capacity)) < xp.reshape(count, (points, 1))
    is_neighbour = xp.reshape(is_neighbour, (points, capacity) + (1,) * (contributions.ndim - 2))
    return xp.sum(xp.where(is_neighbour, contributions, xp.zeros_like(contributions)), axis=1)


class NeighbourBlock(Block):
    """A block that finds neighbours. The engine warns if there are more than its capacity.

    >>> neighbour_block(capacity=4)
    <block neighbours(positions, radius) -> indices, count, most>
    """

    def __init__(self, capacity: int, name: str) -> None:
        def find(positions: Tensor, radius: Any) -> tuple[Tensor, ...]:
            indices, count, total = neighbours(positions, radius, capacity=capacity)
            return indices, count, xp.max(total)

        super().__init__(TracedBody(find, {}, ("indices", "count", "most"), name), name)
        self.limits = {"most": capacity}


def neighbour_block(*, capacity: int, name: str = "neighbours") -> NeighbourBlock:
    """Creates a block that finds neighbours: inputs `positions` and `radius`, outputs `indices`, `count` and `most`,
    the largest total.

    >>> from livegrad.live.engine import Engine
    >>> engine = Engine()
    >>> near = engine.add(neighbour_block(capacity=4))
    >>> engine.set(near["positions"], [[0.0, 0.0], [0.5, 0.0], [2.0, 0.0]])
    >>> engine.set(near["radius"], 1.0)
    >>> _ = engine.step()
    >>> engine.read(near["count"]).tolist()
    [1, 1, 0]
    """
    return NeighbourBlock(capacity, name)

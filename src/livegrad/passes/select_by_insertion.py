"""The `select_by_insertion` pass: partial selection (top k) becomes a native loop of insertions into a sorted buffer.

For the CPU. NumPy would sort or partition each row, and return to Python. The loop compares each element with the last
one in the buffer. Few are inserted, unless the row is nearly in the opposite order, and each insertion shifts few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from livegrad.ir.function import map_results, trace_open
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Scalar, Tensor, i64, shape_of
from livegrad.ir.walk import ops_in
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import bit_not, equal, greater, greater_equal, less, less_equal
from livegrad.ops.control import for_loop, make_cond, make_for_loop, make_while_loop
from livegrad.ops.elementwise import maximum, minimum, select
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import inverse_permutation, permute, reshape
from livegrad.ops.sorting import top_positions
from livegrad.ops.tape import unwritten

_MAX_COUNT = 16  # elements in the buffer: an insertion shifts half of them
_SAMPLE = 256  # elements of a long row that are visited first
_MIN_STRIDE = 4  # of the sample: shorter rows are not sampled
_ELEMENTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64")
# Rows of these types have sorting kernels if they are contiguous or short (`runtime/cpu/native/ordering.py`).
_WITH_KERNELS, _SHORT = ("i32", "i64", "f32", "f64"), 128
# Bytes of a row. The first 8 of 64 rows of 16,384 float64 take 167 µs by kernels and 231 by insertion; of 100,000
# float64, 2,724 and 1,290; of 100,000 float32, 479 and 1,272.
_CACHED_ROW = 1 << 19


def select_by_insertion(function: Function) -> Function:
    """Replaces `top_positions` of few elements by loops of insertions."""
    return _build_loops(function) if top_positions in ops_in(function) else function


@propagates_lines
def _build_loops(function: Function) -> Function:
    return map_results(function, lambda node: _find_positions(node) if _is_supported(node) else None)


def _is_supported(node: Node) -> bool:
    if node.op is not top_positions or not 0 < node.attribute("count") <= _MAX_COUNT:
        return False
    type, axis = node.operands[0].type, node.attribute("axis")
    if not isinstance(type, Tensor) or type.element.name not in _ELEMENTS or 0 in type.shape:
        return False
    is_contiguous, is_short = axis == type.rank - 1, type.shape[axis] <= _SHORT  # type: ignore[operator]
    return not (_has_kernel(type, axis) and (is_contiguous or is_short))


def _has_kernel(type: Tensor, axis: int) -> bool:
    """Whether sorting kernels, which read rows several times, are faster, because a row fits in the cache."""
    longest = _CACHED_ROW // type.element.dtype.itemsize
    return type.element.name in _WITH_KERNELS and type.shape[axis] <= longest  # type: ignore[operator]


def _find_positions(node: Node) -> Node:
    """Rewrites `top_positions`; moves the searched axis last, and back afterwards."""
    axis, rank = node.attribute("axis"), len(shape_of(node.type))
    order = [*(dimension for dimension in range(rank) if dimension != axis), axis]
    source = node.operands[0] if axis == rank - 1 else permute(node.operands[0], axes=tuple(order))
    shape: tuple[int, ...] = shape_of(source.type)  # type: ignore[assignment]
    count, extent = node.attribute("count"), shape[-1]
    assert isinstance(node.operands[0].type, Tensor)
    if _has_kernel(node.operands[0].type, axis):
        positions = top_positions(source, axis=rank - 1, count=count, largest=node.attribute("largest"))
    else:
        positions = _search_rows(reshape(source, shape=(prod(shape[:-1]), extent)), count, node.attribute("largest"))
        positions = reshape(positions, shape=(*shape[:-1], count))
    return positions if axis == rank - 1 else permute(positions, axes=inverse_permutation(tuple(order)))


def _search_rows(rows: Node, count: int, largest: bool) -> Node:
    """The positions of the `count` largest or smallest elements of each row."""
    assert isinstance(rows.type, Tensor)
    row_count, extent = shape_of(rows.type)
    buffer = unwritten(type=Tensor(rows.type.element, (row_count, count)), slot=0)
    positions = unwritten(type=Tensor(i64, (row_count, count)), slot=1)

    def search(row: Node, *state: Node) -> Sequence[Node]:
        return _RowSearch(rows, row, count, largest).search(extent, state)  # type: ignore[arg-type]

    body, captures = trace_open(search, [i64, buffer.type, positions.type])
    loop = for_loop(
        constant(row_count, i64),  # type: ignore[arg-type]
        *(buffer, positions, *captures),
        body=body,
        carried=2,
        reverse=False,
        independent=True,
    )
    return get(loop, index=1)


@dataclass(frozen=True)
class _RowSearch:
    """Builds the search of one row. Indices are in range by construction.

    The state of the search is the sorted buffer, the positions of its elements, their number, and a bound beyond which
    no element enters.
    """

    rows: Node
    row: Node
    count: int
    largest: bool

    def search(self, extent: int, state: Sequence[Node]) -> Sequence[Node]:
        """Visits all elements of a row. In a long row, a sample first gives a bound.

        Otherwise, if the row is in the opposite order, each element would enter and shift the whole buffer.
        """
        bound = constant(self._initial_bound(), self._element)
        stride = extent // _SAMPLE
        if stride >= _MIN_STRIDE:
            sample = self._visit_all(_SAMPLE, stride, [*state, constant(0, i64), bound])
            state, bound = sample[:2], sample[3]
        return self._visit_all(extent, 1, [*state, constant(0, i64), bound])[:2]

    @property
    def _element(self) -> Scalar:
        return self.rows.type.element  # type: ignore[attr-defined]

    def _initial_bound(self) -> float | int:
        """A bound that excludes no number. In ascending order, NaN sorts after it, but is not excluded either."""
        if self._element.kind == "float":
            return -inf if self.largest else inf
        limits = np.iinfo(self._element.name.replace("i", "int").replace("u", "uint"))
        return int(limits.min if self.largest else limits.max)

    def _visit_all(self, count: int, stride: int, state: Sequence[Node]) -> Sequence[Node]:
        return make_for_loop(constant(count, i64), lambda index, *values: self._visit(index * stride, values), *state)

    def _visit(self, position: Node, state: Sequence[Node]) -> list[Node]:
        value = self._read(self.rows, position)
        compare = less if self.largest else greater

        def compare_with_last(*state: Node) -> list[Node]:
            """Inserts the element if there is room or it sorts before the last one. Equal elements keep their order."""
            has_room = less(state[2], self.count)
            wins = has_room | self._comes_before(value, self._read(state[0], constant(self.count - 1, i64)))
            return _branch(wins, lambda *values: self._insert(value, position, values), state)

        return _branch(bit_not(compare(value, state[3])), compare_with_last, state)

    def _insert(self, value: Node, position: Node, state: Sequence[Node]) -> list[Node]:
        """Inserts an element in order: shifts the elements after it, and updates the bound if the buffer is full."""
        buffer, positions, size, bound = state
        free, buffer, positions = make_while_loop(
            lambda k, buffer, positions: greater(k, 0) & self._comes_before(value, self._read(buffer, _before(k))),
            lambda _, k, buffer, positions: (
                k - 1,
                self._write(buffer, self._read(buffer, _before(k)), k),
                self._write(positions, self._read(positions, _before(k)), k),
            ),
            *(minimum(size, constant(self.count - 1, i64)), buffer, positions),
        )
        buffer, positions = self._write(buffer, value, free), self._write(positions, position, free)
        size = minimum(size + 1, constant(self.count, i64))
        last = self._read(buffer, constant(self.count - 1, i64))
        return [buffer, positions, size, select(equal(size, self.count), last, bound)]

    def _read(self, tensor: Node, position: Node) -> Node:
        return lookup(tensor, self.row, position, in_range=(0, 1))

    def _write(self, tensor: Node, value: Node, position: Node) -> Node:
        return assign(tensor, value, self.row, position, in_range=(0, 1))

    def _comes_before(self, first: Node, second: Node) -> Node:
        """Whether an element sorts before one that was visited earlier. NaN counts as the largest number."""
        if self._element.kind != "float":
            return greater(first, second) if self.largest else less(first, second)
        if self.largest:
            return equal(second, second) & bit_not(less_equal(first, second))
        return equal(first, first) & bit_not(greater_equal(first, second))


def _branch(predicate: Node, then: Callable[..., Sequence[Node]], state: Sequence[Node]) -> list[Node]:
    """Builds a branch that updates the state or leaves it unchanged; returns the state after it."""
    value = make_cond(predicate, then, lambda *values: values, *state)
    return [get(value, index=index) for index in range(len(state))]


def _before(position: Node) -> Node:
    """The previous position; 0 for the first, where the element that is read is not used."""
    return maximum(position - 1, constant(0, i64))

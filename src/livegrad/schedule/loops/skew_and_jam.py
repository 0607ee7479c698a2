"""The loop pass `skew_and_jam`: fills several rows of a table at once, each a few columns behind the one above.

In: `for i: for j: t[i, j] = f(t[i - 1, j], t[i, j - 1], ...)`, in a kernel without lanes. Each cell waits for the one
before it. Cells of several rows do not wait for each other if each row is a few columns behind the row above (loop
skewing): a step computes one cell of each row. What later steps read of these is in registers. The same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from livegrad.ir.leaves import constant, constant_op
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.types import Scalar, i64
from livegrad.ir.walk import nodes_of, substitute
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.assignment import assign, indices_of
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.elementwise import add, mul, sub
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup
from livegrad.passes.flatten_signature import get_of_make
from livegrad.schedule.loops.cost_model import MOST_SKEW, SKEWED_COLUMNS, SKEWED_NODES, SKEWED_ROWS
from livegrad.schedule.loops.nest import LoopNest
from livegrad.schedule.loops.unroll_and_jam import (
    CarryingLoop,
    from_iteration,
    in_groups,
    loop_attributes,
    loop_of,
    only_loop,
    plus,
    rewrite_scalar_loops,
)


def skew_and_jam(nest: LoopNest) -> LoopNest:
    """Fills several rows of a table at once in the loops of a kernel without lanes."""
    return rewrite_scalar_loops(nest, _rewrite_loop)


def _rewrite_loop(node: Node) -> Node | None:
    if node.op is not for_loop:
        return get_of_make(node)
    table = _table_of(node)
    return None if table is None else make_tuple(_Rows(table, SKEWED_ROWS).fill())


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """A loop over rows around a loop over columns, which writes one cell and reads others.

    `reads` says of each cell that is read how many rows and columns before the written one it is. `skew` is by how many
    columns each row has to be behind the row above."""

    outer: CarryingLoop
    inner: CarryingLoop
    columns: int
    reads: Mapping[Node, tuple[int, int]]
    skew: int

    @property
    def write(self) -> Node:
        return self.inner.body.results[0]

    def lag(self, read: Node) -> int:
        """How many steps before a cell is read it is computed."""
        rows, columns = self.reads[read]
        return columns + rows * self.skew


def _table_of(node: Node) -> _Table | None:
    """The table that a loop fills, if each cell depends on the one before it in its row."""
    outer = loop_of(node)
    inner = None if outer is None else only_loop(outer.body)
    if outer is None or inner is None or constant_integer(outer.iterations) in range(SKEWED_ROWS):
        return None
    columns = constant_integer(inner.iterations)
    if type(columns) is not int or columns < SKEWED_COLUMNS:
        return None
    reads = _reads_by_distance(outer, inner)
    if reads is None or not any(rows == 0 and before > 0 for rows, before in reads.values()):
        return None
    skew = next((own for own in range(MOST_SKEW + 1) if all(_in_order(*at, own) for at in reads.values())), None)
    return None if skew is None else _Table(outer, inner, columns, reads, skew)


def _in_order(rows: int, columns: int, skew: int) -> bool:
    """Whether a cell of another row is computed in an earlier step if that row is above, and not if it is below."""
    lag = columns + rows * skew
    return lag >= 1 if rows > 0 else lag <= 0 if rows < 0 else True


def _reads_by_distance(outer: CarryingLoop, inner: CarryingLoop) -> dict[Node, tuple[int, int]] | None:
    """The reads of a table, with their distances from the written cell; None if they vary, or if a check may fail."""
    body = inner.body
    (write,), tensor, nodes = body.results, body.parameters[1], nodes_of(body)
    if write.op is not assign or write.operands[0] is not tensor or not isinstance(write.operands[1].type, Scalar):
        return None
    if len(nodes) > SKEWED_NODES or any(node.may_fail or node.functions for node in nodes):
        return None
    position = _Positions(outer, inner).of
    cell = [position(index) for index in indices_of(write)]
    origins = [place and place.origin for place in cell]
    if None in origins or origins.count("row") != 1 or origins.count("column") != 1:
        return None
    reads: dict[Node, tuple[int, int]] = {}
    for node in nodes:
        if node is not write and tensor in node.operands:
            distances = _distances(cell, [position(index) for index in indices_of(node)])
            if node.op is not lookup or distances is None:
                return None
            reads[node] = distances["row"], distances["column"]
    return reads


def _distances(cell: Sequence[_Place | None], read: Sequence[_Place | None]) -> dict[object, int] | None:
    """How many iterations of each loop before a cell another one is written; None if that varies."""
    distances: dict[object, int] = {}
    for own, place in zip(cell, read, strict=True):
        if own is None or place is None or own.axis != place.axis:
            return None
        distances[own.origin] = own.sign * (own.number - place.number)
        if own.origin not in ("row", "column") and distances[own.origin]:
            return None
    return distances


class _Place(NamedTuple):
    """An index: the loop's own, or one that no iteration changes, times 1 or -1, and a constant that is added to it."""

    origin: Literal["row", "column"] | tuple[str, Node]
    sign: int
    number: int

    @property
    def axis(self) -> object:
        """What places have in common that are at the same distance in each iteration."""
        return self.origin, self.sign


class _Positions:
    """Indices in the inner loop of two. Parameters of different functions may be one node: each is read in its own."""

    def __init__(self, outer: CarryingLoop, inner: CarryingLoop) -> None:
        self.outer, self.inner = outer.body, inner.body
        self.captured = dict(zip(inner.body.parameters[2:], inner.captured, strict=True))

    def of(self, index: Node) -> _Place | None:
        """What an index is; None if it is another one in each iteration, in some other way."""
        node, sign, number = _without_constant(index)
        if node is self.inner.parameters[0]:
            return _Place("column", sign, number)
        if node.op is constant_op:
            return _Place(("constant", node), sign, number)
        if node not in self.captured:
            return None
        node, own_sign, more = _without_constant(self.captured[node])
        sign, number = sign * own_sign, number + sign * more
        if node is self.outer.parameters[0]:
            return _Place("row", sign, number)
        return _Place(("captured", node), sign, number) if node in self.outer.parameters[2:] else None


def _without_constant(index: Node) -> tuple[Node, int, int]:
    """An index as another one, 1 or -1 that it is multiplied by, and a constant that is added."""
    sign = 1
    number = 0
    while index.op in (add, sub):
        left, right = index.operands
        values = [node.attribute("value") if node.op is constant_op else None for node in (left, right)]
        own = -1 if index.op is sub else 1
        if type(values[1]) is int:
            index, number = left, number + sign * own * values[1]
        elif type(values[0]) is int:
            index, number, sign = right, number + sign * values[0], sign * own
        else:
            break
    return index, sign, number


# --- rows ------------------------------------------------------------------------------------------------------------


class _Rows:
    """The loops that fill several rows of a table at once."""

    def __init__(self, table: _Table, count: int) -> None:
        self.table, self.count, self.inner = table, count, table.inner
        self.behind = [(count - 1 - row) * table.skew for row in range(count)]  # columns that a row has before the last
        self.steps = table.columns - self.behind[0]
        self.kept = [max([table.lag(read) for read in self._readers_of(row)], default=0) for row in range(count)]

    def _readers_of(self, row: int) -> list[Node]:
        """The reads of cells that this row has computed in an earlier step, by it or by rows below."""
        return [
            read
            for read, (rows, _) in self.table.reads.items()
            if 0 <= rows < self.count - row and self.table.lag(read) > 0
        ]

    def fill(self) -> Node:
        """The table after all rows: several at once, then the remaining ones."""
        outer = self.table.outer
        groups, done, remaining = in_groups(outer.iterations, self.count)
        body = self._group_of_rows()
        filled = make_node(for_loop, (groups, outer.tensor, *outer.captured), loop_attributes(body))
        if constant_integer(remaining) == 0:
            return get(filled, index=0)
        operands = (remaining, get(filled, index=0), *outer.captured, done)
        rest = make_node(for_loop, operands, loop_attributes(from_iteration(outer.body)))
        return get(rest, index=0)

    def _group_of_rows(self) -> Function:
        """The body of the loop over groups of rows: their first columns, the steps of all, and their last columns."""
        outer = self.table.outer.body
        parameters = parameters_of(outer.parameter_types)
        tensor, first = parameters[1], mul(parameters[0], constant(self.count, i64))
        captured = []
        for row in range(self.count):
            given = dict(zip(outer.parameters, (plus(first, row), *parameters[1:]), strict=True))
            captured.append(substitute(self.inner.captured, given, outer.source_locations))
        for row, columns in enumerate(self.behind[:-1] if self.table.skew else ()):
            tensor = self._columns(tensor, captured[row], 0, columns)
        tensor = self._steps(tensor, captured)
        for row in range(1, self.count if self.table.skew else 1):
            tensor = self._columns(tensor, captured[row], self.behind[row] + self.steps, row * self.table.skew)
        return Function(outer.name, parameters, (tensor,))

    def _columns(self, tensor: Node, captured: tuple[Node, ...], first: int, number: int) -> Node:
        """The table after some columns of one row."""
        operands = (constant(number, i64), tensor, *captured, constant(first, i64))
        return get(make_node(for_loop, operands, loop_attributes(from_iteration(self.inner.body))), index=0)

    def _steps(self, tensor: Node, captured: list[tuple[Node, ...]]) -> Node:
        """The table after the steps that compute a cell of each row."""
        recent = [
            self._cell_before(tensor, captured[row], self.behind[row] - lag)
            for row, kept in enumerate(self.kept)
            for lag in range(1, kept + 1)
        ]
        distinct = list(dict.fromkeys([operand for operands in captured for operand in operands]))
        operands = (constant(self.steps, i64), tensor, *recent, *distinct)
        parameters = parameters_of([i64, *[operand.type for operand in operands[1:]]])
        inside = dict(zip(distinct, parameters[2 + len(recent) :], strict=True))
        body = self._step(parameters, [tuple([inside[operand] for operand in own]) for own in captured])
        return get(make_node(for_loop, operands, loop_attributes(body, 1 + len(recent))), index=0)

    def _cell_before(self, tensor: Node, captured: tuple[Node, ...], column: int) -> Node:
        """A cell of a row before the first step."""
        body = self.inner.body
        given = dict(zip(body.parameters, (constant(column, i64), tensor, *captured), strict=True))
        places = substitute(indices_of(self.table.write), given, body.source_locations)
        return lookup(tensor, *places, in_range=tuple(range(len(places))))

    def _step(self, parameters: tuple[Node, ...], captured: list[tuple[Node, ...]]) -> Function:
        """The body of the loop over steps."""
        table, body = self.table, self.inner.body
        count, tensor, *values = parameters[: 2 + sum(self.kept)]
        history = [[values.pop(0) for _ in range(kept)] for kept in self.kept]  # of each row, the latest cell first
        cells: list[Node] = []
        for row, own in enumerate(captured):
            given = dict(zip(body.parameters, (plus(count, self.behind[row]), tensor, *own), strict=True))
            for read, (rows, _) in table.reads.items():
                if rows <= row and read in self._readers_of(row - rows):
                    given[read] = history[row - rows][table.lag(read) - 1]
            value, *places = substitute(
                [table.write.operands[1], *indices_of(table.write)], given, body.source_locations
            )
            tensor = make_node(assign, (tensor, value, *places), table.write.attributes)
            cells.append(value)
        latest = [([cell, *before])[: len(before)] for cell, before in zip(cells, history, strict=True)]
        results = (tensor, *[value for values in latest for value in values])
        return Function(body.name, parameters, results)

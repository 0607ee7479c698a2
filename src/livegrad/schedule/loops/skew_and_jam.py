"""Loop skewing: fills several rows of a table at once, each row a few columns behind the row above.

In: `for i: for j: t[i, j] = f(t[i - 1, j], t[i, j - 1], ...)`, in a kernel without lanes. Each cell depends on the
previous cell of its row. With skewing, the cells that one step computes, one in each row, are independent. Cells that
later steps read stay in registers. The bits are the same.
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
    add_constant,
    as_carrying_loop,
    find_only_loop,
    loop_attributes,
    rewrite_scalar_loops,
    shift_iterations,
    split_iterations,
)


def skew_and_jam(nest: LoopNest) -> LoopNest:
    """Fills several rows of a table at once in the loops of a kernel without lanes."""
    return rewrite_scalar_loops(nest, _rewrite_loop)


def _rewrite_loop(node: Node) -> Node | None:
    if node.op is not for_loop:
        return get_of_make(node)
    table = _match_table(node)
    return None if table is None else make_tuple(_SkewedLoops(table, SKEWED_ROWS).fill())


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """A loop over rows around a loop over columns, which writes one cell and reads others.

    `reads` has the distance of each read from the written cell, in rows and columns. `skew` is the number of columns by
    which each row must lag behind the row above.
    """

    outer: CarryingLoop
    inner: CarryingLoop
    columns: int
    reads: Mapping[Node, tuple[int, int]]
    skew: int

    @property
    def write(self) -> Node:
        return self.inner.body.results[0]

    def lag(self, read: Node) -> int:
        """The number of steps between computing a cell and reading it."""
        rows, columns = self.reads[read]
        return columns + rows * self.skew


def _match_table(node: Node) -> _Table | None:
    """The table that a loop nest fills, if each cell depends on an earlier cell of its row; else None."""
    outer = as_carrying_loop(node)
    inner = None if outer is None else find_only_loop(outer.body)
    if outer is None or inner is None or constant_integer(outer.iterations) in range(SKEWED_ROWS):
        return None
    columns = constant_integer(inner.iterations)
    if type(columns) is not int or columns < SKEWED_COLUMNS:
        return None
    reads = _read_distances(outer, inner)
    if reads is None or not any(rows == 0 and before > 0 for rows, before in reads.values()):
        return None
    skews = range(MOST_SKEW + 1)
    skew = next((s for s in skews if all(_respects_dependence(*distance, s) for distance in reads.values())), None)
    return None if skew is None else _Table(outer, inner, columns, reads, skew)


def _respects_dependence(rows: int, columns: int, skew: int) -> bool:
    """Whether a read of a row above reads an earlier step, and a read of a row below does not."""
    lag = columns + rows * skew
    return lag >= 1 if rows > 0 else lag <= 0 if rows < 0 else True


def _read_distances(outer: CarryingLoop, inner: CarryingLoop) -> dict[Node, tuple[int, int]] | None:
    """The distance of each read from the written cell, in rows and columns; None if one varies or may fail."""
    body = inner.body
    (write,), tensor, nodes = body.results, body.parameters[1], nodes_of(body)
    if write.op is not assign or write.operands[0] is not tensor or not isinstance(write.operands[1].type, Scalar):
        return None
    if len(nodes) > SKEWED_NODES or any(node.may_fail or node.functions for node in nodes):
        return None
    resolve = _IndexResolver(outer, inner).resolve
    cell = [resolve(index) for index in indices_of(write)]
    origins = [index and index.origin for index in cell]
    if None in origins or origins.count("row") != 1 or origins.count("column") != 1:
        return None
    reads: dict[Node, tuple[int, int]] = {}
    for node in nodes:
        if node is not write and tensor in node.operands:
            distances = _distances(cell, [resolve(index) for index in indices_of(node)])
            if node.op is not lookup or distances is None:
                return None
            reads[node] = distances["row"], distances["column"]
    return reads


def _distances(cell: Sequence[_AffineIndex | None], read: Sequence[_AffineIndex | None]) -> dict[object, int] | None:
    """The distance between the written and the read cell in iterations of each loop; None if it varies."""
    distances: dict[object, int] = {}
    for write_index, read_index in zip(cell, read, strict=True):
        if write_index is None or read_index is None or write_index.axis != read_index.axis:
            return None
        distances[write_index.origin] = write_index.sign * (write_index.offset - read_index.offset)
        if write_index.origin not in ("row", "column") and distances[write_index.origin]:
            return None
    return distances


class _AffineIndex(NamedTuple):
    """An index `sign * origin + offset`, where the origin is the index of a loop or an invariant value."""

    origin: Literal["row", "column"] | tuple[str, Node]
    sign: int
    offset: int

    @property
    def axis(self) -> object:
        """Two indices with equal axes have a constant distance."""
        return self.origin, self.sign


class _IndexResolver:
    """Resolves indices in the inner loop. The bodies may share parameter nodes, so each body is read separately."""

    def __init__(self, outer: CarryingLoop, inner: CarryingLoop) -> None:
        self.outer, self.inner = outer.body, inner.body
        self.captured = dict(zip(inner.body.parameters[2:], inner.captured, strict=True))

    def resolve(self, index: Node) -> _AffineIndex | None:
        """The affine form of an index; None if it has no such form."""
        node, sign, offset = _split_affine(index)
        if node is self.inner.parameters[0]:
            return _AffineIndex("column", sign, offset)
        if node.op is constant_op:
            return _AffineIndex(("constant", node), sign, offset)
        if node not in self.captured:
            return None
        node, outer_sign, outer_offset = _split_affine(self.captured[node])
        sign, offset = sign * outer_sign, offset + sign * outer_offset
        if node is self.outer.parameters[0]:
            return _AffineIndex("row", sign, offset)
        return _AffineIndex(("captured", node), sign, offset) if node in self.outer.parameters[2:] else None


def _split_affine(index: Node) -> tuple[Node, int, int]:
    """Splits an index into (node, sign, offset) with `index == sign * node + offset`."""
    sign = 1
    offset = 0
    while index.op in (add, sub):
        left, right = index.operands
        values = [node.attribute("value") if node.op is constant_op else None for node in (left, right)]
        right_sign = -1 if index.op is sub else 1
        if type(values[1]) is int:
            index, offset = left, offset + sign * right_sign * values[1]
        elif type(values[0]) is int:
            index, offset, sign = right, offset + sign * values[0], sign * right_sign
        else:
            break
    return index, sign, offset


# --- rows ------------------------------------------------------------------------------------------------------------


class _SkewedLoops:
    """Builds the loops that fill several rows of a table at once."""

    def __init__(self, table: _Table, count: int) -> None:
        self.table, self.count, self.inner = table, count, table.inner
        self.offsets = [
            (count - 1 - row) * table.skew for row in range(count)
        ]  # columns by which a row is ahead of the last row of its group
        self.steps = table.columns - self.offsets[0]
        # The number of recent cells of each row that are kept in registers.
        self.kept_cells = [max([table.lag(read) for read in self._readers_of(row)], default=0) for row in range(count)]

    def _readers_of(self, row: int) -> list[Node]:
        """The reads, in this row and in rows below, of cells that this row computed in an earlier step."""
        return [
            read
            for read, (rows, _) in self.table.reads.items()
            if 0 <= rows < self.count - row and self.table.lag(read) > 0
        ]

    def fill(self) -> Node:
        """The table after all rows: groups of rows, then the remaining rows."""
        outer = self.table.outer
        groups, done, remaining = split_iterations(outer.iterations, self.count)
        body = self._build_group_body()
        grouped_rows = make_node(for_loop, (groups, outer.tensor, *outer.captured), loop_attributes(body))
        if constant_integer(remaining) == 0:
            return get(grouped_rows, index=0)
        operands = (remaining, get(grouped_rows, index=0), *outer.captured, done)
        rest = make_node(for_loop, operands, loop_attributes(shift_iterations(outer.body)))
        return get(rest, index=0)

    def _build_group_body(self) -> Function:
        """The body of the loop over groups of rows: a prologue for upper rows, common steps, and an epilogue."""
        outer = self.table.outer.body
        parameters = parameters_of(outer.parameter_types)
        tensor, first = parameters[1], mul(parameters[0], constant(self.count, i64))
        captured = []
        for row in range(self.count):
            arguments = dict(zip(outer.parameters, (add_constant(first, row), *parameters[1:]), strict=True))
            captured.append(substitute(self.inner.captured, arguments, outer.source_locations))
        for row, columns in enumerate(self.offsets[:-1] if self.table.skew else ()):
            tensor = self._fill_columns(tensor, captured[row], 0, columns)
        tensor = self._run_steps(tensor, captured)
        for row in range(1, self.count if self.table.skew else 1):
            tensor = self._fill_columns(tensor, captured[row], self.offsets[row] + self.steps, row * self.table.skew)
        return Function(outer.name, parameters, (tensor,))

    def _fill_columns(self, tensor: Node, captured: tuple[Node, ...], first: int, count: int) -> Node:
        """The table after `count` columns of one row, from `first` on."""
        operands = (constant(count, i64), tensor, *captured, constant(first, i64))
        return get(make_node(for_loop, operands, loop_attributes(shift_iterations(self.inner.body))), index=0)

    def _run_steps(self, tensor: Node, captured: list[tuple[Node, ...]]) -> Node:
        """The table after the steps, each of which computes a cell of each row."""
        recent = [
            self._read_initial_cell(tensor, captured[row], self.offsets[row] - lag)
            for row, kept in enumerate(self.kept_cells)
            for lag in range(1, kept + 1)
        ]
        distinct = list(dict.fromkeys([operand for operands in captured for operand in operands]))
        operands = (constant(self.steps, i64), tensor, *recent, *distinct)
        parameters = parameters_of([i64, *[operand.type for operand in operands[1:]]])
        parameter_of = dict(zip(distinct, parameters[2 + len(recent) :], strict=True))
        inner_captured = [tuple([parameter_of[operand] for operand in operands]) for operands in captured]
        body = self._build_step_body(parameters, inner_captured)
        return get(make_node(for_loop, operands, loop_attributes(body, 1 + len(recent))), index=0)

    def _read_initial_cell(self, tensor: Node, captured: tuple[Node, ...], column: int) -> Node:
        """Reads a cell of a row before the first step."""
        body = self.inner.body
        arguments = dict(zip(body.parameters, (constant(column, i64), tensor, *captured), strict=True))
        indices = substitute(indices_of(self.table.write), arguments, body.source_locations)
        return lookup(tensor, *indices, in_range=tuple(range(len(indices))))

    def _build_step_body(self, parameters: tuple[Node, ...], captured: list[tuple[Node, ...]]) -> Function:
        """The body of the loop over steps."""
        table, body = self.table, self.inner.body
        step, tensor, *values = parameters[: 2 + sum(self.kept_cells)]
        history = [[values.pop(0) for _ in range(kept)] for kept in self.kept_cells]  # per row, the latest cell first
        cells: list[Node] = []
        for row, operands in enumerate(captured):
            column = add_constant(step, self.offsets[row])
            arguments = dict(zip(body.parameters, (column, tensor, *operands), strict=True))
            for read, (rows, _) in table.reads.items():
                if rows <= row and read in self._readers_of(row - rows):
                    arguments[read] = history[row - rows][table.lag(read) - 1]
            value, *indices = substitute(
                [table.write.operands[1], *indices_of(table.write)], arguments, body.source_locations
            )
            tensor = make_node(assign, (tensor, value, *indices), table.write.attributes)
            cells.append(value)
        latest = [([cell, *before])[: len(before)] for cell, before in zip(cells, history, strict=True)]
        results = (tensor, *[value for values in latest for value in values])
        return Function(body.name, parameters, results)

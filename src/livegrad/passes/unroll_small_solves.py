"""The `unroll_small_solves` pass: batched factorisations of small matrices become a map with unrolled scalar code.

For the CPU and for CUDA: systems, inverses, determinants and Cholesky factors. The kernel has lanes across the matrices
and uses all threads. LAPACK has an overhead of several hundred nanoseconds for each matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from livegrad.ir.function import map_results, trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Matrix, Scalar, Tensor, f32, f64, shape_of
from livegrad.ir.walk import exchanged_functions, ops_below
from livegrad.ops.aggregate import make, members_of
from livegrad.ops.comparison import greater, not_equal
from livegrad.ops.control import check
from livegrad.ops.decompositions import cholesky
from livegrad.ops.elementwise import abs, select
from livegrad.ops.maps import map_
from livegrad.ops.movement import reshape, sizes
from livegrad.ops.solving import det, inv, solve, triangular_solve
from livegrad.ops.transcendental import sqrt
from livegrad.passes.regions import LOOPS

_MAX_ROWS = 8
_MAX_PRODUCTS = 1024  # scalar products for one matrix: limits the compile time
_FEWEST_MATRICES = 64

Rows = list[list[Node]]
_SINGULAR, _INDEFINITE = "Singular matrix", "Matrix is not positive definite"


def unroll_small_solves(function: Function) -> Function:
    """Replaces factorisations of many small matrices by maps, and in loops also those of a few."""
    return _build_maps(function, _FEWEST_MATRICES) if not ops_below(function).isdisjoint(UNROLLED) else function


@propagates_lines
def _build_maps(function: Function, fewest: int) -> Function:
    def rewrite(node: Node) -> Node | None:
        if node.op in LOOPS:
            # A host step would end the native code of each iteration.
            body: Function = node.attribute("body")
            inside = _build_maps(body, 1) if not ops_below(body).isdisjoint(UNROLLED) else body
            changes = {body: inside}
            return (
                None
                if inside is body
                else make_node(node.op, node.operands, exchanged_functions(node.attributes, changes))
            )
        return _unroll(node, fewest)

    return map_results(function, rewrite)


def _unroll(node: Node, fewest: int) -> Node | None:
    compute = UNROLLED.get(node.op)
    if compute is None or not _is_small(node, fewest):
        return None
    operands = [_batched(operand) for operand in node.operands]
    types = [_matrix_type(operand) for operand in operands]

    def compute_matrix(*matrices: Node) -> Node:
        rows = [_rows_of(matrix, type) for matrix, type in zip(matrices, types, strict=True)]
        results = compute(node, *rows)
        if node.op is det:
            return results[0][0]
        members = [value for row in results for value in row]
        return make(*members, type=Matrix(types[0].element, len(results), len(results[0])))

    with originating_from(node.origins):
        scalar = trace(compute_matrix, *types)
        value = map_(*operands, function=scalar, lifted=(True,) * len(types), summed=(False,))
        return reshape(value, shape=shape_of(node.type)) if operands[0] is not node.operands[0] else value


def _batched(matrix: Node) -> Node:
    """A batch of one for a single matrix."""
    shape = sizes(matrix)
    return reshape(matrix, shape=(1, *shape)) if len(shape) == 2 else matrix


def _is_small(node: Node, fewest: int) -> bool:
    """Whether there are enough small matrices, each with its own right-hand side if there are any."""
    shapes = [sizes(operand) for operand in node.operands]
    *batch, rows, _ = shapes[0]
    element = node.operands[0].type.element  # type: ignore[union-attr]
    if element not in (f32, f64) or any(list(shape[:-2]) != batch for shape in shapes):
        return False
    columns = shapes[-1][-1] + rows
    return 0 < rows <= _MAX_ROWS and 0 < rows * rows * columns <= _MAX_PRODUCTS and prod(batch) >= fewest


def _matrix_type(operand: Node) -> Matrix:
    assert isinstance(operand.type, Tensor)
    return Matrix(operand.type.element, *sizes(operand)[-2:])


def _rows_of(matrix: Node, type: Matrix) -> Rows:
    members = members_of(matrix)
    return [list(members[start : start + type.columns]) for start in range(0, len(members), type.columns)]


# --- one matrix -------------------------------------------------------------------------------------------------------


def _eliminate(rows: Rows, sides: Rows, singular: Callable[[Node], Node]) -> Node:
    """Makes the rows upper triangular in place, with partial pivoting; returns the sign of the row permutation.

    `singular` checks or replaces each pivot. Rows are swapped as soon as a larger element is found, so lanes need no
    index of the pivot.
    """
    size = len(rows)
    sign = constant(1.0, _element_of(rows))
    for k in range(size):
        for i in range(k + 1, size):
            greater_below = greater(abs(rows[i][k]), abs(rows[k][k]))
            sign = select(greater_below, -sign, sign)
            _swap_rows(rows[k], rows[i], k, greater_below)
            _swap_rows(sides[k], sides[i], 0, greater_below)
        rows[k][k] = singular(rows[k][k])
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            rows[i][k + 1 :] = [a - factor * b for a, b in zip(rows[i][k + 1 :], rows[k][k + 1 :], strict=True)]
            sides[i] = [a - factor * b for a, b in zip(sides[i], sides[k], strict=True)]
    return sign


def _swap_rows(first: list[Node], second: list[Node], start: int, condition: Node) -> None:
    for column in range(start, len(first)):
        a, b = first[column], second[column]
        first[column], second[column] = select(condition, b, a), select(condition, a, b)


def _substitute(rows: Rows, sides: Rows, lower: bool) -> Rows:
    """Solves a triangular system by substitution."""
    order = range(len(rows)) if lower else range(len(rows) - 1, -1, -1)
    solved: dict[int, list[Node]] = {}
    for i in order:
        values = sides[i]
        for j, solution in solved.items():
            values = [value - rows[i][j] * known for value, known in zip(values, solution, strict=True)]
        solved[i] = [value / rows[i][i] for value in values]
    return [solved[i] for i in range(len(rows))]


def _nonzero(pivot: Node) -> Node:
    return check(pivot, not_equal(pivot, 0.0), message=_SINGULAR)


def _element_of(rows: Rows) -> Scalar:
    element = rows[0][0].type
    assert isinstance(element, Scalar)
    return element


def _solve(node: Node, rows: Rows, sides: Rows) -> Rows:
    _eliminate(rows, sides, _nonzero)
    return _substitute(rows, sides, lower=False)


def _solve_triangular(node: Node, rows: Rows, sides: Rows) -> Rows:
    for i, row in enumerate(rows):
        row[i] = _nonzero(row[i])
    return _substitute(rows, sides, node.attribute("lower"))


def _invert(node: Node, rows: Rows) -> Rows:
    element = _element_of(rows)
    identity = [[constant(float(i == j), element) for j in range(len(rows))] for i in range(len(rows))]
    return _solve(node, rows, identity)


def _determinant(node: Node, rows: Rows) -> Rows:
    # All elements below a zero pivot are zero. Dividing by 1 instead avoids NaN; the determinant is zero anyway.
    unit = constant(1.0, _element_of(rows))
    pivots: list[Node] = []

    def record_pivot(pivot: Node) -> Node:
        pivots.append(pivot)
        return select(not_equal(pivot, 0.0), pivot, unit)

    product = _eliminate(rows, [[] for _ in rows], record_pivot)
    for pivot in pivots:
        product = product * pivot
    return [[product]]


def _factorise(node: Node, rows: Rows) -> Rows:
    """The Cholesky factor of the symmetric part of the matrix."""
    nothing = constant(0.0, _element_of(rows))
    factor: Rows = []
    for i, row in enumerate(rows):
        new_row: list[Node] = []
        for j in range(i + 1):
            value = row[i] if i == j else 0.5 * (row[j] + rows[j][i])
            for a, b in zip(new_row, new_row if i == j else factor[j], strict=False):
                value = value - a * b
            if i == j:
                new_row.append(sqrt(check(value, greater(value, 0.0), message=_INDEFINITE)))
            else:
                new_row.append(value / factor[j][j])
        factor.append([*new_row, *[nothing] * (len(rows) - 1 - i)])
    return factor


UNROLLED: dict[Op, Callable[..., Rows]] = {
    solve: _solve,
    triangular_solve: _solve_triangular,
    inv: _invert,
    det: _determinant,
    cholesky: _factorise,
}

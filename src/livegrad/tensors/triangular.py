"""Systems whose matrices are triangular, or products of triangular factors; part of `lg.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ops.elementwise import select
from livegrad.ops.matrices import adjoint, diagonal_mask
from livegrad.ops.movement import reshape
from livegrad.ops.rules import filled
from livegrad.ops.solving import triangular_solve
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.factorisations import matrix_node
from livegrad.tensors.handle import Tensor, wrap
from livegrad.tensors.operands import as_type, element_of
from livegrad.tensors.products import promote_numeric_operands, shape_of_node


def solve_triangular(a: Any, b: Any, /, *, lower: bool = False, unit_diagonal: bool = False) -> Tensor:
    """The solution X of `a @ X = b`, where only the upper (or lower) triangle of `a` is read.

    A one-dimensional `b` is a vector, otherwise a batch of matrices. With `unit_diagonal`, the diagonal counts as ones.
    For the transposed system, pass the transposed matrix and the other triangle.

    >>> import livegrad as lg
    >>> lg.linalg.solve_triangular(lg.asarray([[2.0, 0.0], [1.0, 4.0]]), lg.asarray([2.0, 9.0]), lower=True)
    Tensor([1., 2.], dtype=float32)
    """
    _require_flags("solve_triangular", lower=lower, unit_diagonal=unit_diagonal)
    matrix, sides = system_of("solve_triangular", a, b)
    if unit_diagonal:
        matrix = select(diagonal_mask(matrix), filled(1.0, matrix.type), matrix)
    return wrap(for_vectors(sides, lambda columns: triangular_solve(matrix, columns, lower=lower)))


def cho_solve(factor: Any, b: Any, /, *, upper: bool = False) -> Tensor:
    """The solution X of `A @ X = b`, given the factor `cholesky(A)` of a positive definite matrix.

    Half the work of `solve`, and the factor also gives the determinant. `upper` says which factor it is, as in
    `cholesky`.

    >>> import livegrad as lg
    >>> a = lg.asarray([[4.0, 2.0], [2.0, 5.0]])
    >>> lg.linalg.cho_solve(lg.linalg.cholesky(a), lg.asarray([8.0, 12.0]))
    Tensor([1., 2.], dtype=float32)
    """
    _require_flags("cho_solve", upper=upper)
    if isinstance(factor, tuple):
        what = "`cho_solve` takes the factor alone, not a pair"
        raise UsageError(
            what, where=caller_origin(), help="write cho_solve(factor, b), with upper=True for an upper one"
        )
    matrix, sides = system_of("cho_solve", factor, b)
    first, second = (adjoint(matrix), matrix) if upper else (matrix, adjoint(matrix))

    def solve(columns: Node) -> Node:
        return triangular_solve(second, triangular_solve(first, columns, lower=True), lower=False)

    return wrap(for_vectors(sides, solve))


def _require_flags(user: str, **flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            what = f"`{name}` of `{user}` must be True or False"
            raise UsageError(what, where=caller_origin(), found=shown(value))


def system_of(user: str, a: Any, b: Any) -> tuple[Node, Node]:
    """The matrices and right-hand sides, of one type."""
    first, second = promote_numeric_operands(user, a, b)
    matrix = matrix_node(first, user, square=True)
    sides = as_type(second, element_of(matrix))
    rows, shape = shape_of_node(matrix)[-1], shape_of_node(sides)
    if not shape or shape[-1 if len(shape) == 1 else -2] != rows:
        raise ShapeError(
            f"`{user}` cannot combine shapes {shape_of_node(matrix)} and {shape}",
            where=caller_origin(),
            help="the right-hand sides must have as many rows as the matrices",
        )
    return matrix, sides


def for_vectors(sides: Node, solve: Callable[[Node], Node]) -> Node:
    """Solves for matrices, or for one vector, which all matrices of a batch share."""
    if len(shape_of(sides.type)) > 1:
        return solve(sides)
    solution = solve(reshape(sides, shape=(*shape_of(sides.type), 1)))
    return reshape(solution, shape=shape_of(solution.type)[:-1])

"""Linear systems, inverses and determinants of batches of matrices, real and complex.

Backends run these with NumPy's LAPACK. An exactly singular matrix ends the run with an error that names the user's
line. Derivatives follow Giles, "An extended collection of matrix derivative results" (2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Tuple, Type, shape_of
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.comparison import equal, greater, less
from livegrad.ops.conversion import imag, make_complex, real
from livegrad.ops.elementwise import abs, detach, mod, select
from livegrad.ops.linalg import broadcast_shapes, matmul, swap_last
from livegrad.ops.matrices import adjoint, is_complex, real_part, require_matrices, triangle
from livegrad.ops.movement import broadcast_to, concatenate, flip, index_along, reshape, slice_, sum_to
from livegrad.ops.reduction import reduce, spread_back
from livegrad.ops.rules import filled, zero

# --- systems ---------------------------------------------------------------------------------------------------------


def _solve_type(a: Type, b: Type) -> Type:
    matrix, sides = require_matrices(a), require_matrices(b, square=False)
    if matrix.element is not sides.element:
        raise TypeRuleError("operands of different types", help="cast one of them: nothing is promoted silently")
    if matrix.shape[-1] != sides.shape[-2]:
        raise TypeRuleError("the right-hand sides must have as many rows as the matrix")
    return Tensor(matrix.element, (*broadcast_shapes(matrix.shape[:-2], sides.shape[:-2]), *sides.shape[-2:]))


def _solve_jvp(y: Node, da: Node | None, db: Node | None) -> Node | None:
    """dX = A⁻¹ (dB - dA X)."""
    if da is None and db is None:
        return None
    a, _ = y.operands
    if y.op is triangular_solve and da is not None:
        da = triangle(da, y.attribute("lower"))
    sides = None if da is None else -matmul(da, y)
    if db is not None:
        sides = db if sides is None else sides + broadcast_to(db, shape_of(sides.type))
    return y.op(a, sides, **dict(y.attributes))


solve = Op(
    "solve",
    type_of=_solve_type,
    evaluate=np.linalg.solve,
    jvp=_solve_jvp,
    transpose=lambda y, ct, a, b: (None, sum_to(solve(swap_last(y.operands[0]), ct), shape_of(y.operands[1].type))),
    linear_in=(1,),
    checked=True,
    cost=200.0,
)

_SMALL = 64  # below this many rows LAPACK is faster than block substitution


def _evaluate_triangular_solve(a: Any, b: Any, *, lower: bool) -> Any:
    size = a.shape[-1]
    if size <= _SMALL:
        return np.linalg.solve(np.tril(a) if lower else np.triu(a), b)
    half = size // 2
    first, second = (slice(None, half), slice(half, None))[:: 1 if lower else -1]
    first_solution = _evaluate_triangular_solve(a[..., first, first], b[..., first, :], lower=lower)
    rest = b[..., second, :] - a[..., second, first] @ first_solution
    second_solution = _evaluate_triangular_solve(a[..., second, second], rest, lower=lower)
    return np.concatenate((first_solution, second_solution)[:: 1 if lower else -1], axis=-2)


def _triangular_transpose(y: Node, ct: Node, a: bool, b: bool) -> tuple[Node | None, ...]:
    matrix, sides = y.operands
    solution = triangular_solve(swap_last(matrix), ct, lower=not y.attribute("lower"))
    return None, sum_to(solution, shape_of(sides.type))


# Only the named triangle of the matrix is read, and only it has a derivative.
triangular_solve = Op(
    "triangular_solve",
    type_of=lambda a, b, *, lower: _solve_type(a, b),
    evaluate=_evaluate_triangular_solve,
    jvp=_solve_jvp,
    transpose=_triangular_transpose,
    linear_in=(1,),
    checked=True,
    cost=100.0,
)

# d(A⁻¹) = -A⁻¹ dA A⁻¹.
inv = Op(
    "inv",
    type_of=lambda a: require_matrices(a),
    evaluate=np.linalg.inv,
    jvp=lambda y, da: None if da is None else -matmul(y, matmul(da, y)),
    checked=True,
    cost=200.0,
)


def _pinv_type(a: Type, tolerance: Type) -> Type:
    tensor = require_matrices(a, square=False)
    expected = Tensor(tensor.element.real, tensor.shape[:-2])
    if tolerance is not expected:
        raise TypeRuleError(
            "pinv needs one relative tolerance for each matrix", expected=str(expected), found=str(tolerance)
        )
    return Tensor(tensor.element, (*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2]))


def _evaluate_pinv(a: Any, tolerance: Any) -> Any:
    left, values, right = np.linalg.svd(a, full_matrices=False)
    largest = np.max(values, axis=-1, keepdims=True, initial=0.0)
    is_nonzero = values > tolerance[..., None] * largest
    inverse = np.where(is_nonzero, 1.0 / np.where(is_nonzero, values, 1.0), 0.0).astype(values.dtype)
    return np.conj(np.swapaxes(right, -1, -2)) @ (inverse[..., :, None] * np.conj(np.swapaxes(left, -1, -2)))


def _pinv_jvp(y: Node, da: Node | None, dtolerance: Node | None) -> Node | None:
    """Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems" (1973), for
    perturbations that keep the rank. The part outside the row or column space of a matrix of full rank is zero."""
    if da is None:
        return None
    a, _ = y.operands
    da_adjoint = adjoint(da)
    outside_columns = _zero_at_full_rank(a, y, da_adjoint - matmul(matmul(da_adjoint, a), y))  # dAᴴ (1 - A A⁺)
    outside_rows = _zero_at_full_rank(y, a, da_adjoint - matmul(y, matmul(a, da_adjoint)))  # (1 - A⁺ A) dAᴴ
    inside = -matmul(y, matmul(da, y))
    return inside + matmul(y, matmul(adjoint(y), outside_columns)) + matmul(outside_rows, matmul(adjoint(y), y))


def _zero_at_full_rank(a: Node, b: Node, outside: Node) -> Node:
    """Replaces the part outside the range of the projection A B by exact zeros if the projection has full rank.

    Otherwise, each further derivative would multiply rounding errors by the condition number.
    """
    rank = len(shape_of(a.type))
    on_diagonal = real_part(reduce(a * swap_last(b), kind="sum", axes=(rank - 1,)))
    corank = reduce(1.0 - on_diagonal, kind="sum", axes=(rank - 2,))  # a projection's trace is its rank
    has_full_rank = spread_back(
        less(detach(corank), filled(0.5, corank.type)), shape_of(outside.type), (rank - 2, rank - 1)
    )
    return select(has_full_rank, zero(outside.type), outside)


# The Moore-Penrose inverse; singular values up to the tolerance times the largest count as 0.
pinv = Op("pinv", type_of=_pinv_type, evaluate=_evaluate_pinv, jvp=_pinv_jvp, checked=True, cost=1500.0)

# --- determinants ----------------------------------------------------------------------------------------------------


def _determinant_type(a: Type) -> Tensor:
    tensor = require_matrices(a)
    return Tensor(tensor.element, tensor.shape[:-2])


def _sum_of_products(a: Node, b: Node) -> Node:
    """The sum of a[i, j] * b[i, j] over each matrix."""
    rank = len(shape_of(a.type))
    return reduce(a * b, kind="sum", axes=(rank - 2, rank - 1))


# d det(A) = Σ cofactor(A) ∘ dA, which holds for singular matrices too.
det = Op(
    "det",
    type_of=_determinant_type,
    evaluate=np.linalg.det,
    jvp=lambda y, da: None if da is None else _sum_of_products(_cofactors(y.operands[0]), da),
    cost=150.0,
)


def determinant(a: Node) -> Node:
    """The determinant of each matrix, expanded for up to three rows. The expansion fuses into kernels; LAPACK calls
    would take a hundred times as long."""
    shape = shape_of(a.type)
    size = shape[-1]
    if not isinstance(size, int) or size not in (1, 2, 3):
        return det(a)

    def at(row: int, column: int) -> Node:
        start: tuple[Size, ...] = (*[0] * (len(shape) - 2), row, column)
        element = slice_(a, start=start, size=(*shape[:-2], 1, 1), step=(1,) * len(shape))
        return reshape(element, shape=shape[:-2])

    rows = [[at(i, j) for j in range(size)] for i in range(size)]
    if size == 1:
        return rows[0][0]
    if size == 2:
        return _minor(rows[0], rows[1], 0, 1)
    polynomial = _expand_by_cofactors(rows)
    accurate = _expand_by_cofactors(_eliminate_below_pivot([[detach(x) for x in row] for row in rows]))
    return accurate + (polynomial - detach(polynomial))  # the value of one, the simpler derivatives of the other


def _expand_by_cofactors(rows: list[list[Node]]) -> Node:
    first, second, third = rows
    return (
        first[0] * _minor(second, third, 1, 2)
        - second[0] * _minor(first, third, 1, 2)
        + third[0] * _minor(first, second, 1, 2)
    )


def _minor(above: list[Node], below: list[Node], first: int, second: int) -> Node:
    """The minor of two rows and two columns."""
    return above[first] * below[second] - above[second] * below[first]


def _eliminate_below_pivot(rows: list[list[Node]]) -> list[list[Node]]:
    """One step of Gaussian elimination with partial pivoting on three rows, which preserves the determinant.

    Expanding the original rows has an error of ε‖A‖³: no digit is right where the condition number exceeds ε^-½, which
    is 3,000 in float32. Expanding the eliminated rows has an error of ε‖A‖ in each element of the matrix.
    """
    first, *others = rows
    for i, other in enumerate(others):
        is_larger = greater(abs(other[0]), abs(first[0]))
        # Swapping two rows flips the sign of the determinant, so one of them is negated.
        others[i] = [select(is_larger, -x, y) for x, y in zip(first, other, strict=True)]
        first = [select(is_larger, y, x) for x, y in zip(first, other, strict=True)]
    pivot = first[0]
    is_zero = equal(pivot, zero(pivot.type))
    divisor = select(is_zero, filled(1.0, pivot.type), pivot)  # a zero pivot means zeros below it
    factors = [other[0] / divisor for other in others]
    return [
        first,
        *([y - f * x for x, y in zip(first, other, strict=True)] for f, other in zip(factors, others, strict=True)),
    ]


def _cofactors(a: Node) -> Node:
    """The cofactors of each matrix, expanded for small sizes."""
    size = shape_of(a.type)[-1]
    rank = len(shape_of(a.type))
    if size == 1:
        return filled(1.0, a.type)
    if size == 2:
        flipped = flip(a, axes=(rank - 2, rank - 1))
        even = equal(mod(index_along(shape_of(a.type), rank - 2) + index_along(shape_of(a.type), rank - 1), 2), 0)
        return select(even, flipped, -flipped)
    if size == 3:
        one, two = _roll(a, rank - 2, 1), _roll(a, rank - 2, 2)
        straight = _roll(one, rank - 1, 1) * _roll(two, rank - 1, 2)
        return straight - _roll(one, rank - 1, 2) * _roll(two, rank - 1, 1)
    return cofactors(a)


def _roll(x: Node, axis: int, count: int) -> Node:
    """Rolls a tensor along an axis: each element becomes its `count`-th successor, cyclically."""
    shape = shape_of(x.type)
    parts: list[Node] = []
    for first, size in ((count, shape[axis] - count), (0, count)):
        start: tuple[Size, ...] = tuple(first if i == axis else 0 for i in range(len(shape)))
        parts.append(
            slice_(
                x,
                start=start,
                size=tuple(size if i == axis else n for i, n in enumerate(shape)),
                step=(1,) * len(shape),
            )
        )
    return concatenate(*parts, axis=axis)


def _evaluate_cofactors(a: Any) -> Any:
    """From A = U S Vᴴ: det(U) det(Vᴴ) conj(U) diag(products of the other singular values) conj(Vᴴ)."""
    left, values, right = np.linalg.svd(a)
    before, after = np.ones_like(values), np.ones_like(values)
    before[..., 1:] = np.cumprod(values[..., :-1], axis=-1)
    after[..., :-1] = np.cumprod(values[..., :0:-1], axis=-1)[..., ::-1]
    phase = np.linalg.det(left) * np.linalg.det(right)
    others = phase[..., None] * before * after
    return (np.conj(left) * others[..., None, :]) @ np.conj(right)


def _cofactors_jvp(y: Node, da: Node | None) -> Node | None:
    """From cofactor(A) = det(A) A⁻ᵀ. Singular matrices have a derivative too, but this formula needs the inverse."""
    if da is None or shape_of(da.type)[-1] == 1:
        return None  # the cofactor of a matrix of one element is 1
    inverse_transpose = swap_last(inv(y.operands[0]))
    rank = len(shape_of(y.type))
    trace = spread_back(_sum_of_products(inverse_transpose, da), shape_of(y.type), (rank - 2, rank - 1))
    return trace * y - matmul(inverse_transpose, matmul(swap_last(da), y))


cofactors = Op(
    "cofactors",
    type_of=lambda a: require_matrices(a),
    evaluate=_evaluate_cofactors,
    jvp=_cofactors_jvp,
    checked=True,
    cost=300.0,
)


def _slogdet_type(a: Type) -> Type:
    tensor = _determinant_type(a)
    return Tuple((tensor, Tensor(tensor.element.real, tensor.shape)))


def _evaluate_slogdet(a: Any) -> Any:
    sign, logarithm = np.linalg.slogdet(a)
    return np.asarray(sign), np.asarray(logarithm)


def _slogdet_jvp(y: Node, da: Node | None) -> Node | None:
    """d log|det A| = Re tr(A⁻¹ dA); the imaginary part rotates a complex sign."""
    if da is None:
        return None
    (a,) = y.operands
    trace = _sum_of_products(swap_last(inv(a)), da)
    if not is_complex(a):
        return make_tuple(zero(trace.type), trace)
    rotation = make_complex(zero(real(trace).type), imag(trace))
    return make_tuple(get(y, index=0) * rotation, real(trace))


# (sign, log|det|), with sign * exp(log|det|) = det: for determinants that overflow.
slogdet = Op(
    "slogdet",
    type_of=_slogdet_type,
    evaluate=_evaluate_slogdet,
    jvp=_slogdet_jvp,
    cost=150.0,
)

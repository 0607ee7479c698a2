"""Spectral decompositions of batches of matrices, real and complex: eigenvalues, singular values, and their vectors.

Backends run these with NumPy's LAPACK; a run in which an algorithm does not converge ends with an error that names the
user's line. Vectors are normalised to be unique, so that their derivatives are well defined: a factor of modulus one
makes the pivot, the first component at least half as large as the largest, real and positive. Vectors of repeated
eigenvalues or singular values have no derivative: the formulas return infinities or NaN, while the derivatives of the
values alone (`eigvalsh`, `svdvals`) remain correct.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Tensor, Tuple, Type, c64, c128, components, f32, shape_of
from livegrad.ops.aggregate import get, make_tuple, member
from livegrad.ops.comparison import equal, greater_equal
from livegrad.ops.conversion import cast, imag, make_complex
from livegrad.ops.decompositions import undefined_tangent
from livegrad.ops.elementwise import abs, select
from livegrad.ops.linalg import matmul
from livegrad.ops.matrices import (
    adjoint,
    as_element_of,
    conjugate,
    diagonal,
    diagonal_mask,
    evaluate_hermitian_part,
    hermitian_part,
    is_complex,
    is_empty,
    over_columns,
    over_rows,
    real_part,
    require_matrices,
    smaller,
    sum_of_rows,
)
from livegrad.ops.movement import index_along
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.ops.rules import filled, zero
from livegrad.ops.solving import solve


def _unit_phases(vectors: Any) -> Any:
    """The phase of each column's pivot, the first component with at least half the largest magnitude."""
    magnitude = np.abs(vectors)
    largest = np.max(magnitude, axis=-2, keepdims=True, initial=0.0)
    pivot_row = np.argmax(2.0 * magnitude >= largest, axis=-2, keepdims=True) if vectors.shape[-2] else None
    if pivot_row is None:
        return np.ones_like(largest)
    pivot = np.take_along_axis(vectors, pivot_row, axis=-2)
    size = np.abs(pivot)
    return np.where(size > 0, pivot / np.where(size > 0, size, 1), 1)


def _rotation_angles(vectors: Node, tangent: Node) -> Node | None:
    """The angle that rotates each column so that its pivot stays real; None for real vectors."""
    if not is_complex(vectors):
        return None
    shape = shape_of(vectors.type)
    rank = len(shape)
    magnitude = abs(vectors)
    largest = over_rows(reduce(magnitude, kind="max", axes=(rank - 2,)), shape)
    first = arg_reduce(greater_equal(2.0 * magnitude, largest), kind="argmax", axis=rank - 2)
    is_pivot = equal(index_along(shape, rank - 2), over_rows(first, shape))
    pivot = sum_of_rows(select(is_pivot, magnitude, zero(magnitude.type)))
    imaginary = imag(tangent)
    return -sum_of_rows(select(is_pivot, imaginary, zero(imaginary.type))) / pivot


def _rotate_columns(vectors: Node, tangent: Node, angle: Node | None) -> Node:
    """The tangent of the columns after rotating each by its angle."""
    if angle is None:
        return tangent
    angles = over_rows(angle, shape_of(vectors.type))
    return tangent + make_complex(zero(angles.type), angles) * vectors


def _inverse_gaps(values: Node, shape: tuple[Size, ...]) -> Node:
    """1 / (values[j] - values[i]) at [i, j], and 0 on the diagonal."""
    gaps = over_rows(values, shape) - over_columns(values, shape)
    same = diagonal_mask(gaps)
    return select(same, zero(gaps.type), 1.0 / select(same, filled(1.0, gaps.type), gaps))


# --- eigenvalues of hermitian matrices -------------------------------------------------------------------------------


def _eigvalsh_type(x: Type) -> Tensor:
    tensor = require_matrices(x)
    return Tensor(tensor.element.real, tensor.shape[:-1])


def _evaluate_eigh(x: Any) -> Any:
    values, vectors = np.linalg.eigh(evaluate_hermitian_part(x))
    return values, vectors * np.conj(_unit_phases(vectors))


def _eigh_jvp(y: Node, dx: Node | None) -> Node | None:
    """Magnus, "On differentiating eigenvalues and eigenvectors" (1985): dw = diag(Vᴴ dA V), dV = V (F ∘ Vᴴ dA V)."""
    if dx is None:
        return None
    if is_empty(dx):
        return zero(y.type)
    values, vectors = get(y, index=0), get(y, index=1)
    inner = matmul(adjoint(vectors), matmul(hermitian_part(dx), vectors))
    gaps = as_element_of(_inverse_gaps(values, shape_of(inner.type)), inner)
    tangent = matmul(vectors, gaps * inner)
    return make_tuple(real_part(diagonal(inner)), _rotate_columns(vectors, tangent, _rotation_angles(vectors, tangent)))


def _eigvalsh_jvp(y: Node, dx: Node | None) -> Node | None:
    if dx is None:
        return None
    vectors = get(eigh(y.operands[0]), index=1)
    return real_part(sum_of_rows(conjugate(vectors) * matmul(hermitian_part(dx), vectors)))


# (values, vectors) of the hermitian part, values in ascending order.
eigh = Op(
    "eigh",
    type_of=lambda x: Tuple((_eigvalsh_type(x), require_matrices(x))),
    evaluate=_evaluate_eigh,
    jvp=_eigh_jvp,
    checked=True,
    cost=800.0,
)


eigvalsh = Op(
    "eigvalsh",
    type_of=_eigvalsh_type,
    evaluate=lambda x: np.linalg.eigvalsh(evaluate_hermitian_part(x)),
    jvp=_eigvalsh_jvp,
    checked=True,
    cost=500.0,
)


# --- eigenvalues of any square matrix --------------------------------------------------------------------------------


def _complex_of(element: Scalar) -> Scalar:
    return c64 if element in (f32, c64) else c128


def _eigvals_type(x: Type) -> Tensor:
    tensor = require_matrices(x)
    return Tensor(_complex_of(tensor.element), tensor.shape[:-1])


def _eig_type(x: Type) -> Type:
    values = _eigvals_type(x)
    return Tuple((values, Tensor(values.element, require_matrices(x).shape)))


def _complex_array(value: Any) -> Any:
    return value.astype(np.complex64 if value.dtype in (np.float32, np.complex64) else np.complex128)


def _evaluate_eig(x: Any) -> Any:
    values, vectors = map(_complex_array, np.linalg.eig(x))
    return values, vectors * np.conj(_unit_phases(vectors))


def _as_complex(x: Node) -> Node:
    assert isinstance(x.type, Tensor)
    return x if is_complex(x) else cast(x, type=_complex_of(x.type.element))


def _eig_jvp(y: Node, dx: Node | None) -> Node | None:
    """dw = diag(V⁻¹ dA V), dV = V (F ∘ V⁻¹ dA V) minus the part that changes the columns' norms: Boeddeker et al., "On
    the computation of complex-valued gradients" (2017)."""
    if dx is None:
        return None
    if is_empty(dx):
        return zero(y.type)
    values, vectors = get(y, index=0), get(y, index=1)
    inner = solve(vectors, matmul(_as_complex(dx), vectors))
    tangent = matmul(vectors, _inverse_gaps(values, shape_of(inner.type)) * inner)
    norm_tangent = as_element_of(real_part(sum_of_rows(conjugate(vectors) * tangent)), vectors)
    tangent = tangent - vectors * over_rows(norm_tangent, shape_of(vectors.type))
    return make_tuple(diagonal(inner), _rotate_columns(vectors, tangent, _rotation_angles(vectors, tangent)))


def _eigvals_jvp(y: Node, dx: Node | None) -> Node | None:
    if dx is None:
        return None
    vectors = get(eig(y.operands[0]), index=1)
    return diagonal(solve(vectors, matmul(_as_complex(dx), vectors)))


# (values, vectors), both complex, with unit vectors, in LAPACK's order.
eig = Op("eig", type_of=_eig_type, evaluate=_evaluate_eig, jvp=_eig_jvp, checked=True, cost=2000.0)


eigvals = Op(
    "eigvals",
    type_of=_eigvals_type,
    evaluate=lambda x: _complex_array(np.linalg.eigvals(x)),
    jvp=_eigvals_jvp,
    checked=True,
    cost=1000.0,
)


# --- singular values -------------------------------------------------------------------------------------------------


def _svdvals_type(x: Type) -> Tensor:
    tensor = require_matrices(x, square=False)
    return Tensor(tensor.element.real, (*tensor.shape[:-2], smaller(*tensor.shape[-2:])))


def _svd_type(x: Type, *, full_matrices: bool) -> Type:
    tensor, values = require_matrices(x, square=False), _svdvals_type(x)
    *batch, rows, columns = tensor.shape
    left, right = (rows, columns) if full_matrices else (values.shape[-1],) * 2
    return Tuple(
        (Tensor(tensor.element, (*batch, rows, left)), values, Tensor(tensor.element, (*batch, right, columns)))
    )


def _evaluate_svd(x: Any, *, full_matrices: bool) -> Any:
    left, values, right = np.linalg.svd(x, full_matrices)
    count = values.shape[-1]
    phases = _unit_phases(left[..., :count])
    left[..., :count] *= np.conj(phases)
    right[..., :count, :] *= np.swapaxes(phases, -1, -2)
    return left, values, right


def _svd_jvp(y: Node, dx: Node | None) -> Node | None:
    """Townsend, "Differentiating the singular value decomposition" (2016); complex matrices as Wan and Zhang,
    "Automatic differentiation for complex valued SVD" (2019)."""
    if dx is None:
        return None
    rows, columns = shape_of(dx.type)[-2:]
    if is_empty(dx):
        return zero(y.type)
    if y.attribute("full_matrices") and rows != columns:
        return _full_svd_tangents(y, dx)
    left, values, right = get(y, index=0), get(y, index=1), adjoint(get(y, index=2))
    inner = matmul(adjoint(left), matmul(dx, right))
    shape = shape_of(inner.type)
    by_column, by_row = (as_element_of(broadcast(values, shape), inner) for broadcast in (over_rows, over_columns))
    gaps = as_element_of(_inverse_gaps(values * values, shape), inner)
    scaled_columns, scaled_rows = by_column * inner, by_row * inner
    left_rotation = gaps * (scaled_columns + adjoint(scaled_columns))
    right_rotation = gaps * (scaled_rows + adjoint(scaled_rows))
    if is_complex(inner):
        # The matrix determines only the difference of the phases of a pair of vectors.
        left_rotation = left_rotation + select(
            diagonal_mask(inner), 0.5 * (inner - adjoint(inner)) / by_column, zero(inner.type)
        )
    left_tangent, right_tangent = matmul(left, left_rotation), matmul(right, right_rotation)
    if rows != smaller(rows, columns):
        left_tangent = left_tangent + _orthogonal_part(left, matmul(dx, right), values)
    if columns != smaller(rows, columns):
        right_tangent = right_tangent + _orthogonal_part(right, matmul(adjoint(dx), left), values)
    angle = _rotation_angles(left, left_tangent)
    left_tangent = _rotate_columns(left, left_tangent, angle)
    right_tangent = _rotate_columns(right, right_tangent, angle)
    return make_tuple(left_tangent, real_part(diagonal(inner)), adjoint(right_tangent))


def _full_svd_tangents(y: Node, dx: Node) -> Node:
    """The tangents of the thin SVD, but undefined for the larger side, whose last vectors are not unique."""
    rows, columns = shape_of(dx.type)[-2:]
    thin = svd(y.operands[0], full_matrices=False)
    tangents = _svd_jvp(thin, dx)
    assert tangents is not None
    left, values, right = (member(tangents, index) for index in range(3))
    reason = "the last singular vectors of a matrix that is not square are not unique; use full_matrices=False"
    if smaller(rows, columns) == columns:
        return make_tuple(undefined_tangent(dx, type=components(y.type)[0], reason=reason), values, right)
    return make_tuple(left, values, undefined_tangent(dx, type=components(y.type)[2], reason=reason))


def _orthogonal_part(vectors: Node, product: Node, values: Node) -> Node:
    """The component of a tangent orthogonal to the span of the vectors."""
    orthogonal = product - matmul(vectors, matmul(adjoint(vectors), product))
    return orthogonal / as_element_of(over_rows(values, shape_of(orthogonal.type)), orthogonal)


def _svdvals_jvp(y: Node, dx: Node | None) -> Node | None:
    if dx is None:
        return None
    factors = svd(y.operands[0], full_matrices=False)
    left, right = get(factors, index=0), adjoint(get(factors, index=2))
    return real_part(sum_of_rows(conjugate(left) * matmul(dx, right)))


# (U, values, Vᴴ), with values in descending order. U and V are square if full, else have one column per value.
svd = Op("svd", type_of=_svd_type, evaluate=_evaluate_svd, jvp=_svd_jvp, checked=True, cost=1500.0)


svdvals = Op(
    "svdvals",
    type_of=_svdvals_type,
    evaluate=lambda x: np.linalg.svd(x, compute_uv=False),
    jvp=_svdvals_jvp,
    checked=True,
    cost=800.0,
)

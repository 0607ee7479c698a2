"""Factorisations of batches of matrices, real and complex: Cholesky and QR. Eigenvalues are in `spectra.py`.

Backends run these with NumPy's LAPACK. If a matrix is not positive definite, the run ends with an error that names the
user's line.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from livegrad.diagnostics import DifferentiationError, SourceLocation, TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Tensor, Tuple, Type, components, shape_of
from livegrad.ops.aggregate import get, make_tuple, member
from livegrad.ops.conversion import imag, make_complex
from livegrad.ops.elementwise import select
from livegrad.ops.linalg import matmul, swap_last
from livegrad.ops.matrices import (
    adjoint,
    diagonal_mask,
    evaluate_hermitian_part,
    hermitian_part,
    is_complex,
    is_empty,
    lower_triangle,
    part_of_columns,
    require_matrices,
    smaller,
)
from livegrad.ops.movement import concatenate, pad
from livegrad.ops.rules import zero
from livegrad.ops.solving import triangular_solve

# --- undefined derivatives -------------------------------------------------------------------------------------------


def _not_unique_error(reason: str, where: SourceLocation | None = None) -> DifferentiationError:
    return DifferentiationError("a value that is not unique has no derivative", where=where, help=reason)


def _refuse_to_run(dx: Any, *, type: Type, reason: str) -> Any:
    raise _not_unique_error(reason)


def _refuse_to_derive(y: Node, *differentials: object) -> Any:
    raise _not_unique_error(y.attribute("reason"), y.origin)


# The tangent of a result without a derivative, beside results that have one. Only its use is an error.
undefined_tangent = Op(
    "undefined_tangent",
    type_of=lambda dx, *, type, reason: type,
    evaluate=_refuse_to_run,
    jvp=_refuse_to_derive,
    transpose=_refuse_to_derive,
    linear_in=(0,),
)

# --- Cholesky --------------------------------------------------------------------------------------------------------


def _cholesky_jvp(y: Node, dx: Node | None) -> Node | None:
    """dL = L Φ(L⁻¹ dA L⁻ᴴ), Φ the lower triangle with half the diagonal: Murray, "Differentiation of the Cholesky
    decomposition" (2016)."""
    if dx is None:
        return None
    half = triangular_solve(y, hermitian_part(dx), lower=True)
    inner = triangular_solve(y, adjoint(half), lower=True)
    lower = lower_triangle(inner)
    return matmul(y, select(diagonal_mask(lower), 0.5 * lower, lower))


# The lower factor L of the hermitian part: L Lᴴ = (x + xᴴ) / 2.
cholesky = Op(
    "cholesky",
    type_of=lambda x: require_matrices(x),
    evaluate=lambda x: np.linalg.cholesky(evaluate_hermitian_part(x)),
    jvp=_cholesky_jvp,
    checked=True,
    cost=100.0,
)

# --- QR --------------------------------------------------------------------------------------------------------------


def _qr_type(x: Type, *, mode: str) -> Type:
    tensor = require_matrices(x, square=False)
    *batch, rows, columns = tensor.shape
    if mode not in ("reduced", "complete"):
        raise TypeRuleError(f"no mode `{mode}`", expected="reduced or complete")
    inner = rows if mode == "complete" else smaller(rows, columns)
    return Tuple(
        (Tensor(tensor.element, (*batch, rows, inner)), Tensor(tensor.element, (*batch, inner, columns))),
    )


def _qr_jvp(y: Node, dx: Node | None) -> Node | None:
    """Walter and Lehmann, "Algorithmic differentiation of linear algebra functions" (2010). A wide matrix is split into
    its leading square block and the rest, R = [R₁ Qᴴ A₂]. R₁ must be invertible."""
    if dx is None:
        return None
    (x,) = y.operands
    rows, columns = shape_of(x.type)[-2:]
    inner = smaller(rows, columns)
    if is_empty(x):
        return zero(y.type)
    if inner != rows and y.attribute("mode") == "complete":
        return _complete_qr_tangents(y, dx)
    q, r = get(y, index=0), get(y, index=1)
    if inner == columns:
        return make_tuple(*_tall_qr_tangents(q, r, dx))
    rest = columns - inner
    dq, dr = _tall_qr_tangents(q, part_of_columns(r, 0, inner), part_of_columns(dx, 0, inner))
    dr_rest = matmul(adjoint(dq), part_of_columns(x, inner, rest)) + matmul(
        adjoint(q), part_of_columns(dx, inner, rest)
    )
    rank = len(shape_of(x.type))
    return make_tuple(dq, concatenate(dr, dr_rest, axis=rank - 1))


def _complete_qr_tangents(y: Node, dx: Node) -> Node:
    """The tangents for a tall matrix. R is that of the reduced QR above rows of zeros; Q's last columns are free."""
    tangents = _qr_jvp(qr(y.operands[0], mode="reduced"), dx)
    assert tangents is not None
    upper = member(tangents, 1)
    shape = shape_of(upper.type)
    nothing = (0,) * len(shape)
    below = (*nothing[:-2], shape_of(dx.type)[-2] - shape[-2], 0)
    assert isinstance(upper.type, Tensor)
    reason = 'the last columns of Q are not unique; use mode="reduced"'
    return make_tuple(
        undefined_tangent(dx, type=components(y.type)[0], reason=reason),
        pad(upper, zero(upper.type.element), low=nothing, high=below, interior=nothing),
    )


def _tall_qr_tangents(q: Node, r: Node, dx: Node) -> tuple[Node, Node]:
    """Splits dA R⁻¹ = dQ + Q dR R⁻¹: Qᴴ dQ is skew, dR R⁻¹ is upper triangular with a real diagonal."""
    quotient = swap_last(triangular_solve(swap_last(r), swap_last(dx), lower=True))
    inner = matmul(adjoint(q), quotient)
    lower = lower_triangle(inner, strictly=True)
    skew = lower - adjoint(lower)
    if is_complex(inner):
        phase = imag(inner)
        skew = skew + select(diagonal_mask(inner), make_complex(zero(phase.type), phase), zero(inner.type))
    return matmul(q, skew - inner) + quotient, matmul(inner - skew, r)


def _evaluate_qr(x: Any, *, mode: Literal["reduced", "complete"]) -> Any:
    return tuple(np.linalg.qr(x, mode))


# (Q, R) by Householder reflections. The diagonal of R is real, of either sign.
qr = Op("qr", type_of=_qr_type, evaluate=_evaluate_qr, jvp=_qr_jvp, checked=True, cost=300.0)

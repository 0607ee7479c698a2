"""Vector and matrix ops on short vectors and small matrices, all defined by expansion."""

from __future__ import annotations

from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Matrix, Type, Vector, components
from livegrad.ops.aggregate import make, members_of, splat
from livegrad.ops.elementwise import select
from livegrad.ops.rules import NUMBERS, filled, zero
from livegrad.ops.transcendental import sqrt

_FLOATING = ("float", "complex")


def _require_numbers(type: Vector | Matrix) -> None:
    if type.element.kind not in NUMBERS:
        raise TypeRuleError("operand of the wrong kind", expected=" or ".join(NUMBERS))


def _require_vectors(count: int) -> Any:
    def check(*types: Type) -> Vector:
        first = types[0]
        if len(types) != count or not isinstance(first, Vector) or any(type is not first for type in types):
            raise TypeRuleError("operands must be vectors of one type", expected=f"{count} equal vectors")
        _require_numbers(first)
        return first

    return check


def _sum(terms: list[Node]) -> Node:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


dot = Op(
    "dot",
    type_of=lambda a, b: _require_vectors(2)(a, b).element,
    evaluate=lambda a, b: sum_in_order(a * b),
    expand=lambda y: _sum([a * b for a, b in zip(*map(members_of, y.operands), strict=True)]),
    code="dot({0}, {1})",
    cost=6.0,
)


def sum_in_order(values: Any) -> Any:
    """The sum from first to last, in the order of the expansion."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _cross_type(a: Type, b: Type) -> Type:
    type = _require_vectors(2)(a, b)
    if type.size != 3:
        raise TypeRuleError("cross takes vectors of three components")
    return type


def _expand_cross(y: Node) -> Node:
    (a0, a1, a2), (b0, b1, b2) = map(members_of, y.operands)
    return make(a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0, type=y.type)


cross = Op(
    "cross",
    type_of=_cross_type,
    evaluate=np.cross,
    expand=_expand_cross,
    code="cross({0}, {1})",
    cost=9.0,
)


def _float_vector(type: Type) -> Vector:
    vector = _require_vectors(1)(type)
    if vector.element.kind != "float":
        raise TypeRuleError("operand of the wrong kind", expected="a vector of floats")
    return vector


def _expand_length(y: Node) -> Node:
    (x,) = y.operands
    square = dot(x, x)
    # The length of the zero vector has derivative zero: the square root is never taken at zero.
    at_zero = square <= 0.0
    return select(at_zero, square, sqrt(select(at_zero, filled(1.0, square.type), square)))


length = Op(
    "length",
    type_of=lambda x: _float_vector(x).element,
    evaluate=lambda x: np.sqrt(sum_in_order(x * x)),
    expand=_expand_length,
    code="length({0})",
    cost=12.0,
)
normalize = Op(
    "normalize",
    type_of=_float_vector,
    evaluate=lambda x: x / np.sqrt(sum_in_order(x * x)),
    expand=lambda y: y.operands[0] / splat(length(y.operands[0]), type=y.type),
    cost=30.0,
)

# --- matrices ------------------------------------------------------------------------------------------------------


def _rows(matrix: Node) -> list[list[Node]]:
    type = matrix.type
    assert isinstance(type, Matrix)
    members = members_of(matrix)
    return [members[row * type.columns : (row + 1) * type.columns] for row in range(type.rows)]


def _matrix_vector_type(matrix: Type, vector: Type) -> Type:
    if (
        not isinstance(matrix, Matrix)
        or not isinstance(vector, Vector)
        or matrix.columns != vector.size
        or matrix.element is not vector.element
    ):
        raise TypeRuleError("the matrix's columns must match the vector's components")
    _require_numbers(matrix)
    return Vector(matrix.element, matrix.rows)


matrix_vector = Op(
    "matrix_vector",
    type_of=_matrix_vector_type,
    evaluate=lambda m, v: sum_in_order((m * v).T),
    expand=lambda y: make(
        *[_sum([a * b for a, b in zip(row, members_of(y.operands[1]), strict=True)]) for row in _rows(y.operands[0])],
        type=y.type,
    ),
    cost=20.0,
)


def _matrix_multiply_type(a: Type, b: Type) -> Type:
    if not isinstance(a, Matrix) or not isinstance(b, Matrix) or a.columns != b.rows or a.element is not b.element:
        raise TypeRuleError("the first matrix's columns must match the second's rows")
    _require_numbers(a)
    return Matrix(a.element, a.rows, b.columns)


def _expand_matrix_multiply(y: Node) -> Node:
    rows = _rows(y.operands[0])
    columns = list(zip(*_rows(y.operands[1]), strict=True))
    return make(
        *[_sum([a * b for a, b in zip(row, column, strict=True)]) for row in rows for column in columns], type=y.type
    )


matrix_multiply = Op(
    "matrix_multiply",
    type_of=_matrix_multiply_type,
    evaluate=lambda a, b: sum_in_order([a[:, k, None] * b[None, k, :] for k in range(a.shape[1])]),
    expand=_expand_matrix_multiply,
    cost=80.0,
)


def _transpose_type(type: Type) -> Type:
    if not isinstance(type, Matrix):
        raise TypeRuleError("only a matrix has a transpose")
    return Matrix(type.element, type.columns, type.rows)


matrix_transpose = Op(
    "matrix_transpose",
    type_of=_transpose_type,
    evaluate=np.transpose,
    expand=lambda y: make(*[m for column in zip(*_rows(y.operands[0]), strict=True) for m in column], type=y.type),
    cost=0.0,
)


def _require_small_square(type: Type) -> Matrix:
    if not isinstance(type, Matrix) or type.rows != type.columns or type.element.kind not in _FLOATING:
        raise TypeRuleError("operand must be a square matrix of floats")
    if type.rows > 4:
        raise TypeRuleError("small matrices only", expected="at most 4 rows", help="use the linear algebra of tensors")
    return type


def _minor(rows: list[list[Node]], row: int, column: int) -> list[list[Node]]:
    return [[m for j, m in enumerate(line) if j != column] for i, line in enumerate(rows) if i != row]


def _determinant(rows: list[list[Node]]) -> Node:
    if len(rows) == 1:
        return rows[0][0]
    total = None
    for column, member in enumerate(rows[0]):
        term = member * _determinant(_minor(rows, 0, column))
        total = term if total is None else (total - term if column % 2 else total + term)
    assert total is not None
    return total


determinant = Op(
    "determinant",
    type_of=lambda type: _require_small_square(type).element,
    evaluate=lambda m: np.linalg.det(m.astype(np.complex128 if m.dtype.kind == "c" else np.float64)),
    expand=lambda y: _determinant(_rows(y.operands[0])),
    cost=40.0,
)


def _expand_inverse(y: Node) -> Node:
    rows = _rows(y.operands[0])
    size = len(rows)
    if size == 1:
        return make(filled(1.0, rows[0][0].type) / rows[0][0], type=y.type)
    cofactors = [[_determinant(_minor(rows, i, j)) for j in range(size)] for i in range(size)]
    signed = [[-c if (i + j) % 2 else c for j, c in enumerate(line)] for i, line in enumerate(cofactors)]
    total = _sum([a * b for a, b in zip(rows[0], signed[0], strict=True)])
    return make(*[signed[j][i] / total for i in range(size) for j in range(size)], type=y.type)


def _evaluate_inverse(matrix: Any) -> Any:
    wide = matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64)
    if np.linalg.det(wide) == 0:
        return np.full(matrix.shape, np.nan, matrix.dtype)
    return np.linalg.inv(wide)


inverse = Op(
    "inverse",
    type_of=_require_small_square,
    evaluate=_evaluate_inverse,
    expand=_expand_inverse,
    cost=150.0,
)


def identity_matrix(type: Matrix) -> Node:
    """The matrix with ones on the diagonal.

    >>> import livegrad as lg
    >>> square = lg.ir.Matrix(lg.f32, 2, 2)
    >>> lg.ir.evaluate(lg.ir.trace(lambda x: identity_matrix(square) * x, square), np.ones((2, 2)))
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    one, nothing = filled(1.0, type.element), zero(type.element)
    members = [
        one if index // type.columns == index % type.columns else nothing for index in range(len(components(type)))
    ]
    return make(*members, type=type)

"""Linear algebra on batches of matrices, the last two dimensions: the `linalg` extension of the Array API.

`lg.linalg` is this module. Factorisations (`factorisations.py`) run as separate steps and are differentiable where the
mathematical function is. Integers are converted to float32. Norms are in `norms.py`, triangular systems in
`triangular.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar
from livegrad.ir.types import Tensor as TensorType
from livegrad.ops.comparison import equal, greater
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.linalg import matmul as matmul_op
from livegrad.ops.matrices import diagonal_mask, smaller
from livegrad.ops.movement import broadcast, index_along, reshape, slice_
from livegrad.ops.reduction import reduce, spread_back
from livegrad.ops.rules import filled, zero
from livegrad.ops.solving import determinant
from livegrad.ops.solving import inv as inv_op
from livegrad.ops.solving import pinv as pinv_op
from livegrad.ops.solving import slogdet as slogdet_op
from livegrad.ops.solving import solve as solve_op
from livegrad.ops.spectra import svdvals as svdvals_op
from livegrad.tensors.axes_and_shapes import normalise_axis
from livegrad.tensors.dtypes import DEFAULT_INTEGER
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.factorisations import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    matrix_node,
    qr,
    svd,
    svdvals,
    unpack_results,
)
from livegrad.tensors.handle import Tensor, match_operands, node_of, wrap
from livegrad.tensors.norms import matrix_norm, vector_norm
from livegrad.tensors.operands import as_type, element_of, require_integer
from livegrad.tensors.products import (
    matmul,
    matrix_transpose,
    promote_numeric_operands,
    shape_of_node,
    tensordot,
    vecdot,
)
from livegrad.tensors.reductions import sum as sum_along
from livegrad.tensors.triangular import cho_solve, for_vectors, solve_triangular, system_of

__all__ = [
    "cho_solve",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    """Lists the public names only, for tab completion."""
    return __all__


class SlogdetResult(NamedTuple):
    """The sign (or phase) of a determinant, and the logarithm of its magnitude."""

    sign: Tensor
    logabsdet: Tensor


# --- systems, inverses, determinants ---------------------------------------------------------------------------------


def solve(x1: Any, x2: Any, /) -> Tensor:
    """The solution X of `x1 @ X = x2`. A one-dimensional `x2` is a vector, otherwise a batch of matrices.

    An exactly singular matrix raises when the solution is computed.

    >>> import livegrad as lg
    >>> lg.linalg.solve(lg.asarray([[2.0, 0.0], [0.0, 4.0]]), lg.asarray([2.0, 8.0]))
    Tensor([1., 2.], dtype=float32)
    """
    matrix, sides = system_of("solve", x1, x2)
    return wrap(for_vectors(sides, lambda columns: solve_op(matrix, columns)))


def inv(x: Any, /) -> Tensor:
    """The inverse of each matrix. An exactly singular matrix raises when the inverse is computed.

    >>> import livegrad as lg
    >>> lg.linalg.inv(lg.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([[0.5 , 0.  ],
            [0.  , 0.25]], dtype=float32)
    """
    return wrap(inv_op(matrix_node(x, "inv", square=True)))


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse of each matrix. Singular values up to `rtol` times the largest count as zero.

    The default tolerance is `max(M, N)` times the precision of the type. The derivative assumes that the rank is
    constant.

    >>> import livegrad as lg
    >>> lg.linalg.pinv(lg.asarray([[2.0, 0.0], [0.0, 0.0]]))
    Tensor([[0.5, 0. ],
            [0. , 0. ]], dtype=float32)
    """
    node = matrix_node(x, "pinv")
    return wrap(pinv_op(node, _tolerance(node, rtol, "pinv")))


def _tolerance(node: Node, rtol: Any, user: str) -> Node:
    """Returns the relative size below which singular values count as zero, one for each matrix."""
    shape, element = shape_of_node(node), element_of(node).real
    type = TensorType(element, shape[:-2])
    if rtol is None:
        rows, columns = shape[-2:]
        larger = rows + columns - smaller(rows, columns)
        precision = {"f32": 2.0**-23, "f64": 2.0**-52}[element.name]
        if isinstance(larger, int):
            return filled(larger * precision, type)
        raise UsageError(f"`{user}` needs a tolerance for symbolic sizes", where=caller_origin(), help="pass rtol=...")
    tolerance, _ = match_operands(user, rtol, wrap(zero(type)))
    if shape_of_node(tolerance) != shape[:-2]:
        raise ShapeError(
            f"`{user}` takes one tolerance for each matrix",
            where=caller_origin(),
            expected=f"a number, or a shape that broadcasts to {shape[:-2]}",
            found=f"shape {node_of(rtol, user).type}",
        )
    return as_type(tolerance, element)


def det(x: Any, /) -> Tensor:
    """The determinant of each matrix.

    >>> import livegrad as lg
    >>> lg.linalg.det(lg.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Tensor(8., dtype=float32)
    """
    return wrap(determinant(matrix_node(x, "det", square=True)))


def slogdet(x: Any, /) -> SlogdetResult:
    """The sign of each determinant and the logarithm of its magnitude, which cannot overflow.

    >>> import livegrad as lg
    >>> lg.linalg.slogdet(lg.asarray([[0.0, 1.0], [1.0, 0.0]]))
    SlogdetResult(sign=Tensor(-1., dtype=float32), logabsdet=Tensor(0., dtype=float32))
    """
    return SlogdetResult(*unpack_results(slogdet_op(matrix_node(x, "slogdet", square=True)), 2))


def matrix_power(x: Any, n: int, /) -> Tensor:
    """Each matrix to the power of `n`; negative powers use the inverse.

    >>> import livegrad as lg
    >>> lg.linalg.matrix_power(lg.asarray([[1.0, 1.0], [0.0, 1.0]]), 5)
    Tensor([[1., 5.],
            [0., 1.]], dtype=float32)
    """
    node = matrix_node(x, "matrix_power", square=True)
    n = require_integer(n, "matrix_power", "the exponent")
    if n == 0:
        return wrap(select(diagonal_mask(node), filled(1.0, node.type), zero(node.type)))
    square, exponent = (inv_op(node) if n < 0 else node), abs(n)
    power: Node | None = None
    while exponent:
        if exponent & 1:
            power = square if power is None else matmul_op(power, square)
        exponent >>= 1
        square = matmul_op(square, square) if exponent else square
    assert power is not None
    return wrap(power)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values of each matrix above `rtol` times the largest.

    >>> import livegrad as lg
    >>> lg.linalg.matrix_rank(lg.ones((3, 3)))
    Tensor(1, dtype=int64)
    """
    node = matrix_node(x, "matrix_rank")
    values = svdvals_op(node)
    shape = shape_of_node(values)
    if shape[-1] == 0:
        return wrap(filled(0, TensorType(DEFAULT_INTEGER, shape[:-1])))
    last = (len(shape) - 1,)
    largest = reduce(values, kind="max", axes=last)
    limit = spread_back(_tolerance(node, rtol, "matrix_rank") * largest, shape, last)
    return wrap(reduce(cast(greater(values, limit), type=DEFAULT_INTEGER), kind="sum", axes=last))


# --- diagonals and products ------------------------------------------------------------------------------------------


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """The diagonal of each matrix, `offset` positions above the main diagonal (below if negative).

    >>> import livegrad as lg
    >>> lg.linalg.diagonal(lg.asarray([[1, 2], [3, 4]]))
    Tensor([1, 4], dtype=int64)
    """
    return wrap(_diagonal(node_of(x, "diagonal"), offset, "diagonal"))


def _diagonal(node: Node, offset: int, user: str) -> Node:
    """Takes the diagonal as a strided slice of the flattened matrix: each step advances one row and one column."""
    shape = shape_of_node(node)
    if len(shape) < 2:
        expected = "at least two dimensions"
        raise ShapeError(f"`{user}` takes matrices", where=caller_origin(), expected=expected, found=f"shape {shape}")
    *batch, rows, columns = shape
    offset = require_integer(offset, user, "the offset")
    if not (isinstance(rows, int) and isinstance(columns, int)):
        found = f"{rows} rows and {columns} columns"
        raise UsageError(f"`{user}` needs matrices of static size", where=caller_origin(), found=found)
    size = max(0, min(rows, columns, rows + offset, columns - offset))
    start = offset if offset >= 0 else -offset * columns
    flat = reshape(node, shape=(*batch, rows * columns))
    first = (*(0 for _ in batch), start if size else 0)
    return slice_(flat, start=first, size=(*batch, size), step=(*(1 for _ in batch), columns + 1))


def trace(x: Any, /, *, offset: int = 0, dtype: Scalar | None = None) -> Tensor:
    """The sum of the diagonal of each matrix, `offset` positions above the main diagonal.

    >>> import livegrad as lg
    >>> lg.linalg.trace(lg.asarray([[1, 2], [3, 4]]))
    Tensor(5, dtype=int64)
    """
    return sum_along(wrap(_diagonal(node_of(x, "trace"), offset, "trace")), axis=-1, dtype=dtype)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """The outer product of two vectors.

    >>> import livegrad as lg
    >>> lg.linalg.outer(lg.asarray([1, 2]), lg.asarray([10, 20, 30]))
    Tensor([[10, 20, 30],
            [20, 40, 60]], dtype=int64)
    """
    a, b = promote_numeric_operands("outer", x1, x2)
    first, second = shape_of_node(a), shape_of_node(b)
    if len(first) != 1 or len(second) != 1:
        raise ShapeError(
            "`outer` takes vectors", where=caller_origin(), expected="one dimension", found=f"{first} and {second}"
        )
    shape = (*first, *second)
    return wrap(broadcast(a, shape=shape, axes=(0,)) * broadcast(b, shape=shape, axes=(1,)))


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three components along an axis; the other dimensions broadcast.

    >>> import livegrad as lg
    >>> lg.linalg.cross(lg.asarray([1, 0, 0]), lg.asarray([0, 1, 0]))
    Tensor([0, 0, 1], dtype=int64)
    """
    a, b = promote_numeric_operands("cross", x1, x2)
    first, second = shape_of_node(a), shape_of_node(b)
    axes = [normalise_axis(axis, len(shape), "cross") - len(shape) for shape in (first, second)]
    if first[axes[0]] != 3 or second[axes[1]] != 3 or axes[0] != axes[1]:
        raise ShapeError(
            f"`cross` takes vectors of three components along axis {axis}",
            where=caller_origin(),
            found=f"shapes {first} and {second}",
        )
    a, b = match_operands("cross", wrap(a), wrap(b))
    shape = shape_of_node(a)
    position = len(shape) + axes[0]
    (a0, a1, a2), (b0, b1, b2) = _components(a, position), _components(b, position)
    # Selects by index instead of concatenating, so that everything fuses into one kernel.
    index = index_along(shape, position)
    last = select(equal(index, 1), a2 * b0 - a0 * b2, a0 * b1 - a1 * b0)
    return wrap(select(equal(index, 0), a1 * b2 - a2 * b1, last))


def _components(x: Node, axis: int) -> list[Node]:
    """Returns the three components along an axis, each broadcast over the axis."""
    shape = shape_of_node(x)
    size, axes = tuple(1 if i == axis else n for i, n in enumerate(shape)), tuple(range(len(shape)))
    parts = []
    for component in range(3):
        start = tuple(component if i == axis else 0 for i in axes)
        parts.append(broadcast(slice_(x, start=start, size=size, step=(1,) * len(shape)), shape=shape, axes=axes))
    return parts

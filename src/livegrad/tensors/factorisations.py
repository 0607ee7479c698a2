"""Matrix factorisations for `lg.linalg`: Cholesky, QR, eigenvalues, singular values.

They run on batches of real or complex matrices as separate steps of the plan, on the CPU with NumPy's LAPACK, and are
differentiable where the mathematical function is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import c64, c128, f32, f64
from livegrad.ops import decompositions, spectra
from livegrad.ops.aggregate import get
from livegrad.ops.matrices import adjoint
from livegrad.tensors.dtypes import DEFAULT_FLOAT
from livegrad.tensors.errors import DtypeError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import as_type, element_of
from livegrad.tensors.products import shape_of_node

_ELEMENTS = (f32, f64, c64, c128)


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and a matrix with the eigenvectors in columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Complex eigenvalues, and a matrix with the eigenvectors in columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """A matrix with orthonormal columns, and an upper triangular matrix."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors in columns, singular values in descending order, right singular vectors in rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def matrix_node(x: Any, user: str, square: bool = False) -> Node:
    """Converts an operand to a node of float or complex matrices that can be factorised; integers become float32."""
    node = node_of(x, user)
    shape = shape_of_node(node)
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        expected = "square matrices in the last two dimensions" if square else "at least two dimensions"
        raise ShapeError(f"`{user}` takes matrices", where=caller_origin(), expected=expected, found=f"shape {shape}")
    element = element_of(node)
    if element.kind not in ("float", "complex"):
        return as_type(node, DEFAULT_FLOAT)
    if element not in _ELEMENTS:
        expected = " or ".join(each.dtype.name for each in _ELEMENTS)
        raise DtypeError(f"`{user}` does not support {element}", where=caller_origin(), expected=expected)
    return node


def unpack_results(node: Node, count: int) -> list[Tensor]:
    """Unpacks the tuple node of an op with several results."""
    return [wrap(get(node, index=index)) for index in range(count)]


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of each hermitian, positive definite matrix: L with `L @ Lᴴ = x`, or U with `Uᴴ @ U = x`.

    A matrix that is not positive definite raises when the factor is computed.

    >>> import livegrad as lg
    >>> lg.linalg.cholesky(lg.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], dtype=float32)
    """
    factor = decompositions.cholesky(matrix_node(x, "cholesky", square=True))
    return wrap(adjoint(factor) if upper else factor)


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Returns orthonormal columns Q and an upper triangular R with `Q @ R = x`; mode "complete" returns a square Q.

    >>> import livegrad as lg
    >>> [part.shape for part in lg.linalg.qr(lg.ones((4, 2)), mode="complete")]
    [(4, 4), (4, 2)]
    """
    node = matrix_node(x, "qr")
    if mode not in ("reduced", "complete"):
        raise UsageError(f"`qr` has no mode {mode!r}", where=caller_origin(), expected="'reduced' or 'complete'")
    return QRResult(*unpack_results(decompositions.qr(node, mode=mode), 2))


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues in ascending order and eigenvectors of each symmetric or hermitian matrix.

    >>> import livegrad as lg
    >>> lg.linalg.eigh(lg.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Tensor([1., 2.], dtype=float32)
    """
    return EighResult(*unpack_results(spectra.eigh(matrix_node(x, "eigh", square=True)), 2))


def eigvalsh(x: Any, /) -> Tensor:
    """Eigenvalues in ascending order of each symmetric or hermitian matrix.

    >>> import livegrad as lg
    >>> lg.linalg.eigvalsh(lg.asarray([[0.0, 1.0], [1.0, 0.0]]))
    Tensor([-1.,  1.], dtype=float32)
    """
    return wrap(spectra.eigvalsh(matrix_node(x, "eigvalsh", square=True)))


def eig(x: Any, /) -> EigResult:
    """Complex eigenvalues and eigenvectors of each square matrix.

    >>> import livegrad as lg
    >>> lg.linalg.eig(lg.asarray([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    Tensor([0.+1.j, 0.-1.j], dtype=complex64)
    """
    return EigResult(*unpack_results(spectra.eig(matrix_node(x, "eig", square=True)), 2))


def eigvals(x: Any, /) -> Tensor:
    """Complex eigenvalues of each square matrix.

    >>> import livegrad as lg
    >>> lg.linalg.eigvals(lg.asarray([[2.0, 1.0], [0.0, 3.0]]))
    Tensor([2.+0.j, 3.+0.j], dtype=complex64)
    """
    return wrap(spectra.eigvals(matrix_node(x, "eigvals", square=True)))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular vectors and values of each matrix: `U @ diag(S) @ Vh = x`.

    Without `full_matrices`, U and Vh contain only the vectors that belong to a singular value.

    >>> import livegrad as lg
    >>> [part.shape for part in lg.linalg.svd(lg.ones((4, 2)), full_matrices=False)]
    [(4, 2), (2,), (2, 2)]
    """
    return SVDResult(*unpack_results(spectra.svd(matrix_node(x, "svd"), full_matrices=bool(full_matrices)), 3))


def svdvals(x: Any, /) -> Tensor:
    """Singular values of each matrix, in descending order.

    >>> import livegrad as lg
    >>> lg.linalg.svdvals(lg.asarray([[3.0, 0.0], [0.0, -4.0]]))
    Tensor([4., 3.], dtype=float32)
    """
    return wrap(spectra.svdvals(matrix_node(x, "svdvals")))

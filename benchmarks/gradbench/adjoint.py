"""The gradient of GradBench's gmm, derived by hand in livegrad's IR: the baseline for differentiation."""

from benchmarks.gradbench.inputs import arrays
from benchmarks.gradbench.ir_arrays import log_sum_exp, shape_of, spread, swap, total, triangular
from benchmarks.gradbench.ir_programs import types_of
from livegrad import ops
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import f64, i64
from livegrad.ops.conversion import cast


def gmm_adjoint(x: Node, alpha: Node, mu: Node, q: Node, below: Node) -> tuple[Node, ...]:
    """The gradients by alpha, mu, q and below."""
    (n, d), (k,) = shape_of(x.type), shape_of(alpha.type)
    factor = triangular(q, below)
    centred = spread(swap(x), (k, d, n), 1, 2) - spread(mu, (k, d, n), 0, 1)
    moved = ops.matmul(factor, centred)
    beta = spread(alpha + total(q, 1), (k, n), 0) - total(moved * moved, 1) * 0.5
    # The responsibility of each component for each observation.
    share = ops.exp(beta - spread(log_sum_exp(beta), (k, n), 1))
    whole = total(share, 1)
    by_alpha = whole - ops.exp(alpha - spread(log_sum_exp(alpha), (k,))) * float(n)
    by_moved = -(spread(share, (k, d, n), 0, 2) * moved)
    by_mu = -total(ops.matmul(swap(factor), by_moved), 2)
    by_factor = ops.matmul(by_moved, swap(centred)) - factor
    row, column = places_below(k, d)
    batch = ops.index_along((k, d * (d - 1) // 2), 0)
    indices = [ops.index_along((k, d), axis) for axis in range(2)]
    by_q = spread(whole, (k, d), 0) + ops.lookup(by_factor, indices[0], indices[1], indices[1]) * ops.exp(q)
    return by_alpha, by_mu, by_q, ops.lookup(by_factor, batch, row, column)


def places_below(k: int, d: int) -> tuple[Node, Node]:
    """The row and column of each element below the diagonal, in column-major order."""
    length = d * (d - 1) // 2
    position = ops.index_along((k, length), 1)
    # From the end, columns start at the triangular numbers 0, 1, 3, 6 …, which a square root inverts.
    behind = cast(length - 1 - position, type=f64)
    from_last = cast(ops.floor((ops.sqrt(behind * 8.0 + 1.0) - 1.0) * 0.5), type=i64)
    column = d - 2 - from_last
    row = position - column * (2 * d - 1 - column) // 2 + column + 1
    return row, column


def make_adjoint(size: int) -> Function:
    return trace(gmm_adjoint, *types_of(arrays("gmm", size)))

"""Products of tensors: matmul, vecdot, tensordot and einsum against NumPy, with their errors and derivatives."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.types import Tensor as TensorType
from livegrad.tensors.handle import wrap

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (1, 3, 4)),
    ((3,), (5, 3, 4)),
    ((6, 1, 2, 3), (5, 3)),
    ((2, 0), (0, 3)),
]


def draw(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, shape) + (1j * rng.integers(0, 9, shape) if dtype.startswith("complex") else 0)
    return values.astype(dtype)


def assert_same(found: lg.Tensor, expected: Any) -> None:
    value = found.numpy()
    assert (value.dtype, value.shape) == (np.asarray(expected).dtype, np.shape(expected))
    np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(("first", "second"), SHAPES)
@pytest.mark.parametrize("dtype", ["int16", "float32", "complex128"])
def test_matrix_products_match_numpy(dtype: str, first: Any, second: Any) -> None:
    a, b = draw(first, dtype), draw(second, dtype, 1)
    if first == (6, 1, 2, 3):
        a, b = draw((6, 1, 2, 3), dtype), draw((5, 3, 2), dtype, 1)
    assert_same(lg.matmul(lg.asarray(a), lg.asarray(b)), a @ b)
    assert_same(lg.asarray(a) @ lg.asarray(b), a @ b)


def test_matrix_products_promote_to_one_type() -> None:
    a, b = lg.ones((2, 2), dtype=lg.int32), lg.ones((2, 2), dtype=lg.float64)
    assert lg.matmul(a, b).dtype == lg.float64
    assert lg.vecdot(a, lg.ones(2, dtype=lg.int64)).dtype == lg.int64


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((2, 3), (4, 5), "3 columns do not match 4 rows"),
        ((3,), (4,), r"cannot multiply shapes \(3,\) and \(4,\)"),
        ((2, 2, 3), (3, 3, 4), "2 and 3 differ"),
        ((), (3,), "takes tensors with dimensions"),
    ],
)
def test_mismatched_matrix_products_raise(first: Any, second: Any, reason: str) -> None:
    with pytest.raises(lg.ShapeError, match=reason) as caught:
        lg.matmul(lg.ones(first), lg.ones(second))
    assert "test_linear_algebra.py" in str(caught.value)


def test_truth_values_have_no_product() -> None:
    with pytest.raises(lg.DtypeError, match="`matmul` does not support bool"):
        lg.matmul(lg.ones((2, 2), dtype=lg.bool), lg.ones((2, 2), dtype=lg.bool))


def test_matrices_are_transposed_in_their_last_dimensions() -> None:
    x = draw((4, 2, 3))
    assert_same(lg.matrix_transpose(lg.asarray(x)), np.swapaxes(x, -1, -2))
    with pytest.raises(lg.ShapeError, match="at least two dimensions"):
        lg.matrix_transpose(lg.ones(3))


@pytest.mark.parametrize("dtype", ["int64", "float64", "complex64"])
def test_inner_products_conjugate_the_first_vector(dtype: str) -> None:
    a, b = draw((4, 1, 3), dtype), draw((5, 3), dtype, 1)
    assert_same(lg.vecdot(lg.asarray(a), lg.asarray(b)), np.sum(np.conj(a) * b, axis=-1))
    b = draw((4, 5, 3), dtype, 2)
    a = draw((4, 1, 3), dtype)
    assert_same(lg.vecdot(lg.asarray(a), lg.asarray(b), axis=-3), np.sum(np.conj(a) * b, axis=-3))
    with pytest.raises(lg.ShapeError, match="1 and 5 differ"):
        lg.vecdot(lg.asarray(a), lg.asarray(b), axis=-2)


@pytest.mark.parametrize("axes", [0, 1, 2, ((0, 2), (1, 0)), ((-1,), (0,)), ((), ())])
@pytest.mark.parametrize("dtype", ["int64", "complex64"])
def test_contractions_match_numpy(dtype: str, axes: Any) -> None:
    first, second = ((4, 2, 3), (3, 4, 5)) if isinstance(axes, tuple) else ((2, 3, 3), (3, 3, 5))
    a, b = draw(first, dtype), draw(second, dtype, 1)
    assert_same(lg.tensordot(lg.asarray(a), lg.asarray(b), axes=axes), np.tensordot(a, b, axes=axes))


def test_mismatched_contractions_raise() -> None:
    a = lg.ones((2, 3))
    with pytest.raises(lg.ShapeError, match="cannot contract shapes"):
        lg.tensordot(a, a, axes=1)
    with pytest.raises(lg.AxisError, match="cannot contract 3 axes"):
        lg.tensordot(a, a, axes=3)
    with pytest.raises(lg.AxisError, match="same number of axes for both"):
        lg.tensordot(a, a, axes=((0,), (0, 1)))


# --- einsum ----------------------------------------------------------------------------------------------------------

EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij, jk", (2, 3), (3, 4)),
    ("ba", (3, 4)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("iii->i", (3, 3, 3)),
    ("ij->", (3, 4)),
    ("i,j", (3,), (4,)),
    ("i,i->", (3,), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    (",i->i", (), (3,)),
    ("...ij,...jk->...ik", (5, 2, 3), (1, 3, 4)),
    ("...i,...i", (2, 3, 4), (4,)),
    ("i...->...", (2, 3, 4)),
    ("...ab->...ba", (2, 3, 4)),
    ("abc,bd,cd->ad", (2, 3, 4), (3, 5), (4, 5)),
    ("a,b,c->cba", (2,), (3,), (4,)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("i,i->", (1,), (5,)),
    ("ij,j->i", (4, 1), (5,)),
    ("ij,kj->ik", (2, 0), (3, 0)),
    ("ea,fb,abcd,gc,hd->efgh", (2, 3), (2, 3), (3, 3, 3, 3), (2, 3), (2, 3)),
]


@pytest.mark.parametrize(("subscripts", "shapes"), [(first, rest) for first, *rest in EINSUMS])
def test_einsum_matches_numpy(subscripts: str, shapes: Any) -> None:
    operands = [draw(shape, "float64", seed) for seed, shape in enumerate(shapes)]
    assert_same(lg.einsum(subscripts, *map(lg.asarray, operands)), np.einsum(subscripts, *operands))


@pytest.mark.parametrize(
    ("subscripts", "shapes", "reason"),
    [
        ("ij,jk", [(2, 3)], "2 terms for 1 operands"),
        ("ij", [(2,)], "`ij` names 2 dimensions of a tensor with 1"),
        ("i-j", [(2, 3)], "must consist of letters"),
        ("ij->ik", [(2, 3)], "names `k`, which no operand has"),
        ("ij->ii", [(2, 3)], "repeats a letter"),
        ("ij,jk", [(2, 3), (4, 5)], r"two sizes for `j` .* found 3 and 4"),
        ("...i->i", [(2, 3)], "omits the ellipsis"),
        ("...i....", [(2, 3)], "at most one ellipsis"),
        ("", [], "terms for 0 operands"),
    ],
)
def test_invalid_subscripts_raise(subscripts: str, shapes: Any, reason: str) -> None:
    with pytest.raises(lg.LivegradError, match=reason) as caught:
        lg.einsum(subscripts, *map(lg.ones, shapes))
    assert "test_linear_algebra.py" in str(caught.value)


def test_einsum_takes_sizes_that_are_known_at_run_time() -> None:
    n = lg.ir.Dimension.symbol("n")
    types = TensorType(lg.f64, (n, 3)), TensorType(lg.f64, (n, 3))
    compiled = lg.ir.compile(lg.ir.trace(lambda a, b: lg.einsum("ni,nj->ij", wrap(a), wrap(b)).node, *types))
    for rows in (2, 5):
        a, b = draw((rows, 3)), draw((rows, 3), seed=1)
        np.testing.assert_array_equal(compiled(a, b), a.T @ b)


def test_a_product_of_many_takes_the_cheapest_pair_first() -> None:
    matrix, vector = lg.ones((64, 64)), lg.ones(64)
    found = lg.einsum("ij,jk,k->i", matrix, matrix, vector)
    assert float(found[0]) == 64.0 * 64.0
    shapes = [step.node.type.shape for step in _products(found)]
    assert (64, 64) not in shapes  # never the product of the two matrices


def _products(tensor: lg.Tensor) -> list[Any]:
    pending, found = [tensor.node], []
    while pending:
        node = pending.pop()
        pending.extend(node.operands)
        if node.op.name == "matmul":
            found.append(wrap(node))
    return found


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lg.matmul, [(2, 3), (3, 4)]),
        (lg.matmul, [(3,), (2, 3, 4)]),
        (lg.vecdot, [(2, 1, 3), (4, 3)]),
        (lambda a, b: lg.tensordot(a, b, axes=((0,), (1,))), [(3, 2), (4, 3)]),
        (lambda a, b: lg.einsum("iij,jk->ki", a, b), [(2, 2, 3), (3, 2)]),
        (lambda a, b: lg.einsum("...i,...i->...", a, b), [(2, 3), (3,)]),
    ],
)
def test_products_have_the_derivative_of_finite_differences(function: Any, shapes: Any) -> None:
    rng = np.random.default_rng(5)
    lg.check_gradients(function, *(rng.standard_normal(shape) for shape in shapes))


@pytest.mark.parametrize("dtype", [lg.uint8, lg.int64, lg.float32, lg.complex64])
def test_a_product_of_two_numbers_is_one(dtype: Any) -> None:
    """Numbers are reshaped to 1×1 matrices without a copy."""
    two, three = lg.asarray(2, dtype=dtype), lg.asarray(3, dtype=dtype)
    assert lg.tensordot(two, three, axes=((), ())).numpy() == 6
    one = lg.matmul(lg.reshape(two, (1, 1)), lg.reshape(three, (1, 1)))
    np.testing.assert_array_equal(one.numpy(), [[6]])


def test_the_number_of_an_iteration_may_be_multiplied_as_a_matrix() -> None:
    def body(i: Any, total: Any) -> Any:
        return total + lg.matmul(lg.reshape(lg.astype(i, lg.int64), (1, 1)), lg.ones((1, 2), dtype=lg.int64))

    total = lg.fori_loop(0, 4, body, lg.zeros((1, 2), dtype=lg.int64))
    np.testing.assert_array_equal(total.numpy(), [[6, 6]])


REPEATED = {
    "bii->b": (3, 4, 4), "bii->bi": (3, 4, 4), "iib->b": (4, 4, 3), "ibi->bi": (4, 3, 4), "iii->i": (4, 4, 4),
    "iijj->ij": (3, 3, 2, 2), "ijij->ij": (3, 2, 3, 2), "ijji->ij": (3, 2, 2, 3), "ii": (5, 5), "bii->ib": (3, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("subscripts", REPEATED)
def test_einsum_reads_only_the_diagonal_of_a_repeated_index(subscripts: str) -> None:
    x = np.random.default_rng(1).normal(size=REPEATED[subscripts])
    result = lg.einsum(subscripts, lg.asarray(x))
    assert "select" not in {entry.node.op.name for entry in result.graph.nodes}  # no mask over the whole tensor
    np.testing.assert_allclose(result.numpy(), np.einsum(subscripts, x), rtol=1e-14)
    weights = np.random.default_rng(2).normal(size=result.shape)
    gradient = lg.grad(lambda x: lg.sum(lg.einsum(subscripts, x) * lg.asarray(weights)))(lg.asarray(x)).numpy()
    direction = np.random.default_rng(3).normal(size=x.shape)
    # The map is linear: <gradient, direction> is the value in that direction.
    expected = np.sum(np.einsum(subscripts, direction) * weights)
    np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=1e-12)

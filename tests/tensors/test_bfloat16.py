"""Tensors of bfloat16: computed in float32, rounded once per operation, two bytes per element."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.bfloat16 import narrow, widen

B = lg.bfloat16
DATA = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def rounded(x):
    return widen(narrow(x))


def tensor(values=DATA) -> lg.Tensor:
    return lg.asarray(values, dtype=B)


def test_data_is_rounded_and_takes_two_bytes():
    x = tensor()
    assert x.dtype is B
    assert x.graph.nodes[0].bytes == 4 * 6 * 2
    np.testing.assert_array_equal(x.numpy(), rounded(DATA))
    assert x.numpy().dtype == np.float32
    assert repr(lg.asarray([0.1], dtype=B)) == "Tensor([0.10009766], dtype=bfloat16)"
    assert lg.asarray([1.5], dtype="bfloat16").tolist() == [1.5]


OPERATIONS = {
    "add": (lambda x: x + x * 3.0, lambda x: rounded(x + rounded(x * np.float32(3.0)))),
    "exp": (lg.exp, lambda x: rounded(np.exp(x))),
    "where": (lambda x: lg.where(x > 0.0, x, -x), np.abs),
    "index": (lambda x: x[1:, ::2], lambda x: x[1:, ::2]),
    "lookup": (lambda x: x[lg.asarray([2, 0])], lambda x: x[[2, 0]]),
    "concat": (lambda x: lg.concat([x, x]), lambda x: np.concatenate([x, x])),
    "sort": (lambda x: lg.sort(x, axis=1), lambda x: np.sort(x, 1)),
    "max": (lambda x: lg.max(x, axis=0), lambda x: x.max(0)),
    "argmax": (lambda x: lg.argmax(x, axis=1), lambda x: x.argmax(1)),
    "to int": (lambda x: lg.astype(x * 10.0, lg.int32), lambda x: np.trunc(rounded(x * np.float32(10.0)))),
    "to float64": (lambda x: lg.astype(x, lg.float64), lambda x: x.astype(np.float64)),
}


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("case", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_round_once_each(case, device):
    run, expected = case
    x = tensor()
    found = run(x.to(device)).numpy()
    if case is OPERATIONS["exp"]:
        np.testing.assert_allclose(found, expected(x.numpy()), rtol=2.0**-7)
    else:
        np.testing.assert_array_equal(found, expected(x.numpy()))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda x: lg.sum(x, axis=1), lambda x: x.sum(1)),
        (lambda x: lg.mean(x), lambda x: x.mean()),
        (lambda x: lg.var(x, axis=0), lambda x: x.var(0)),
        (lambda x: x @ x.mT, lambda x: x @ x.T),
        (lambda x: lg.softmax(x, axis=1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        (lambda x: lg.einsum("ij,ij->i", x, x), lambda x: (x * x).sum(1)),
    ],
)
def test_folds_keep_single_precision_until_the_end(run, expected):
    x = tensor()
    np.testing.assert_allclose(run(x).numpy(), expected(x.numpy()), rtol=2.0**-7, atol=2.0**-9)


def test_a_sum_of_many_does_not_stick():
    """In bf16, 256 + 1 is 256, so a bf16 accumulator would stop there."""
    assert float(lg.sum(lg.ones(5000, dtype=B))) == widen(narrow(5000.0))


def test_types_meet():
    x = tensor()
    assert (x + 1.0).dtype is B
    assert (x + lg.asarray(1)).dtype is B
    assert (x + lg.ones(6)).dtype is lg.float32
    assert (x + lg.ones(6, dtype=lg.float16)).dtype is lg.float32
    assert (x + lg.ones(6, dtype=lg.float64)).dtype is lg.float64
    assert lg.isdtype(B, "real floating")
    assert lg.finfo(B).eps == 2.0**-7
    assert "bfloat16" not in lg.__array_namespace_info__().dtypes()  # the standard does not name it


def test_gradients_are_of_the_same_type_and_right_to_its_digits():
    x = tensor()

    def loss(x):
        return lg.sum(lg.tanh(x @ x.mT) * 0.5)

    slope = lg.grad(loss)(x)
    assert slope.dtype is B
    exact = lg.grad(loss)(lg.astype(x, lg.float64)).numpy()
    np.testing.assert_allclose(slope.numpy(), exact, rtol=0.05, atol=0.05)
    jitted = lg.jit(lg.grad(loss))(x)
    np.testing.assert_array_equal(jitted.numpy(), slope.numpy())


def test_training_in_bf16_with_weights_in_float32():
    w = lg.zeros(6)
    for _ in range(60):
        w = w - 0.05 * lg.grad(lambda w: lg.mean((tensor() @ lg.astype(w, B) - tensor()[:, 0]) ** 2))(w)
    np.testing.assert_allclose(w.numpy()[0], 1.0, atol=0.5)
    assert w.dtype is lg.float32


def test_loops_carry_it():
    x = tensor()
    total, _ = lg.scan(lambda s, row: (s + row, s), lg.zeros(6, dtype=B), x)
    expected = np.zeros(6, np.float32)
    for row in x.numpy():
        expected = rounded(expected + row)
    np.testing.assert_array_equal(total.numpy(), expected)


def test_it_is_copied_pickled_and_saved(tmp_path):
    x = tensor()
    lg.save(tmp_path / "x.npz", [x])
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), lg.load(tmp_path / "x.npz")[0]):
        assert twin.dtype is B
        np.testing.assert_array_equal(twin.numpy(), x.numpy())
    x.fill(0.3)
    assert x.numpy()[0, 0] == rounded(0.3)
    x.fill_random(seed=1)
    assert np.all((x.numpy() >= 0.0) & (x.numpy() < 1.0))
    x[0, 0] = 2.0
    assert float(x[0, 0]) == 2.0


def test_values_outside_its_range_and_exports_are_rejected():
    for action in (
        lambda: tensor() * 3.4e38,
        lambda: np.from_dlpack(tensor()),
        lambda: lg.nextafter(tensor(), tensor()),
        lambda: lg.linalg.inv(lg.eye(2, dtype=B)),
    ):
        with pytest.raises(lg.LivegradError, match=r"test_bfloat16\.py"):
            action()
    with lg.debug_nans(), pytest.raises(lg.KernelCheckError, match="`log` produced the first NaN"):
        lg.log(lg.asarray([-1.0], dtype=B)).execute()


def test_gradients_go_through_a_scan_with_its_rows():
    def total(x):
        last, rows = lg.scan(lambda h, a: (h * a, lg.sin(h)), lg.ones((), dtype=x.dtype), x)
        return lg.sum(rows) + last

    x = np.array([0.5, 1.0, 2.0], np.float32)
    expected = lg.grad(total)(lg.asarray(x))
    found = lg.grad(total)(lg.asarray(x).astype(lg.bfloat16))
    assert found.dtype == lg.bfloat16
    np.testing.assert_allclose(np.asarray(found.astype(lg.float32)), np.asarray(expected), rtol=1e-2)


def test_captured_functions_give_numbers():
    @lg.differentiable
    def power(x: lg.bf16, n: int) -> lg.bf16:  # type: ignore
        y = x
        for _ in range(n):
            y = y * x
        return y

    assert power(1.5, 3) == 5.0625
    assert lg.bwd_diff(power)(1.5, 3, 1.0) == (13.5, None)

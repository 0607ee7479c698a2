"""Library functions outside captured functions: on lazy tensors, and on plain numbers for debugging."""

import math

import numpy as np
import pytest

import livegrad as lg

A, B = np.random.default_rng(1).random((2, 4, 3))
LENGTHS = np.linalg.norm(A, axis=-1, keepdims=True)
MATRICES = np.random.default_rng(2).random((5, 2, 2)) + 2.0 * np.eye(2)

CASES = {
    "dot": (lambda a, b: lg.dot(a, b[1]), A @ B[1]),
    "length": (lambda a, b: lg.length(a), LENGTHS[:, 0]),
    "normalize": (lambda a, b: lg.normalize(a), A / LENGTHS),
    "cross": (lambda a, b: lg.cross(a, b), np.cross(A, B)),
    "mix": (lambda a, b: lg.mix(a, b, 0.25), A + (B - A) * 0.25),
    "clamp": (lambda a, b: lg.clamp(a, 0.2, 0.5), np.clip(A, 0.2, 0.5)),
    "step": (lambda a, b: lg.step(0.5, a), np.where(A < 0.5, 0.0, 1.0)),
    "smoothstep": (lambda a, b: lg.smoothstep(0.0, 2.0, a), (A / 2) ** 2 * (3.0 - A)),
    "fract": (lambda a, b: lg.fract(3.0 * a), 3.0 * A - np.floor(3.0 * A)),
    "select": (lambda a, b: lg.select(a < 0.5, a, b), np.where(A < 0.5, A, B)),
}


@pytest.mark.parametrize("name", CASES)
def test_functions_of_vectors_on_tensors_are_lazy_and_have_gradients(name: str) -> None:
    run, expected = CASES[name]
    result = run(lg.asarray(A), lg.asarray(B))
    assert isinstance(result, lg.Tensor)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-13)
    lg.check_gradients(lambda a, b: lg.sum(run(a, b)), lg.asarray(A), lg.asarray(B))


def test_functions_of_matrices_on_tensors():
    tensor = lg.asarray(MATRICES)
    np.testing.assert_allclose(np.asarray(lg.determinant(tensor)), np.linalg.det(MATRICES), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(lg.inverse(tensor)), np.linalg.inv(MATRICES), rtol=1e-12)
    slope = lg.grad(lambda m: lg.sum(lg.determinant(m)))(tensor)
    expected = np.linalg.det(MATRICES)[:, None, None] * np.linalg.inv(MATRICES).transpose(0, 2, 1)
    np.testing.assert_allclose(np.asarray(slope), expected, rtol=1e-12)


def test_a_detached_tensor_has_no_gradient():
    slope = lg.grad(lambda x: lg.sum(lg.detach(x) * x))(lg.asarray(A))
    np.testing.assert_array_equal(np.asarray(slope), A)


def helper(x: float) -> float:
    return lg.cos(x) if x > 0.0 else helper(-x)  # type: ignore


@lg.function
def everything(x: float) -> float:
    top = lg.max(x, 0.5) * lg.min(x, 2.0) + lg.clamp(x, 0.0, 1.0)
    return top + lg.sin(x) + lg.exp(x) + lg.sqrt(x) + lg.atan2(x, 2.0) + lg.erf(x) + lg.floor(x) + lg.log1p(x)


def test_plain_python_computes_in_full_precision():
    value = everything.python(1.7)
    assert isinstance(value, float)
    assert math.isclose(value, everything(1.7), rel_tol=1e-14)
    assert isinstance(lg.sin(1.7), lg.Tensor)  # outside of the debugging mode nothing has changed


def test_plain_python_reaches_plain_functions_that_are_called():
    @lg.function
    def f(x: float) -> float:
        return helper(x) + lg.sin(x)  # type: ignore

    assert f.python(-0.3) == math.cos(0.3) + math.sin(-0.3)


def test_plain_python_supports_vectors():
    @lg.function
    def f(v: lg.dvec3) -> lg.dvec3:
        return lg.normalize(lg.sin(v)) * lg.max(v, lg.dvec3(0.5))

    v = lg.dvec3(0.1, 0.2, 0.9)
    np.testing.assert_allclose(f.python(v), f(v), rtol=1e-14)
    assert f.python(v).dtype == np.float64


def test_vectors_may_be_passed_by_keyword() -> None:
    a, b = [1.0, 2.0], [3.0, 5.0]
    assert lg.dot(a=a, b=b) == lg.dot(a, b=b) == 13.0
    assert float(lg.dot(b=lg.asarray(b), a=lg.asarray(a))) == 13.0
    np.testing.assert_allclose(lg.normalize(v=np.array([0.0, 2.0])), [0.0, 1.0])
    np.testing.assert_allclose(lg.normalize(v=lg.asarray([0.0, 2.0])), [0.0, 1.0])
    with pytest.raises(lg.CallError, match=r"does not accept these arguments .*test_library.py"):
        lg.normalize(vector=a)  # pyright: ignore[reportCallIssue] - the mistake that is tested

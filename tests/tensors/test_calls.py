"""Calls in NumPy style: those that work mean the same, and those that do not raise with advice."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import livegrad as lg
from livegrad.tensors import namespace

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("first", "second"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((3, 3), (3, 3)), ((5, 2, 3), (4, 3, 2)), ((), (3, 2)), ((2,), ())],
    ids=str,
)
def test_dot_is_numpys_as_a_function_and_as_a_method(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    a, b = np.random.default_rng(1).random(first), np.random.default_rng(2).random(second)
    for found in (lg.dot(lg.asarray(a), lg.asarray(b)), lg.asarray(a).dot(lg.asarray(b)), lg.dot(lg.asarray(a), b)):
        np.testing.assert_allclose(np.asarray(found), np.dot(a, b), rtol=1e-13)


def test_dot_of_mismatched_shapes_suggests_vecdot() -> None:
    with pytest.raises(lg.ShapeError, match=r"cannot multiply shapes \(3, 4\) and \(3, 4\).*lg.vecdot"):
        lg.dot(lg.asarray(X), lg.asarray(X))


def test_a_copy_is_changed_alone() -> None:
    x = lg.asarray([1.0, 2.0])
    y = lg.copy(x)
    y[0] = 5.0
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [5.0, 2.0])


def test_a_copy_of_a_computed_tensor_passes_gradients_on() -> None:
    def loss(x: lg.Tensor) -> lg.Tensor:
        y = x * 2.0
        z = lg.copy(y)
        z[0] = 0.0
        return lg.sum(y * z)

    assert lg.grad(loss)(lg.asarray([1.0, 3.0])).tolist() == [0.0, 24.0]


WRONG: dict[str, tuple[str, str]] = {
    "an axis by position": ("lg.roll(x, 1, 0)", r"write roll\(x, shift, axis=0\)"),
    "a diagonal by position": ("lg.triu(x, 1)", r"write triu\(x, k=1\)"),
    "a type by position": ("lg.zeros((2, 3), lg.float64)", r"write zeros\(shape, dtype=\.\.\.\)"),
    "NumPy's name of a parameter": ("lg.transpose(x, axes=(1, 0))", "write permutation="),
    "a method's": ("x.transpose(axes=(1, 0))", r"expected transpose\(\*axes\)"),
    "a mask": ("lg.sum(x, where=x > 1.0)", r"lg\.where\(condition, x, 0\.0\)"),
    "a mask of a mean": ("lg.mean(x, where=x > 1.0)", r"select elements first: x\[condition\]"),
    "a mask of a method": ("x.mean(where=x > 1.0)", r"select elements first: x\[condition\]"),
    "PyTorch's name of a parameter": ("lg.sum(x, dim=0)", "write axis="),
    "too few": ("lg.where(x > 1.0)", r"expected where\(condition, x1, x2\)"),
    "too many": ("lg.sin(x, x)", r"expected sin\(x\)"),
    "in a namespace inside": ("lg.linalg.vector_norm(x, 1)", "write vector_norm"),
    "by name, not by position": ("lg.astype(x, dtype=lg.float32)", "pass it by position"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_unsupported_call_says_what_to_write(case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(lg.CallError, match=message) as caught:
        eval(compile(call, __file__, "eval"), {"lg": lg, "x": lg.asarray(X)})
    assert isinstance(caught.value, TypeError)
    assert "test_calls.py" in str(caught.value)


def test_no_public_function_on_tensors_answers_a_wrong_call_with_a_bare_error() -> None:
    names = {name: getattr(lg, name) for name in namespace.__all__}
    for module in (lg.linalg, lg.fft, lg.nn):
        names |= {name: getattr(module, name) for name in module.__all__}
    functions = {name: value for name, value in names.items() if type(value).__name__ == "function"}
    assert len(functions) > 150
    for name, function in functions.items():
        with pytest.raises(lg.LivegradError, match="does not accept these arguments"):
            function(lg.asarray(X), wibble=1)
        assert function.__name__ == name or function.__name__ in name


REDUCTIONS_WITH_MASKS = ["sum", "prod", "max", "min", "any", "all", "mean", "std", "var"]


@pytest.mark.parametrize("name", REDUCTIONS_WITH_MASKS)
def test_the_replacement_advised_for_a_mask_matches_numpy(name: str) -> None:
    data = np.random.default_rng(0).normal(size=12) if name not in ("any", "all") else X.ravel() > 5.0
    mask = np.arange(12) % 3 > 0
    with pytest.raises(lg.CallError) as caught:
        getattr(lg, name)(lg.asarray(data), where=mask)
    advice = str(caught.value).rsplit(": ", 1)[1]
    chosen = eval(advice, {"lg": lg, "x": lg.asarray(data), "condition": lg.asarray(mask)})
    starts = {"max": {"initial": -np.inf}, "min": {"initial": np.inf}}.get(name, {})
    np.testing.assert_allclose(np.asarray(getattr(lg, name)(chosen)), getattr(np, name)(data, where=mask, **starts))


def test_an_error_inside_a_user_function_is_unchanged() -> None:
    with pytest.raises(lg.LivegradError) as caught:
        lg.sum("text")
    assert not isinstance(caught.value, lg.CallError)


def test_public_functions_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(lg.roll)) is lg.roll

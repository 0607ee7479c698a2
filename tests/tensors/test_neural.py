"""Activations, softmax, normalisation, convolution, pooling, attention: definitions, kernels, derivatives."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg


def draw(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_close(found: lg.Tensor, expected: Any, digits: float = 1e-12) -> None:
    value = found.numpy()
    assert value.shape == np.shape(expected)
    np.testing.assert_allclose(value, expected, rtol=digits, atol=digits)


def kernels(function: Callable[..., Any], *arguments: Any) -> tuple[int, int]:
    """Counts the kernels and library calls of one call."""
    tensors = [lg.asarray(argument) for argument in arguments]
    lg.reset_stats()
    function(*tensors).execute()
    return lg.stats().kernels_run, lg.stats().library_calls


# --- activations -----------------------------------------------------------------------------------------------------

_erf = np.vectorize(math.erf)
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "erf": _erf,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_their_definitions(name: str) -> None:
    x = np.linspace(-6, 6, 49)
    function = getattr(lg.nn, name)
    assert_close(function(lg.asarray(x)), ACTIVATIONS[name](x))
    assert function(lg.ones(2, dtype=lg.float16)).dtype == lg.float16
    assert kernels(function, x) == (1, 0)
    with pytest.raises(lg.DtypeError, match=rf"`{name}` does not support c64 \(test_neural.py"):
        function(lg.ones(2, dtype=lg.complex64))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_the_derivative_of_finite_differences(name: str) -> None:
    x = np.array([-3.0, -0.7, 0.4, 2.0] if name == "relu" else [-3.0, -0.7, 0.0, 0.4, 2.0])
    function = getattr(lg.nn, name)
    lg.check_gradients(function, x)
    if name in ("sigmoid", "softplus"):  # naive implementations have a kink at zero
        lg.check_gradients(lg.grad(lambda x: lg.sum(function(x) ** 2)), x)


@pytest.mark.parametrize("dtype", [lg.float16, lg.float32, lg.float64])
def test_activations_are_finite_far_out_and_so_are_their_derivatives(dtype: Any) -> None:
    x = lg.asarray([-6e4, -1000.0, 100.0, 1000.0], dtype=dtype)
    for name in ("sigmoid", "silu", "softplus", "gelu", "relu"):
        function = getattr(lg.nn, name)
        assert np.all(np.isfinite(function(x).numpy())), name
        assert function(x).tolist()[:2] == [0.0, 0.0], name
        gradient = lg.grad(lambda x, f=function: lg.sum(f(x)))(x).tolist()
        expected = [0.0, 0.0, 0.0, 0.0] if name == "sigmoid" else [0.0, 0.0, 1.0, 1.0]
        assert gradient == pytest.approx(expected, rel=0.0, abs=1e-40), name


def test_a_small_sigmoid_keeps_its_precision() -> None:
    found = lg.sigmoid(lg.asarray([-80.0, -30.0])).numpy().astype(np.float64)
    np.testing.assert_allclose(found, np.exp([-80.0, -30.0]), rtol=1e-5)


def test_relu_passes_nan_on_and_is_flat_at_zero() -> None:
    assert np.isnan(lg.relu(lg.asarray([np.nan])).numpy())
    assert lg.grad(lambda x: lg.sum(lg.relu(x)))(lg.asarray([-1.0, 0.0, 1.0])).tolist() == [0.0, 0.0, 1.0]
    assert lg.relu(lg.asarray([-3, 3])).tolist() == [0, 3]


def test_the_approximate_gelu_is_close_to_the_exact_one() -> None:
    x = np.linspace(-4, 4, 33)
    found = lg.gelu(lg.asarray(x), approximate=True)
    assert_close(found, ACTIVATIONS["gelu"](x), 1e-3)
    lg.check_gradients(lambda x: lg.gelu(x, approximate=True), x)


# --- along an axis ---------------------------------------------------------------------------------------------------


def _softmax(x: Any, axis: Any) -> Any:
    grown = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return grown / np.sum(grown, axis=axis, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
def test_softmax_and_its_logarithm_are_their_definitions(axis: Any) -> None:
    x = 10 * draw((3, 4, 5))
    assert_close(lg.softmax(lg.asarray(x), axis=axis), _softmax(x, axis))
    assert_close(lg.log_softmax(lg.asarray(x), axis=axis), np.log(_softmax(x, axis)))
    expected = np.log(np.sum(np.exp(x), axis=axis, keepdims=True))
    assert_close(lg.logsumexp(lg.asarray(x), axis=axis, keepdims=True), expected)


def test_softmax_and_logsumexp_hold_at_infinity_and_for_nothing() -> None:
    assert lg.softmax(lg.asarray([0.0, -np.inf, 0.0])).tolist() == [0.5, 0.0, 0.5]
    assert lg.logsumexp(lg.asarray([-np.inf, -np.inf])).item() == -np.inf
    assert lg.logsumexp(lg.asarray([np.inf, 0.0])).item() == np.inf
    assert lg.logsumexp(lg.zeros((2, 0)), axis=1).tolist() == [-np.inf, -np.inf]
    assert lg.softmax(lg.zeros((2, 0))).shape == (2, 0)


def test_composite_functions_are_one_kernel_forward_and_backward() -> None:
    x, w = draw((16, 64), "float32"), draw((64,), "float32")
    composites: dict[str, Callable[..., Any]] = {
        "softmax": lg.softmax,
        "log_softmax": lg.log_softmax,
        "logsumexp": lambda x: lg.logsumexp(x, axis=-1),
        "layer_norm": lg.nn.layer_norm,
    }
    for name, function in composites.items():
        assert kernels(function, x) == (1, 0), name
        assert kernels(lg.grad(lambda x, f=function: lg.sum(f(x) ** 2)), x) == (1, 0), name
    assert kernels(lambda x, w: lg.nn.layer_norm(x, w, w), x, w) == (1, 0)


def test_layer_norm_is_its_definition() -> None:
    x, weight, bias = draw((3, 4, 5)), draw((5,), seed=1), draw((5,), seed=2)
    plain = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert_close(lg.nn.layer_norm(lg.asarray(x)), plain)
    found = lg.nn.layer_norm(lg.asarray(x), lg.asarray(weight), lg.asarray(bias))
    assert_close(found, plain * weight + bias)
    both = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 0.1)
    assert_close(lg.nn.layer_norm(lg.asarray(x), axis=(1, 2), epsilon=0.1), both)
    with pytest.raises(lg.ShapeError, match="weight and bias that broadcast"):
        lg.nn.layer_norm(lg.asarray(x[0, 0]), lg.asarray(draw((2, 5))))


@pytest.mark.parametrize(
    "function",
    [
        lg.softmax,
        lambda x: lg.softmax(x, axis=(0, 1)),
        lg.log_softmax,
        lambda x: lg.logsumexp(x, axis=0),
        lg.nn.layer_norm,
        lambda x: lg.nn.layer_norm(x, x[0], x[1]),
    ],
)
def test_composite_functions_have_the_derivative_of_finite_differences(function: Callable[..., Any]) -> None:
    lg.check_gradients(function, draw((3, 4)))


@pytest.mark.parametrize("function", [lg.log_softmax, lg.nn.layer_norm])
def test_composite_functions_have_second_derivatives(function: Callable[..., Any]) -> None:
    lg.check_gradients(lg.grad(lambda x: lg.sum(function(x) ** 2)), draw((3, 4)))


def test_cross_entropy_is_minus_the_logarithm_of_the_right_probability() -> None:
    scores, classes = draw((4, 5, 3)), np.random.default_rng(0).integers(0, 5, (4, 3))
    logarithms = np.log(_softmax(scores, 1))
    expected = -np.take_along_axis(logarithms, classes[:, None], 1)[:, 0]
    assert_close(lg.nn.cross_entropy(lg.asarray(scores), lg.asarray(classes), axis=1), expected)
    weights = _softmax(draw((4, 5, 3), seed=1), 1)
    found = lg.nn.cross_entropy(lg.asarray(scores), lg.asarray(weights), axis=1)
    assert_close(found, -(weights * logarithms).sum(1))
    lg.check_gradients(lambda x: lg.nn.cross_entropy(x, lg.asarray(classes), axis=1), lg.asarray(scores))
    lg.check_gradients(lambda x, w: lg.nn.cross_entropy(x, w, axis=1), lg.asarray(scores), lg.asarray(weights))


def test_cross_entropy_is_stable_for_large_scores_and_rejects_other_targets() -> None:
    scores = lg.asarray([[1e30, -1e30], [0.0, -np.inf]])
    assert lg.nn.cross_entropy(scores, lg.asarray([0, 0])).tolist() == [0.0, 0.0]
    assert lg.nn.cross_entropy(scores, lg.asarray([[1.0, 0.0], [1.0, 0.0]])).tolist() == [0.0, 0.0]
    for wrong in ([0, 2], [-1, 0]):
        with pytest.raises(lg.KernelCheckError):
            lg.nn.cross_entropy(scores, lg.asarray(wrong)).execute()
    with pytest.raises(lg.ShapeError, match="a class for each row of scores"):
        lg.nn.cross_entropy(scores, lg.asarray([0]))
    half = lg.nn.cross_entropy(lg.zeros((1, 2), dtype=lg.float16), lg.asarray([0]))
    assert half.dtype == lg.float16


def test_one_hot_sets_the_element_at_the_index() -> None:
    x = np.array([[0, 2], [1, 7]])
    expected = (x[..., None] == np.arange(3)).astype(np.float32)
    assert_close(lg.one_hot(lg.asarray(x), 3), expected)
    assert_close(lg.one_hot(lg.asarray(x), 3, axis=0), np.moveaxis(expected, -1, 0))
    assert lg.one_hot(lg.asarray(x), 3, dtype=lg.bool).dtype == lg.bool
    with pytest.raises(lg.DtypeError, match="`one_hot` does not support f32"):
        lg.one_hot(lg.ones(2), 3)


# --- windows ---------------------------------------------------------------------------------------------------------


def _convolve(x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Computes one product after the other, as in the definition."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    window, space = w.shape[2:], x.shape[2:]
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(space, window, strides, dilation, strict=True)]
    result = np.zeros((x.shape[0], w.shape[0], *counts))
    share = w.shape[0] // groups
    for place in np.ndindex(*result.shape):
        batch, output, *at = place
        first = output // share * w.shape[1]
        part = [
            slice(a * s, a * s + (k - 1) * d + 1, d) for a, s, k, d in zip(at, strides, window, dilation, strict=True)
        ]
        result[place] = np.sum(x[(batch, slice(first, first + w.shape[1]), *part)] * w[output])
    return result


@pytest.mark.parametrize(
    ("shape", "kernel", "options", "padding"),
    [
        ((2, 3, 7), (4, 3, 3), {}, ((0, 0),)),
        ((2, 3, 7), (4, 3, 3), {"padding": "same"}, ((1, 1),)),
        ((2, 3, 8), (4, 3, 3), {"padding": "same", "strides": 2}, ((0, 1),)),
        ((1, 4, 6, 5), (6, 2, 3, 2), {"groups": 2, "padding": ((1, 0), 2)}, ((1, 0), (2, 2))),
        ((1, 2, 9, 8), (3, 2, 3, 2), {"strides": (2, 1), "dilation": 2, "padding": 1}, ((1, 1), (1, 1))),
        ((1, 1, 4, 4, 4), (2, 1, 2, 2, 2), {}, ((0, 0),) * 3),
    ],
)
def test_convolutions_are_their_definition(shape: Any, kernel: Any, options: Any, padding: Any) -> None:
    x, w = draw(shape), draw(kernel, seed=1)
    rank = len(shape) - 2
    strides, dilation = (
        (value,) * rank if isinstance(value, int) else value
        for value in (options.get("strides", 1), options.get("dilation", 1))
    )
    expected = _convolve(x, w, strides, padding, dilation, options.get("groups", 1))
    assert_close(lg.nn.conv(lg.asarray(x), lg.asarray(w), **options), expected)
    lg.check_gradients(lambda x, w: lg.nn.conv(x, w, **options), x, w)


def _windows(x: Any, window: int, stride: int) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, (window, window), (2, 3))[:, :, ::stride, ::stride]


def test_pools_are_their_definitions() -> None:
    x = draw((2, 3, 7, 6))
    tensor = lg.asarray(x)
    assert_close(lg.nn.max_pool(tensor, 2), _windows(x, 2, 2).max((-1, -2)))
    assert_close(lg.nn.max_pool(tensor, (3, 3), strides=1), _windows(x, 3, 1).max((-1, -2)))
    assert_close(lg.nn.average_pool(tensor, 3, strides=2), _windows(x, 3, 2).mean((-1, -2)))
    low = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    assert_close(lg.nn.max_pool(tensor, 3, strides=2, padding=1), _windows(low, 3, 2).max((-1, -2)))
    hollow = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    found = lg.nn.average_pool(tensor, 3, strides=2, padding=1)
    assert_close(found, np.nanmean(_windows(hollow, 3, 2), axis=(-1, -2)))
    counted = lg.nn.average_pool(tensor, 3, strides=2, padding=1, count_padding=True)
    assert_close(counted, np.nansum(_windows(hollow, 3, 2), axis=(-1, -2)) / 9)
    assert lg.nn.max_pool(tensor, 2, strides=1, padding="same").shape == x.shape


def test_pools_have_the_derivative_of_finite_differences() -> None:
    x = np.random.default_rng(5).permutation(60).reshape(1, 2, 5, 6) * 0.1
    lg.check_gradients(lambda x: lg.nn.max_pool(x, 2, strides=1, padding=1), x)
    lg.check_gradients(lambda x: lg.nn.average_pool(x, 3, strides=2, padding=1), x)


@pytest.mark.parametrize("kind", ["max_pool", "average_pool"])
@pytest.mark.parametrize(("window", "strides"), [(2, 2), (3, 2), (3, 1)])
def test_pools_and_their_gradients_are_kernels(kind: str, window: int, strides: int) -> None:
    pool = getattr(lg.nn, kind)
    x = draw((2, 3, 12, 12), "float32")
    forward = lambda x: pool(x, window, strides=strides)  # noqa: E731
    assert kernels(forward, x) == (1, 0)
    made, library_calls = kernels(lg.grad(lambda x: lg.sum(forward(x) ** 2)), x)
    assert library_calls == 0
    # Disjoint windows copy values to their elements; overlapping windows first dilate them with zeros.
    assert made <= (2 if window == strides else 12)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: lg.nn.conv(x, lg.ones((2, 3, 3))), r"takes images .* found shapes \(1, 3, 8, 8\) and \(2, 3, 3\)"),
        (lambda x: lg.nn.conv(x, lg.ones((2, 4, 3, 3))), "do not fit kernels of 4"),
        (lambda x: lg.nn.conv(x, lg.ones((2, 3, 3, 3)), strides=0), "one number for strides"),
        (lambda x: lg.nn.conv(x, lg.ones((2, 3, 3, 3)), padding="wide"), "invalid padding"),
        (lambda x: lg.nn.conv(x, lg.ones((2, 3, 3, 3)), padding=-1), "invalid padding"),
        (lambda x: lg.nn.max_pool(x, (2, 2, 2)), "one number for window"),
        (lambda x: lg.nn.max_pool(x[0, 0], 2), r"\[batch, channels, \*space\]"),
    ],
)
def test_windows_that_do_not_fit_raise_at_the_call(call: Any, reason: str) -> None:
    with pytest.raises(lg.LivegradError, match=reason) as caught:
        call(lg.ones((1, 3, 8, 8)))
    assert "test_neural.py" in str(caught.value)


# --- attention -------------------------------------------------------------------------------------------------------


def _attention(q: Any, k: Any, v: Any, allowed: Any = True, bias: Any = 0.0) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]) + bias
    return _softmax(np.where(allowed, scores, -np.inf), -1) @ v


def test_attention_is_its_definition() -> None:
    q, k, v = draw((2, 4, 3)), draw((2, 6, 3), seed=1), draw((2, 6, 5), seed=2)
    tensors = [lg.asarray(x) for x in (q, k, v)]
    assert_close(lg.nn.attention(*tensors), _attention(q, k, v))
    allowed = np.tri(4, 6, 2, dtype=bool)
    assert_close(lg.nn.attention(*tensors, causal=True), _attention(q, k, v, allowed))
    mask = np.random.default_rng(3).integers(0, 2, (2, 1, 6)).astype(bool)
    mask[..., 0] = True
    found = lg.nn.attention(*tensors, mask=lg.asarray(mask), causal=True)
    assert_close(found, _attention(q, k, v, allowed & mask))
    bias = draw((4, 6), seed=4)
    assert_close(lg.nn.attention(*tensors, mask=lg.asarray(bias)), _attention(q, k, v, bias=bias))


def test_a_query_that_may_look_at_nothing_gets_zeros_and_gives_no_nan() -> None:
    q = lg.asarray(draw((2, 3)))
    mask = lg.asarray([[True, False], [False, False]])
    found = lg.nn.attention(q, q, q, mask=mask)
    np.testing.assert_allclose(found.numpy(), [q.numpy()[0], [0.0, 0.0, 0.0]])
    gradient = lg.grad(lambda x: lg.sum(lg.nn.attention(x, x, x, mask=mask) ** 2))(q)
    assert np.all(np.isfinite(gradient.numpy()))


def test_attention_has_the_derivative_of_finite_differences() -> None:
    q, k, v = draw((2, 4, 3)), draw((2, 4, 3), seed=1), draw((2, 4, 2), seed=2)
    lg.check_gradients(lambda q, k, v: lg.nn.attention(q, k, v, causal=True), q, k, v)


def test_attention_is_one_kernel_between_two_products() -> None:
    q = draw((2, 8, 4), "float32")
    assert kernels(lambda q: lg.nn.attention(q, q, q, causal=True), q) == (1, 2)


def test_attention_rejects_mismatched_shapes() -> None:
    q = lg.ones((2, 4, 3))
    with pytest.raises(lg.ShapeError, match=r"takes queries .* \(test_neural.py"):
        lg.nn.attention(q, lg.ones((2, 4, 5)), q)
    with pytest.raises(lg.ShapeError, match=r"cannot broadcast a mask of shape \(3, 3\) over \(2, 4, 4\)"):
        lg.nn.attention(q, q, q, mask=lg.ones((3, 3)))

"""Sizes that change between calls: after the second call they are symbols, and nothing is compiled again."""

import sys
from random import Random

import numpy as np
import pytest

import livegrad as lg
from livegrad import compiler
from livegrad.runtime.cpu.kernel_code import kernels_in_memory

RNG = np.random.default_rng(7)
D, HEADS, VOCABULARY = 16, 2, 11


def values(*shape):
    return lg.asarray((RNG.standard_normal(shape) * 0.5).astype(np.float32))


W, V = values(D, D), values(D, 3)
FILTER = values(4, 3, 3, 3)
TABLE, POSITIONS = values(VOCABULARY, D), values(400, D)


def normalise(x):
    return (x - lg.mean(x, axis=-1, keepdims=True)) / lg.sqrt(lg.var(x, axis=-1, keepdims=True) + 1e-5)


def attention(query, keys, mask=None):
    scores = query @ lg.matrix_transpose(keys) / 4.0
    return lg.softmax(scores if mask is None else lg.where(mask, scores, -1e9), axis=-1) @ keys


def transformer(tokens):
    n = tokens.shape[0]
    x = TABLE[tokens] + POSITIONS[:n]
    heads = lg.permute_dims(normalise(x).reshape((n, HEADS, D // HEADS)), (1, 0, 2))
    mixed = attention(heads, heads, lg.tril(lg.ones((n, n))) > 0)
    return (x + lg.permute_dims(mixed, (1, 0, 2)).reshape((n, D)) @ W) @ V


def loss(w, x, y):
    return lg.mean((lg.tanh(x @ w) - y) ** 2)


def cross_entropy(tokens):
    def of(table):
        x = table[tokens[:-1]] @ W
        logits = x @ lg.matrix_transpose(table)
        chosen = lg.take_along_axis(logits, tokens[1:][:, None], axis=1)[:, 0]
        return lg.mean(lg.log(lg.sum(lg.exp(logits), axis=-1)) - chosen)

    return lg.grad(of)(TABLE)


def integers(n):
    return lg.asarray(RNG.integers(0, VOCABULARY, n))


# What is computed, and arguments for a size.
PROGRAMS = {
    "elementwise": (lambda x: lg.sin(x) * x + 1.0, lambda n: (values(n, D),)),
    "a sum": (lambda x: lg.sum(x * x), lambda n: (values(n),)),
    "a mean and a variance": (lambda x: (lg.mean(x), lg.var(x, axis=0)), lambda n: (values(n, D),)),
    "its own size": (lambda x: x * x.shape[0] + x.shape[0] // 2, lambda n: (values(n, 3),)),
    "a softmax": (lambda x: lg.softmax(x, axis=-1), lambda n: (values(4, n),)),
    "a product": (lambda x: x @ W, lambda n: (values(n, D),)),
    "products of growing matrices": (lambda x: x @ lg.matrix_transpose(x) @ x, lambda n: (values(n, D),)),
    "a growing cache": (
        lambda cache, x: (lg.concat([cache, x]), attention(x, lg.concat([cache, x]))),
        lambda n: (values(n, D), values(1, D)),
    ),
    "slices": (lambda x: (x[1:] - x[:-1], x[::-1], x[: x.shape[0] // 2], x[-1]), lambda n: (values(n, 3),)),
    "rows of a table": (lambda x: POSITIONS[: x.shape[0]] * x, lambda n: (values(n, D),)),
    "indices": (lambda i: (TABLE[i], lg.arange(i.shape[0]) * i), lambda n: (integers(n),)),
    "a triangle": (lambda x: lg.tril(x @ lg.matrix_transpose(x)), lambda n: (values(n, 4),)),
    "prefix sums": (lambda x: lg.cumulative_sum(x, axis=0), lambda n: (values(n, 5),)),
    "a reshape": (lambda x: lg.sum(x.reshape((-1, 4)), axis=1), lambda n: (values(n, 8),)),
    "a convolution": (lambda x: lg.nn.conv(x, FILTER), lambda n: (values(n, 3, 8, 8),)),
    "two sizes": (lambda x, y: x @ lg.matrix_transpose(y), lambda n: (values(n, D), values(2 * n + 1, D))),
    "a gradient": (lambda x, y: lg.grad(loss)(W, x, y), lambda n: (values(n, D), values(n, D))),
    "a gradient over tokens": (cross_entropy, lambda n: (integers(n),)),
    "a transformer": (transformer, lambda n: (integers(n),)),
}


def as_bytes(results):
    if isinstance(results, tuple):
        return tuple(map(as_bytes, results))
    array = np.asarray(results)
    return array.dtype.str, array.shape, array.tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_have_the_bits_of_a_function_compiled_for_the_size(name):
    program, arguments = PROGRAMS[name]
    function, rng = lg.jit(program), Random(name)
    sizes = [rng.choice([rng.randrange(2, 20), rng.randrange(2, 70), rng.randrange(2, 400)]) for _ in range(14)]
    for size in [*sizes, 1, 16]:
        given = arguments(size)
        assert as_bytes(function(*given)) == as_bytes(lg.jit(program)(*given)), size
    assert function.traces < len({*sizes, 1, 16})


def calls_of(function):
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_third_size_is_neither_traced_nor_planned_nor_compiled(name, monkeypatch):
    program, arguments = PROGRAMS[name]
    function = lg.jit(program)
    for size in (40, 41, 44, 48):
        function(*arguments(size))
    if name in ("a transformer", "a gradient over tokens"):
        for size in (47, 52, 60):  # other choices of matrix products
            function(*arguments(size))
    traces, kernels = function.traces, kernels_in_memory()

    def refuse(*_, **__):
        raise AssertionError("a pass ran")

    monkeypatch.setattr(compiler, "run_passes", refuse)
    monkeypatch.setattr(compiler, "lower_loops", refuse)
    given = arguments(43)
    calls = calls_of(lambda: function(*given))
    assert (function.traces, kernels_in_memory()) == (traces, kernels)
    assert calls < 3_000  # a first call makes tens of thousands


def test_sizes_that_are_read_as_numbers_compile_separately_with_a_reason():
    function = lg.jit(lambda x: sum(x[i] for i in range(x.shape[0])))
    for size in (3, 4, 5):
        x = values(size)
        np.testing.assert_allclose(float(function(x)), np.asarray(x).sum(), rtol=1e-5)
    assert "test_growing_sizes.py" in function.sizes()


def test_a_condition_on_a_size_limits_the_compiled_range():
    function = lg.jit(lambda x: lg.sum(x) if x.shape[0] > 30 else lg.max(x))
    for size in (10, 11, 29, 30, 31, 50, 12, 60):
        x = values(size)
        wanted = np.asarray(x).sum() if size > 30 else np.asarray(x).max()
        np.testing.assert_allclose(float(function(x)), wanted, rtol=1e-4, atol=1e-5)
    assert function.traces < 8
    assert "to 30" in function.sizes()
    assert "from 31" in function.sizes()


def test_sizes_that_were_equal_may_differ_later():
    function = lg.jit(lambda x, y: (lg.sum(x), y * 2.0))
    for first, second in ((5, 5), (6, 6), (7, 7), (8, 9), (20, 3)):
        x, y = values(first), values(second)
        total, doubled = function(x, y)
        np.testing.assert_allclose(float(total), np.asarray(x).sum(), rtol=1e-4, atol=1e-5)
        assert np.array_equal(np.asarray(doubled), np.asarray(y) * 2.0)


def test_a_tensor_of_the_surroundings_that_changes_is_seen_by_new_sizes():
    scale = lg.asarray(2.0)
    function = lg.jit(lambda x: x * scale)
    for size in (3, 4, 5):
        assert np.asarray(function(lg.ones(size))).tolist() == [2.0] * size
    scale += 1.0
    for size in (6, 3, 7):
        assert np.asarray(function(lg.ones(size))).tolist() == [3.0] * size


def test_a_size_that_equals_another_one_by_chance_does_not_tie_them():
    function = lg.jit(lambda x: x @ W)
    for size in (12, D, 13, 14):
        x = values(size, D)
        assert as_bytes(function(x)) == as_bytes(lg.jit(lambda x: x @ W)(x))
    assert function.traces <= 3


def test_the_functions_of_a_jitted_function_have_the_sizes_of_its_calls():
    function = lg.jit(lambda x: lg.sum(x * x.shape[0], axis=0))
    for size in (3, 4, 9):
        function(lg.ones((size, 2)))
    assert [str(each.parameter_types[0]) for each in function.functions] == [
        f"tensor<f32, [{size}, 2]>" for size in (3, 4, 9)
    ]

"""Tensor programs that every library runs: written once, against the interface of a `Library`.

`inputs` makes the arrays, `expected` the results in float64 with NumPy, where gradients are written by hand."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SIZES = (256, 512, 512, 10)  # of the network's layers
RATE = 0.01


@dataclass(frozen=True)
class Library:
    """The functions of a library that programs use. Arrays have NumPy's operators."""

    exp: Callable[[Any], Any]
    sin: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    abs: Callable[[Any], Any]
    relu: Callable[[Any], Any]
    total: Callable[[Any, Any], Any]  # sums over an axis, keeping it; over everything for None
    highest: Callable[[Any, Any], Any]
    turned: Callable[[Any], Any]  # with the last two axes exchanged
    gradient: Callable[[Callable[..., Any], int], Callable[..., Any]]  # by the first so many arguments: (value, them)


def chain(lib: Library, x: Any) -> Any:
    """An elementwise chain that one kernel can do."""
    return lib.tanh(lib.exp(lib.sin(x) * 0.5) + x * x) - lib.sqrt(lib.abs(x) + 1.0)


def reductions(lib: Library, x: Any) -> Any:
    return (lib.total(x, 0), lib.highest(x, 1), lib.total(x * x, None))


def softmax(lib: Library, x: Any) -> Any:
    powers = lib.exp(x - lib.highest(x, -1))
    return powers / lib.total(powers, -1)


def layer_norm(lib: Library, x: Any, scale: Any, shift: Any) -> Any:
    count = x.shape[-1]
    centred = x - lib.total(x, -1) / count
    return centred / lib.sqrt(lib.total(centred * centred, -1) / count + 1e-5) * scale + shift


def attention(lib: Library, q: Any, k: Any, v: Any) -> Any:
    return softmax(lib, q @ lib.turned(k) * 0.125) @ v


def attention_gradient(lib: Library, q: Any, k: Any, v: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        result = attention(lib, q, k, v)
        return lib.total(result * result, None)

    return lib.gradient(loss, 3)(q, k, v)[1]


def training_step(lib: Library, x: Any, y: Any, *parameters: Any) -> Any:
    """One step of gradient descent on a network of three layers: the new parameters."""

    def loss(*weights: Any) -> Any:
        hidden = x
        for index in range(0, len(weights), 2):
            hidden = hidden @ weights[index] + weights[index + 1]
            if index + 2 < len(weights):
                hidden = lib.relu(hidden)
        difference = hidden - y
        return lib.total(difference * difference, None) / (y.shape[0] * y.shape[1])

    _, gradients = lib.gradient(loss, len(parameters))(*parameters)
    return tuple(p - RATE * g for p, g in zip(parameters, gradients, strict=True))


PROGRAMS: dict[str, Callable[..., Any]] = {
    "chain": chain,
    "reductions": reductions,
    "softmax_tensors": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
    "attention_gradient": attention_gradient,
    "training_step": training_step,
}
FIRST = tuple(f"first_{name}" for name in PROGRAMS)
GRAPHS = ("build", "long_chain", "small_call")  # costs of a graph besides its arithmetic
KINDS = (*PROGRAMS, *FIRST, *GRAPHS)


def program_of(kind: str) -> Callable[..., Any]:
    return PROGRAMS[kind.removeprefix("first_")]


def inputs(kind: str, size: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(0)
    kind = kind.removeprefix("first_")

    def normal(*shape: int) -> Array:
        return generator.standard_normal(shape, np.float32)

    if kind in GRAPHS:
        return normal(64), normal(64)
    if kind in ("attention", "attention_gradient"):
        return tuple(normal(1, 8, size, 64) for _ in range(3))
    if kind == "training_step":
        layers = itertools.pairwise(SIZES)
        weights = [
            array for rows, columns in layers for array in (normal(rows, columns) * np.float32(0.05), normal(columns))
        ]
        return (normal(size, SIZES[0]), normal(size, SIZES[-1]), *weights)
    if kind == "layer_norm":
        return normal(size, 1024), normal(1024), normal(1024)
    return (normal(size, 1024),)


NUMPY = Library(
    exp=np.exp,
    sin=np.sin,
    tanh=np.tanh,
    sqrt=np.sqrt,
    abs=np.abs,
    relu=lambda x: np.maximum(x, 0.0),
    total=lambda x, axis: np.sum(x, axis=axis, keepdims=axis is not None),
    highest=lambda x, axis: np.max(x, axis=axis, keepdims=True),
    turned=lambda x: np.swapaxes(x, -1, -2),
    gradient=lambda function, count: function,  # those that need one are written by hand below
)


def expected(kind: str, arrays: tuple[Array, ...]) -> Any:
    """The result in float64."""
    inputs = [array.astype(np.float64) for array in arrays]
    kind = kind.removeprefix("first_")
    if kind in ("build", "small_call"):
        return inputs[0] * inputs[1] + inputs[0] if kind == "small_call" else inputs[0]
    if kind == "long_chain":
        return inputs[0]  # the second array is added and taken away in turns
    if kind == "attention_gradient":
        return _attention_gradient(*inputs)
    if kind == "training_step":
        return _training_step(*inputs)
    return PROGRAMS[kind](NUMPY, *inputs)


def _attention_gradient(q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    weights = softmax(NUMPY, q @ NUMPY.turned(k) * 0.125)
    by_result = 2.0 * (weights @ v)
    by_weights = by_result @ NUMPY.turned(v)
    by_scores = weights * (by_weights - NUMPY.total(by_weights * weights, -1)) * 0.125
    return by_scores @ k, NUMPY.turned(by_scores) @ q, NUMPY.turned(weights) @ by_result


def _training_step(x: Array, y: Array, *parameters: Array) -> tuple[Array, ...]:
    inputs_of, hidden = [], x
    for index in range(0, len(parameters), 2):
        inputs_of.append(hidden)
        hidden = hidden @ parameters[index] + parameters[index + 1]
        if index + 2 < len(parameters):
            hidden = np.maximum(hidden, 0.0)
    slope = 2.0 * (hidden - y) / y.size
    gradients: list[Array] = []
    for index in reversed(range(0, len(parameters), 2)):
        below = inputs_of[index // 2]
        gradients = [below.T @ slope, slope.sum(0), *gradients]
        slope = (slope @ parameters[index].T) * (below > 0.0)
    return tuple(p - RATE * g for p, g in zip(parameters, gradients, strict=True))

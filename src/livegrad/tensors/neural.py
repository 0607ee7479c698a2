"""Neural network functions: activations, softmax, cross entropy, normalisation, convolution, pooling, attention.

`lg.nn` is this module; the most common functions are also in `lg`. They consist of elementary ops, so a softmax or a
layer norm fuses into one kernel, forward and backward.
"""

from __future__ import annotations

import math
from typing import Any

from livegrad.diagnostics import caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, f32, f64, i64
from livegrad.ir.types import Tensor as TensorType
from livegrad.ops.comparison import equal
from livegrad.ops.elementwise import detach, maximum, select
from livegrad.ops.floating import gap, logaddexp
from livegrad.ops.movement import broadcast, index_along, reshape
from livegrad.ops.reduction import reduce, spread_back
from livegrad.ops.rules import filled, zero
from livegrad.ops.sorting import take_along_axis as take_along_axis_nodes
from livegrad.ops.transcendental import erf as erf_op
from livegrad.ops.transcendental import exp, log, rsqrt, tanh
from livegrad.tensors.attention import attention
from livegrad.tensors.axes_and_shapes import Axes, normalise_axis, normalise_shape, restore_reduced_axes
from livegrad.tensors.convolution import average_pool, conv, max_pool
from livegrad.tensors.dtypes import DEFAULT_FLOAT, dtype_from
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import Tensor, match_operands, node_of, wrap
from livegrad.tensors.operands import (
    as_type,
    element_of,
    float_node,
    require_integer,
    require_kinds,
    require_real,
    sorted_axes,
)
from livegrad.tensors.products import shape_of_node
from livegrad.tensors.reductions import mean_along

__all__ = [
    "attention",
    "average_pool",
    "conv",
    "cross_entropy",
    "erf",
    "gelu",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "max_pool",
    "one_hot",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
]


def __dir__() -> list[str]:
    """Lists the public names only, for tab completion."""
    return __all__


# --- activations -----------------------------------------------------------------------------------------------------


def erf(x: Any, /) -> Tensor:
    """The error function of each element.

    >>> import livegrad as lg
    >>> lg.erf(lg.asarray([0.0, 10.0]))
    Tensor([0., 1.], dtype=float32)
    """
    return wrap(erf_op(float_node(x, "erf")))


def relu(x: Any, /) -> Tensor:
    """max(x, 0); the derivative at zero is zero.

    >>> import livegrad as lg
    >>> lg.relu(lg.asarray([-1.0, 2.0]))
    Tensor([0., 2.], dtype=float32)
    """
    node = require_kinds(node_of(x, "relu"), "relu", "signed", "unsigned", "float")
    zeros = zero(node.type)
    # Compares with `<=` so that NaN propagates.
    return wrap(select(node <= zeros, zeros, node))


def sigmoid(x: Any, /) -> Tensor:
    """1 / (1 + exp(-x)), without intermediate overflow.

    >>> import livegrad as lg
    >>> lg.nn.sigmoid(lg.asarray([0.0, 1000.0]))
    Tensor([0.5, 1. ], dtype=float32)
    """
    node, element = _to_computation_type(x, "sigmoid")
    return wrap(as_type(_sigmoid(node), element))


def _to_computation_type(x: Any, user: str) -> tuple[Node, Scalar]:
    """Returns a float node to compute with, and the type of the result. 16-bit floats are computed as float32."""
    node = float_node(x, user)
    element = element_of(node)
    return as_type(node, f32 if element.bits == 16 else element), element


def _sigmoid(x: Node) -> Node:
    # Below this, exp(-x) would overflow, and the result is zero.
    lowest = filled(-708.0 if element_of(x) is f64 else -87.0, x.type)
    return select(x > lowest, 1.0 / (1.0 + exp(-maximum(x, lowest))), zero(x.type))


def silu(x: Any, /) -> Tensor:
    """x * sigmoid(x), also called swish.

    >>> import livegrad as lg
    >>> lg.nn.silu(lg.asarray([0.0, 100.0]))
    Tensor([  0., 100.], dtype=float32)
    """
    node, element = _to_computation_type(x, "silu")
    return wrap(as_type(node * _sigmoid(node), element))


def softplus(x: Any, /) -> Tensor:
    """log(1 + exp(x)), without intermediate overflow.

    >>> import livegrad as lg
    >>> lg.nn.softplus(lg.asarray([-1000.0, 1000.0]))
    Tensor([   0., 1000.], dtype=float32)
    """
    node, element = _to_computation_type(x, "softplus")
    return wrap(as_type(logaddexp(node, zero(node.type)), element))


def gelu(x: Any, /, *, approximate: bool = False) -> Tensor:
    """x times the standard normal CDF of x; with `approximate`, the tanh approximation.

    >>> import livegrad as lg
    >>> lg.gelu(lg.asarray([-10.0, 0.0, 10.0]))
    Tensor([-0.,  0., 10.], dtype=float32)
    """
    node, element = _to_computation_type(x, "gelu")
    if approximate:
        factor = tanh(math.sqrt(2.0 / math.pi) * (node + 0.044715 * (node * node * node)))
    else:
        factor = erf_op(node * math.sqrt(0.5))
    return wrap(as_type(0.5 * node * (1.0 + factor), element))


# --- along an axis ---------------------------------------------------------------------------------------------------


def softmax(x: Any, /, *, axis: Axes = -1) -> Tensor:
    """exp(x) normalised to a sum of one along one or more axes, without intermediate overflow.

    >>> import livegrad as lg
    >>> lg.softmax(lg.asarray([0.0, 0.0, -1000.0]))
    Tensor([0.5, 0.5, 0. ], dtype=float32)
    """
    node, element = _to_computation_type(x, "softmax")
    axes = sorted_axes(axis, len(shape_of_node(node)), "softmax")
    if _has_empty_axis(node, axes):
        return wrap(as_type(node, element))
    exponentials = exp(node - _largest(node, axes))
    total = spread_back(reduce(exponentials, kind="sum", axes=axes), shape_of_node(node), axes)
    return wrap(as_type(exponentials / total, element))


def log_softmax(x: Any, /, *, axis: Axes = -1) -> Tensor:
    """The logarithm of the softmax along one or more axes, accurate for small probabilities.

    >>> import livegrad as lg
    >>> lg.nn.log_softmax(lg.asarray([0.0, -1000.0]))
    Tensor([    0., -1000.], dtype=float32)
    """
    node, element = _to_computation_type(x, "log_softmax")
    axes = sorted_axes(axis, len(shape_of_node(node)), "log_softmax")
    if _has_empty_axis(node, axes):
        return wrap(as_type(node, element))
    shifted = node - _largest(node, axes)
    total = log(reduce(exp(shifted), kind="sum", axes=axes))
    return wrap(as_type(shifted - spread_back(total, shape_of_node(node), axes), element))


def logsumexp(x: Any, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials along axes, without intermediate overflow; minus infinity for empty
    axes.

    Elements that are all minus infinity share the derivative equally, and so do elements that are plus infinity.

    >>> import livegrad as lg
    >>> lg.logsumexp(lg.asarray([1000.0, 0.0]))
    Tensor(1000., dtype=float32)
    """
    node, element = _to_computation_type(x, "logsumexp")
    shape = shape_of_node(node)
    axes = sorted_axes(axis, len(shape), "logsumexp")
    if _has_empty_axis(node, axes):
        kept_shape = tuple(size for i, size in enumerate(shape) if i not in axes)
        result = filled(-math.inf, TensorType(element_of(node), kept_shape))
    else:
        largest = detach(reduce(node, kind="max", axes=axes))
        below = gap(node, spread_back(largest, shape, axes))  # zero where both are infinite
        result = log(reduce(exp(below), kind="sum", axes=axes)) + largest
    return wrap(as_type(restore_reduced_axes(result, shape, axes) if keepdims else result, element))


def cross_entropy(scores: Any, target: Any, /, *, axis: int = -1) -> Tensor:
    """The cross entropy of each example: minus the logarithm of the softmax probability of the target class.

    `target` contains class indices, one for each row of scores, or probabilities in the shape of the scores.

    >>> import livegrad as lg
    >>> scores = lg.asarray([[0.0, 0.0], [0.0, 10.0]])
    >>> lg.nn.cross_entropy(scores, lg.asarray([0, 0]))
    Tensor([ 0.6931472, 10.000046 ], dtype=float32)
    >>> lg.nn.cross_entropy(scores, lg.asarray([[0.5, 0.5], [0.5, 0.5]]))
    Tensor([0.6931472, 5.000046 ], dtype=float32)
    """
    node, element = _to_computation_type(scores, "cross_entropy")
    shape = shape_of_node(node)
    position = normalise_axis(axis, len(shape), "cross_entropy")
    target_node = require_kinds(node_of(target, "cross_entropy"), "cross_entropy", "signed", "unsigned", "float")
    has_class_indices = element_of(target_node).kind != "float"
    rows = (*shape[:position], *shape[position + 1 :])
    if shape_of_node(target_node) != (rows if has_class_indices else shape):
        raise ShapeError(
            "`cross_entropy` takes a class for each row of scores, or a probability for each score",
            where=caller_origin(),
            expected=f"integers of shape {rows}, or floats of shape {shape}",
            found=str(target_node.type),
        )
    total = logsumexp(wrap(node), axis=position).node
    if has_class_indices:
        positions = reshape(as_type(target_node, i64), shape=(*shape[:position], 1, *shape[position + 1 :]))
        return wrap(as_type(total - reshape(take_along_axis_nodes(node, positions, position), shape=rows), element))
    weights = as_type(target_node, element_of(node))
    terms = weights * (spread_back(total, shape, (position,)) - node)
    # A class with target probability zero costs nothing, even if its predicted logarithm is infinite.
    costs = select(equal(weights, zero(weights.type)), zero(terms.type), terms)
    return wrap(as_type(reduce(costs, kind="sum", axes=(position,)), element))


def _has_empty_axis(x: Node, axes: tuple[int, ...]) -> bool:
    return any(shape_of_node(x)[axis] == 0 for axis in axes)


def _largest(x: Node, axes: tuple[int, ...]) -> Node:
    """Returns the maxima along axes, broadcast back and detached, because results do not depend on the shift."""
    return spread_back(detach(reduce(x, kind="max", axes=axes)), shape_of_node(x), axes)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, /, *, axis: Axes = -1, epsilon: float = 1e-5) -> Tensor:
    """Normalises elements along axes to mean 0 and variance 1, then multiplies by `weight` and adds `bias`.

    >>> import livegrad as lg
    >>> lg.nn.layer_norm(lg.asarray([1.0, 3.0]), epsilon=0.0)
    Tensor([-1.,  1.], dtype=float32)
    """
    node, element = _to_computation_type(x, "layer_norm")
    shape = shape_of_node(node)
    axes = sorted_axes(axis, len(shape), "layer_norm")
    deviation = node - spread_back(mean_along(node, axes), shape, axes)
    scale = rsqrt(mean_along(deviation * deviation, axes) + require_real(epsilon, "layer_norm", "epsilon"))
    normalised: Any = wrap(as_type(deviation * spread_back(scale, shape, axes), element))
    if weight is not None:
        first, second = match_operands("layer_norm", normalised, weight)
        normalised = wrap(first * second)
    if bias is not None:
        first, second = match_operands("layer_norm", normalised, bias)
        normalised = wrap(first + second)
    if normalised.shape != shape:
        raise ShapeError(
            "`layer_norm` takes weight and bias that broadcast to the tensor",
            where=caller_origin(),
            expected=f"shape {shape}",
            found=f"shape {normalised.shape}",
        )
    return normalised


def one_hot(x: Any, classes: int, /, *, axis: int = -1, dtype: Scalar | None = None) -> Tensor:
    """One-hot encoding along a new axis; an out-of-range element gives zeros.

    >>> import livegrad as lg
    >>> lg.nn.one_hot(lg.asarray([2, 0]), 3)
    Tensor([[0., 0., 1.],
            [1., 0., 0.]], dtype=float32)
    """
    node = as_type(require_kinds(node_of(x, "one_hot"), "one_hot", "signed", "unsigned"), i64)
    index_shape = shape_of_node(node)
    position = normalise_axis(axis, len(index_shape) + 1, "one_hot")
    count = require_integer(classes, "one_hot", "the number of classes", minimum=0)
    shape = normalise_shape((*index_shape[:position], count, *index_shape[position:]), "one_hot")
    classes_node = broadcast(node, shape=shape, axes=tuple(i for i in range(len(shape)) if i != position))
    element = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, "one_hot")
    return wrap(as_type(equal(classes_node, index_along(shape, position)), element))

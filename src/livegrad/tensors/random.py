"""Random numbers as pure functions of a key: the same key gives the same numbers, in any order, on any backend.

`lg.random` is this module. A key is a tensor of one 64-bit integer; `split` and `fold_in` derive new keys. There is no
hidden state: to draw other numbers, use another key. The generator is Threefry-2x32 with 20 rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError, caller_origin
from livegrad.ir.dimension import Size, size_product
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, f64
from livegrad.ir.types import Tensor as TensorType
from livegrad.lazy.execution import execute
from livegrad.lazy.lazy_values import is_traced
from livegrad.ops.comparison import less, shift_right
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import select
from livegrad.ops.indexing import lookup
from livegrad.ops.linalg import broadcast_shapes
from livegrad.ops.movement import broadcast, broadcast_to, index_along, iota, permute, reshape
from livegrad.ops.random import random_bits, random_normal, random_uniform
from livegrad.ops.reduction import arg_reduce
from livegrad.ops.rules import filled, zero
from livegrad.ops.sorting import argsort
from livegrad.ops.transcendental import log
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.axes_and_shapes import normalise_axis, normalise_shape
from livegrad.tensors.broadcasting import cast_and_broadcast
from livegrad.tensors.dtypes import DEFAULT_FLOAT, DEFAULT_INTEGER, dtype_from, uint64
from livegrad.tensors.errors import DtypeError, ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import as_type, element_of, is_number, require_integer, require_kinds
from livegrad.tensors.products import shape_of_node

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "fold_in",
    "integers",
    "key",
    "normal",
    "permutation",
    "split",
    "uniform",
]


def __dir__() -> list[str]:
    """Lists the public names only, for tab completion."""
    return __all__


Shape = int | Sequence[int]

# Counter ranges are disjoint by purpose, so a key that is both split and drawn from gives unrelated numbers.
_SPLIT, _FOLD, _SECOND_WORD = 1 << 63, 1 << 62, 1 << 61
_LOW_HALF = 0xFFFFFFFF

# --- keys ------------------------------------------------------------------------------------------------------------


def key(seed: int | Tensor, /) -> Tensor:
    """Creates a random key from an integer seed.

    >>> import livegrad as lg
    >>> lg.random.uniform(lg.random.key(7), 2).shape
    (2,)
    """
    if isinstance(seed, Tensor):
        require_kinds(seed.node, "key", "signed", "unsigned")
        if seed.shape != ():
            raise ShapeError("`key` takes one seed", where=caller_origin(), found=f"shape {seed.shape}")
        return wrap(as_type(seed.node, uint64))
    return wrap(_seed(seed, "key"))


def _seed(number: Any, user: str) -> Node:
    """Creates a seed as 64 bits of data, not as a constant, so that other seeds run the same code."""
    return wrap_array(np.asarray(require_integer(number, user, "the seed") % (1 << 64), np.uint64)).node


def split(key: Tensor, /, number: int = 2) -> Tensor:
    """Splits a key into several new keys, along a new first dimension. Do not use the old key again.

    >>> import livegrad as lg
    >>> first, second = lg.random.split(lg.random.key(0))
    >>> first.shape
    ()
    """
    (count,) = normalise_shape(number, "split")
    return _as_data(random_bits(_broadcast_key(key, (count,), "split"), _counters((count,)) + _SPLIT))


def fold_in(key: Tensor, /, data: int | Tensor) -> Tensor:
    """Derives a new key from a key and an integer, such as a step index.

    >>> import livegrad as lg
    >>> lg.random.fold_in(lg.random.key(0), 3).shape
    ()
    """
    node = _seed(data, "fold_in") if is_number(data) else node_of(data, "fold_in")
    require_kinds(node, "fold_in", "signed", "unsigned")
    folded = _broadcast_key(key, (), "fold_in")
    inner = random_bits(folded, filled(_FOLD, folded.type))
    return _as_data(random_bits(broadcast_to(inner, shape_of_node(node)), as_type(node, uint64)))


def _as_data(keys: Node) -> Tensor:
    """Returns new keys, computed immediately unless traced.

    Otherwise a loop that splits its key in each step would recompute all earlier keys, which are not held.
    """
    return wrap(keys) if is_traced(keys) else wrap_array(execute([wrap(keys).node])[0])


def _broadcast_key(key: Any, shape: tuple[Size, ...], user: str) -> Node:
    """Validates a key and broadcasts it to a shape."""
    node = node_of(key, user) if isinstance(key, Tensor | Node) else None
    if node is None or element_of(node) is not uint64 or shape_of_node(node) != ():
        found = type(key).__name__ if node is None else str(node.type)
        raise UsageError(
            f"`{user}` takes a key as its first argument",
            where=caller_origin(),
            found=found,
            help="create one with lg.random.key(seed)",
        )
    return broadcast(node, shape=shape, axes=())


def _counters(shape: tuple[Size, ...]) -> Node:
    """Returns 0, 1, 2, … over a shape, in row-major order."""
    if not all(isinstance(size, int) for size in shape[1:]):
        return reshape(iota(shape=(size_product(shape),), axis=0, type=uint64), shape=shape)
    # A sum of one index per axis fuses; a reshaped `iota` would have to be materialised first.
    total, stride = zero(TensorType(uint64, shape)), 1
    for axis in reversed(range(len(shape))):
        total = iota(shape=shape, axis=axis, type=uint64) * stride + total
        stride = stride * shape[axis]
    return total


def bits(key: Tensor, /, shape: Shape = ()) -> Tensor:
    """Random 64-bit integers.

    >>> import livegrad as lg
    >>> lg.random.bits(lg.random.key(0), 3).dtype == lg.uint64
    True
    """
    sizes = normalise_shape(shape, "bits")
    return wrap(random_bits(_broadcast_key(key, sizes, "bits"), _counters(sizes)))


# --- distributions ---------------------------------------------------------------------------------------------------


def uniform(
    key: Tensor, shape: Shape = (), /, *, low: Any = 0.0, high: Any = 1.0, dtype: Scalar | None = None
) -> Tensor:
    """Uniformly distributed numbers from `low` up to, but not including, `high`; differentiable with respect to both.

    >>> import livegrad as lg
    >>> x = lg.random.uniform(lg.random.key(0), (2, 3), low=-1.0)
    >>> x.shape, bool(lg.all(x >= -1.0)), bool(lg.all(x < 1.0))
    ((2, 3), True, True)
    """
    sizes, element = normalise_shape(shape, "uniform"), _float(dtype, "uniform")
    unit = random_uniform(_broadcast_key(key, sizes, "uniform"), _counters(sizes), element)
    if is_number(low) and is_number(high) and (low, high) == (0, 1):
        return wrap(unit)
    first, last = (_parameter(value, element, sizes, "uniform") for value in (low, high))
    samples = first + unit * (last - first)
    # Rounding may reach `high`, which is excluded.
    return wrap(select(less(samples, last), samples, first))


def normal(
    key: Tensor, shape: Shape = (), /, *, mean: Any = 0.0, std: Any = 1.0, dtype: Scalar | None = None
) -> Tensor:
    """Normally distributed numbers; differentiable with respect to the mean and standard deviation.

    >>> import livegrad as lg
    >>> lg.random.normal(lg.random.key(0), (2, 3)).shape
    (2, 3)
    """
    sizes, element = normalise_shape(shape, "normal"), _float(dtype, "normal")
    samples = random_normal(_broadcast_key(key, sizes, "normal"), _counters(sizes), element)
    if is_number(mean) and is_number(std) and (mean, std) == (0, 1):
        return wrap(samples)
    middle, scale = (_parameter(value, element, sizes, "normal") for value in (mean, std))
    return wrap(middle + scale * samples)


def bernoulli(key: Tensor, /, p: Any = 0.5, shape: Shape | None = None) -> Tensor:
    """Independent booleans that are True with probability `p`; the default shape is that of `p`.

    >>> import livegrad as lg
    >>> lg.random.bernoulli(lg.random.key(0), 1.0, 3)
    Tensor([ True,  True,  True], dtype=bool)
    """
    probability = node_of(p, "bernoulli")
    sizes = shape_of_node(probability) if shape is None else normalise_shape(shape, "bernoulli")
    element = element_of(probability) if element_of(probability).kind == "float" else DEFAULT_FLOAT
    unit = random_uniform(_broadcast_key(key, sizes, "bernoulli"), _counters(sizes), element)
    return wrap(less(unit, _parameter(wrap(probability), element, sizes, "bernoulli")))


def _float(dtype: Scalar | None, user: str) -> Scalar:
    element = DEFAULT_FLOAT if dtype is None else dtype_from(dtype, user)
    if element.kind != "float":
        raise DtypeError(f"`{user}` draws floats", where=caller_origin(), found=str(element))
    return element


def _parameter(value: Any, element: Scalar, shape: tuple[Size, ...], user: str) -> Node:
    """Casts a parameter of a distribution and broadcasts it to the shape of the samples."""
    if is_number(value):
        return broadcast(constant(float(value), element), shape=shape, axes=())
    node = node_of(value, user)
    parameter_shape = shape_of_node(node)
    try:
        fits = broadcast_shapes(parameter_shape, shape) == shape
    except LivegradError:
        fits = False
    if not fits:
        raise ShapeError(f"`{user}` cannot broadcast shape {parameter_shape} over {shape}", where=caller_origin())
    return cast_and_broadcast(node, element, shape)


# --- integers and indices --------------------------------------------------------------------------------------------


def integers(key: Tensor, /, low: int, high: int, shape: Shape = (), *, dtype: Scalar | None = None) -> Tensor:
    """Uniformly distributed integers from `low` up to, but not including, `high`.

    The probabilities of two integers differ by less than one part in 2**32.

    >>> import livegrad as lg
    >>> x = lg.random.integers(lg.random.key(0), 1, 7, 100)
    >>> int(lg.min(x)), int(lg.max(x))
    (1, 6)
    """
    sizes = normalise_shape(shape, "integers")
    element = DEFAULT_INTEGER if dtype is None else dtype_from(dtype, "integers")
    first, last = require_integer(low, "integers", "low"), require_integer(high, "integers", "high")
    _require_range(first, last, element)
    offset = _scaled_bits(_broadcast_key(key, sizes, "integers"), _counters(sizes), last - first)
    # 64-bit arithmetic and casts wrap, so a negative start is added as its two's complement.
    return wrap(as_type(offset + first % (1 << 64), element))


def _require_range(first: int, last: int, element: Scalar) -> None:
    if element.kind not in ("signed", "unsigned"):
        raise DtypeError("`integers` draws integers", where=caller_origin(), found=str(element))
    lowest = -(1 << (element.bits - 1)) if element.kind == "signed" else 0
    highest = (1 << (element.bits - 1 if element.kind == "signed" else element.bits)) - 1
    if not lowest <= first < last <= highest + 1:
        raise UsageError(
            f"`integers` cannot draw from {first} up to {last}",
            where=caller_origin(),
            expected=f"an increasing range within {lowest} to {highest + 1} for {element}",
        )


def _scaled_bits(key: Node, counters: Node, span: int) -> Node:
    """Draws integers below `span`: random bits as a fraction times `span`, with 64 bits for small spans, else 128."""
    bits = random_bits(key, counters)
    if span <= 1 << 32:
        return _product(bits, span)[0]
    if span == 1 << 64:
        return bits
    high, low = _product(bits, span)
    carry, _ = _product(random_bits(key, counters + _SECOND_WORD), span)
    total = low + carry
    return high + cast(less(total, low), type=uint64)


def _product(bits: Node, span: int) -> tuple[Node, Node]:
    """Returns the upper and lower 64 bits of a product, computed from 32-bit halves."""
    low, high = bits & _LOW_HALF, shift_right(bits, 32)
    below, above = span & _LOW_HALF, span >> 32
    low_low, high_low = low * below, high * below
    middle = high_low + shift_right(low_low, 32)
    if not above:
        return shift_right(middle, 32), bits * span
    cross = low * above + (middle & _LOW_HALF)
    return high * above + shift_right(middle, 32) + shift_right(cross, 32), bits * span


def categorical(key: Tensor, /, logits: Any, *, axis: int = -1, shape: Shape | None = None) -> Tensor:
    """Samples indices along an axis with probability proportional to `exp(logits)`.

    `shape` is the shape of the result; `logits` without the axis must broadcast to it.

    >>> import livegrad as lg
    >>> lg.random.categorical(lg.random.key(0), lg.asarray([-100.0, 0.0]), shape=3)
    Tensor([1, 1, 1], dtype=int64)
    """
    node = require_kinds(node_of(logits, "categorical"), "categorical", "float")
    logits_shape = shape_of_node(node)
    position = normalise_axis(axis, len(logits_shape), "categorical")
    batch_shape = logits_shape[:position] + logits_shape[position + 1 :]
    sizes = batch_shape if shape is None else normalise_shape(shape, "categorical")
    full = (*sizes, logits_shape[position])
    last = permute(node, axes=(*(i for i in range(len(logits_shape)) if i != position), position))
    scores = _parameter(wrap(last), f64, full, "categorical")
    # Gumbel-max trick: the argmax of logits plus Gumbel noise has the categorical distribution.
    noise = _gumbel(_broadcast_key(key, full, "categorical"), _counters(full))
    return wrap(arg_reduce(scores + noise, kind="argmax", axis=len(sizes)))


def _gumbel(key: Node, counters: Node) -> Node:
    """Draws Gumbel noise: -log(-log(u)) for u uniform in (0, 1)."""
    bits = shift_right(random_bits(key, counters), 12)
    return -log(-log((cast(bits, type=f64) + 0.5) * 2.0**-52))


def permutation(key: Tensor, /, x: int | Tensor, *, axis: int = 0) -> Tensor:
    """Randomly permutes the integers below `x`, or the slices of a tensor along an axis.

    >>> import livegrad as lg
    >>> lg.sort(lg.random.permutation(lg.random.key(0), 4))
    Tensor([0, 1, 2, 3], dtype=int64)
    """
    if not isinstance(x, Tensor):
        return wrap(_order(key, require_integer(x, "permutation", "x", minimum=0)))
    shape = x.shape
    position = normalise_axis(axis, len(shape), "permutation")
    order = broadcast(_order(key, shape[position]), shape=shape, axes=(position,))
    return wrap(lookup(x.node, *(order if i == position else index_along(shape, i) for i in range(len(shape)))))


def _order(key: Tensor, size: Size) -> Node:
    """Draws a random permutation of the integers below a size."""
    samples = random_bits(_broadcast_key(key, (size,), "permutation"), _counters((size,)))
    return argsort(samples, axis=0, descending=False, stable=True)

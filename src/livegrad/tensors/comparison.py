"""Elementwise comparisons, logic and bitwise functions of the tensor namespace."""

from __future__ import annotations

from typing import Any

from livegrad.ir.op import Op
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import bool_, scalar_of, with_scalar
from livegrad.ops import comparison as ops
from livegrad.ops import floating
from livegrad.ops.rules import filled
from livegrad.tensors.handle import Tensor, match_operands, node_of, wrap
from livegrad.tensors.operands import to_boolean


def _compare(op: Op, first: Any, second: Any) -> Tensor:
    a, b = match_operands(op.name, first, second)
    return wrap(op(a, b))


def _logic(op: Op, name: str, first: Any, second: Any) -> Tensor:
    a, b = match_operands(name, first, second)
    return wrap(op(to_boolean(a), to_boolean(b)))


def equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether elements are equal.

    >>> import livegrad as lg
    >>> lg.equal(lg.asarray([1, 2, 3]), 2)
    Tensor([False,  True, False], dtype=bool)
    """
    return _compare(ops.equal, x1, x2)


def not_equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether elements differ.

    >>> import livegrad as lg
    >>> lg.not_equal(lg.asarray([1, 2, 3]), 2)
    Tensor([ True, False,  True], dtype=bool)
    """
    return _compare(ops.not_equal, x1, x2)


def less(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 is below x2.

    >>> import livegrad as lg
    >>> lg.less(lg.asarray([1, 2, 3]), 2)
    Tensor([ True, False, False], dtype=bool)
    """
    return _compare(ops.less, x1, x2)


def less_equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 is below x2 or equal.

    >>> import livegrad as lg
    >>> lg.less_equal(lg.asarray([1, 2, 3]), 2)
    Tensor([ True,  True, False], dtype=bool)
    """
    return _compare(ops.less_equal, x1, x2)


def greater(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 is above x2.

    >>> import livegrad as lg
    >>> lg.greater(lg.asarray([1, 2, 3]), 2)
    Tensor([False, False,  True], dtype=bool)
    """
    return _compare(ops.greater, x1, x2)


def greater_equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 is above x2 or equal.

    >>> import livegrad as lg
    >>> lg.greater_equal(lg.asarray([1, 2, 3]), 2)
    Tensor([False,  True,  True], dtype=bool)
    """
    return _compare(ops.greater_equal, x1, x2)


def logical_and(x1: Any, x2: Any, /) -> Tensor:
    """Whether both elements are true. Nonzero numbers are true.

    >>> import livegrad as lg
    >>> lg.logical_and(lg.asarray([True, False]), True)
    Tensor([ True, False], dtype=bool)
    """
    return _logic(ops.bit_and, "logical_and", x1, x2)


def logical_or(x1: Any, x2: Any, /) -> Tensor:
    """Whether at least one element is true. Nonzero numbers are true.

    >>> import livegrad as lg
    >>> lg.logical_or(lg.asarray([True, False]), True)
    Tensor([ True,  True], dtype=bool)
    """
    return _logic(ops.bit_or, "logical_or", x1, x2)


def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    """Whether exactly one element is true. Nonzero numbers are true.

    >>> import livegrad as lg
    >>> lg.logical_xor(lg.asarray([True, False]), True)
    Tensor([False,  True], dtype=bool)
    """
    return _logic(ops.bit_xor, "logical_xor", x1, x2)


def logical_not(x: Any, /) -> Tensor:
    """Whether the element is false. Nonzero numbers are true.

    >>> import livegrad as lg
    >>> lg.logical_not(lg.asarray([True, False]))
    Tensor([False,  True], dtype=bool)
    """
    return wrap(ops.bit_not(to_boolean(node_of(x, "logical_not"))))


def bitwise_and(x1: Any, x2: Any, /) -> Tensor:
    """Bitwise AND. Booleans are single bits.

    >>> import livegrad as lg
    >>> lg.bitwise_and(lg.asarray([6, 3]), 2)
    Tensor([2, 2], dtype=int64)
    """
    return _compare(ops.bit_and, x1, x2)


def bitwise_or(x1: Any, x2: Any, /) -> Tensor:
    """Bitwise OR. Booleans are single bits.

    >>> import livegrad as lg
    >>> lg.bitwise_or(lg.asarray([4, 1]), 2)
    Tensor([6, 3], dtype=int64)
    """
    return _compare(ops.bit_or, x1, x2)


def bitwise_xor(x1: Any, x2: Any, /) -> Tensor:
    """Bitwise XOR. Booleans are single bits.

    >>> import livegrad as lg
    >>> lg.bitwise_xor(lg.asarray([6, 1]), 2)
    Tensor([4, 3], dtype=int64)
    """
    return _compare(ops.bit_xor, x1, x2)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor:
    """Shifts the bits left by x2 positions; bits shifted out are lost.

    >>> import livegrad as lg
    >>> lg.bitwise_left_shift(lg.asarray([1, 3]), 2)
    Tensor([ 4, 12], dtype=int64)
    """
    return _compare(ops.shift_left, x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    """Shifts the bits right by x2 positions, keeping the sign.

    >>> import livegrad as lg
    >>> lg.bitwise_right_shift(lg.asarray([8, -8]), 2)
    Tensor([ 2, -2], dtype=int64)
    """
    return _compare(ops.shift_right, x1, x2)


def bitwise_invert(x: Any, /) -> Tensor:
    """Inverts each bit; booleans are negated.

    >>> import livegrad as lg
    >>> lg.bitwise_invert(lg.asarray([0, 5]))
    Tensor([-1, -6], dtype=int64)
    """
    return wrap(ops.bit_not(node_of(x, "bitwise_invert")))


def isnan(x: Any, /) -> Tensor:
    """Whether the element is NaN.

    >>> import livegrad as lg
    >>> lg.isnan(lg.asarray([1.0, lg.nan]))
    Tensor([False,  True], dtype=bool)
    """
    return _classify(ops.is_nan, x, False)


def isinf(x: Any, /) -> Tensor:
    """Whether the element is infinite.

    >>> import livegrad as lg
    >>> lg.isinf(lg.asarray([1.0, -lg.inf]))
    Tensor([False,  True], dtype=bool)
    """
    return _classify(ops.is_infinite, x, False)


def isfinite(x: Any, /) -> Tensor:
    """Whether the element is neither NaN nor infinite.

    >>> import livegrad as lg
    >>> lg.isfinite(lg.asarray([1.0, lg.inf, lg.nan]))
    Tensor([ True, False, False], dtype=bool)
    """
    return _classify(ops.is_finite, x, True)


def _classify(op: Op, x: Any, of_integers: bool) -> Tensor:
    node = node_of(x, op.name)
    scalar = scalar_of(node.type)
    if scalar is not None and scalar.kind in ("float", "complex"):
        return wrap(op(node))
    assert isinstance(node.type, TensorType)
    return wrap(filled(of_integers, with_scalar(node.type, bool_)))


def signbit(x: Any, /) -> Tensor:
    """Whether the sign bit is set, also for -0.0 and NaN.

    >>> import livegrad as lg
    >>> lg.signbit(lg.asarray([1.0, -0.0]))
    Tensor([False,  True], dtype=bool)
    """
    node = node_of(x, "signbit")
    return wrap(floating.signbit(node))

"""Counter-based random numbers: Threefry-2x32 with twenty rounds, a pure function of a key and a counter.

The bits are the same on every backend, for any order of evaluation and any number of threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Type, f64, scalar_of, u32, u64, with_scalar
from livegrad.ops.comparison import shift_left, shift_right
from livegrad.ops.conversion import cast
from livegrad.ops.rules import zero_tangent
from livegrad.ops.transcendental import cos, log, sqrt

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 20


def _bits_type(key: Type, counter: Type) -> Type:
    if key is not counter or scalar_of(key) is not u64:
        raise TypeRuleError("key and counter must be u64 and have the same shape", found=f"{key}, {counter}")
    return key


def _evaluate_bits(key: Any, counter: Any) -> Any:
    key, counter = np.asarray(key, np.uint64), np.asarray(counter, np.uint64)
    low = np.uint64(0xFFFFFFFF)
    key0, key1 = (key & low).astype(np.uint32), (key >> np.uint64(32)).astype(np.uint32)
    x0, x1 = (counter & low).astype(np.uint32), (counter >> np.uint64(32)).astype(np.uint32)
    keys = [key0, key1, key0 ^ key1 ^ np.uint32(_PARITY)]
    with np.errstate(over="ignore"):
        x0, x1 = x0 + keys[0], x1 + keys[1]
        for index in range(_ROUNDS):
            bits = np.uint32(_ROTATIONS[(index // 4) % 2][index % 4])
            x0 = x0 + x1
            x1 = ((x1 << bits) | (x1 >> (np.uint32(32) - bits))) ^ x0
            if index % 4 == 3:
                step = index // 4 + 1
                x0, x1 = x0 + keys[step % 3], x1 + keys[(step + 1) % 3] + np.uint32(step)
    return x0.astype(np.uint64) | (x1.astype(np.uint64) << np.uint64(32))


def _expand_bits(y: Node) -> Node:
    key, counter = y.operands
    (key0, key1), (x0, x1) = _halves(key), _halves(counter)
    keys = [key0, key1, key0 ^ key1 ^ _PARITY]
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for index in range(_ROUNDS):
        bits = _ROTATIONS[(index // 4) % 2][index % 4]
        x0 = x0 + x1
        x1 = (shift_left(x1, bits) | shift_right(x1, 32 - bits)) ^ x0
        if index % 4 == 3:
            step = index // 4 + 1
            x0, x1 = x0 + keys[step % 3], x1 + keys[(step + 1) % 3] + step
    return cast(x0, type=u64) | shift_left(cast(x1, type=u64), 32)


def _halves(value: Node) -> tuple[Node, Node]:
    return cast(value & 0xFFFFFFFF, type=u32), cast(shift_right(value, 32), type=u32)


random_bits = Op(
    "random_bits",
    type_of=_bits_type,
    evaluate=_evaluate_bits,
    jvp=zero_tangent,
    expand=_expand_bits,
    elementwise=True,
    differentiable=False,
    cost=120.0,
)


def random_uniform(key: Node, counter: Node, type: Scalar) -> Node:
    """Uniform numbers in [0, 1), one for each counter, with as many random bits as the type has significant digits.

    >>> from livegrad.ir.leaves import constant
    >>> from livegrad.ir.types import f32
    >>> random_uniform(constant(1, u64), constant(0, u64), f32).type
    f32
    """
    digits = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}.get(type.name)
    if digits is None:
        raise TypeRuleError("uniform numbers must be floats", found=str(type))
    bits = shift_right(random_bits(key, counter), 64 - digits)
    return cast(bits, type=type) * math.ldexp(1.0, -digits)


def random_normal(key: Node, counter: Node, type: Scalar) -> Node:
    """Standard normal numbers, one for each counter, by the Box-Muller transform.

    >>> import livegrad as lg
    >>> lg.random.normal(lg.random.key(0), (1000,)).shape      # uses it
    (1000,)
    """
    bits = random_bits(key, counter)
    low, high = cast(bits & 0xFFFFFFFF, type=f64), cast(shift_right(bits, 32), type=f64)
    radius = sqrt(-2.0 * log((low + 0.5) * 2.0**-32))
    normal = radius * cos(high * (2.0 * math.pi * 2.0**-32))
    return normal if scalar_of(with_scalar(normal.type, type)) is f64 else cast(normal, type=type)

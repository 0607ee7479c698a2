"""Operands decide whether a node can fail; nodes that cannot are shared by all lines, and may be dead code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from livegrad import ops
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Array, Tensor, Type, f32, f64, i32, i64, u8

ROW = Tensor(f32, (4,))
CASES: list[tuple[str, tuple[Type, ...], Callable[..., Node], bool]] = [
    ("a divisor that may be zero", (i32, i32), lambda a, b: a // b, True),
    ("a remainder by what may be zero", (i32, i32), lambda a, b: a % b, True),
    ("a divisor that is not zero", (i32,), lambda a: a // 7, False),
    ("a divisor that is not zero, for a tensor", (Tensor(i32, (3,)),), lambda a: a % 7, False),
    ("a divisor that is zero", (i32,), lambda a: a // 0, True),
    ("floats have quotients by zero", (f32, f32), lambda a, b: a // b, False),
    ("a float to an integer", (f32,), lambda x: ops.cast(x, type=i32), True),
    ("an integer to a float", (i32,), lambda x: ops.cast(x, type=f32), False),
    ("a float to a wider one", (f32,), lambda x: ops.cast(x, type=f64), False),
    ("an integer to another", (i64,), lambda x: ops.cast(x, type=u8), False),
    ("a computed index", (ROW, i64), lambda t, i: ops.lookup(t, i), True),
    ("an index that is there", (ROW,), lambda t: ops.lookup(t, constant(3, i64)), False),
    ("an index that does not exist", (ROW,), lambda t: ops.lookup(t, constant(4, i64)), True),
    ("the one element of a tensor without dimensions", (Tensor(f32, ()),), lambda t: ops.lookup(t), False),
    ("a member by computed index", (Array(f32, 3), i32), lambda a, i: ops.get_at(a, i), True),
    ("a member that is there", (Array(f32, 3),), lambda a: ops.get_at(a, constant(2, i32)), False),
    ("an assertion", (f32,), lambda x: ops.check(x, x > 0.0, message="no"), True),
    ("a power that may be negative", (i32, i32), lambda a, b: ops.integer_pow(a, b), True),
    ("a power that is not", (i32,), lambda a: ops.integer_pow(a, constant(3, i32)), False),
    ("an addition", (f32, f32), lambda a, b: a + b, False),
]


@pytest.mark.parametrize(("types", "write", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_it_is_known_what_can_fail(types: tuple[Type, ...], write: Callable[..., Node], expected: bool) -> None:
    operands: list[Any] = [input_node(Key(f"x{number}"), type) for number, type in enumerate(types)]
    assert write(*operands).may_fail is expected


def test_a_loop_can_fail_when_it_has_a_limit() -> None:
    x = input_node(Key("x"), f32)
    for limit in (None, 10):
        member, *_ = ops.make_while_loop(lambda v: v > 1.0, lambda i, v: v * 0.5, x, limit=limit)
        (loop,) = member.operands
        assert loop.may_fail is (limit is not None)

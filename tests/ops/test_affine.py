"""Affine forms against the values of random expressions."""

import random

from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import i32, i64
from livegrad.ops.affine import affine_form, constant_difference
from livegrad.ops.conversion import cast
from livegrad.runtime.reference import evaluate


def test_a_long_sum_is_an_unknown_itself_and_still_cancels() -> None:
    total = input_node(Key("start"), i64)
    for number in range(100):
        total = total + input_node(Key(f"x{number}"), i64)
    assert len(affine_form(total + 1).coefficients) <= 33
    assert constant_difference(total * 2 + 5, total * 2) == 5


def test_a_form_of_64_bits_does_not_look_into_arithmetic_of_32_bits_that_may_wrap() -> None:
    f = trace(lambda i: cast(i + i, type=i64), i32)
    form = affine_form(f.results[0])
    assert form.coefficients == {f.results[0].operands[0]: 1}


def test_a_constant_difference_is_the_difference_of_the_values() -> None:
    source, actual = random.Random(1), 0
    for _ in range(300):
        inputs = [input_node(Key(name), i64) for name in "ij"]

        def number(depth: int, inputs: list[Node] = inputs) -> Node:
            kind = source.randrange(5 if depth else 2)
            if kind == 0:
                return source.choice(inputs)
            if kind == 1:
                return constant(source.randrange(-3, 4), i64)
            if kind == 2:
                return number(depth - 1) * source.randrange(-2, 3)
            return number(depth - 1) + number(depth - 1) if kind == 3 else number(depth - 1) - number(depth - 1)

        first, second = number(3), number(3)
        if source.random() < 0.5:
            second = first + number(1) if source.random() < 0.5 else second - second + first + 5
        difference = constant_difference(first, second)
        function = make_function("difference", inputs, [first - second])
        values = {int(evaluate(function, i, j)) for i, j in ((0, 0), (1, 0), (0, 1), (7, -3))}
        if difference is not None:
            actual += 1
            assert values == {difference}
        else:
            assert len(values) > 1  # these expressions are linear: none is missed
    assert actual > 50

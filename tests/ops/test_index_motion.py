"""What is known of indices without their values, against the values of random expressions."""

import random
from itertools import product

import numpy as np

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Tensor, i64
from livegrad.ops.index_motion import are_distinct, box_of, constant_difference, separating_axes
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.rules import filled
from livegrad.runtime.reference import evaluate

SHAPE = (3, 1, 4)


def _index(source: random.Random, inputs: list[Node]) -> Node:
    """A random index at each point of SHAPE."""
    kind = source.randrange(6)
    if kind == 0:
        return filled(source.randrange(4), Tensor(i64, SHAPE))
    if kind == 1:
        axis = source.randrange(3)
        inner = iota(shape=(SHAPE[axis],), axis=0, type=i64)
        return broadcast(inner, shape=SHAPE, axes=(axis,))
    if kind == 2:
        computed = source.choice(inputs)
        return broadcast(computed, shape=SHAPE, axes=(0,) if isinstance(computed.type, Tensor) else ())
    if kind == 3:
        return _index(source, inputs) * source.randrange(3)
    if kind == 4:
        return _index(source, inputs) + _index(source, inputs)
    return iota(shape=SHAPE, axis=source.randrange(3), type=i64) * source.randint(1, 3) + source.randrange(3)


def test_axes_separate_points_and_boxes_are_where_indices_say() -> None:
    source, numbers = random.Random(0), np.random.default_rng(0)
    boxes = distinct = 0
    for _ in range(400):
        inputs = [input_node(Key("one"), i64), input_node(Key("rows"), Tensor(i64, (3,)))]
        indices = [_index(source, inputs) for _ in range(2)]
        function = make_function("indices", inputs, indices)
        values = evaluate(function, int(numbers.integers(3)), numbers.integers(0, 3, 3))
        rows = zip(*(np.ravel(v).tolist() for v in values), strict=True)
        places = dict(zip(product(*map(range, SHAPE)), rows, strict=True))
        separating = separating_axes(indices)
        for (p, a), (q, b) in product(places.items(), repeat=2):
            if any(p[axis] != q[axis] for axis in separating):
                assert a != b
        if are_distinct(indices):
            distinct += 1
            assert len(set(places.values())) == len(places)
        box = box_of((9, 9), indices)
        if box is not None:
            boxes += 1
            grid = np.meshgrid(
                *(s + t * np.arange(n) for s, n, t in zip(box.start, box.size, box.step, strict=True)), indexing="ij"
            )
            assert list(zip(*(g.ravel().tolist() for g in grid), strict=True)) == list(places.values())
    assert min(boxes, distinct - boxes) > 5


def test_a_constant_difference_is_the_difference_of_the_values() -> None:
    source, found = random.Random(1), 0
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
            found += 1
            assert values == {difference}
        else:
            assert len(values) > 1  # these expressions are linear: none is missed
    assert found > 50

"""Static knowledge about indices, against the values of random expressions."""

import random
from itertools import product

import numpy as np

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Tensor, i64
from livegrad.ops.index_motion import are_distinct, box_of, separating_axes
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.rules import filled
from livegrad.runtime.reference import evaluate

SHAPE = (3, 1, 4)


def _index(source: random.Random, inputs: list[Node]) -> Node:
    """A random index at each point of SHAPE."""
    kind = source.randrange(8)
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
    if kind == 5:
        return _index(source, inputs) - _index(source, inputs)
    if kind == 6:
        return -_index(source, inputs)
    return iota(shape=SHAPE, axis=source.randrange(3), type=i64) * source.randint(1, 3) + source.randrange(3)


def test_axes_separate_points_and_boxes_are_where_indices_say() -> None:
    source, numbers = random.Random(0), np.random.default_rng(0)
    boxes = distinct = 0
    for _ in range(1500):
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

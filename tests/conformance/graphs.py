"""Random graphs of mixed ops over small tensors, drawn by hypothesis.

Every op here is bounded or contracting, so that rounding differences between backends stay small; indices and
conditions come from the inputs alone, so that a difference cannot flip them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, bool_, i64
from livegrad.ops.control import make_for_loop
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import abs, max, maximum, min, minimum, select
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import make_map
from livegrad.ops.movement import broadcast, concatenate, flip, pad, permute, reshape, slice_
from livegrad.ops.reduction import cumulative, reduce
from livegrad.ops.rules import filled
from livegrad.ops.transcendental import atan, cos, erf, exp, hypot, sin, sqrt, tanh

LARGEST = 240  # elements of any tensor in a graph
SIZES = st.sampled_from([2, 3, 5, 1, 37, 4, 6, 0])
SHAPES = st.lists(SIZES, max_size=3).filter(lambda sizes: np.prod(sizes) <= LARGEST).map(tuple)


@dataclass(frozen=True)
class Graph:
    """A function and arguments for it."""

    function: Function
    arguments: tuple[Any, ...]


@dataclass
class Builder:
    """Nodes made so far; each rule takes some of them and gives one more."""

    data: st.DataObject
    inputs: list[Node] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)
    pool: list[Node] = field(default_factory=list)
    seed: int = 0

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def add_input(self, type: Tensor, array: Any) -> Node:
        node = parameter(len(self.inputs), type)
        self.inputs.append(node)
        self.arguments.append(array)
        return node

    def numbers(self) -> np.random.Generator:
        self.seed += 1
        return np.random.default_rng(self.seed)

    def any_node(self) -> Node:
        """One of the pool, often one that was made lately, so that graphs grow deep."""
        return self.draw(st.sampled_from([*self.pool[-3:], *self.pool]))

    def shape(self, node: Node) -> tuple[int, ...]:
        assert isinstance(node.type, Tensor)
        return tuple(int(n) for n in node.type.shape)  # type: ignore[arg-type]

    def partner(self, node: Node) -> Node:
        """A node of the same type: another of the pool, or one that is made to fit."""
        fitting = [other for other in self.pool if other.type is node.type]
        other = self.draw(st.sampled_from([*fitting, None]))
        if other is not None:
            return other
        flat = reduce(self.any_node(), kind="sum", axes=())
        axes = tuple(range(len(self.shape(flat))))
        total = lookup(reduce(flat, kind="sum", axes=axes))
        return broadcast(total, shape=self.shape(node), axes=())

    def condition(self, node: Node) -> Node:
        values = self.numbers().integers(0, 2, self.shape(node)).astype(bool)
        return self.add_input(Tensor(bool_, self.shape(node)), values)

    def axis(self, node: Node) -> int | None:
        rank = len(self.shape(node))
        return self.draw(st.integers(0, rank - 1)) if rank else None


Rule = Callable[[Builder], Node]


def unary(builder: Builder) -> Node:
    functions: list[Callable[[Node], Node]] = [
        sin,
        cos,
        tanh,
        atan,
        erf,
        abs,
        lambda x: -x,
        lambda x: sqrt(x * x + 1.0),
        lambda x: exp(-(x * x)),
        lambda x: x * 0.5 + 0.25,
        lambda x: x / (x * x + 1.0),
    ]
    return builder.draw(st.sampled_from(functions))(builder.any_node())


def binary(builder: Builder) -> Node:
    functions: list[Callable[[Node, Node], Node]] = [
        lambda x, y: (x + y) * 0.5,
        lambda x, y: (x - y) * 0.5,
        lambda x, y: x * tanh(y),
        lambda x, y: x / (y * y + 1.0),
        lambda x, y: hypot(x, y + 3.0) * 0.5,
        min,
        max,
        minimum,
        maximum,
    ]
    first = builder.any_node()
    return builder.draw(st.sampled_from(functions))(first, builder.partner(first))


def choose(builder: Builder) -> Node:
    first = builder.any_node()
    return select(builder.condition(first), first, builder.partner(first))


def fold(builder: Builder) -> Node:
    node = builder.any_node()
    shape = builder.shape(node)
    axes = tuple(sorted(builder.draw(st.sets(st.integers(0, len(shape) - 1))))) if shape else ()
    kinds = ["sum", "sum", "max", "min"] if all(shape[axis] for axis in axes) else ["sum"]
    count = float(np.prod([shape[axis] for axis in axes])) or 1.0
    kind = builder.draw(st.sampled_from(kinds))
    folded = reduce(node, kind=kind, axes=axes)
    return folded * (1.0 / count) if kind == "sum" else folded


def run(builder: Builder) -> Node:
    node = builder.any_node()
    axis = builder.axis(node)
    if axis is None:
        return node
    kind = builder.draw(st.sampled_from(["sum", "max", "min"]))
    reverse, exclusive = builder.draw(st.booleans()), builder.draw(st.booleans()) and kind == "sum"
    scale = 1.0 / builder.shape(node)[axis] if builder.shape(node)[axis] else 1.0
    return cumulative(node * scale, kind=kind, axis=axis, reverse=reverse, exclusive=exclusive)


def spread(builder: Builder) -> Node:
    node = builder.any_node()
    shape = list(builder.shape(node))
    places = [axis for axis, size in enumerate(shape) if size == 1]
    for axis in places:
        shape[axis] = builder.draw(st.sampled_from([1, 3]))
    axes = list(range(len(shape)))
    if len(shape) < 3 and builder.draw(st.booleans()):
        at = builder.draw(st.integers(0, len(shape)))
        shape.insert(at, 2)
        axes = [axis + (axis >= at) for axis in axes]
    return broadcast(node, shape=tuple(shape), axes=tuple(axes)) if np.prod(shape) <= LARGEST else node


def move(builder: Builder) -> Node:
    node = builder.any_node()
    shape = builder.shape(node)
    rank = len(shape)
    match builder.draw(st.sampled_from(["flat", "permute", "flip", "slice", "pad"])):
        case "flat":
            return reshape(node, shape=(int(np.prod(shape)),))
        case "permute":
            return permute(node, axes=tuple(builder.draw(st.permutations(range(rank)))))
        case "flip":
            return flip(node, axes=tuple(builder.draw(st.sets(st.integers(0, rank - 1)))) if rank else ())
        case "slice":
            start = tuple(builder.draw(st.integers(0, n)) for n in shape)
            step = tuple(builder.draw(st.integers(1, 3)) for _ in shape)
            size = tuple(
                builder.draw(st.integers(0, -(-(n - a) // s))) for n, a, s in zip(shape, start, step, strict=True)
            )
            return slice_(node, start=start, size=size, step=step)
    widths = [tuple(builder.draw(st.integers(0, 2)) for _ in shape) for _ in range(3)]
    padded = pad(node, filled(0.5, element(node)), low=widths[0], high=widths[1], interior=widths[2])
    return padded if np.prod(builder.shape(padded)) <= LARGEST else node


def element(node: Node) -> Scalar:
    assert isinstance(node.type, Tensor)
    return node.type.element


def join(builder: Builder) -> Node:
    node = builder.any_node()
    axis = builder.axis(node)
    if axis is None or 3 * np.prod(builder.shape(node)) > LARGEST:
        return node
    return concatenate(node, builder.partner(node), node, axis=axis)


def read(builder: Builder) -> Node:
    node = builder.any_node()
    indices = _indices(builder, node, builder.draw(st.sampled_from([(0,), (4,), (2, 3)])))
    return lookup(node, *indices) if indices else node


def _indices(builder: Builder, node: Node, at: tuple[int, ...]) -> list[Node]:
    shape = builder.shape(node)
    if not shape or not all(shape):
        return []
    return [builder.add_input(Tensor(i64, at), builder.numbers().integers(0, size, at)) for size in shape]


def write(builder: Builder) -> Node:
    node = builder.any_node()
    indices = _indices(builder, node, (3,))
    if not indices:
        return node
    updates = broadcast(lookup(node, *[filled(0, i64)] * len(indices)) * 0.25, shape=(3,), axes=())
    return scatter_add(node, updates, *indices)


def multiply(builder: Builder) -> Node:
    node = builder.any_node()
    shape = builder.shape(node)
    if len(shape) < 2 or np.prod(shape) * shape[-2] > 5 * LARGEST or shape[-2] ** 2 > LARGEST:
        return node
    rank = len(shape)
    transposed = permute(node, axes=(*range(rank - 2), rank - 1, rank - 2))
    product = matmul(node, transposed) * (1.0 / (shape[-1] or 1))
    return product if np.prod(builder.shape(product)) <= LARGEST else node


def mapped(builder: Builder) -> Node:
    """A scalar function at every point, with a loop of its own."""
    node = builder.any_node()

    def point(x: Node, n: Node) -> Node:
        return make_for_loop(n, lambda i, a: sin(a) * 0.5 + x * cast(i, type=x.type) * 0.25, x)[0]

    function = trace(point, element(node), i64)
    iterations = builder.numbers().integers(0, 4, builder.shape(node))
    return make_map(function, node, builder.add_input(Tensor(i64, builder.shape(node)), iterations))


FLOAT_RULES: list[Rule] = [unary, unary, binary, binary, choose, fold, run, spread, move, move, join, read, write]
FLOAT_RULES += [multiply, mapped]


def float_graph(data: st.DataObject, scalar: Scalar) -> Graph:
    """A graph over floats, smooth but for kinks."""
    builder = Builder(data, seed=data.draw(st.integers(0, 1000)))
    for _ in range(builder.draw(st.integers(1, 3))):
        shape = builder.draw(SHAPES)
        values = builder.numbers().uniform(-1.5, 1.5, shape).astype(scalar.dtype)
        builder.pool.append(builder.add_input(Tensor(scalar, shape), values))
    for _ in range(builder.draw(st.integers(3, 12))):
        builder.pool.append(builder.draw(st.sampled_from(FLOAT_RULES))(builder))
    return _finished(builder)


def _finished(builder: Builder) -> Graph:
    results = builder.pool[-builder.draw(st.integers(1, 2)) :]
    return Graph(make_function("graph", builder.inputs, results), tuple(builder.arguments))


def integer_graph(data: st.DataObject, scalar: Scalar) -> Graph:
    """A graph over integers, which wrap: every backend gives the same bits."""
    builder = Builder(data, seed=data.draw(st.integers(0, 1000)))
    bounds = np.iinfo(scalar.dtype)
    for _ in range(builder.draw(st.integers(1, 3))):
        shape = builder.draw(SHAPES)
        values = builder.numbers().integers(bounds.min, bounds.max, shape, dtype=scalar.dtype, endpoint=True)
        builder.pool.append(builder.add_input(Tensor(scalar, shape), values))
    for _ in range(builder.draw(st.integers(3, 12))):
        builder.pool.append(builder.draw(st.sampled_from(INTEGER_RULES))(builder))
    return _finished(builder)


def arithmetic(builder: Builder) -> Node:
    functions: list[Callable[[Node, Node], Node]] = [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x & y,
        lambda x, y: x | y,
        lambda x, y: x ^ y,
        lambda x, y: ~x,
        lambda x, y: x // (y | 1),
        lambda x, y: x % (y | 1),
        lambda x, y: select(x < y, x, y),
        minimum,
        maximum,
    ]
    first = builder.any_node()
    return builder.draw(st.sampled_from(functions))(first, builder.partner(first))


def integer_fold(builder: Builder) -> Node:
    node = builder.any_node()
    shape = builder.shape(node)
    axes = tuple(range(len(shape)))[: builder.draw(st.integers(0, len(shape)))]
    kinds = ["sum", "prod", "max", "min"] if all(shape[axis] for axis in axes) else ["sum", "prod"]
    return reduce(node, kind=builder.draw(st.sampled_from(kinds)), axes=axes)


INTEGER_RULES: list[Rule] = [arithmetic, arithmetic, arithmetic, integer_fold, choose, spread, join, read]

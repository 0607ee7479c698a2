"""Values of scalar replacement: arrays of scalar nodes in place of small tensors, and tensors in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Tape, Tensor, Tuple, Type, components, i64, inner_types, shape_of
from livegrad.ops.aggregate import get, make_tuple, member
from livegrad.ops.indexing import lookup

MAX_ELEMENTS = 32  # of a tensor at one point: larger ones do not fit in registers
_MAX_POSITIONS = 1 << 16  # of a view of memory: larger ones take too long to resolve
Shape = tuple[int, ...]
Elements = NDArray[Any]  # of scalar nodes, one for each element of a small tensor


class NotReplaced(Exception):
    """A function computes values at a point that scalars cannot replace."""


@dataclass(frozen=True)
class Memory:
    """A tensor in memory. All reads start with the indices `prefix`, such as the member of a batch."""

    tensor: Node
    prefix: tuple[Node, ...] = ()

    @property
    def shape(self) -> tuple[Any, ...]:
        return shape_of(self.tensor.type)[len(self.prefix) :]

    def at(self, *index: Node) -> Node:
        return lookup(self.tensor, *self.prefix, *index)


@dataclass(frozen=True)
class View:
    """A view of a tensor in memory: the row-major position of each of its elements."""

    memory: Memory
    positions: NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """A tape whose rows are those of a tensor."""

    tensor: Elements | Memory | View


Value = Node | Elements | Memory | View | Rows | tuple["Value", ...]


def static_shape(type: Type) -> Shape:
    shape = shape_of(type)
    if not all(isinstance(size, int) for size in shape):
        raise NotReplaced
    return shape  # type: ignore[return-value]


def require_small(shape: Sequence[int]) -> None:
    if prod(shape) > MAX_ELEMENTS:
        raise NotReplaced


def filled_with(node: Node, shape: Shape = ()) -> Elements:
    """An array whose elements are all one scalar node."""
    require_small(shape)
    elements = np.empty(shape, object)
    elements.fill(node)
    return elements


def array_of(nodes: Sequence[Node], shape: Shape) -> Elements:
    elements = np.empty(len(nodes), object)
    elements[:] = nodes
    return elements.reshape(shape)


def view_of(memory: Memory) -> View:
    """A view of a whole tensor in memory."""
    shape = memory.shape
    if not all(isinstance(size, int) for size in shape) or prod(shape) > _MAX_POSITIONS:
        raise NotReplaced
    return View(memory, np.arange(prod(shape)).reshape(shape))


def load(value: Value) -> Elements:
    """The elements of a small tensor; reads them if they are in memory."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Node):
        return filled_with(value)
    view = view_of(value) if isinstance(value, Memory) else value
    if not isinstance(view, View):
        raise NotReplaced
    require_small(view.positions.shape)
    indices = np.unravel_index(view.positions.reshape(-1), view.memory.shape)
    reads = [view.memory.at(*[constant(int(i), i64) for i in index]) for index in zip(*indices, strict=True)]
    if not view.memory.shape:
        reads = [view.memory.at()]
    return array_of(reads, view.positions.shape)


def scalar(value: Value) -> Node:
    """The only element of a value of rank 0."""
    if isinstance(value, Node):
        return value
    elements = load(value)
    if elements.shape:
        raise NotReplaced
    return elements.item()


def holds_tensors(type: Type) -> bool:
    return any(isinstance(inner, Tensor) for inner in inner_types(type))


# --- values as lists of nodes ----------------------------------------------------------------------------------------


def flatten(value: Value, type: Type) -> Iterator[Node]:
    """The leaf nodes of a value, in order; reads elements in memory."""
    if isinstance(type, Tensor):
        yield from load(value).reshape(-1)
    elif isinstance(type, Tuple) and holds_tensors(type):
        for part, part_type in zip(parts_of(value, type), components(type), strict=True):
            yield from flatten(part, part_type)
    elif isinstance(value, Node):
        yield value
    else:
        raise NotReplaced


def rebuild(nodes: Iterator[Node], type: Type, shape: Shape | None = None) -> Value:
    """Builds a value of a type from the next leaf nodes. `shape` overrides the shape of a tensor."""
    if isinstance(type, Tensor):
        shape = static_shape(type) if shape is None else shape
        require_small(shape)
        return array_of([next(nodes) for _ in range(prod(shape))], shape)
    if isinstance(type, Tuple) and holds_tensors(type):
        return tuple([rebuild(nodes, part) for part in components(type)])
    return next(nodes)


def parts_of(value: Value, type: Type) -> Sequence[Value]:
    """The members of a tuple."""
    if isinstance(value, tuple):
        return value
    assert isinstance(value, Node)
    return [member(value, index) for index in range(len(components(type)))]


def packed_type(type: Type) -> Type:
    """The type of one node that holds a value of `type`: a tuple of scalars if there are several."""
    if isinstance(type, Tape):
        return Tape(packed_type(type.element))
    leaves = list(_leaf_types(type))
    return leaves[0] if len(leaves) == 1 else Tuple(tuple(leaves))


def _leaf_types(type: Type) -> Iterator[Type]:
    if isinstance(type, Tensor):
        shape = static_shape(type)
        require_small(shape)
        yield from [type.element] * prod(shape)
    elif isinstance(type, Tuple) and holds_tensors(type):
        for part in components(type):
            yield from _leaf_types(part)
    elif isinstance(type, Tape):
        yield packed_type(type)
    elif holds_tensors(type):
        raise NotReplaced
    else:
        yield type


def pack(value: Value, type: Type) -> Node:
    """Packs a value into one node, for a tape."""
    nodes = list(flatten(value, type))
    return nodes[0] if len(nodes) == 1 else make_tuple(*nodes)


def unpack(node: Node, type: Type) -> Value:
    """The inverse of `pack`."""
    count = len(list(_leaf_types(type)))
    nodes = [node] if count == 1 else [get(node, index=index) for index in range(count)]
    return rebuild(iter(nodes), type)

"""Tensors in place of tapes: the values that `lower_tapes` computes with, and reads and writes of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tape, Tensor, Type, components
from livegrad.ops.aggregate import make, member
from livegrad.ops.assignment import assign
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, index_along
from livegrad.passes.flatten_signature import leaf_types


class NotLowered(Exception):
    """A tape is read or written other than at the index of a loop, or has elements that tensors cannot hold."""


@dataclass(frozen=True)
class LoweredTape:
    """A tape as tensors, one for each leaf of its element. `prefix` has the indices of the loops around the tape."""

    element: Type
    tensors: tuple[Node, ...]
    prefix: tuple[Node, ...]
    is_list: bool = False  # made from a tensor: reads beyond its end return zero


@dataclass(frozen=True)
class Row:
    """A row of a tape that is a tensor, seen as the tape of its elements that an inner loop reads or has written."""

    tape: LoweredTape


TapeValue = Node | LoweredTape | Row | tuple["TapeValue", ...]  # a tuple: an aggregate with tapes inside


def row_leaves(element: Type) -> Iterator[Tensor]:
    """The scalars and tensors of one row of a tape, including those of nested tapes."""
    for leaf in leaf_types(element):
        if isinstance(leaf, Tape):
            yield from row_leaves(leaf.element)
        elif isinstance(leaf, Scalar):
            yield Tensor(leaf, ())
        elif isinstance(leaf, Tensor) and all(isinstance(size, int) for size in leaf.shape):
            yield leaf
        else:
            raise NotLowered


def nodes_of_value(value: TapeValue) -> list[Node]:
    """The nodes that a loop carries or captures for a value."""
    if isinstance(value, Node):
        return [value]
    if isinstance(value, LoweredTape):
        return list(value.tensors)
    raise NotLowered


def with_nodes(value: TapeValue, nodes: Sequence[Node], prefixes: Iterator[Node]) -> TapeValue:
    """The value with these nodes in place of its own; a tape takes its prefix from `prefixes`."""
    if isinstance(value, LoweredTape):
        return replace(value, tensors=tuple(nodes), prefix=tuple([next(prefixes) for _ in value.prefix]))
    return nodes[0]


def with_next_nodes(value: TapeValue, nodes: Iterator[Node]) -> TapeValue:
    """The value with the next of these nodes in place of its own; a tape keeps its prefix."""
    if isinstance(value, LoweredTape):
        return replace(value, tensors=tuple([next(nodes) for _ in value.tensors]))
    return next(nodes)


def read_row(type: Type, tensors: Iterator[Node], row: tuple[Node, ...]) -> TapeValue:
    """Reads a row of a tape: a value of this type."""
    if isinstance(type, Tape):
        return LoweredTape(type.element, tuple([next(tensors) for _ in row_leaves(type.element)]), row)
    if isinstance(type, Scalar):
        return lookup(next(tensors), *row)
    if isinstance(type, Tensor):
        if type.shape:
            return lookup(next(tensors), *_row_indices(type, row))
        return broadcast(lookup(next(tensors), *row), axes=(), shape=())
    members = [read_row(part, tensors, row) for part in components(type)]
    nodes = [part for part in members if isinstance(part, Node)]
    return make(*nodes, type=type) if len(nodes) == len(members) else tuple(members)


def _row_indices(type: Tensor, row: tuple[Node, ...]) -> list[Node]:
    """The indices of all elements of a tensor that is stored in a row."""
    row_index = [broadcast(index, axes=(), shape=type.shape) for index in row]
    return [*row_index, *[index_along(type.shape, axis) for axis in range(type.rank)]]


def write_row(value: TapeValue, type: Type, tensors: Iterator[Node], row: tuple[Node, ...]) -> list[Node]:
    """Writes a value of this type to a row of a tape; returns the updated tensors."""
    if isinstance(type, Tape):
        assert isinstance(value, LoweredTape)
        for _ in value.tensors:
            next(tensors)
        if value.prefix != row:
            raise NotLowered
        return list(value.tensors)
    if isinstance(type, Scalar | Tensor):
        if isinstance(value, Row):
            if value.tape.prefix != row:
                raise NotLowered
            next(tensors)
            return list(value.tape.tensors)
        assert isinstance(value, Node)
        if isinstance(type, Tensor) and type.shape:
            return [assign(next(tensors), value, *_row_indices(type, row))]
        scalar = lookup(value) if isinstance(type, Tensor) else value
        return [assign(next(tensors), scalar, *row)]
    parts = value if isinstance(value, tuple) else [member(value, i) for i in range(len(components(type)))]  # type: ignore[arg-type]
    pairs = zip(parts, components(type), strict=True)
    return [tensor for part, part_type in pairs for tensor in write_row(part, part_type, tensors, row)]

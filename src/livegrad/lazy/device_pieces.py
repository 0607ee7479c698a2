"""Partitions a pending graph into pieces that run in sequence, each on one device.

`execution` runs them. Only tensors and numbers can pass between pieces; tapes and tuples have no memory of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor
from livegrad.ir.walk import toposort
from livegrad.lazy.devices import DEFAULT_DEVICE
from livegrad.ops.aggregate import get


@dataclass(frozen=True)
class Piece:
    """Nodes in order, preceded by nodes of earlier pieces that cannot be passed on and are computed again."""

    again: tuple[Node, ...]
    nodes: tuple[Node, ...]

    @property
    def order(self) -> tuple[Node, ...]:
        return (*self.again, *self.nodes)

    def outside(self) -> list[Node]:
        """The values that the piece reads but does not compute."""
        inside = set(self.order)
        return list(dict.fromkeys(operand for node in self.order for operand in node.operands if operand not in inside))


def cut(todo: Sequence[Node], devices: Mapping[Node, str], most: int) -> list[Piece]:
    """The nodes in order, cut where the device changes and where a piece has `most` nodes.

    >>> import livegrad as lg
    >>> x = lg.ones(3).node
    >>> chain = [made := x + 1.0, made := made * x, made * made]
    >>> [len(piece.nodes) for piece in cut(chain, {}, 2)]
    [2, 1]
    """
    pieces: list[list[Node]] = []
    last: str | None = None
    for node in _members_first(todo):
        device = devices.get(node, DEFAULT_DEVICE)
        is_full = last is not None and len(pieces[-1]) >= most and not _is_member(node)
        if device != last or is_full:
            pieces.append([])
            last = device
        pieces[-1].append(node)
    missing = set(todo)
    return [Piece(_computed_again(nodes, missing), tuple(nodes)) for nodes in pieces]


def can_be_handed_on(node: Node) -> bool:
    """Whether the value of a node can go from one piece to another."""
    return isinstance(node.type, Tensor | Scalar)


def _is_member(node: Node) -> bool:
    return node.op is get and not can_be_handed_on(node.operands[0])


def _members_first(todo: Sequence[Node]) -> list[Node]:
    """The nodes, with members of tuples directly after their tuple, so that a cut does not separate them."""
    whole = {node for node in todo if not can_be_handed_on(node)}
    members: dict[Node, list[Node]] = {}
    for node in todo:
        if _is_member(node) and node.operands[0] in whole:
            members.setdefault(node.operands[0], []).append(node)
    order: list[Node] = []
    for node in todo:
        if not (_is_member(node) and node.operands[0] in whole):
            pending = [node]
            while pending:
                order.append(pending.pop())
                pending += reversed(members.get(order[-1], ()))
    return order


def _computed_again(nodes: Sequence[Node], missing: set[Node]) -> tuple[Node, ...]:
    inside = set(nodes)
    needed = [
        o for node in nodes for o in node.operands if o in missing and o not in inside and not can_be_handed_on(o)
    ]
    if not needed:
        return ()

    def is_there(node: Node) -> bool:
        return node not in missing or node in inside or can_be_handed_on(node)

    return tuple(node for node in toposort(needed, stop=is_there) if not is_there(node))

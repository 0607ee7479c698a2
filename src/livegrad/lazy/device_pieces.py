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
    """Nodes in order, and the nodes of earlier pieces to recompute first because their values cannot cross pieces."""

    recomputed: tuple[Node, ...]
    nodes: tuple[Node, ...]

    @property
    def order(self) -> tuple[Node, ...]:
        return (*self.recomputed, *self.nodes)

    def inputs(self) -> list[Node]:
        """Returns the nodes that the piece reads but does not compute."""
        inside = set(self.order)
        return list(dict.fromkeys(operand for node in self.order for operand in node.operands if operand not in inside))


def split_into_pieces(todo: Sequence[Node], devices: Mapping[Node, str], max_nodes: int) -> list[Piece]:
    """Splits nodes into pieces where the device changes and where a piece has `max_nodes` nodes.

    >>> import livegrad as lg
    >>> x = lg.ones(3).node
    >>> chain = [shifted := x + 1.0, scaled := shifted * x, scaled * scaled]
    >>> [len(piece.nodes) for piece in split_into_pieces(chain, {}, 2)]
    [2, 1]
    """
    pieces: list[list[Node]] = []
    last: str | None = None
    for node in _order_members_after_tuples(todo):
        device = devices.get(node, DEFAULT_DEVICE)
        is_full = last is not None and len(pieces[-1]) >= max_nodes and not _is_member(node)
        if device != last or is_full:
            pieces.append([])
            last = device
        pieces[-1].append(node)
    missing = set(todo)
    return [Piece(_find_recomputed_nodes(nodes, missing), tuple(nodes)) for nodes in pieces]


def can_cross_pieces(node: Node) -> bool:
    """Whether the value of a node can be passed from one piece to another."""
    return isinstance(node.type, Tensor | Scalar)


def _is_member(node: Node) -> bool:
    return node.op is get and not can_cross_pieces(node.operands[0])


def _order_members_after_tuples(todo: Sequence[Node]) -> list[Node]:
    """Moves the members of each tuple directly after the tuple, so that no split separates them."""
    tuples = {node for node in todo if not can_cross_pieces(node)}
    members: dict[Node, list[Node]] = {}
    for node in todo:
        if _is_member(node) and node.operands[0] in tuples:
            members.setdefault(node.operands[0], []).append(node)
    order: list[Node] = []
    for node in todo:
        if not (_is_member(node) and node.operands[0] in tuples):
            pending = [node]
            while pending:
                order.append(pending.pop())
                pending += reversed(members.get(order[-1], ()))
    return order


def _find_recomputed_nodes(nodes: Sequence[Node], missing: set[Node]) -> tuple[Node, ...]:
    inside = set(nodes)
    operands = [
        o for node in nodes for o in node.operands if o in missing and o not in inside and not can_cross_pieces(o)
    ]
    if not operands:
        return ()

    def is_available(node: Node) -> bool:
        return node not in missing or node in inside or can_cross_pieces(node)

    return tuple(node for node in toposort(operands, stop=is_available) if not is_available(node))

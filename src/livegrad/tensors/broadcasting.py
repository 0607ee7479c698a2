"""Broadcasting: the shape that operands have together, and nodes cast and broadcast to it."""

from __future__ import annotations

from livegrad.diagnostics import TypeRuleError, caller_origin
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar
from livegrad.ir.types import Tensor as TensorType
from livegrad.ops.conversion import cast
from livegrad.ops.linalg import broadcast_shapes
from livegrad.ops.movement import broadcast_to
from livegrad.tensors.errors import ShapeError


def broadcast_node_shapes(user: str, *nodes: Node) -> tuple[Size, ...]:
    """Returns the shape that nodes broadcast to; raises with both shapes if they do not."""
    shape: tuple[Size, ...] = ()
    for node in nodes:
        assert isinstance(node.type, TensorType)
        shape = join_shapes(user, shape, node.type.shape)
    return shape


def join_shapes(user: str, first: tuple[Size, ...], second: tuple[Size, ...]) -> tuple[Size, ...]:
    """Returns the shape that two shapes broadcast to."""
    try:
        return broadcast_shapes(first, second)
    except TypeRuleError as error:
        raise ShapeError(
            f"`{user}` cannot combine shapes {first} and {second}", where=caller_origin(), help=error.help
        ) from None


def cast_and_broadcast(node: Node, element: Scalar, shape: tuple[Size, ...]) -> Node:
    """Casts a node to an element type and broadcasts it to a shape."""
    type = node.type
    assert isinstance(type, TensorType)
    if type.element is not element:
        node = cast(node, type=element)
    return node if type.shape == shape else broadcast_to(node, shape)

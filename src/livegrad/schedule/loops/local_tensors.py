"""Finds tensors that an iteration of a loop fills before it reads them, so that each thread can have its own.

In: the body of a loop over elements and the place of a tensor among its parameters. Called by `parallelise_loops`.
"""

from __future__ import annotations

from collections.abc import Mapping

from livegrad.ir.leaves import is_constant
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get
from livegrad.ops.assignment import assign
from livegrad.ops.control import for_loop
from livegrad.passes.in_place_loops import operands_of_results
from livegrad.passes.regions import region_of


def ignores_contents(function: Function, place: int) -> bool:
    """Whether a function never reads what a tensor parameter holds when the function is called."""
    tensor = function.parameters[place]
    users = [node for node in nodes_of(function) if tensor in node.operands]
    if not users:
        return True
    if len(users) > 1 or users[0].operands.count(tensor) > 1 or tensor in function.results:
        return False
    (user,) = users
    if _fills(user, tensor, {}):
        return True
    region = region_of(user)
    if region is None or tensor not in region.arguments or _is_read(function, user, user.operands.index(tensor)):
        return False
    number = region.arguments.index(tensor)
    pairs = zip(region.functions, region.offsets, strict=True)
    return all(ignores_contents(inner, offset + number) for inner, offset in pairs)


def _is_read(function: Function, region: Node, result_number: int) -> bool:
    """Whether a function reads the version of a tensor that a region of it returns."""
    versions: set[Node] = set()
    for index, operand in enumerate(operands_of_results(region)):
        if operand == result_number:
            is_member = not isinstance(region.type, Tensor)
            versions.add(get(region, index=index) if is_member else region)
    return any(not versions.isdisjoint(node.operands) for node in nodes_of(function))


def _fills(node: Node, tensor: Node, extents: Mapping[Node, int]) -> bool:
    """Whether a node writes every element of a tensor, and reads none: a nest of loops over its axes.

    `extents` has the indices of the loops around the node, and how often each of those runs.
    """
    assert isinstance(tensor.type, Tensor)
    if node.op is assign:
        indices = node.operands[2:]
        moving = [index for index in indices if index in extents]
        covered = [
            extents.get(index) == size or (size == 1 and is_constant(index, 0))
            for index, size in zip(indices, tensor.type.shape, strict=True)
        ]
        return node.operands[0] is tensor and all(covered) and len(set(moving)) == len(moving)
    if node.op is not for_loop or not is_constant(node.operands[0]):
        return False
    body: Function = node.attribute("body")
    inside = dict(zip(node.operands[1:], body.parameters[1:], strict=True))
    users = [user for user in nodes_of(body) if inside[tensor] in user.operands]
    if len(users) != 1 or users[0].operands.count(inside[tensor]) > 1:
        return False
    around = {inside[index]: extent for index, extent in extents.items() if index in inside}
    around[body.parameters[0]] = node.operands[0].attribute("value")
    return _fills(users[0], inside[tensor], around)

"""Array privatisation: finds tensors that each iteration of a loop overwrites completely before it reads them.

In: the body of a loop and the position of a tensor among its parameters. `parallelise_loops` gives each thread a copy
of such a tensor.
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


def ignores_contents(function: Function, position: int) -> bool:
    """Whether a function never reads the initial contents of a tensor parameter."""
    tensor = function.parameters[position]
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
    argument = region.arguments.index(tensor)
    pairs = zip(region.functions, region.offsets, strict=True)
    return all(ignores_contents(inner, offset + argument) for inner, offset in pairs)


def _is_read(function: Function, region: Node, tensor_operand: int) -> bool:
    """Whether a function reads the version of a tensor operand that a region returns."""
    versions: set[Node] = set()
    for index, operand in enumerate(operands_of_results(region)):
        if operand == tensor_operand:
            is_member = not isinstance(region.type, Tensor)
            versions.add(get(region, index=index) if is_member else region)
    return any(not versions.isdisjoint(node.operands) for node in nodes_of(function))


def _fills(node: Node, tensor: Node, extents: Mapping[Node, int]) -> bool:
    """Whether a node, such as a loop nest over the axes of a tensor, writes every element and reads none.

    `extents` has the indices of the enclosing loops with their numbers of iterations.
    """
    assert isinstance(tensor.type, Tensor)
    if node.op is assign:
        indices = node.operands[2:]
        loop_indices = [index for index in indices if index in extents]
        covered = [
            extents.get(index) == size or (size == 1 and is_constant(index, 0))
            for index, size in zip(indices, tensor.type.shape, strict=True)
        ]
        return node.operands[0] is tensor and all(covered) and len(set(loop_indices)) == len(loop_indices)
    if node.op is not for_loop or not is_constant(node.operands[0]):
        return False
    body: Function = node.attribute("body")
    inside = dict(zip(node.operands[1:], body.parameters[1:], strict=True))
    users = [user for user in nodes_of(body) if inside[tensor] in user.operands]
    if len(users) != 1 or users[0].operands.count(inside[tensor]) > 1:
        return False
    inner_extents = {inside[index]: extent for index, extent in extents.items() if index in inside}
    inner_extents[body.parameters[0]] = node.operands[0].attribute("value")
    return _fills(users[0], inside[tensor], inner_extents)

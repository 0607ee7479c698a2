"""Finds loop state of which an iteration writes only parts, so that it can be updated in place instead of copied.

In: the body of a loop over tensors, and the result that each argument may hold afterwards. The plan passes
`materialise`, `order_for_memory` and `write_in_place` use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, bf16
from livegrad.ir.walk import nodes_of, toposort
from livegrad.ops.assignment import UPDATES, indices_of
from livegrad.ops.movement import sizes
from livegrad.schedule.fuse import Group

_MOST_WRITTEN = 0.5  # the largest share of a tensor; above it, a kernel that computes all elements is as fast


def find_partial_updates(function: Function, overwrites: Mapping[int, int]) -> list[Node]:
    """The chains of updates from an argument to the result that may replace it, if each update writes a small part."""
    uses = Counter(operand for node in nodes_of(function) for operand in node.operands) if overwrites else Counter()
    uses.update(function.results)
    updates: list[Node] = []
    for parameter, result in overwrites.items():
        chain = _update_chain(function.results[result])
        if chain and chain[-1].operands[0] is function.parameters[parameter]:
            has_one_use = all(uses[update] == 1 for update in chain[1:]) and function.results.count(chain[0]) == 1
            if has_one_use and all(map(_is_partial, chain)) and not _is_read_late(function, chain[-1]):
                updates += chain
    return updates


def _update_chain(node: Node) -> list[Node]:
    """The updates that produce a node, the last one first."""
    chain: list[Node] = []
    while node.op in UPDATES:
        chain.append(node)
        node = node.operands[0]
    return chain


def _is_partial(update: Node) -> bool:
    if not isinstance(update.type, Tensor) or update.type.element is bf16 or not update.type.shape:
        return False
    return prod(sizes(update.operands[1])) <= _MOST_WRITTEN * prod(sizes(update))


def _is_read_late(function: Function, first: Node) -> bool:
    """Whether the old value of an argument is needed together with its first update, or by the update's indices."""
    argument = first.operands[0]
    if argument in toposort(indices_of(first)):
        return True
    dependents = {first}
    for node in nodes_of(function):
        if node is not first and not dependents.isdisjoint(node.operands):
            dependents.add(node)
            if argument in node.operands:
                return True
    return False


def readers_before_writes(groups: Sequence[Group], updates: Sequence[Node]) -> Iterator[tuple[Group, Group]]:
    """Pairs of a group that updates an argument and a group that reads it, which must run first."""
    written = {update.operands[0]: update for update in updates if not update.operands[0].operands}
    writers = {root: group for group in groups for root in group.roots}
    for group in groups:
        for node in {node for below in group.below.values() for node in below if node in written}:
            writer = writers[written[node]]
            if writer is not group and not group.depends_on(writer):
                yield writer, group

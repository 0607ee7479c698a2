"""Sums of tensors over a map's points, as the gradient of a texture is one: additions at indices, made after the map.

A point's tensor is mostly zeros. Where straight-line code or branches give it, the map gives values and indices instead,
one of each a point, and one `scatter_add` puts them together. Tensors that loops fill stay in a map of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type
from livegrad.ops.aggregate import get, member
from livegrad.ops.control import cond, map_, switch
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import scatter_add
from livegrad.ops.movement import broadcast
from livegrad.ops.rules import zero


@dataclass(frozen=True)
class Addition:
    """A value that a point adds to a tensor: at an index, or everywhere."""

    value: Node
    indices: tuple[Node, ...] | None  # None: everywhere

    @property
    def parts(self) -> tuple[Node, ...]:
        return (self.value, *(self.indices or ()))


def without_tensor_sums(node: Node) -> list[Node] | None:
    """A map's results, with sums of tensors made of additions; None where there is none that can be."""
    function: Function = node.attribute("function")
    summed = node.attribute("summed")
    found: dict[int, list[Addition]] = {}
    for number, (result, flag) in enumerate(zip(function.results, summed, strict=True)):
        additions = additions_of(result) if flag and isinstance(result.type, Tensor) else None
        if additions is not None:
            found[number] = additions
    if not found:
        return None
    flat = {n: [(p, i == 0 and a.indices is None) for a in own for i, p in enumerate(a.parts)] for n, own in found.items()}
    others = [number for number in range(len(summed)) if number not in found]
    native = [number for number in others if not isinstance(function.result_types[number], Tensor)]
    results: dict[int, Node] = dict.fromkeys(range(len(summed)), node)
    wanted = [(function.results[n], summed[n]) for n in native] + [part for own in flat.values() for part in own]
    supply = iter(_map_again(node, wanted))
    for number in native:
        results[number] = next(supply)
    for number, additions in found.items():
        results[number] = _added(function.result_types[number], additions, [next(supply) for _ in flat[number]])
    slow = [number for number in others if number not in native]
    for number, value in zip(slow, _map_again(node, [(function.results[n], True) for n in slow]), strict=True):
        results[number] = value
    return [results[number] for number in range(len(summed))]


def _map_again(node: Node, results: Sequence[tuple[Node, bool]]) -> list[Node]:
    """The map with other results of its points, each summed or not."""
    if not results:
        return []
    function: Function = node.attribute("function")
    changed = Function(function.name, function.parameters, tuple(result for result, _ in results))
    flags = tuple(flag for _, flag in results)
    value = map_(*node.operands, function=changed, lifted=node.attribute("lifted"), summed=flags)
    return [value] if len(results) == 1 else [get(value, index=index) for index in range(len(results))]


def _added(type: Type, additions: list[Addition], parts: list[Node]) -> Node:
    """The sum over all points, from what they give for each addition."""
    assert isinstance(type, Tensor)
    total, supply = zero(type), iter(parts)
    for addition in additions:
        value, *indices = [next(supply) for _ in addition.parts]
        if addition.indices is None:
            total = total + broadcast(value, shape=type.shape, axes=())
        else:
            total = scatter_add(total, value, *indices)
    return total


# --- what a point adds -----------------------------------------------------------------------------------------------


def additions_of(tensor: Node) -> list[Addition] | None:
    """What a scalar function adds to a tensor of zeros to get this one; None where that cannot be told."""
    if tensor.op is scatter_add:
        base, value, *indices = tensor.operands
        below = additions_of(base) if not isinstance(value.type, Tensor) else None
        return None if below is None else [*below, Addition(value, tuple(indices))]
    if tensor.op is add:
        first, second = map(additions_of, tensor.operands)
        return None if first is None or second is None else first + second
    if tensor.op is broadcast and not isinstance(tensor.operands[0].type, Tensor):
        (value,) = tensor.operands
        return [] if value.op is constant_op and value is zero(value.type) else [Addition(value, None)]
    return _additions_of_branches(tensor)


def _additions_of_branches(tensor: Node) -> list[Addition] | None:
    """The branch that runs gives its own additions; those that it lacks add zero at the first index."""
    chosen, number = (tensor.operands[0], tensor.attribute("index")) if tensor.op is get else (tensor, 0)
    if chosen.op not in (cond, switch) or 0 in tensor.type.shape:  # type: ignore[union-attr]
        return None
    names = ("then", "otherwise") if chosen.op is cond else ("branches",)
    branches: tuple[Function, ...] = (
        tuple(chosen.attribute(name) for name in names) if chosen.op is cond else chosen.attribute("branches")
    )
    every = [additions_of(branch.results[number]) for branch in branches]
    known = [additions for additions in every if additions is not None]
    if len(known) < len(every):
        return None
    slots = _slots(known)
    if not slots:
        return []
    results = [_filled(slots, additions) for additions in known]
    changed = [Function(b.name, b.parameters, tuple(own)) for b, own in zip(branches, results, strict=True)]
    value = (
        cond(*chosen.operands, then=changed[0], otherwise=changed[1])
        if chosen.op is cond
        else switch(*chosen.operands, branches=tuple(changed))
    )
    supply = iter([value] if len(results[0]) == 1 else [member(value, i) for i in range(len(results[0]))])
    return [_from_parts(slot, supply) for slot in slots]

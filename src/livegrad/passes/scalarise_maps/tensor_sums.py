"""Converts sums of tensors over the points of a map, such as the gradient of a texture, to scatter-adds after the map.

The tensor of a point is mostly zeros. If straight-line code or branches compute it, the map returns one value and index
per point instead, and `scatter_add` combines them. Tensors that loops fill stay in a separate map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, shape_of
from livegrad.ops.aggregate import get
from livegrad.ops.control import cond, map_, switch
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import scatter_add
from livegrad.ops.movement import broadcast
from livegrad.ops.rules import is_zero_node, zero
from livegrad.passes.functions import exchange_attributes


@dataclass(frozen=True)
class Addition:
    """A value that a point adds to a tensor: at an index, or everywhere."""

    value: Node
    indices: tuple[Node, ...] | None  # None: everywhere

    @property
    def parts(self) -> tuple[Node, ...]:
        return (self.value, *(self.indices or ()))

    def of(self, supply: Iterator[Node]) -> Addition:
        """The same kind of addition, of other parts."""
        value, *indices = [next(supply) for _ in self.parts]
        return Addition(value, None if self.indices is None else tuple(indices))


def without_tensor_sums(node: Node) -> list[Node] | None:
    """A map's results, with sums of tensors made of additions; None where there is none that can be."""
    function: Function = node.attribute("function")
    summed = node.attribute("summed")
    replaced = {
        number: additions
        for number, (result, flag) in enumerate(zip(function.results, summed, strict=True))
        if flag and isinstance(result.type, Tensor) and (additions := additions_of(result)) is not None
    }
    if not replaced:
        return None
    others = [number for number in range(len(summed)) if number not in replaced]
    slow = [number for number in others if isinstance(function.result_types[number], Tensor)]
    quick = [number for number in others if number not in slow]
    wanted = [(function.results[number], summed[number]) for number in quick]
    # A uniform addend is one sum for all elements; an addend at an index is kept for each point.
    wanted += [(part, a.indices is None) for additions in replaced.values() for a in additions for part in a.parts]
    supply = iter(_map_again(node, wanted))
    results = {number: next(supply) for number in quick}
    for number, additions in replaced.items():
        results[number] = _added(function.result_types[number], [addition.of(supply) for addition in additions])
    results |= dict(zip(slow, _map_again(node, [(function.results[n], True) for n in slow]), strict=True))
    return [results[number] for number in range(len(summed))]


def _map_again(node: Node, results: Sequence[tuple[Node, bool]]) -> list[Node]:
    """The map with other results of its points, each summed or not."""
    if not results:
        return []
    function: Function = node.attribute("function")
    changed = Function(function.name, function.parameters, tuple(result for result, _ in results))
    flags = tuple(flag for _, flag in results)
    value = map_(*node.operands, function=changed, lifted=node.attribute("lifted"), summed=flags)
    return _results_of(value, len(results))


def _results_of(value: Node, number: int) -> list[Node]:
    return [value] if number == 1 else [get(value, index=index) for index in range(number)]


def _added(type: Type, additions: Sequence[Addition]) -> Node:
    """The tensor that all points add to."""
    total = zero(type)
    for addition in additions:
        if addition.indices is None:
            total = total + broadcast(addition.value, shape=shape_of(type), axes=())
        else:
            total = scatter_add(total, addition.value, *addition.indices)
    return total


# --- what a point adds -----------------------------------------------------------------------------------------------


def additions_of(tensor: Node) -> list[Addition] | None:
    """The additions to zeros from which a scalar function builds this tensor, or None if unknown."""
    if is_zero_node(tensor):
        return []
    if tensor.op is scatter_add:
        base, value, *indices = tensor.operands
        below = None if isinstance(value.type, Tensor) else additions_of(base)
        return None if below is None else [*below, Addition(value, tuple(indices))]
    if tensor.op is add:
        first, second = map(additions_of, tensor.operands)
        return None if first is None or second is None else first + second
    if tensor.op is broadcast and not isinstance(tensor.operands[0].type, Tensor):
        return [Addition(tensor.operands[0], None)]
    chosen, number = (tensor.operands[0], tensor.attribute("index")) if tensor.op is get else (tensor, 0)
    return _additions_of_branches(chosen, number) if chosen.op in (cond, switch) else None


def _additions_of_branches(chosen: Node, number: int) -> list[Addition] | None:
    """The additions of all branches: of those that do not run, the values are zero and the indices the first."""
    names = ("then", "otherwise") if chosen.op is cond else ("branches",)
    branch_functions = [chosen.attribute(name) for name in names]
    branches: list[Function] = branch_functions if chosen.op is cond else list(branch_functions[0])
    every = [additions_of(branch.results[number]) for branch in branches]
    if 0 in shape_of(branches[0].result_types[number]) or any(additions is None for additions in every):
        return None
    additions_by_branch = [additions or [] for additions in every]
    slots = [(position, addition) for position, additions in enumerate(additions_by_branch) for addition in additions]
    changed = {
        branch: Function(
            branch.name,
            branch.parameters,
            tuple(p if at == position else zero(p.type) for at, addition in slots for p in addition.parts),
        )
        for position, branch in enumerate(branches)
    }
    if not slots:
        return []
    value = exchange_attributes(chosen, changed)
    supply = iter(_results_of(value, len(changed[branches[0]].results)))
    return [addition.of(supply) for _, addition in slots]

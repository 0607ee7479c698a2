"""Converts sums of tensors over the points of a map, such as the gradient of a texture, to scatter-adds after the map.

The tensor of a point is mostly zeros. If straight-line code or branches compute it, the map instead returns a value and
its index for each point, and `scatter_add` combines them. Tensors that loops fill are summed by a separate map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, shape_of
from livegrad.ops.aggregate import get
from livegrad.ops.control import cond, switch
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import scatter_add
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast
from livegrad.ops.rules import is_zero_node, zero
from livegrad.passes.functions import exchange_attributes


@dataclass(frozen=True)
class Addition:
    """A value that a point adds to a tensor: to one element, or to all."""

    value: Node
    indices: tuple[Node, ...] | None  # None: everywhere

    @property
    def parts(self) -> tuple[Node, ...]:
        return (self.value, *(self.indices or ()))

    def of(self, supply: Iterator[Node]) -> Addition:
        """The addition with the next nodes in place of its parts."""
        value, *indices = [next(supply) for _ in self.parts]
        return Addition(value, None if self.indices is None else tuple(indices))


def convert_tensor_sums(node: Node) -> list[Node] | None:
    """The results of a map, with sums of tensors converted to scatter-adds; None if there are none to convert."""
    function: Function = node.attribute("function")
    summed = node.attribute("summed")
    converted = {
        index: additions
        for index, (result, flag) in enumerate(zip(function.results, summed, strict=True))
        if flag and isinstance(result.type, Tensor) and (additions := find_additions(result)) is not None
    }
    if not converted:
        return None
    unconverted = [index for index in range(len(summed)) if index not in converted]
    tensors = [index for index in unconverted if isinstance(function.result_types[index], Tensor)]
    scalars = [index for index in unconverted if index not in tensors]
    wanted = [(function.results[index], summed[index]) for index in scalars]
    # An addition to all elements can be summed by the map; one to a single element is needed for each point.
    wanted += [(part, a.indices is None) for additions in converted.values() for a in additions for part in a.parts]
    supply = iter(_rebuild_map(node, wanted))
    results = {index: next(supply) for index in scalars}
    for index, additions in converted.items():
        results[index] = _scatter_additions(
            function.result_types[index], [addition.of(supply) for addition in additions]
        )
    results |= dict(zip(tensors, _rebuild_map(node, [(function.results[n], True) for n in tensors]), strict=True))
    return [results[index] for index in range(len(summed))]


def _rebuild_map(node: Node, results: Sequence[tuple[Node, bool]]) -> list[Node]:
    """The results of a map over the same operands with these results of its points, each summed or not."""
    if not results:
        return []
    function: Function = node.attribute("function")
    changed = Function(function.name, function.parameters, tuple(result for result, _ in results))
    flags = tuple(flag for _, flag in results)
    value = map_(*node.operands, function=changed, lifted=node.attribute("lifted"), summed=flags)
    return _split_results(value, len(results))


def _split_results(value: Node, count: int) -> list[Node]:
    return [value] if count == 1 else [get(value, index=index) for index in range(count)]


def _scatter_additions(type: Type, additions: Sequence[Addition]) -> Node:
    """The sum of the additions of all points."""
    total = zero(type)
    for addition in additions:
        if addition.indices is None:
            total = total + broadcast(addition.value, shape=shape_of(type), axes=())
        else:
            total = scatter_add(total, addition.value, *addition.indices)
    return total


# --- additions of a point --------------------------------------------------------------------------------------------


def find_additions(tensor: Node) -> list[Addition] | None:
    """The additions to zero from which a function builds a tensor; None if it is built in another way."""
    if is_zero_node(tensor):
        return []
    if tensor.op is scatter_add:
        base, value, *indices = tensor.operands
        below = None if isinstance(value.type, Tensor) else find_additions(base)
        return None if below is None else [*below, Addition(value, tuple(indices))]
    if tensor.op is add:
        first, second = map(find_additions, tensor.operands)
        return None if first is None or second is None else first + second
    if tensor.op is broadcast and not isinstance(tensor.operands[0].type, Tensor):
        return [Addition(tensor.operands[0], None)]
    node, index = (tensor.operands[0], tensor.attribute("index")) if tensor.op is get else (tensor, 0)
    return _find_branch_additions(node, index) if node.op in (cond, switch) else None


def _find_branch_additions(node: Node, result: int) -> list[Addition] | None:
    """The additions of all branches; branches that do not run add zero to the first element."""
    names = ("then", "otherwise") if node.op is cond else ("branches",)
    branch_functions = [node.attribute(name) for name in names]
    branches: list[Function] = branch_functions if node.op is cond else list(branch_functions[0])
    branch_additions = [find_additions(branch.results[result]) for branch in branches]
    if 0 in shape_of(branches[0].result_types[result]) or any(additions is None for additions in branch_additions):
        return None
    additions_by_branch = [additions or [] for additions in branch_additions]
    slots = [(position, addition) for position, additions in enumerate(additions_by_branch) for addition in additions]
    changed = {
        branch: Function(
            branch.name,
            branch.parameters,
            tuple(p if slot == position else zero(p.type) for slot, addition in slots for p in addition.parts),
        )
        for position, branch in enumerate(branches)
    }
    if not slots:
        return []
    value = exchange_attributes(node, changed)
    supply = iter(_split_results(value, len(changed[branches[0]].results)))
    return [addition.of(supply) for _, addition in slots]

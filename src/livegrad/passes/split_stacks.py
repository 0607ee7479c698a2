"""The `split_stacks` pass: computes arithmetic on stacked tensors component by component, without building the stack.

For the CPU. A stack of few large tensors (positions and velocities, the channels of an image) would be written to
memory wherever it is built, only to be read again by slices. By component, the whole chain is one expression. A stack
is only built where another op needs it, and for results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce as reduce_sequence
from math import prod

from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tensor, bf16, f16, scalar_of, shape_of
from livegrad.ir.walk import nodes_of, ops_in, rebuild
from livegrad.ops.movement import broadcast, concatenate, reshape, slice_
from livegrad.ops.reduction import COMBINE, reduce
from livegrad.ops.rules import zero

_MAX_COMPONENTS = 8
_MIN_ELEMENTS = 64  # of a component: smaller ones are not worth separate kernels
_MAX_NODES = 600  # new nodes of a function: each component has separate code


def split_stacks(function: Function) -> Function:
    """Splits arithmetic on stacks into arithmetic on their components."""
    if concatenate not in ops_in(function) or not _uses_stacks(function):
        return function
    return _rewrite(function)


@propagates_lines
def _rewrite(function: Function) -> Function:
    return _StackSplitter(function).run()


def _uses_stacks(function: Function) -> bool:
    """Whether slices or reductions read arithmetic on stacks; otherwise, splitting saves no memory traffic."""
    stacks = {node for node in nodes_of(function) if _stacked_axis(node) is not None}
    if not stacks:
        return False
    below = set(stacks)
    for node in nodes_of(function):
        if _is_arithmetic(node) and not below.isdisjoint(node.operands):
            below.add(node)
        elif node.op in (slice_, reduce) and not below.isdisjoint(node.operands):
            return True
    return False


def _is_arithmetic(node: Node) -> bool:
    return node.op.elementwise and isinstance(node.type, Tensor) and node.type.rank > 0


def _stacked_axis(node: Node) -> int | None:
    """The axis along which a node stacks few tensors of extent 1; None for other nodes, or if it is the last axis."""
    if node.op is not concatenate or len(node.operands) > _MAX_COMPONENTS:
        return None
    axis, shape = node.attribute("axis"), shape_of(node.type)
    if axis == len(shape) - 1 or not all(isinstance(size, int) for size in shape):
        return None
    if prod(shape) < _MIN_ELEMENTS * len(node.operands):  # type: ignore[arg-type]
        return None
    return axis if all(shape_of(operand.type)[axis] == 1 for operand in node.operands) else None


@dataclass(frozen=True)
class _Stack:
    """The components of a stacked tensor, without the axis along which they are stacked."""

    axis: int
    components: tuple[Node, ...]


class _StackSplitter:
    """Rewrites a function: each value is a node, a stack, or both. A stack becomes a node where one is needed."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._nodes: dict[Node, Node] = dict(zip(function.parameters, function.parameters, strict=True))
        self._stacks: dict[Node, _Stack] = {}
        self._created = 0

    def run(self) -> Function:
        function = self._function
        for node in nodes_of(function):
            if node in self._nodes:
                continue
            with originating_from(node.origins):
                stack = self._compute_stack(node)
                if stack is not None:
                    self._stacks[node] = stack
                    self._created += len(stack.components)
                    continue
                part = self._compute_from_components(node)
                self._nodes[node] = rebuild(node, tuple(map(self._whole, node.operands))) if part is None else part
        if self._created > _MAX_NODES:
            return function
        return Function(function.name, function.parameters, tuple(map(self._whole, function.results)))

    def _whole(self, node: Node) -> Node:
        """The value as one node; builds a stack from its components."""
        if node not in self._nodes:
            stack = self._stacks[node]
            parts = [reshape(part, shape=_insert_axis(shape_of(part.type), stack.axis)) for part in stack.components]
            self._nodes[node] = parts[0] if len(parts) == 1 else concatenate(*parts, axis=stack.axis)
        return self._nodes[node]

    # --- stacks ---

    def _compute_stack(self, node: Node) -> _Stack | None:
        axis = _stacked_axis(node)
        if axis is not None:
            return _Stack(axis, tuple([self._squeeze(operand, axis) for operand in node.operands]))
        if not _is_arithmetic(node):
            return None
        stacks = [self._stacks[operand] for operand in node.operands if operand in self._stacks]
        if not stacks or any(stack.axis != stacks[0].axis for stack in stacks):
            return None
        axis, count = stacks[0].axis, len(stacks[0].components)
        rows = [self._components(operand, axis, count) for operand in node.operands]
        return _Stack(axis, tuple([make_node(node.op, row, node.attributes) for row in zip(*rows, strict=True)]))

    def _components(self, node: Node, axis: int, count: int) -> Sequence[Node]:
        """The components of an operand of arithmetic on stacks."""
        if node in self._stacks:
            return self._stacks[node].components
        if not isinstance(node.type, Tensor):
            return [self._whole(node)] * count
        shape = _remove_axis(shape_of(node.type), axis)
        if node.op is broadcast and axis not in node.attribute("axes"):
            axes = tuple([source_axis - (source_axis > axis) for source_axis in node.attribute("axes")])
            return [broadcast(self._whole(node.operands[0]), shape=shape, axes=axes)] * count
        return [self._component(self._whole(node), axis, index) for index in range(count)]

    def _component(self, node: Node, axis: int, index: int) -> Node:
        shape = shape_of(node.type)
        start = tuple([index if dimension == axis else 0 for dimension in range(len(shape))])
        size = tuple([1 if dimension == axis else extent for dimension, extent in enumerate(shape)])
        part = slice_(node, start=start, size=size, step=(1,) * len(shape))
        return reshape(part, shape=_remove_axis(shape, axis))

    def _squeeze(self, node: Node, axis: int) -> Node:
        """Removes an axis of extent 1 from a tensor."""
        shape = _remove_axis(shape_of(node.type), axis)
        whole = self._whole(node)
        if whole.op is reshape and shape_of(whole.operands[0].type) == shape:
            return whole.operands[0]
        return reshape(whole, shape=shape)

    # --- slices and reductions of stacks ---

    def _compute_from_components(self, node: Node) -> Node | None:
        """Computes a slice, reduction or reshape from the components of its operand; None if that is not possible."""
        stack = self._stacks.get(node.operands[0]) if node.operands else None
        if node.op is slice_ and stack is not None:
            return _slice_component(node, stack)
        if node.op is reduce and stack is not None and stack.axis in node.attribute("axes"):
            return _reduce_components(node, stack)
        if node.op is reshape:
            inner = self._whole(node.operands[0])
            if inner.op is reshape and shape_of(inner.operands[0].type) == shape_of(node.type):
                return inner.operands[0]
        return None


def _slice_component(node: Node, stack: _Stack) -> Node | None:
    """A slice of a stack within one component; None if it spans several."""
    start, size, step = (node.attribute(name) for name in ("start", "size", "step"))
    if size[stack.axis] != 1:
        return None
    part = stack.components[start[stack.axis]]
    if _remove_axis(size, stack.axis) != shape_of(part.type):
        attributes = {"start": start, "size": size, "step": step}
        part = slice_(part, **{name: _remove_axis(value, stack.axis) for name, value in attributes.items()})
    return reshape(part, shape=size)


def _reduce_components(node: Node, stack: _Stack) -> Node | None:
    """A reduction along the stacked axis: combines the components, then reduces the other axes."""
    kind, first = node.attribute("kind"), stack.components[0]
    if scalar_of(first.type) in (f16, bf16):
        return None  # half-precision reductions accumulate in f32
    axes = tuple([reduced - (reduced > stack.axis) for reduced in node.attribute("axes") if reduced != stack.axis])
    start = [zero(first.type)] if kind == "sum" and not axes else []  # a sum of -0 is +0
    combined = reduce_sequence(COMBINE[kind], [*start, *stack.components])
    return reduce(combined, kind=kind, axes=axes) if axes else combined


def _remove_axis(shape: Sequence[object], axis: int) -> tuple[object, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _insert_axis(shape: Sequence[object], axis: int) -> tuple[object, ...]:
    return (*shape[:axis], 1, *shape[axis:])

"""The `interchange_elementwise_loops` pass: a loop of elementwise ops over tensors becomes a map of loops over numbers.

For the CPU. Fixed-point iterations and time steps of particles have this form. Each point runs all iterations
independently, so the state stays in registers; a loop of kernels would write it to memory in each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from livegrad.ir.function import map_results, trace
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import Scalar, Tensor, Type, i64, shape_of
from livegrad.ir.walk import nodes_of, ops_in
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import for_loop, make_for_loop, map_
from livegrad.ops.indexing import lookup
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.rules import filled
from livegrad.ops.tape import tape_get, tape_unstack

_MOST_NODES = 300  # of a body: beyond, its values are too many for registers


def interchange_elementwise_loops(function: Function) -> Function:
    """The function with loops over elements that never meet as maps of loops over numbers."""
    return _with_maps(function) if for_loop in ops_in(function) else function


@propagates_lines
def _with_maps(function: Function) -> Function:
    return map_results(function, _at_points)


def _at_points(node: Node) -> Node | None:
    if node.op is not for_loop:
        return None
    body: Function = node.attribute("body")
    shapes = {shape_of(type) if isinstance(type, Tensor | Scalar) else None for type in body.result_types} - {()}
    if len(shapes) != 1 or len(nodes_of(body)) > _MOST_NODES:
        return None
    (shape,) = shapes
    if shape is None or 0 in shape:
        return None
    point = _Point(node, body, shape)  # type: ignore[arg-type]
    return point.mapped() if point.is_by_itself() else None


@dataclass
class _Point:
    """What a loop does at one point of the shape that its state has."""

    node: Node
    body: Function
    shape: tuple[int, ...]
    more: list[Node] = field(default_factory=list)  # operands of the map that are none of the loop
    places: dict[Node, int] = field(default_factory=dict)  # of nodes of the body among those

    def is_by_itself(self) -> bool:
        """Whether no element of the state meets another: all is arithmetic on numbers of its place or of all."""
        outside = dict(zip(self.body.parameters[1:], self.node.operands[1:], strict=True))
        alone = {self.body.parameters[0]}  # one number at each point
        for node in nodes_of(self.body):
            if node in outside or node.op is constant_op:
                computed = self._is_number(node)
            elif node.op.elementwise or (node.op is lookup and len(node.operands) == 1):
                computed = alone.issuperset(node.operands)
            elif node.op is broadcast:
                (source,) = node.operands
                computed = source in alone and shape_of(source.type) in ((), self.shape)
                if not computed and source in outside and shape_of(node.type) == self.shape:
                    computed = self._add(node, broadcast(outside[source], **dict(node.attributes)))
            elif node.op is iota and shape_of(node.type) == self.shape:
                computed = self._add(node, node)
            elif node.op is tape_get:
                computed = self._is_row_of_numbers(node, outside)
            else:
                computed = False
            if computed:
                alone.add(node)
        return alone.issuperset(self.body.results)

    def _is_number(self, node: Node) -> bool:
        return isinstance(node.type, Tensor | Scalar) and shape_of(node.type) in ((), self.shape)

    def _add(self, node: Node, operand: Node) -> bool:
        self.places[node] = len(self.more)
        self.more.append(operand)
        return True

    def _is_row_of_numbers(self, node: Node, outside: dict[Node, Node]) -> bool:
        """Whether a number is read from a list of at least as many as there are iterations, the iteration's own."""
        iterations, (rows, index) = self.node.operands[0], node.operands
        rows = outside.get(rows, rows)
        if rows.op is not tape_unstack or index is not self.body.parameters[0] or not isinstance(node.type, Tensor):
            return False
        listed = outside.get(rows.operands[0], rows.operands[0])
        if node.type.rank or (
            rows.operands[0] not in outside and rows not in outside.values() and listed.op is not iota
        ):
            return False
        count = shape_of(listed.type)[0]
        known = iterations.op is constant_op and isinstance(count, int) and iterations.attribute("value") <= count
        return known and self._add(node, listed)

    def mapped(self) -> Node:
        """The loop as a map of loops."""
        number = self.node.attribute("carried")
        fixed = [o for p, o in zip(self.body.parameters[1:], self.node.operands[1:], strict=True) if self._is_number(p)]
        operands = (self.node.operands[0], *fixed, *self.more)
        lifted = tuple(shape_of(operand.type) == self.shape for operand in operands)
        types = [o.type.element if flag else o.type for o, flag in zip(operands, lifted, strict=True)]  # type: ignore[attr-defined]
        point = trace(self._loop, *types, name=self.body.name)
        found = map_(*operands, function=point, lifted=lifted, summed=(False,) * number)
        results = [found] if number == 1 else [get(found, index=index) for index in range(number)]
        return make_tuple(*(self._as_carried(*each) for each in zip(results, self.body.result_types, strict=True)))

    def _loop(self, iterations: Node, *given: Node) -> Sequence[Node]:
        number, parameters = self.node.attribute("carried"), [p for p in self.body.parameters if self._is_number(p)]
        count = len(parameters) - 1
        state, fixed, more = [_number(value) for value in given[:number]], given[number:count], given[count:]

        def step(index: Node, *own: Node) -> Sequence[Node]:
            values: dict[Node, Node] = dict(zip(parameters, (index, *own, *map(_number, fixed)), strict=True))
            for node in nodes_of(self.body):
                if node not in values and (node in self.places or values.keys() >= set(node.operands)):
                    values[node] = self._value(node, values, index, more)
            return [values[result] for result in self.body.results]

        return make_for_loop(iterations, step, *state, reverse=self.node.attribute("reverse"))

    def _value(self, node: Node, values: dict[Node, Node], index: Node, more: Sequence[Node]) -> Node:
        """A node of the body at one point."""
        if node in self.places:
            value = more[self.places[node]]
            return lookup(value, index) if node.op is tape_get else value
        if not node.operands:
            return node
        operands = [values[operand] for operand in node.operands]
        return operands[0] if node.op in (broadcast, lookup) else node.op(*operands, **dict(node.attributes))

    def _as_carried(self, value: Node, type: Type) -> Node:
        """A result of the map as the loop gives it: what is one number is the same at every point."""
        if shape_of(type) == self.shape:
            return value
        first = lookup(value, *[filled(0, i64) for _ in self.shape])
        return broadcast(first, shape=(), axes=()) if isinstance(type, Tensor) else first


def _number(value: Node) -> Node:
    """A tensor of no dimensions as the number in it; others as they are."""
    return lookup(value) if isinstance(value.type, Tensor) and not value.type.rank else value

"""Base class of abstract interpreters: runs a function's control flow over another kind of values.

`scalar_replacement` interprets tensors as scalars, `unbatch` tensors of points as the value at one point. Loops and
branches are traced anew, so their functions capture the values that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Type
from livegrad.ir.walk import nodes_of
from livegrad.ops.aggregate import get
from livegrad.ops.control import (
    call,
    cond,
    for_loop,
    make_cond,
    make_for_loop,
    make_switch,
    make_while_loop,
    switch,
    while_loop,
)
from livegrad.ops.custom import recompute_call
from livegrad.ops.members import members_call

_V = TypeVar("_V")


class Interpreter(Generic[_V]):
    """Interprets functions over another kind of values. Subclasses define the values and the rule for plain nodes."""

    def rewrite_node(self, node: Node, operands: list[_V]) -> _V:
        """The value of a node without nested functions."""
        raise NotImplementedError

    def scalar(self, value: _V) -> Node:
        """The node of a scalar value."""
        raise NotImplementedError

    def flatten(self, value: _V, type: Type) -> Iterator[Node]:
        """The nodes that a loop carries, or a branch returns, for a value of this type."""
        raise NotImplementedError

    def rebuild(self, nodes: Iterator[Node], type: Type) -> _V:
        """Builds a value of this type from the next nodes; the inverse of `flatten`."""
        raise NotImplementedError

    def join(self, values: list[_V]) -> _V:
        """Packs several results into one value."""
        raise NotImplementedError

    def results(self, function: Function, arguments: Sequence[_V]) -> list[_V]:
        values: dict[Node, _V] = dict(zip(function.parameters, arguments, strict=True))
        for node in nodes_of(function):
            if node not in values:
                with originating_from(node.origins):
                    operands = [values[operand] for operand in node.operands]
                    control = _CONTROL.get(node.op)
                    values[node] = control(self, node, operands) if control else self.rewrite_node(node, operands)
        return [values[result] for result in function.results]

    def _flatten_all(self, values: Sequence[_V], types: Sequence[Type]) -> list[Node]:
        return [node for value, type in zip(values, types, strict=True) for node in self.flatten(value, type)]

    def _rebuild_all(self, nodes: Sequence[Node], types: Sequence[Type]) -> list[_V]:
        supply = iter(nodes)
        return [self.rebuild(supply, type) for type in types]

    def _inline(self, node: Node, operands: list[_V]) -> _V:
        results = self.results(node.attribute("function"), operands)
        return results[0] if len(results) == 1 else self.join(results)

    def _branch(self, node: Node, operands: list[_V]) -> _V:
        selector, *arguments = operands
        functions: tuple[Function, ...] = (
            node.attribute("branches") if node.op is switch else (node.attribute("then"), node.attribute("otherwise"))
        )
        types = functions[0].result_types
        counts: list[int] = []

        def run(function: Function) -> Callable[[], list[Node]]:
            def branch() -> list[Node]:
                nodes = self._flatten_all(self.results(function, arguments), types)
                counts.append(len(nodes))
                return nodes

            return branch

        runs, selector_node = list(map(run, functions)), self.scalar(selector)
        value = make_switch(selector_node, runs) if node.op is switch else make_cond(selector_node, runs[0], runs[1])
        nodes = [value] if counts[0] == 1 else [get(value, index=index) for index in range(counts[0])]
        results = self._rebuild_all(nodes, types)
        return results[0] if len(results) == 1 else self.join(results)

    def _for_loop(self, node: Node, operands: list[_V]) -> _V:
        body, carried = node.attribute("body"), node.attribute("carried")
        iterations, start, captures = operands[0], operands[1 : 1 + carried], operands[1 + carried :]
        types = body.result_types

        def step(index: Node, *state: Node) -> list[Node]:
            return self._flatten_all(
                self.results(body, [self._index(index), *self._rebuild_all(state, types), *captures]), types
            )

        first = self._flatten_all(start, types)
        final_nodes = make_for_loop(self.scalar(iterations), step, *first, reverse=node.attribute("reverse"))
        return self.join(self._rebuild_all(final_nodes, types))

    def _while_loop(self, node: Node, operands: list[_V]) -> _V:
        condition, body, carried = (node.attribute(name) for name in ("condition", "body", "carried"))
        start, captures = operands[:carried], operands[carried:]
        types = body.result_types

        def test(*state: Node) -> Node:
            return self.scalar(self.results(condition, [*self._rebuild_all(state, types), *captures])[0])

        def step(index: Node, *state: Node) -> list[Node]:
            return self._flatten_all(
                self.results(body, [self._index(index), *self._rebuild_all(state, types), *captures]), types
            )

        final_nodes = make_while_loop(test, step, *self._flatten_all(start, types), limit=node.attribute("limit"))
        return self.join(self._rebuild_all(final_nodes, types))

    def _index(self, index: Node) -> _V:
        """The loop index as a value."""
        return self.rebuild(iter([index]), index.type)


_CONTROL: Mapping[Op, Callable[[Interpreter[Any], Node, list[Any]], Any]] = MappingProxyType(
    {
        **dict.fromkeys((call, recompute_call, members_call), Interpreter._inline),
        cond: Interpreter._branch, switch: Interpreter._branch, for_loop: Interpreter._for_loop,
        while_loop: Interpreter._while_loop,
    }
)  # fmt: skip

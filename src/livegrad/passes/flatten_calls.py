"""The `flatten_calls` pass: every call gives way to the callee's body; loops, branches and maps stay.

A call is walked through once for each different list of arguments, and only as far as its results are read: the work
is linear in the size of the module that goes in and of the one that comes out, however deep calls nest.
"""

from __future__ import annotations

from collections.abc import Iterable

from livegrad.ir.keeping import keeps_places
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.origins import add_origins, originating_from
from livegrad.ir.walk import nodes_of, reachable_functions, rebuild
from livegrad.ops.aggregate import get
from livegrad.ops.control import call
from livegrad.passes.differentiate.tangents import pack_results
from livegrad.passes.functions import exchange_attributes, renamed, uses_any


@keeps_places
def flatten_calls(module: Module) -> Module:
    """The module with every call inlined, in the bodies of loops, branches and maps too."""
    order = reachable_functions(module.functions)
    if not uses_any(order, (call,)):
        return module
    standing = set(module.functions).union(*map(_run_by_regions, order))
    flattener = _Flattener()
    for function in order:
        if function in standing:
            flattener.flatten(function)
    done = flattener.done
    return Module(tuple(renamed(done[function], function.name) for function in module.functions))


def _run_by_regions(function: Function) -> set[Function]:
    nodes = (node for node in nodes_of(function) if node.attributes and node.op is not call)
    return {inner for node in nodes for inner in node.functions}


class _Frame:
    """What the nodes of one function become for one list of arguments."""

    __slots__ = ("depending", "values")

    def __init__(self, values: dict[Node, Node], depending: set[Node]) -> None:
        self.values = values
        self.depending = depending  # the function's nodes that depend on its parameters


class _Flattener:
    """Functions flattened so far, and the frames that were opened for them; frames with the same arguments are one."""

    def __init__(self) -> None:
        self.done: dict[Function, Function] = {}
        self._frames: dict[tuple[Function, tuple[Node, ...]], _Frame] = {}
        self._depending: dict[Function, set[Node]] = {}
        # Nodes that depend on no parameter are the same for every caller.
        self._shared = _Frame({}, set())

    def flatten(self, function: Function) -> None:
        frame = self._open(function, function.parameters)
        results = tuple(self._run(frame, function.results))
        self.done[function] = Function(function.name, function.parameters, results)

    def _open(self, function: Function, arguments: tuple[Node, ...]) -> _Frame:
        frame = self._frames.get((function, arguments))
        if frame is None:
            if function not in self._depending:
                self._depending[function] = _depending_on_parameters(function)
            values = dict(zip(function.parameters, arguments, strict=True))
            frame = self._frames[function, arguments] = _Frame(values, self._depending[function])
        return frame

    def _run(self, outermost: _Frame, results: tuple[Node, ...]) -> Iterable[Node]:
        """Walks down from the results on a stack of its own: (frame, node) waits until what it needs is there."""
        pending = [(outermost, result) for result in reversed(results)]
        while pending:
            frame, node = pending[-1]
            home = frame if node in frame.depending else self._shared
            if node in frame.values:
                pending.pop()
            elif node in home.values:
                frame.values[node] = home.values[node]
            else:
                pending.extend(reversed(self._waiting(home, node)))
        return [outermost.values[result] for result in results]

    def _waiting(self, frame: _Frame, node: Node) -> list[tuple[_Frame, Node]]:
        """What must be there before the node has a value in this frame; when nothing is missing, it gets one."""
        called = node.operands[0] if node.op is get and _gives_several(node.operands[0]) else node
        missing = [operand for operand in called.operands if operand not in frame.values]
        if missing:
            return [(frame, operand) for operand in missing]
        operands = tuple([frame.values[operand] for operand in called.operands])
        if called.op is not call:
            frame.values[node] = self._rebuilt(node, operands)
            return []
        function: Function = called.attribute("function")
        wanted = function.results if node is called else (function.results[node.attribute("index")],)
        inner = self._open(function, operands)
        unread = [result for result in wanted if result not in inner.values]
        if unread:
            return [(inner, result) for result in unread]
        with originating_from(node.origins):
            value = pack_results([inner.values[result] for result in wanted])
        add_origins(value, node.origins)
        frame.values[node] = value
        return []

    def _rebuilt(self, node: Node, operands: tuple[Node, ...]) -> Node:
        moved = rebuild(node, operands)
        if not moved.attributes:
            return moved
        with originating_from(node.origins):
            return exchange_attributes(moved, self.done)


def _gives_several(node: Node) -> bool:
    return node.op is call and len(node.attribute("function").results) != 1


def _depending_on_parameters(function: Function) -> set[Node]:
    depending: set[Node] = set(function.parameters)
    for node in nodes_of(function):
        if node.op is parameter_op or not depending.isdisjoint(node.operands):
            depending.add(node)
    return depending

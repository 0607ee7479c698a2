"""The passes `inline_calls` and `inline_small_calls`: replace calls by the bodies of the callees.

A call is inlined once for each distinct list of arguments, and only as far as its results are used: the work is linear
in the sizes of the input and output modules, at any nesting depth. Loops, branches and maps stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from livegrad.diagnostics import CompileError, SourceLocation
from livegrad.ir.leaves import parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import add_origins, originating_from
from livegrad.ir.walk import nodes_of, reachable_functions, rebuild
from livegrad.ops.aggregate import get
from livegrad.ops.control import call
from livegrad.passes.differentiate.tangents import pack_results
from livegrad.passes.functions import exchange_attributes, is_pure, rename_function, uses_any

SMALL = 4000  # nodes: smaller programs compile quickly and run faster without calls
_MAX_NODES = 1 << 16  # after inlining: takes a minute to compile
_MAX_WORK = 1 << 20  # operations of one call
_MIN_CALLEE = 16  # nodes: smaller callees are always inlined


@propagates_lines
def inline_calls(module: Module) -> Module:
    """Inlines every call, including those in the bodies of loops, branches and maps.

    Raises `CompileError` if the inlined program would be too large to compile.
    """
    if not uses_any(module.functions, (call,)):
        return module
    order = reachable_functions(module.functions)
    try:
        return _inline_module(module, order, frozenset(), max(_MAX_NODES, 8 * _count_nodes(order)))
    except _TooLarge as error:
        largest = max(order, key=_count_operations)
        raise CompileError(
            f"`{largest.name}` is too large: its functions call each other too many times",
            where=error.where,
            expected=f"at most {_MAX_NODES:,} nodes with all calls inlined, or {_MAX_WORK:,} operations",
            found=f"{float(_count_operations(largest)):.3g} operations",
            help="call each function once and use its result twice, or have fewer levels of calls",
        ) from None


@propagates_lines
def inline_small_calls(module: Module) -> Module:
    """Inlines calls unless the program becomes large: then, pure functions with several callers stay functions.

    For backends that can call pure functions (`is_pure`).
    """
    order = reachable_functions(module.functions)
    try:
        return _inline_module(module, order, frozenset(), max(SMALL, _count_nodes(order) * 5 // 4))
    except _TooLarge:
        shared_callees = _find_shared_callees(order)
    # Inlining everything may still fit, because calls with equal arguments become one node. If not, it raises.
    if not shared_callees or max(map(_count_operations, order)) > _MAX_WORK:
        return inline_calls(module)
    return _inline_module(module, order, shared_callees, max(_MAX_NODES, 8 * _count_nodes(order)))


class _TooLarge(Exception):
    def __init__(self, where: SourceLocation | None) -> None:
        super().__init__()
        self.where = where


def _inline_module(
    module: Module, order: Sequence[Function], shared_callees: frozenset[Function], budget: int
) -> Module:
    functions_to_keep = set(module.functions).union(shared_callees, *map(_find_region_functions, order))
    inliner = _Inliner(shared_callees, budget)
    for function in order:
        if function in functions_to_keep:
            inliner.inline_function(function)
    inlined = inliner.inlined
    return Module(tuple(rename_function(inlined[function], function.name) for function in module.functions))


def _count_nodes(functions: Sequence[Function]) -> int:
    return sum(len(nodes_of(function)) for function in functions)


@lru_cache(maxsize=4096)
def _count_operations(function: Function) -> int:
    """The number of operations of a call; a loop counts as one iteration."""
    return sum(1 + sum(map(_count_operations, node.functions)) for node in nodes_of(function) if node.operands)


def grows_when_inlined(function: Function) -> bool:
    """Whether inlining would make a large function much larger: its derivatives should keep calls, too."""
    return _count_operations(function) > max(SMALL // 4, 2 * _count_nodes(reachable_functions([function])))


def _find_shared_callees(order: Sequence[Function]) -> frozenset[Function]:
    """The pure functions that several nodes call and that are large enough for a call."""
    callers: dict[Function, int] = {}
    for function in order:
        for node in nodes_of(function):
            if node.op is call:
                callers[node.attribute("function")] = callers.get(node.attribute("function"), 0) + 1
    shared_callees: set[Function] = set()
    sizes: dict[Function, int] = {}
    for function in order:  # callees first
        size = len(nodes_of(function))
        callees = [node.attribute("function") for node in nodes_of(function) if node.op is call]
        sizes[function] = size + sum(0 if callee in shared_callees else sizes[callee] for callee in callees)
        if callers.get(function, 0) > 1 and sizes[function] >= _MIN_CALLEE and is_pure(function):
            shared_callees.add(function)
    return frozenset(shared_callees)


def _find_region_functions(function: Function) -> set[Function]:
    nodes = (node for node in nodes_of(function) if node.attributes and node.op is not call)
    return {inner for node in nodes for inner in node.functions}


class _Frame:
    """The inlined nodes of a function for one list of arguments."""

    __slots__ = ("dependents", "values")

    def __init__(self, values: dict[Node, Node], dependents: set[Node]) -> None:
        self.values = values
        self.dependents = dependents  # the function's nodes that depend on its parameters


class _Inliner:
    """Inlines calls in functions; calls of one function with the same arguments share a frame."""

    def __init__(self, shared_callees: frozenset[Function], budget: int) -> None:
        self.shared_callees = shared_callees  # calls of these stay
        self.budget = budget  # of nodes
        self.inlined: dict[Function, Function] = {}
        self._frames: dict[tuple[Function, tuple[Node, ...]], _Frame] = {}
        self._dependents: dict[Function, set[Node]] = {}
        # Nodes that depend on no parameter are the same for every caller.
        self._constant_frame = _Frame({}, set())

    def inline_function(self, function: Function) -> None:
        frame = self._open(function, function.parameters)
        results = tuple(self._run(frame, function.results))
        self.inlined[function] = Function(function.name, function.parameters, results)

    def _open(self, function: Function, arguments: tuple[Node, ...]) -> _Frame:
        frame = self._frames.get((function, arguments))
        if frame is None:
            if function not in self._dependents:
                self._dependents[function] = _find_dependents_of_parameters(function)
            values = dict(zip(function.parameters, arguments, strict=True))
            frame = self._frames[function, arguments] = _Frame(values, self._dependents[function])
        return frame

    def _run(self, outermost: _Frame, results: tuple[Node, ...]) -> Iterable[Node]:
        """Computes the results in a frame, with an explicit stack of nodes that wait for their operands."""
        pending = [(outermost, result) for result in reversed(results)]
        while pending:
            frame, node = pending[-1]
            home = frame if node in frame.dependents else self._constant_frame
            if node in frame.values:
                pending.pop()
            elif node in home.values:
                frame.values[node] = home.values[node]
            else:
                pending.extend(reversed(self._compute_or_list_missing(home, node)))
        return [outermost.values[result] for result in results]

    def _compute_or_list_missing(self, frame: _Frame, node: Node) -> list[tuple[_Frame, Node]]:
        """Computes a node's value in a frame, or returns what must be computed before."""
        called = node.operands[0] if node.op is get and self._has_several_results(node.operands[0]) else node
        missing = [operand for operand in called.operands if operand not in frame.values]
        if missing:
            return [(frame, operand) for operand in missing]
        operands = tuple([frame.values[operand] for operand in called.operands])
        self.budget -= 1
        if self.budget < 0:
            raise _TooLarge(node.origin)
        if not self._is_inlined(called):
            frame.values[node] = self._rebuild(node, operands)
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

    def _is_inlined(self, node: Node) -> bool:
        return node.op is call and node.attribute("function") not in self.shared_callees

    def _has_several_results(self, node: Node) -> bool:
        return self._is_inlined(node) and len(node.attribute("function").results) != 1

    def _rebuild(self, node: Node, operands: tuple[Node, ...]) -> Node:
        rebuilt = rebuild(node, operands)
        if not rebuilt.attributes:
            return rebuilt
        with originating_from(node.origins):
            return exchange_attributes(rebuilt, self.inlined)


def _find_dependents_of_parameters(function: Function) -> set[Node]:
    dependents: set[Node] = set(function.parameters)
    for node in nodes_of(function):
        if node.op is parameter_op or not dependents.isdisjoint(node.operands):
            dependents.add(node)
    return dependents

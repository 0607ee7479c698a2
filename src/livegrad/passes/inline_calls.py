"""The `inline_calls` pass: replaces calls by the bodies of the callees; loops, branches and maps stay.

A call is inlined once for each distinct list of arguments, and only as far as its results are used: the work is linear
in the sizes of the input and output modules, at any nesting depth.
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
from livegrad.passes.functions import exchange_attributes, is_pure, renamed, uses_any

SMALL = 4000  # nodes: up to here code without calls is quick to compile, and quicker to run
_MAX_NODES = 1 << 16  # of code without calls: a minute of compiling
_MAX_WORK = 1 << 20  # operations of one call
_WORTH_A_CALL = 16  # nodes


@propagates_lines
def inline_calls(module: Module) -> Module:
    """The module with every call inlined, in the bodies of loops, branches and maps too.

    Raises where calls that call others often make more of it than can be compiled.
    """
    if not uses_any(module.functions, (call,)):
        return module
    order = reachable_functions(module.functions)
    try:
        return _flattened(module, order, frozenset(), max(_MAX_NODES, 8 * _size(order)))
    except _TooLarge as error:
        largest = max(order, key=_work)
        raise CompileError(
            f"`{largest.name}` is too large: its functions call each other too many times",
            where=error.where,
            expected=f"at most {_MAX_NODES:,} nodes with all calls inlined, or {_MAX_WORK:,} operations",
            found=f"{float(_work(largest)):.3g} operations",
            help="call each function once and use its result twice, or have fewer levels of calls",
        ) from None


@propagates_lines
def inline_small_calls(module: Module) -> Module:
    """The module with calls inlined where that leaves it small; what a large one calls often stays a function.

    For backends that have code for calls of functions of numbers (`is_pure`).
    """
    if not uses_any(module.functions, (call,)):
        return module
    order = reachable_functions(module.functions)
    try:
        return _flattened(module, order, frozenset(), max(SMALL, _size(order) * 5 // 4))
    except _TooLarge:
        kept = _called_often(order)
    # Calls with equal arguments are one node: inlined, they are still computed once.
    if not kept or max(map(_work, order)) > _MAX_WORK:
        return inline_calls(module)
    return _flattened(module, order, kept, max(_MAX_NODES, 8 * _size(order)))


class _TooLarge(Exception):
    def __init__(self, where: SourceLocation | None) -> None:
        super().__init__()
        self.where = where


def _flattened(module: Module, order: Sequence[Function], kept: frozenset[Function], most: int) -> Module:
    standing = set(module.functions).union(kept, *map(_run_by_regions, order))
    flattener = _Flattener(kept, most)
    for function in order:
        if function in standing:
            flattener.flatten(function)
    done = flattener.done
    return Module(tuple(renamed(done[function], function.name) for function in module.functions))


def _size(functions: Sequence[Function]) -> int:
    return sum(len(nodes_of(function)) for function in functions)


@lru_cache(maxsize=4096)
def _work(function: Function) -> int:
    """The number of operations of a call; a loop counts as one iteration."""
    return sum(1 + sum(map(_work, node.functions)) for node in nodes_of(function) if node.operands)


def calls_much(function: Function) -> bool:
    """Whether a call takes much work, and far more than the function is long: calls in its derivatives stay calls."""
    return _work(function) > max(SMALL // 4, 2 * _size(reachable_functions([function])))


def _called_often(order: Sequence[Function]) -> frozenset[Function]:
    """The functions of numbers that are worth a call, and that several nodes call."""
    callers: dict[Function, int] = {}
    for function in order:
        for node in nodes_of(function):
            if node.op is call:
                callers[node.attribute("function")] = callers.get(node.attribute("function"), 0) + 1
    kept: set[Function] = set()
    sizes: dict[Function, int] = {}
    for function in order:  # callees first
        size = len(nodes_of(function))
        called = [node.attribute("function") for node in nodes_of(function) if node.op is call]
        sizes[function] = size + sum(0 if callee in kept else sizes[callee] for callee in called)
        if callers.get(function, 0) > 1 and sizes[function] >= _WORTH_A_CALL and is_pure(function):
            kept.add(function)
    return frozenset(kept)


def _run_by_regions(function: Function) -> set[Function]:
    nodes = (node for node in nodes_of(function) if node.attributes and node.op is not call)
    return {inner for node in nodes for inner in node.functions}


class _Frame:
    """The nodes of a function for one list of arguments."""

    __slots__ = ("depending", "values")

    def __init__(self, values: dict[Node, Node], depending: set[Node]) -> None:
        self.values = values
        self.depending = depending  # the function's nodes that depend on its parameters


class _Flattener:
    """Functions flattened so far, and the frames that were opened for them; frames with the same arguments are one."""

    def __init__(self, kept: frozenset[Function], most: int) -> None:
        self.kept = kept  # calls of these stay
        self.left = most  # remaining budget of nodes
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
        called = node.operands[0] if node.op is get and self._gives_several(node.operands[0]) else node
        missing = [operand for operand in called.operands if operand not in frame.values]
        if missing:
            return [(frame, operand) for operand in missing]
        operands = tuple([frame.values[operand] for operand in called.operands])
        self.left -= 1
        if self.left < 0:
            raise _TooLarge(node.origin)
        if not self._is_inlined(called):
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

    def _is_inlined(self, node: Node) -> bool:
        return node.op is call and node.attribute("function") not in self.kept

    def _gives_several(self, node: Node) -> bool:
        return self._is_inlined(node) and len(node.attribute("function").results) != 1

    def _rebuilt(self, node: Node, operands: tuple[Node, ...]) -> Node:
        moved = rebuild(node, operands)
        if not moved.attributes:
            return moved
        with originating_from(node.origins):
            return exchange_attributes(moved, self.done)


def _depending_on_parameters(function: Function) -> set[Node]:
    depending: set[Node] = set(function.parameters)
    for node in nodes_of(function):
        if node.op is parameter_op or not depending.isdisjoint(node.operands):
            depending.add(node)
    return depending

"""A race detector for parallel loops: `f.debug(...)` runs an instrumented version of a function as plain Python.

In: the source of a function. Out: a Python function that records which iteration of each parallel loop reads and writes
which element, and raises if one iteration writes what another one reads or writes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, TypeGuard

import numpy as np

from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.intrinsics import intrinsic_of
from livegrad.frontend.function.python_fallback import to_plain_python
from livegrad.frontend.function.python_source import Source


@dataclass(eq=False)
class _Loop:
    """An active parallel loop: its current iteration, and the iterations that have accessed each address."""

    iteration: int = 0
    writers: dict[int, int] = field(default_factory=dict)
    readers: dict[int, int] = field(default_factory=dict)  # the first reading iteration of each address
    arrays: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)  # kept alive: addresses are not reused


class _Keys:
    """`keys[1:3, i]` returns the index itself, as an array would receive it."""

    def __getitem__(self, key: Any) -> Any:
        return key


class _AccessLog:
    """The accesses of the active parallel loops of one run."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans
        self.loops: list[_Loop] = []

    def iterate(self, callee: Any, values: Iterable[Any]) -> Iterator[Any]:
        """Yields the values of a loop, and tracks the current iteration if the loop is parallel."""
        if intrinsic_of(callee) != "parallel":
            yield from values
            return
        loop = _Loop()
        self.loops.append(loop)
        try:
            for loop.iteration in values:
                yield loop.iteration
        finally:
            self.loops.remove(loop)

    def record_write(self, array: Any, key: Any, span_index: int) -> None:
        """Records a write; raises if another iteration has accessed one of the elements."""
        if not self.loops or not isinstance(array, np.ndarray):
            return
        for loop in self.loops:
            loop.arrays[id(array)] = array
            for address in np.ravel(_addresses(array)[key]).tolist():
                first = loop.writers.setdefault(address, loop.iteration)
                if first != loop.iteration:
                    message = f"iterations {first} and {loop.iteration} of a parallel loop write one element"
                    raise self._error(message, array, address, span_index)
                reader = loop.readers.get(address, loop.iteration)
                if reader != loop.iteration:
                    message = f"iteration {loop.iteration} of a parallel loop writes what iteration {reader} reads"
                    raise self._error(message, array, address, span_index)

    def record_read(self, array: Any, key: Any, span_index: int) -> Any:
        """Records a read and returns its value; raises if another iteration has written one of the elements."""
        value = array[key]
        if not self.loops or not isinstance(array, np.ndarray):
            return value
        for loop in self.loops:
            loop.arrays[id(array)] = array
            for address in np.ravel(_addresses(array)[key]).tolist():
                loop.readers.setdefault(address, loop.iteration)
                writer = loop.writers.get(address, loop.iteration)
                if writer != loop.iteration:
                    message = f"iteration {loop.iteration} of a parallel loop reads what iteration {writer} writes"
                    raise self._error(message, array, address, span_index)
        return value

    def _error(self, message: str, array: np.ndarray[Any, Any], address: int, span_index: int) -> FunctionError:
        index = np.argwhere(_addresses(array) == address)[0].tolist()
        return FunctionError(
            "LG111",
            message,
            self.spans[span_index],
            found=f"the element at {index}",
            help="use `range` for a loop whose iterations depend on each other; `+=` adds in order",
        )


def _addresses(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The address of each element."""
    first = array.__array_interface__["data"][0]
    steps = [np.arange(size) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return first + sum(np.ix_(*steps), np.zeros((), np.int64))


class _AccessInstrumenter(ast.NodeTransformer):
    """Instruments loops, reads and assignments of elements; `+=` may add to what another iteration wrote."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.spans: list[Span] = []

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call):
            call = ast.Call(ast.Name("__iterate__", ast.Load()), [deepcopy(node.iter.func), node.iter], [])
            node.iter = ast.copy_location(call, node.iter)
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        stores = [part for target in node.targets for part in ast.walk(target) if _is_store(part)]
        node.value = self.visit(node.value)
        if not stores:
            return [node]
        # Evaluate the value first: a statement reads before it writes.
        value = ast.copy_location(ast.Assign([ast.Name("__value__", ast.Store())], node.value), node)
        node.value = ast.copy_location(ast.Name("__value__", ast.Load()), node.value)
        records = [ast.copy_location(ast.Expr(self._call("__record_write__", part)), part) for part in stores]
        return [value, *records, node]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.value = None if node.value is None else self.visit(node.value)  # not the annotation: `x: list[float]`
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(self._call("__record_read__", node), node)

    def _call(self, name: str, subscript: ast.Subscript) -> ast.Call:
        """A call with the array, the key and the index of the source location; nested reads are recorded too."""
        span_index = ast.Constant(len(self.spans))
        self.spans.append(self.source.span(subscript))
        array, key = self.visit(deepcopy(subscript.value)), self.visit(deepcopy(subscript.slice))
        keys = ast.Subscript(ast.Name("__keys__", ast.Load()), key, ast.Load())
        return ast.Call(ast.Name(name, ast.Load()), [array, keys, span_index], [])


def _is_store(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


def instrument_parallel_loops(function: FunctionType, source: Source) -> FunctionType:
    """The function as plain Python with instrumented parallel loops."""
    plain = to_plain_python(function)
    definition = deepcopy(source.definition)
    if not isinstance(definition, ast.FunctionDef):
        return plain  # a lambda has no loops
    definition.decorator_list, definition.returns = [], None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    transformer = _AccessInstrumenter(source)
    definition = transformer.visit(definition)
    log = _AccessLog(transformer.spans)
    names = {**plain.__globals__, "__iterate__": log.iterate, "__keys__": _Keys()}
    names |= {"__record_write__": log.record_write, "__record_read__": log.record_read}
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
        names[name] = cell.cell_contents
    code = compile(ast.fix_missing_locations(ast.Module([definition], [])), source.file, "exec", dont_inherit=True)
    exec(code, names)
    instrumented = names[definition.name]
    instrumented.__defaults__, instrumented.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return instrumented

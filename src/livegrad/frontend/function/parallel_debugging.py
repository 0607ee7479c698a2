"""Checks parallel loops while a captured function runs as plain Python: `f.debug(...)`.

In: the source of a function. Out: a Python function that notes which iteration of each parallel loop writes which
element, and raises an error if two write one. `captured.debug` calls it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np

from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.intrinsics import intrinsic_of
from livegrad.frontend.function.python_fallback import plainly
from livegrad.frontend.function.python_source import Source


@dataclass(eq=False)
class _Loop:
    """A running parallel loop: its current iteration, and the iteration that wrote each address."""

    iteration: int = 0
    writers: dict[int, int] = field(default_factory=dict)
    arrays: list[np.ndarray[Any, Any]] = field(default_factory=list)  # kept: a new array has other addresses


class _Keys:
    """`keys[1:3, i]` is the index that an array would get."""

    def __getitem__(self, key: Any) -> Any:
        return key


class _Writes:
    """What the parallel loops of one run have written."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans
        self.loops: list[_Loop] = []

    def iterate(self, callee: Any, values: Iterable[Any]) -> Iterator[Any]:
        """The values of a loop; those of a parallel one are noted as its iterations."""
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

    def note(self, array: Any, key: Any, number: int) -> None:
        """Notes a write; an error if another iteration has written an element of it."""
        if not self.loops or not isinstance(array, np.ndarray):
            return
        addresses = np.atleast_1d(_addresses(array)[key])
        for loop in self.loops:
            loop.arrays.append(array)
            for address in addresses.ravel().tolist():
                first = loop.writers.setdefault(address, loop.iteration)
                if first != loop.iteration:
                    index = np.argwhere(_addresses(array) == address)[0].tolist()
                    raise FunctionError(
                        "LG111",
                        f"iterations {first} and {loop.iteration} of a parallel loop write one element",
                        self.spans[number],
                        found=f"the element at {index}",
                        help="use `range` for a loop whose iterations depend on each other; `+=` adds in order",
                    )


def _addresses(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The address of each element."""
    first = array.__array_interface__["data"][0]
    steps = [np.arange(size) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return first + sum(np.ix_(*steps), np.zeros((), np.int64))


class _Noting(ast.NodeTransformer):
    """Makes loops and assignments to elements report what they do; `+=` may add to what another iteration wrote."""

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
        written = [target for target in node.targets if isinstance(target, ast.Subscript)]
        return [*map(self._note, written), node]

    def _note(self, target: ast.Subscript) -> ast.stmt:
        self.spans.append(self.source.span(target))
        key = ast.Subscript(ast.Name("__keys__", ast.Load()), deepcopy(target.slice), ast.Load())
        arguments = [deepcopy(target.value), key, ast.Constant(len(self.spans) - 1)]
        return ast.copy_location(ast.Expr(ast.Call(ast.Name("__note__", ast.Load()), arguments, [])), target)


def noting_version(function: FunctionType, source: Source) -> FunctionType:
    """The function as plain Python that checks its parallel loops."""
    plain = plainly(function)
    definition = deepcopy(source.definition)
    if not isinstance(definition, ast.FunctionDef):
        return plain  # an expression has no loops
    definition.decorator_list, definition.returns = [], None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    transformer = _Noting(source)
    definition = transformer.visit(definition)
    writes = _Writes(transformer.spans)
    names = {**plain.__globals__, "__iterate__": writes.iterate, "__note__": writes.note, "__keys__": _Keys()}
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
        names[name] = cell.cell_contents
    code = compile(ast.fix_missing_locations(ast.Module([definition], [])), source.file, "exec", dont_inherit=True)
    exec(code, names)
    noting = names[definition.name]
    noting.__defaults__, noting.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return noting

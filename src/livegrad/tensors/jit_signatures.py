"""Signatures of `jit`: traced functions with their captures, templates that serve many sizes, and static arguments.

Traced signatures and templates create the cache entry for the sizes of one signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import ref

from livegrad.ir.node import Function, Node
from livegrad.ir.size_guards import SizeGuards
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.types import Type
from livegrad.ir.walk import nodes_of, toposort
from livegrad.lazy.holders import holders_of
from livegrad.passes.bind_sizes import bind_symbolic, bind_symbolic_type
from livegrad.runtime.cpu import run_function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.plan_template import PlanTemplate
from livegrad.tensors.handle import wrap
from livegrad.tensors.jit_entries import Entry, is_current
from livegrad.tensors.pytrees import Structure


class TracedSignature:
    """A traced function, its captured tensors, and the tree structure of its results."""

    def __init__(self, function: Function, captures: Sequence[Node], structure: Structure) -> None:
        self.function, self.structure = function, structure
        self.captures = tuple(map(wrap, captures))
        self.captured_handles = tuple((ref(holder), node) for node in toposort(captures) for holder in holders_of(node))
        self._nodes = sum(bool(node.operands) for node in nodes_of(function))

    def entry_for(
        self,
        make_plan: Callable[[], CompiledPlan],
        is_new: bool = True,
        make_function: Callable[[], Function] | None = None,
        result_types: tuple[Type, ...] | None = None,
    ) -> Entry:
        """Creates the entry of a signature with this plan; a template passes its own function and result types."""
        return Entry(
            make_function or (lambda: self.function),
            self.function.result_types if result_types is None else result_types,
            self.captures, self.captured_handles, self.structure, make_plan, self._nodes, is_new,
        )  # fmt: skip


class SignatureTemplate:
    """A signature that was traced and compiled with symbolic sizes."""

    def __init__(self, traced: TracedSignature, plan: PlanTemplate) -> None:
        self._traced, self._plan = traced, plan

    def is_current(self) -> bool:
        """Whether no captured tensor has been updated in place since the trace."""
        return is_current(self._traced.captured_handles)

    def entry_for(self, sizes: Sequence[int], is_new: bool) -> Entry:
        """Creates the entry for sizes that satisfy the guards; `is_new` counts the template as compiled for it."""
        number_of = partial(_size_for, self._plan.guards, tuple(sizes))
        traced = self._traced
        types = tuple([bind_symbolic_type(type, number_of) for type in traced.function.result_types])
        make_plan = partial(self._plan.for_sizes, sizes, run_function)
        return traced.entry_for(make_plan, is_new, partial(bind_symbolic, traced.function, number_of), types)


def _size_for(guards: SizeGuards, sizes: Sequence[int], size: SymbolicSize) -> Any:
    return guards.evaluate(sizes, [size.terms])[0]


def find_static_parameters(
    function: Callable[..., Any], numbers: int | Iterable[int], names: str | Iterable[str]
) -> tuple[frozenset[int], frozenset[str]]:
    """Returns positions and names of static parameters; a parameter in either is static however it is passed."""
    positions = {numbers} if isinstance(numbers, int) else set(numbers)
    named = {names} if isinstance(names, str) else set(names)
    if not positions and not named:
        return frozenset(), frozenset()
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a C function without a signature
        return frozenset(positions), frozenset(named)
    positions = {position + len(parameters) if position < 0 else position for position in positions}
    named |= {parameters[position] for position in positions if position < len(parameters)}
    positions |= {position for position, name in enumerate(parameters) if name in named}
    return frozenset(positions), frozenset(named)


def split_sizes(key: Any) -> tuple[Any, tuple[int, ...]]:
    """Splits a signature into one without sizes, and the vector of its sizes."""
    structure, parts = key
    shapeless_parts: list[Any] = []
    sizes: list[int] = []
    for part in parts:
        if isinstance(part, TensorType):
            shapeless_parts.append((part.element, len(part.shape)))
            sizes += [size for size in part.shape if isinstance(size, int)]
        elif part.__class__ is tuple:
            shapeless_parts.append((part[0], len(part[1]), None))
            sizes += part[1]
        else:
            shapeless_parts.append(part)
    return (structure, tuple(shapeless_parts)), tuple(sizes)


def replace_sizes(types: Sequence[Type], sizes: Iterator[int]) -> list[Type]:
    """Replaces the sizes of tensor types by others, in order."""
    new_types: list[Type] = []
    for type in types:
        if isinstance(type, TensorType):
            type = TensorType(type.element, tuple([next(sizes) for _ in type.shape]))
        new_types.append(type)
    return new_types

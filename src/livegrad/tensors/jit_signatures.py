"""What `jit` made of a signature: a traced function with its captures, and its template for symbolic sizes.

In: what a trace gave. Out: entries, each for the sizes of one signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import ref

from livegrad.ir.node import Function, Node
from livegrad.ir.size_guards import SizeGuards
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Type
from livegrad.ir.walk import nodes_of, toposort
from livegrad.lazy.counts import RepeatedRun
from livegrad.lazy.holders import holders_of
from livegrad.passes.bind_sizes import bind_symbolic, bind_symbolic_type
from livegrad.runtime.cpu import run_function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.plan_template import PlanTemplate
from livegrad.tensors.handle import wrap
from livegrad.tensors.jit_entries import Entry, is_current
from livegrad.tensors.pytrees import Structure


class TracedSignature:
    """A traced function, the tensors that it took from around it, and how its results nest."""

    def __init__(self, function: Function, captures: Sequence[Node], structure: Structure) -> None:
        self.function, self.structure = function, structure
        self.captures = tuple(map(wrap, captures))
        self.captured_handles = tuple((ref(holder), node) for node in toposort(captures) for holder in holders_of(node))
        self._nodes = sum(bool(node.operands) for node in nodes_of(function))

    def entry_for(
        self,
        plan: CompiledPlan,
        is_new: bool = True,
        make_function: Callable[[], Function] | None = None,
        result_types: tuple[Type, ...] | None = None,
    ) -> Entry:
        """The entry of a signature with this plan; of a template, with its own function and results."""
        kernels, library_calls = plan.step_counts
        counts_per_run = {
            "executions": 1,
            "kernels_run": kernels,
            "library_calls": library_calls,
            "nodes_computed": self._nodes,
        }
        first_counts = {**counts_per_run, "programs_compiled" if is_new else "programs_reused": 1}
        runs = RepeatedRun(first_counts, {**counts_per_run, "programs_reused": 1})
        return Entry(
            make_function or (lambda: self.function),
            self.function.result_types if result_types is None else result_types,
            self.captures, self.captured_handles, self.structure, plan, runs, is_for_sizes=make_function is not None,
        )  # fmt: skip


class SignatureTemplate:
    """A signature that was traced with symbolic sizes."""

    def __init__(self, traced: TracedSignature, plan: PlanTemplate) -> None:
        self._traced, self._plan = traced, plan

    def is_current(self) -> bool:
        """Whether none of the tensors that the function read has been updated in place since."""
        return is_current(self._traced.captured_handles)

    def entry_for(self, sizes: Sequence[int], is_new: bool) -> Entry:
        """The entry for sizes that fit the guards; whether the template was made for it is counted."""
        number_of = partial(_size_for, self._plan.guards, tuple(sizes))
        traced = self._traced
        types = tuple([bind_symbolic_type(type, number_of) for type in traced.function.result_types])
        plan = self._plan.for_sizes(sizes, run_function)
        return traced.entry_for(plan, is_new, partial(bind_symbolic, traced.function, number_of), types)


def _size_for(guards: SizeGuards, sizes: Sequence[int], size: SymbolicSize) -> Any:
    return guards.evaluate(sizes, [size.terms])[0]

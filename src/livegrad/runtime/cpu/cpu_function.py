"""Compiled functions on the CPU: passes, schedule and code, cached per function and sizes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from livegrad.compiler import Compilation, lower
from livegrad.diagnostics import LivegradError, Mark, UsageError, caller_origin
from livegrad.ir.collecting import collection_paused
from livegrad.ir.digest import function_digest
from livegrad.ir.line_sites import mark_places, name_place, written_alike
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Function
from livegrad.ir.types import Matrix, Scalar, Tensor, Vector
from livegrad.passes.flatten_signature import assemble_value, leaf_types
from livegrad.runtime.arguments import (
    Remembered,
    array_argument,
    dense_form,
    is_symbolic,
    learn_sizes,
    named_leaves,
    scalar_argument,
)
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import Compiling
from livegrad.runtime.cpu.native.object_cache import default_cache
from livegrad.runtime.cpu.serialised_plan import SerialisedPlan, decode, encode, serialised_plan_key
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.fork import renew_lock_after_fork
from livegrad.runtime.plan_cache import PlanCache
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.resize import resize_plan
from livegrad.schedule.target import Target

_MOST_FUNCTIONS = 512


class CpuFunction:
    """A function compiled for the CPU; plans are made for each set of sizes when they are first seen.

    What is compiled has marks for the lines that checks name, so that functions written at other lines share it. Equal
    functions of other names share their plans; errors name the function that was called.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> float(CpuFunction(trace(lambda x: x * x + 1.0, f32))(3.0))
    10.0
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._marked, self._places = mark_places(function)
        self._leaves = [leaf for type in function.parameter_types for leaf in leaf_types(type)]
        self._apart = any(leaf_types(type) != [type] for type in function.parameter_types)
        self._single = len(function.results) == 1
        self._plain = not any(leaf_types(type) != [type] for type in function.result_types)
        self._plans: PlanCache[CompiledPlan] = PlanCache()
        self._first_plan: Plan | None = None  # of a function of symbolic sizes
        self._fixed = not any(is_symbolic(type) for type in self._leaves)
        self._expected = [dense_form(type) for type in self._leaves]

    def for_equal(self, function: Function) -> CpuFunction:
        """The compiled form of an equal function: the same plans, and errors that name this function and its lines."""
        if written_alike(self.function, function):
            return self
        other = copy(self)
        other.function = function
        return other

    def __repr__(self) -> str:
        return f"<compiled for the CPU: {self.function!r}>"

    def __call__(self, *arguments: Any) -> Any:
        leaves: Sequence[Any] = arguments
        shapes = None if self._apart else self._dense_shapes(arguments)
        plan = None if shapes is None else self._plans.by_shapes.get(shapes)
        if plan is None:
            leaves, sizes = self._accept(arguments)
            plan = self.plan(sizes)
            if shapes is not None:
                self._plans.remember(shapes, plan)
        results = plan.run(leaves)
        if self._plain:
            return results[0] if self._single else tuple(results)
        supply = iter(results)
        values = tuple(assemble_value(supply, type) for type in self.function.result_types)
        return values[0] if self._single else values

    def _dense_shapes(self, leaves: Sequence[Any]) -> tuple[Any, ...] | None:
        """The shapes of symbolic size when all arguments can be used as they are, else None.

        Looks at nothing twice, for it is on every call's way.
        """
        if len(leaves) != len(self._expected):
            return None
        shapes = []
        for leaf, (dtype, shape, number, low, high) in zip(leaves, self._expected, strict=True):
            if number is not None:
                # A loop over tensors hands NumPy's numbers to its body, and what it remembers as it is.
                own = type(leaf)
                if (
                    own is not dtype.type
                    and number is not Remembered
                    and (own is not number or not low <= leaf <= high)
                ):
                    return None
            elif type(leaf) is not np.ndarray or leaf.dtype is not dtype or not leaf.flags.carray:
                return None
            elif shape is None:
                shapes.append(leaf.shape)
            elif leaf.shape != shape:
                return None
        return tuple(shapes)

    def _accept(self, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        """The arguments' leaves as kernels take them, and the sizes that they have."""
        leaves: list[Any] = []
        tensors: list[tuple[Tensor, tuple[int, ...], str]] = []
        for leaf, own, place in named_leaves(self.function, arguments):
            if isinstance(own, Scalar):
                leaf = scalar_argument(leaf, own, place)
            elif isinstance(own, Tensor | Vector | Matrix):
                leaf = array_argument(leaf, own, place)
                if isinstance(own, Tensor):
                    tensors.append((own, leaf.shape, place))
            leaves.append(leaf)
        return leaves, learn_sizes(tensors)

    def plan(self, sizes: dict[str, int] | None = None) -> CompiledPlan:
        """The compiled plan for these sizes: from memory, from the disk cache, or made now."""
        key = () if self._fixed else tuple(sorted((sizes or {}).items()))
        plans = self._plans.by_sizes
        found = plans.get(key)
        if found is not None:
            return found
        with self._plans.lock:
            if key not in plans:
                with collection_paused():
                    plan = plans.keep(key, self._load(dict(key)) or self._make(dict(key)))
                plan.source = self.function
            return plans[key]

    def self_contained_plan(self, arguments: Sequence[Any]) -> SerialisedPlan | None:
        """What these arguments run with, where it needs nothing of this function any more.

        None where arguments are converted or results put together, where steps are the host's, or a check may fail:
        its error names lines and indices of the function.
        """
        shapes = None if self._apart or not self._plain else self._dense_shapes(arguments)
        plan = None if shapes is None else self._plans.by_shapes.get(shapes)
        if plan is None or not plan.only_kernels:
            return None
        singles = [single for kernel in plan.serialised.kernels for single in (kernel, *kernel.members)]
        return None if any(single.sites for single in singles) else plan.serialised

    @cached_property
    def lowered(self) -> Function:
        """What all sizes have in common."""
        return lower(self.function, CPU)

    def schedule(self, sizes: dict[str, int] | None = None, target: Target = CPU) -> Plan:
        """The plan for these sizes, as it would be compiled; of a target, the CPU without some optimisations."""
        return Compilation(self.lowered, target, sizes).plan

    def _make(self, sizes: dict[str, int]) -> CompiledPlan:
        try:
            compiling = Compiling()
            source = compile_function(self._marked) if self._places else self
            plan = source._scheduled(sizes, compiling)
            made = CompiledPlan.from_plan(plan, run_function, self._places, compiling)
        except LivegradError as error:
            if not isinstance(error.where, Mark):
                CpuFunction(self.function).schedule(sizes)  # says the same of this function's own name and lines
            name_place(error, self._places)
            raise
        cache, digest = default_cache(), self._digest()
        if digest is not None and made.only_kernels:
            serialised = made.serialised
            background_compiler.later(lambda: cache.store(serialised_plan_key(digest, sizes), encode(serialised)))
        return made

    def _scheduled(self, sizes: dict[str, int], compiling: Compiling) -> Plan:
        """The plan for these sizes: that for others where only sizes differ, or made now while its kernels compile."""
        known = self._first_plan
        plan = None if known is None else resize_plan(known, self.lowered, sizes)
        if plan is None:
            compilation = Compilation(self.lowered, CPU, sizes)
            for step in compilation:
                if isinstance(step, KernelStep):
                    compiling.begin(step)
            plan = compilation.plan
        if known is None and sizes:
            self._first_plan = plan
        return plan

    def _load(self, sizes: dict[str, int]) -> CompiledPlan | None:
        """The plan as an earlier process left it."""
        digest = self._digest()
        data = None if digest is None else default_cache().load(serialised_plan_key(digest, sizes))
        serialised = None if data is None else decode(data)
        return None if serialised is None else CompiledPlan.from_serialised(serialised, run_function, self._places)

    def _digest(self) -> bytes | None:
        """What names this function on disk; None where nothing is kept there, or this function cannot be."""
        return None if default_cache().settings.directory is None else function_digest(self.function)

    def forget_plans(self) -> None:
        """Drops the plans, with their code and memory; the next call makes them anew."""
        self._plans.clear()
        self._first_plan = None


_functions: LruCache[Function, CpuFunction] = LruCache(_MOST_FUNCTIONS)
_functions_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_functions_lock")


def compile_function(function: Function) -> CpuFunction:
    """Compiles a function. The result is kept in an LRU cache.

    >>> import livegrad as lg
    >>> float(lg.ir.compile(lg.ir.trace(lambda x: x * x + 1.0, lg.f32))(3.0))
    10.0
    """
    with _functions_lock:
        found = _functions.use(function)
        if found is None:
            if not isinstance(function, Function):
                raise UsageError(
                    "only functions of the value IR are compiled",
                    where=caller_origin(),
                    found=type(function).__name__,
                    help="trace it first, lg.ir.trace(f, lg.f32), or use lg.jit",
                )
            found = _functions.keep(function, CpuFunction(function))
        return found.for_equal(function)


def forget_functions() -> None:
    """Drops all compiled functions from memory; their code may still be on disk."""
    with _functions_lock:
        _functions.clear()


# Bodies of loops over tensors by identity: they run thousands of times, and to look them up by equality takes longer.
_bodies: dict[int, tuple[Function, CpuFunction]] = {}


def run_function(function: Function, *arguments: Any) -> Any:
    """The function's value at these arguments, computed by native code."""
    found = _bodies.get(id(function))
    if found is None:
        if len(_bodies) >= _MOST_FUNCTIONS:
            _bodies.clear()
        found = _bodies[id(function)] = (function, compile_function(function))
    return found[1](*arguments)

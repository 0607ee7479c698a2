"""Functions compiled for the CPU. In: a function. Out: plans by sizes, and calls that run native code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from livegrad.compiler import Compilation, lower
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.cached_property import cached_property
from livegrad.ir.node import Function
from livegrad.ir.size_guards import SizeGuards
from livegrad.runtime.arguments import TapeArgument
from livegrad.runtime.compiled_function import MAX_FUNCTIONS, CompiledFunction, FunctionCache
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from livegrad.runtime.cpu.native.plan_call import ARRAYS, NUMBERS
from livegrad.runtime.cpu.plan_entry import PlanEntry, make_plan_entry
from livegrad.runtime.cpu.plan_template import PlanTemplate
from livegrad.runtime.cpu.serialised_plan import SerialisedPlan, decode, encode, serialised_plan_key
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import default_cache
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.resize import resize_plan
from livegrad.schedule.target import Target
from livegrad.state import Owned

_SOURCES: dict[type, int] = {np.ndarray: ARRAYS, float: NUMBERS, int: NUMBERS}


class CpuFunction(CompiledFunction[CompiledPlan]):
    """A function compiled for the CPU.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> float(CpuFunction(trace(lambda x: x * x + 1.0, f32))(3.0))
    10.0
    """

    target = CPU

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self._first_plan: Plan | None = None  # of a function of symbolic sizes

    def __repr__(self) -> str:
        return f"<compiled for the CPU: {self.function!r}>"

    def native_entry(self, arguments: Sequence[Any]) -> tuple[CompiledPlan, PlanEntry] | None:
        """The plan for arguments of these shapes, and a built-in that runs it; None if the plan needs Python.

        The built-in returns the only result, or a list. It returns None for arguments of other kinds, types or shapes.
        """
        shapes = self._dense_shapes(arguments)
        plan = None if shapes is None else self._plans.by_shapes.get(shapes)
        if plan is None or not self._has_flat_results:
            return None
        sources = [_SOURCES.get(type(argument)) for argument in arguments]
        entry = None if None in sources else make_plan_entry(plan, sources)  # type: ignore[arg-type]
        return None if entry is None else (plan, entry)

    def _dense_shapes(self, leaves: Sequence[Any]) -> tuple[Any, ...] | None:
        """The shapes of the arguments with symbolic sizes if no argument needs conversion, else None.

        Every call runs this, hence a single loop without helpers.
        """
        if self._expected is None or len(leaves) != len(self._expected):
            return None
        shapes = []
        for leaf, (dtype, shape, number, low, high) in zip(leaves, self._expected, strict=True):
            if number is not None:
                # A loop over tensors passes NumPy scalars and tapes to its body.
                leaf_type = type(leaf)
                if (
                    leaf_type is not dtype.type
                    and number is not TapeArgument
                    and (leaf_type is not number or not low <= leaf <= high)
                ):
                    return None
            elif type(leaf) is not np.ndarray or leaf.dtype is not dtype or not leaf.flags.carray:
                return None
            elif shape is None:
                shapes.append(leaf.shape)
            elif leaf.shape != shape:
                return None
        return tuple(shapes)

    def self_contained_plan(self, arguments: Sequence[Any]) -> SerialisedPlan | None:
        """The serialised plan for these arguments, if it can run without this function.

        None if arguments need conversion, results need assembly, or the plan has host steps; also if it has checks,
        whose errors name lines and indices of the function.
        """
        shapes = self._dense_shapes(arguments) if self._has_flat_results else None
        plan = None if shapes is None else self._plans.by_shapes.get(shapes)
        if plan is None or not plan.only_kernels:
            return None
        kernels = [member for kernel in plan.serialised.kernels for member in (kernel, *kernel.members)]
        return None if any(kernel.sites for kernel in kernels) else plan.serialised

    @cached_property
    def lowered(self) -> Function:
        """The function after the passes that hold for all sizes."""
        return lower(self.function, CPU)

    def schedule(self, sizes: dict[str, int] | None = None, target: Target = CPU) -> Plan:
        """Schedules the plan for these sizes without compiling it. `target` may leave out optimisations."""
        lowered = self.lowered if target == CPU else lower(self.function, target)
        return Compilation(lowered, target, sizes).plan

    def _load_or_compile(self, sizes: dict[str, int]) -> CompiledPlan:
        plan = super()._load_or_compile(sizes)
        plan.source = self.function
        return plan

    def _compile(self, sizes: dict[str, int]) -> CompiledPlan:
        compiler = KernelCompiler()
        source = compile_function(self._marked) if self._source_locations else self
        plan = source._schedule_and_compile(sizes, compiler)
        return CompiledPlan.from_plan(plan, run_function, self._source_locations, compiler)

    def _schedule_and_compile(self, sizes: dict[str, int], compiler: KernelCompiler) -> Plan:
        """The plan for these sizes: the first plan resized, or a new one, whose kernels start to compile."""
        first = self._first_plan
        plan = None if first is None else resize_plan(first, self.lowered, sizes)
        if plan is None:
            compilation = Compilation(self.lowered, CPU, sizes)
            for step in compilation:
                if isinstance(step, KernelStep):
                    compiler.start(step)
            plan = compilation.plan
        if first is None and sizes:
            self._first_plan = plan
        return plan

    def template(self, guards: SizeGuards) -> PlanTemplate:
        """Compiles a function of symbolic sizes, for all sizes that satisfy the guards."""
        compiler = KernelCompiler()
        source = compile_function(self._marked) if self._source_locations else self
        plan = source._schedule_and_compile({}, compiler)
        return PlanTemplate(plan, guards, self.function, self._source_locations, compiler)

    def _plan_key(self, digest: bytes, sizes: dict[str, int]) -> bytes:
        return serialised_plan_key(digest, sizes)

    def _load(self, data: bytes) -> CompiledPlan | None:
        serialised = decode(data)
        if serialised is None:
            return None
        return CompiledPlan.from_serialised(serialised, run_function, self._source_locations)

    def _store(self, key: bytes, plan: CompiledPlan) -> None:
        if plan.only_kernels:
            cache, serialised = default_cache(), plan.serialised
            background_compiler.current.later(lambda: cache.store(key, encode(serialised)))

    def forget_plans(self) -> None:
        """Drops the plans, with their code and memory; the next call compiles them again."""
        super().forget_plans()
        self._first_plan = None


_functions = Owned(partial(FunctionCache, CpuFunction))
# Functions that host steps run, by id: loops run them thousands of times, and a lookup by equality takes longer.
_bodies: Owned[dict[int, tuple[Function, CpuFunction]]] = Owned(dict)


def compile_function(function: Function) -> CpuFunction:
    """Compiles a function. The result is kept in an LRU cache.

    >>> import livegrad as lg
    >>> float(lg.ir.compile(lg.ir.trace(lambda x: x * x + 1.0, lg.f32))(3.0))
    10.0
    """
    if not isinstance(function, Function):
        raise UsageError(
            "only functions of the value IR are compiled",
            where=caller_origin(),
            found=type(function).__name__,
            help="trace it first, lg.ir.trace(f, lg.f32), or use lg.jit",
        )
    return _functions.current.get(function)


def forget_functions() -> None:
    """Drops all compiled functions from memory. The disk cache keeps their code."""
    _functions.current.clear()
    _bodies.current.clear()


def run_function(function: Function, *arguments: Any) -> Any:
    """Compiles a function on first use, and runs it."""
    bodies = _bodies.current
    entry = bodies.get(id(function))
    if entry is None:
        if len(bodies) >= MAX_FUNCTIONS:
            bodies.clear()
        entry = bodies[id(function)] = (function, compile_function(function))
    return entry[1](*arguments)

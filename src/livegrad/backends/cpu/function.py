"""Functions on the CPU: passes, schedule and code for each function and sizes, made once and kept."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from livegrad.backends.cpu.execute import CompiledPlan
from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cpu.native.object_cache import default_cache
from livegrad.backends.cpu.recipe import decode, encode, recipe_key
from livegrad.backends.reference import bind_sizes as learn_sizes
from livegrad.diagnostics import UsageError
from livegrad.ir.digest import function_digest
from livegrad.ir.node import Function, Module
from livegrad.ir.types import Matrix, Scalar, Tensor, Trace, Type, Vector
from livegrad.passes.bind_sizes import bind_sizes
from livegrad.passes.pipeline import run_pipeline
from livegrad.schedule.plan import KernelStep, Plan
from livegrad.schedule.schedule import schedule
from livegrad.schedule.signature import assemble_value, flatten_value, leaf_types

_MOST_FUNCTIONS = 512


class CpuFunction:
    """A function compiled for the CPU; plans are made for each set of sizes when they are first seen.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> float(CpuFunction(trace(lambda x: x * x + 1.0, f32))(3.0))
    10.0
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._leaves = [leaf for type in function.parameter_types for leaf in leaf_types(type)]
        self._apart = any(leaf_types(type) != [type] for type in function.parameter_types)
        self._single = len(function.results) == 1
        self._plain = not any(leaf_types(type) != [type] for type in function.result_types)
        self._plans: OrderedDict[tuple[tuple[str, int], ...], CompiledPlan] = OrderedDict()
        self._lock = threading.RLock()
        renew_lock_after_fork(self, "_lock", threading.RLock)
        self._fixed = not any(_symbolic(type) for type in self._leaves)
        self._expected = [_dense_form(type) for type in self._leaves]
        self._fixed_plan: CompiledPlan | None = None  # the only plan, when no size is symbolic

    def __call__(self, *arguments: Any) -> Any:
        leaves = self._flat(arguments) if self._apart else arguments
        if len(leaves) != len(self._leaves):
            raise UsageError(
                f"`{self.function.name}` takes {len(self.function.parameters)} arguments", found=str(len(arguments))
            )
        plan = self._fixed_plan
        if plan is None or not self._are_dense(leaves):
            sizes: dict[str, int] = {}
            leaves = [_accept(leaf, type, sizes) for leaf, type in zip(leaves, self._leaves, strict=True)]
            plan = self.plan(sizes)
        results = plan.run(leaves)
        if self._plain:
            return results[0] if self._single else tuple(results)
        supply = iter(results)
        values = tuple(assemble_value(supply, type) for type in self.function.result_types)
        return values[0] if self._single else values

    def _are_dense(self, leaves: Sequence[Any]) -> bool:
        """Whether all arguments can be used as they are; looks at nothing twice, for it is on every call's way."""
        for leaf, (dtype, shape) in zip(leaves, self._expected, strict=True):
            if shape is None:
                if not isinstance(leaf, float | int):
                    return False
            elif (
                type(leaf) is not np.ndarray or leaf.dtype is not dtype or leaf.shape != shape or not leaf.flags.carray
            ):
                return False
        return True

    def _flat(self, arguments: Sequence[Any]) -> list[Any]:
        types = self.function.parameter_types
        return [leaf for value, type in zip(arguments, types, strict=True) for leaf in flatten_value(value, type)]

    def plan(self, sizes: dict[str, int] | None = None) -> CompiledPlan:
        """The compiled plan for these sizes: from memory, from the disk cache, or made now."""
        key = () if self._fixed else tuple(sorted((sizes or {}).items()))
        found = self._plans.get(key)
        if found is not None:
            return found
        with self._lock:
            if key not in self._plans:
                self._plans[key] = self._load(dict(key)) or self._make(dict(key))
                while len(self._plans) > _MOST_FUNCTIONS:
                    self._plans.popitem(last=False)
            if self._fixed:
                self._fixed_plan = self._plans[key]
            return self._plans[key]

    @cached_property
    def lowered(self) -> Function:
        """The function after all passes."""
        return run_pipeline(Module((self.function,))).functions[0]

    def schedule(self, sizes: dict[str, int] | None = None) -> Plan:
        """The plan for these sizes, as it would be compiled."""
        return schedule(bind_sizes(self.lowered, sizes or {}))

    def _make(self, sizes: dict[str, int]) -> CompiledPlan:
        plan = self.schedule(sizes)
        made = CompiledPlan.from_plan(plan, run_function)
        digest = function_digest(self.function)
        if digest is not None and all(isinstance(step, KernelStep) for step in plan.steps):
            default_cache().store(recipe_key(digest, sizes), encode(made.recipe))
        return made

    def _load(self, sizes: dict[str, int]) -> CompiledPlan | None:
        """The plan as an earlier process left it."""
        digest = function_digest(self.function)
        data = None if digest is None else default_cache().load(recipe_key(digest, sizes))
        return None if data is None else CompiledPlan.from_recipe(decode(data), run_function)

    def forget_plans(self) -> None:
        """Drops the plans, with their code and memory; the next call makes them anew."""
        with self._lock:
            self._plans.clear()
            self._fixed_plan = None


def _dense_form(type: Type) -> tuple[Any, tuple[int, ...] | None]:
    """The dtype and shape of an argument that needs no conversion; a scalar has no shape."""
    if isinstance(type, Tensor) and not _symbolic(type):
        return type.element.dtype, type.shape  # type: ignore[return-value]
    if isinstance(type, Scalar) and type.kind == "float":
        return type.dtype, None
    return None, ()


def _symbolic(type: Type) -> bool:
    return isinstance(type, Tensor) and not all(isinstance(size, int) for size in type.shape)


def _accept(argument: Any, type: Type, sizes: dict[str, int]) -> Any:
    """An argument as kernels take it: a dense array of the parameter's own type and shape."""
    if isinstance(type, Scalar):
        if isinstance(argument, float | int) or np.ndim(argument) == 0:
            return argument
        raise UsageError("an argument of the wrong shape", expected=str(type), found=f"shape {np.shape(argument)}")
    if isinstance(type, Trace):
        return argument
    assert isinstance(type, Tensor | Vector | Matrix)
    element = type.element
    array = argument if isinstance(argument, np.ndarray) else np.asarray(argument, element.dtype)
    if isinstance(type, Tensor):
        if array.dtype != element.dtype:
            raise UsageError("an argument of the wrong type", expected=str(type), found=f"an array of {array.dtype}")
        if array.shape != type.shape:
            learn_sizes(type.shape, array.shape, sizes, type)
    else:
        shape = (type.size,) if isinstance(type, Vector) else (type.rows, type.columns)
        array = array.astype(element.dtype, copy=False)
        if array.shape != shape:
            raise UsageError("an argument of the wrong shape", expected=str(type), found=f"shape {array.shape}")
    return np.require(array, requirements=["C", "A"])


_functions: OrderedDict[Function, CpuFunction] = OrderedDict()
_functions_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_functions_lock")


def compile_function(function: Function) -> CpuFunction:
    """The compiled form of a function, kept for as long as it is among those used last."""
    with _functions_lock:
        found = _functions.get(function)
        if found is None:
            found = _functions[function] = CpuFunction(function)
            while len(_functions) > _MOST_FUNCTIONS:
                _functions.popitem(last=False)
        else:
            _functions.move_to_end(function)
        return found


def run_function(function: Function, *arguments: Any) -> Any:
    """The function's value at these arguments, computed by native code."""
    return compile_function(function)(*arguments)

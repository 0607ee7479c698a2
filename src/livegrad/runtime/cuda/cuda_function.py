"""Compiled functions on a CUDA device: passes, schedule and code, cached per function and sizes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import Compilation, compile_plan, lower
from livegrad.diagnostics import LivegradError, Mark, UsageError, caller_origin
from livegrad.ir.digest import function_digest
from livegrad.ir.line_sites import mark_places, name_place, written_alike
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Function
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector
from livegrad.passes.flatten_signature import assemble_value, leaf_types
from livegrad.runtime.arguments import array_argument, dense_form, learn_sizes, named_leaves, scalar_argument
from livegrad.runtime.cpu import run_function as run_on_cpu
from livegrad.runtime.cpu.native.object_cache import default_cache
from livegrad.runtime.cuda.device_memory import DeviceArray
from livegrad.runtime.cuda.device_plan import CudaPlan
from livegrad.runtime.cuda.driver import device
from livegrad.runtime.cuda.serialised_device_plan import decode, encode, serialised_plan_key
from livegrad.runtime.fork import renew_lock_after_fork
from livegrad.runtime.plan_cache import PlanCache

_MOST_FUNCTIONS = 512


class CudaFunction:
    """A function compiled for a CUDA device. Arguments are NumPy's, or arrays of the device that are used in place.

    Float32 division and square root may be off by 2 ulp (units in the last place) unless `ieee` is asked for, which
    rounds them as IEEE 754 says; everything else is the same in both.
    """

    def __init__(self, function: Function, ieee: bool = False) -> None:
        self.function, self.ieee = function, ieee
        self._marked, self._places = mark_places(function)  # what is compiled is shared with functions of other lines
        # How arguments look that are used as they are, where each is one leaf.
        apart = any(leaf_types(type) != [type] for type in function.parameter_types)
        self._expected = None if apart else [dense_form(type) for type in function.parameter_types]
        self._plain = all(leaf_types(type) == [type] for type in function.result_types)
        self._plans: PlanCache[CudaPlan] = PlanCache()

    def for_equal(self, function: Function) -> CudaFunction:
        """The compiled form of an equal function: the same plans, and errors that name this function and its lines."""
        if written_alike(self.function, function):
            return self
        other = copy(self)
        other.function = function
        return other

    def __call__(self, *arguments: Any) -> Any:
        leaves, sizes = self._accept(arguments)
        return self._assembled(self.plan(sizes).run(leaves))

    def on_device(self, *arguments: Any) -> Any:
        """As a call, but the results are arrays that stay on the device, and nothing is waited for."""
        shapes = self._shapes_on_device(arguments)
        plan = None if shapes is None else self._plans.by_shapes.get(shapes)
        leaves: Sequence[Any] = arguments
        if plan is None:
            leaves, sizes = self._accept(arguments)
            plan = self.plan(sizes)
            if shapes is not None:
                self._plans.remember(shapes, plan)
        results = plan.run_on_device(leaves)
        if self._plain:
            return results[0] if len(results) == 1 else tuple(results)
        return self._assembled(results)

    def _shapes_on_device(self, leaves: Sequence[Any]) -> tuple[Any, ...] | None:
        """The shapes of symbolic size if all arguments are the device's or numbers that fit as they are, else None."""
        if self._expected is None or len(leaves) != len(self._expected):
            return None
        shapes = []
        for leaf, (dtype, shape, number, low, high) in zip(leaves, self._expected, strict=True):
            if number is not None:
                if type(leaf) is not number or not low <= leaf <= high:
                    return None
            elif type(leaf) is not DeviceArray or leaf.dtype != dtype:
                return None
            elif shape is None:
                shapes.append(leaf.shape)
            elif leaf.shape != shape:
                return None
        return tuple(shapes)

    def _assembled(self, results: Sequence[Any]) -> Any:
        supply = iter(results)
        values = tuple(assemble_value(supply, type) for type in self.function.result_types)
        return values[0] if len(values) == 1 else values

    def plan(self, sizes: dict[str, int] | None = None) -> CudaPlan:
        """The plan for these sizes, with its code and memory: made when they are first seen."""
        key = tuple(sorted((sizes or {}).items()))
        plans = self._plans.by_sizes
        with self._plans.lock:
            if key not in plans:
                plans.keep(key, self._load(dict(key)) or self._make(dict(key)))
            return plans[key]

    @cached_property
    def _lowered(self) -> Function:
        """What all sizes have in common."""
        return lower(self._marked, CUDA)

    def _make(self, sizes: dict[str, int]) -> CudaPlan:
        try:
            plan = Compilation(self._lowered, CUDA, sizes).plan
            made = CudaPlan.from_plan(plan, run_on_cpu, self.ieee, self._places)
        except LivegradError as error:
            if not isinstance(error.where, Mark):
                compile_plan(self.function, CUDA, sizes)  # says the same of this function's own lines
            name_place(error, self._places)
            raise
        digest, data = function_digest(self.function), encode(made.serialised)
        if digest is not None and data is not None:
            default_cache().store(serialised_plan_key(digest, sizes, device().architecture, self.ieee), data)
        return made

    def _load(self, sizes: dict[str, int]) -> CudaPlan | None:
        """The plan as an earlier process left it."""
        digest = function_digest(self.function)
        if digest is None:
            return None
        data = default_cache().load(serialised_plan_key(digest, sizes, device().architecture, self.ieee))
        serialised = None if data is None else decode(data)
        return None if serialised is None else CudaPlan(serialised, None, run_on_cpu, self._places)

    def forget_plans(self) -> None:
        """Drops the plans, with their memory; the next call makes them anew."""
        self._plans.clear()

    def _accept(self, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        leaves: list[Any] = []
        tensors: list[tuple[Tensor, tuple[int, ...], str]] = []
        for leaf, own, place in named_leaves(self.function, arguments):
            if isinstance(leaf, DeviceArray):
                _require_fit(leaf.dtype.str, None, own, place)
            elif hasattr(leaf, "__cuda_array_interface__"):
                held = leaf.__cuda_array_interface__
                _require_fit(held["typestr"], held.get("strides"), own, place)
            elif isinstance(own, Scalar):
                leaf = scalar_argument(leaf, own, place)
            elif isinstance(own, Tensor | Vector | Matrix):
                leaf = array_argument(leaf, own, place)
            if isinstance(own, Tensor):
                tensors.append((own, tuple(leaf.shape), place))
            leaves.append(leaf)
        return leaves, learn_sizes(tensors)


def _require_fit(element: str, strides: Any, type: Type, place: str) -> None:
    """An array of the device has the very type of its parameter and is dense."""
    if not isinstance(type, Tensor) or element != type.element.dtype.str or strides:
        found = f"{element} with strides {strides}"
        raise UsageError(f"{place} does not fit", where=caller_origin(), expected=f"a dense {type}", found=found)


_functions: LruCache[tuple[bool, Function], CudaFunction] = LruCache(_MOST_FUNCTIONS)
_functions_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_functions_lock")


def compile_function(function: Function, ieee: bool = False) -> CudaFunction:
    """Compiles a function. The result is kept in an LRU cache."""
    key = (ieee, function)
    with _functions_lock:
        found = _functions.use(key) or _functions.keep(key, CudaFunction(function, ieee))
        return found.for_equal(function)


def run_function(function: Function, *arguments: Any) -> Any:
    """The function's value at these arguments, computed on the device."""
    return compile_function(function)(*arguments)


def compile_ieee(function: Function) -> CudaFunction:
    """As `compile_function`, with float32 division and square root rounded as IEEE 754 says."""
    return compile_function(function, ieee=True)


def run_ieee(function: Function, *arguments: Any) -> Any:
    """As `run_function`, with float32 division and square root rounded as IEEE 754 says."""
    return compile_ieee(function)(*arguments)


class _Choice:
    """What tensors on the device are compiled with."""

    compile: Callable[[Function], CudaFunction] = staticmethod(compile_function)


def set_ieee_division(wanted: bool) -> None:
    """Whether tensors on the device divide and take square roots of float32 as IEEE 754 says, or within 2 ulp.

    >>> set_ieee_division(True)
    >>> set_ieee_division(False)  # as it is at first
    """
    _Choice.compile = staticmethod(compile_ieee if wanted else compile_function)


def compile_chosen() -> Callable[[Function], CudaFunction]:
    """What compiles the functions of tensors: as `set_ieee_division` has said."""
    return _Choice.compile

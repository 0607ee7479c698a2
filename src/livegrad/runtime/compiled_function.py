"""Compiled functions of all backends. In: a function. Out: plans by sizes, and calls with Python arguments.

The subclasses `CpuFunction` and `CudaFunction` compile, load and store plans, and decide which arguments need no
conversion.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from livegrad.compiler import compile_plan
from livegrad.diagnostics import LivegradError, Mark
from livegrad.ir.collecting import collection_paused
from livegrad.ir.digest import function_digest
from livegrad.ir.line_sites import have_same_locations, mark_locations, resolve_location
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Function
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector
from livegrad.passes.flatten_signature import assemble_value, leaf_types
from livegrad.runtime.arguments import (
    array_argument,
    dense_form,
    infer_sizes,
    is_symbolic,
    named_leaves,
    scalar_argument,
)
from livegrad.runtime.object_cache import default_cache
from livegrad.schedule.target import Target
from livegrad.state import renew_lock_after_fork

MAX_FUNCTIONS = 512  # cached for each backend
_MAX_PLANS = 32  # of one function; each has its own memory
_MAX_SHAPES = 512


class _Runnable(Protocol):
    """A plan with its code and memory."""

    def run(self, arguments: Sequence[Any], /) -> Sequence[Any]:
        """The results' leaves from the arguments' leaves."""
        ...


PlanT = TypeVar("PlanT", bound=_Runnable)
FunctionT = TypeVar("FunctionT", bound="CompiledFunction[Any]")


class PlanCache(Generic[PlanT]):
    """The plans of a function and of all equal functions, by sizes. A thread that compiles a plan holds the lock."""

    def __init__(self) -> None:
        self.by_sizes: LruCache[tuple[tuple[str, int], ...], PlanT] = LruCache(_MAX_PLANS)
        self.by_shapes: dict[tuple[Any, ...] | None, PlanT] = {}  # for arguments that need no conversion
        self.lock = threading.RLock()
        renew_lock_after_fork(self, "lock", threading.RLock)

    def remember(self, shapes: tuple[Any, ...], plan: PlanT) -> None:
        """Keeps the plan for arguments of these shapes that need no conversion."""
        if len(self.by_shapes) >= _MAX_SHAPES:
            self.by_shapes.clear()
        self.by_shapes[shapes] = plan

    def clear(self) -> None:
        """Drops all plans, with their code and memory."""
        with self.lock:
            self.by_sizes.clear()
            self.by_shapes.clear()


class CompiledFunction(ABC, Generic[PlanT]):
    """A function compiled for one backend. The first call with a set of sizes compiles a plan for them.

    The compiled code refers to source lines by marks, so that functions that differ only in their lines share it. Equal
    functions with other names share plans too; errors name the function that was called.
    """

    target: ClassVar[Target]

    def __init__(self, function: Function) -> None:
        self.function = function
        self._marked, self._source_locations = mark_locations(function)
        leaves = [leaf_types(type) for type in function.parameter_types]
        is_flat = leaves == [[type] for type in function.parameter_types]
        # The form of arguments that need no conversion. None: some parameters have several leaves.
        self._expected = [dense_form(type) for type in function.parameter_types] if is_flat else None
        self._has_flat_results = all(leaf_types(type) == [type] for type in function.result_types)
        self._has_one_result = len(function.results) == 1
        self._has_fixed_sizes = not any(is_symbolic(leaf) for group in leaves for leaf in group)
        self._plans: PlanCache[PlanT] = PlanCache()

    def for_equal(self, function: Function) -> Self:
        """The compiled form of an equal function: the same plans, and errors that name this function and its lines."""
        if have_same_locations(self.function, function):
            return self
        other = object.__new__(type(self))
        vars(other).update(vars(self), function=function)
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function,)  # the code is compiled again, or found in the cache on disk

    # --- calls ---

    def __call__(self, *arguments: Any) -> Any:
        shapes = self._dense_shapes(arguments)
        plan, leaves = self._plans.by_shapes.get(shapes), arguments
        if plan is None:
            plan, leaves = self._convert(arguments, shapes)
        results = plan.run(leaves)
        if self._has_flat_results:
            return results[0] if self._has_one_result else tuple(results)
        return self._assemble(results)

    def _convert(self, arguments: Sequence[Any], shapes: tuple[Any, ...] | None) -> tuple[PlanT, Sequence[Any]]:
        """The plan for arguments of new shapes or that need conversion, and their converted leaves."""
        leaves, sizes = self._convert_leaves(arguments)
        plan = self.plan(sizes)
        if shapes is not None:
            self._plans.remember(shapes, plan)
        return plan, leaves

    def _assemble(self, results: Sequence[Any]) -> Any:
        """Assembles the value of a call from the leaves of its results."""
        supply = iter(results)
        values = tuple(assemble_value(supply, type) for type in self.function.result_types)
        return values[0] if self._has_one_result else values

    def _convert_leaves(self, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        """Converts the leaves of the arguments to what kernels take; also returns their symbolic sizes."""
        leaves: list[Any] = []
        tensors: list[tuple[Tensor, tuple[int, ...], str]] = []
        for leaf, type, label in named_leaves(self.function, arguments):
            converted = self._convert_leaf(leaf, type, label)
            if isinstance(type, Tensor):
                tensors.append((type, tuple(converted.shape), label))
            leaves.append(converted)
        return leaves, infer_sizes(tensors)

    def _convert_leaf(self, leaf: Any, type: Type, label: str) -> Any:
        """Converts a leaf to what kernels take; errors name its label."""
        if isinstance(type, Scalar):
            return scalar_argument(leaf, type, label)
        if isinstance(type, Tensor | Vector | Matrix):
            return array_argument(leaf, type, label)
        return leaf

    @abstractmethod
    def _dense_shapes(self, leaves: Sequence[Any]) -> tuple[Any, ...] | None:
        """The shapes of the arguments with symbolic sizes if no argument needs conversion, else None."""

    # --- plans ---

    def plan(self, sizes: dict[str, int] | None = None) -> PlanT:
        """The compiled plan for these sizes: from memory, from the disk cache, or compiled now."""
        key = () if self._has_fixed_sizes else tuple(sorted((sizes or {}).items()))
        plans = self._plans.by_sizes
        plan = plans.get(key)
        if plan is not None:
            return plan
        with self._plans.lock:
            if key not in plans:
                with collection_paused():
                    plans.keep(key, self._load_or_compile(dict(key)))
            return plans[key]

    def _load_or_compile(self, sizes: dict[str, int]) -> PlanT:
        cache = default_cache()
        digest = None if cache.settings.directory is None else function_digest(self.function)
        key = None if digest is None else self._plan_key(digest, sizes)
        data = None if key is None else cache.load(key)
        plan = None if data is None else self._load(data)
        if plan is None:
            plan = self._compile_marked(sizes)
            if key is not None:
                self._store(key, plan)
        return plan

    def _compile_marked(self, sizes: dict[str, int]) -> PlanT:
        try:
            return self._compile(sizes)
        except LivegradError as error:
            if not isinstance(error.where, Mark):
                compile_plan(self.function, self.target, sizes)  # raises the error with this function's name and lines
            resolve_location(error, self._source_locations)
            raise

    def forget_plans(self) -> None:
        """Drops the plans, with their code and memory; the next call compiles them again."""
        self._plans.clear()

    @abstractmethod
    def _plan_key(self, digest: bytes, sizes: dict[str, int]) -> bytes:
        """The key of a plan in the disk cache."""

    @abstractmethod
    def _load(self, data: bytes) -> PlanT | None:
        """The plan that an earlier process stored; None if it cannot be used."""

    @abstractmethod
    def _compile(self, sizes: dict[str, int]) -> PlanT:
        """Compiles the plan for these sizes."""

    @abstractmethod
    def _store(self, key: bytes, plan: PlanT) -> None:
        """Stores a plan in the disk cache for other processes, if it can be serialised."""


class FunctionCache(Generic[FunctionT]):
    """Compiled functions by function and options. The least recently used one is dropped first."""

    def __init__(self, compile: Callable[..., FunctionT]) -> None:
        self._compile = compile
        self._functions: LruCache[tuple[Hashable, ...], FunctionT] = LruCache(MAX_FUNCTIONS)
        self._lock = threading.Lock()
        renew_lock_after_fork(self, "_lock")

    def get(self, function: Function, *options: Hashable) -> FunctionT:
        """The compiled form of a function, with its own lines in errors."""
        key = (function, *options)
        with self._lock:
            compiled = self._functions.use(key) or self._functions.keep(key, self._compile(function, *options))
            return compiled.for_equal(function)

    def clear(self) -> None:
        """Drops all functions; code may still be on disk."""
        with self._lock:
            self._functions.clear()

"""Functions compiled for a CUDA device. In: a function. Out: plans by sizes, and calls on host or device arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import Compilation, lower
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, Type
from livegrad.runtime.compiled_function import CompiledFunction, FunctionCache
from livegrad.runtime.cpu import run_function as run_on_cpu
from livegrad.runtime.cuda.device_memory import DeviceArray
from livegrad.runtime.cuda.device_plan import CudaPlan
from livegrad.runtime.cuda.driver import device
from livegrad.runtime.cuda.serialised_device_plan import decode, encode, serialised_plan_key
from livegrad.runtime.object_cache import default_cache
from livegrad.state import Owned


class CudaFunction(CompiledFunction[CudaPlan]):
    """A function compiled for a CUDA device. Arguments are NumPy arrays, or device arrays, which are used in place.

    Float32 division and square root may be off by 2 ulp (units in the last place). With `ieee`, they are rounded
    according to IEEE 754; everything else is the same.
    """

    target = CUDA

    def __init__(self, function: Function, ieee: bool = False) -> None:
        super().__init__(function)
        self.ieee = ieee

    def on_device(self, *arguments: Any) -> Any:
        """Like a call, but returns device arrays without waiting for them."""
        shapes = self._dense_shapes(arguments)
        plan, leaves = self._plans.by_shapes.get(shapes), arguments
        if plan is None:
            plan, leaves = self._convert(arguments, shapes)
        results = plan.run_on_device(leaves)
        if self._has_flat_results:
            return results[0] if self._has_one_result else tuple(results)
        return self._assemble(results)

    def _dense_shapes(self, leaves: Sequence[Any]) -> tuple[Any, ...] | None:
        """The shapes of the arguments with symbolic sizes; None unless all are matching device arrays or numbers."""
        if self._expected is None or len(leaves) != len(self._expected):
            return None
        shapes = []
        for leaf, (dtype, shape, scalar_type, low, high) in zip(leaves, self._expected, strict=True):
            if scalar_type is not None:
                if type(leaf) is not scalar_type or not low <= leaf <= high:
                    return None
            elif type(leaf) is not DeviceArray or leaf.dtype != dtype:
                return None
            elif shape is None:
                shapes.append(leaf.shape)
            elif leaf.shape != shape:
                return None
        return tuple(shapes)

    def _convert_leaf(self, leaf: Any, type: Type, label: str) -> Any:
        if isinstance(leaf, DeviceArray):
            _require_fit(leaf.dtype.str, None, type, label)
            return leaf
        if hasattr(leaf, "__cuda_array_interface__"):
            interface = leaf.__cuda_array_interface__
            _require_fit(interface["typestr"], interface.get("strides"), type, label)
            return leaf
        return super()._convert_leaf(leaf, type, label)

    @cached_property
    def _lowered(self) -> Function:
        """The function after the passes that hold for all sizes."""
        return lower(self._marked, self.target)

    def _compile(self, sizes: dict[str, int]) -> CudaPlan:
        plan = Compilation(self._lowered, self.target, sizes).plan
        return CudaPlan.from_plan(plan, run_on_cpu, self.ieee, self._source_locations, self.target)

    def _plan_key(self, digest: bytes, sizes: dict[str, int]) -> bytes:
        return serialised_plan_key(digest, sizes, device().architecture, self.ieee, self.target)

    def _load(self, data: bytes) -> CudaPlan | None:
        serialised = decode(data)
        return None if serialised is None else CudaPlan(serialised, None, run_on_cpu, self._source_locations)

    def _store(self, key: bytes, plan: CudaPlan) -> None:
        data = encode(plan.serialised)
        if data is not None:
            default_cache().store(key, data)


def _require_fit(element: str, strides: Any, type: Type, label: str) -> None:
    """Raises unless a device array is dense and has the exact type of its parameter."""
    if not isinstance(type, Tensor) or element != type.element.dtype.str or strides:
        description = f"{element} with strides {strides}"
        raise UsageError(f"{label} does not fit", where=caller_origin(), expected=f"a dense {type}", found=description)


_functions = Owned(partial(FunctionCache, CudaFunction))


def compile_function(function: Function, ieee: bool = False) -> CudaFunction:
    """Compiles a function. The result is kept in an LRU cache."""
    return _functions.current.get(function, ieee)


def run_function(function: Function, *arguments: Any) -> Any:
    """Compiles a function on first use, and runs it on the device."""
    return compile_function(function)(*arguments)


def compile_ieee(function: Function) -> CudaFunction:
    """Like `compile_function`, with float32 division and square root rounded according to IEEE 754."""
    return compile_function(function, ieee=True)


def run_ieee(function: Function, *arguments: Any) -> Any:
    """Like `run_function`, with float32 division and square root rounded according to IEEE 754."""
    return compile_ieee(function)(*arguments)


class _SelectedCompiler:
    """The compiler for tensors on the device, as `set_ieee_division` selected it."""

    compile: Callable[[Function], CudaFunction] = staticmethod(compile_function)


def set_ieee_division(wanted: bool) -> None:
    """Sets whether float32 division and square root of device tensors follow IEEE 754, or are within 2 ulp.

    >>> set_ieee_division(True)
    >>> set_ieee_division(False)  # the default
    """
    _SelectedCompiler.compile = staticmethod(compile_ieee if wanted else compile_function)


def compile_chosen() -> Callable[[Function], CudaFunction]:
    """The compiler for tensors on the device, as `set_ieee_division` selected it."""
    return _SelectedCompiler.compile


def current_compiler() -> tuple[object, ...]:
    """Identifies what `compile_chosen` compiles with: the functions of this session, and the choice of division."""
    return _functions.current, _SelectedCompiler.compile

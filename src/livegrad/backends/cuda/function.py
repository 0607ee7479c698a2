"""Functions on a CUDA device: passes, schedule and code for each function and sizes, made once and kept."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from livegrad.backends.arguments import array_argument, learn_sizes, named_leaves, scalar_argument
from livegrad.backends.cpu import CpuFunction
from livegrad.backends.cpu import run_function as run_on_cpu
from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cuda.plan import CudaPlan
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Function
from livegrad.ir.types import Matrix, Scalar, Tensor, Type, Vector
from livegrad.schedule.signature import assemble_value

_MOST_FUNCTIONS = 512
_MOST_PLANS = 32  # of one function: each has memory of its own


class CudaFunction:
    """A function compiled for a CUDA device. Arguments are NumPy's, or arrays of the device that are used in place."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._lowering = CpuFunction(function)  # the passes and the schedule are the same
        self._plans: OrderedDict[tuple[tuple[str, int], ...], CudaPlan] = OrderedDict()
        self._lock = threading.RLock()
        renew_lock_after_fork(self, "_lock", threading.RLock)

    def __call__(self, *arguments: Any) -> Any:
        leaves, sizes = self._accept(arguments)
        supply = iter(self.plan(sizes).run(leaves))
        values = tuple(assemble_value(supply, type) for type in self.function.result_types)
        return values[0] if len(values) == 1 else values

    def plan(self, sizes: dict[str, int] | None = None) -> CudaPlan:
        """The plan for these sizes, with its code and memory: made when they are first seen."""
        key = tuple(sorted((sizes or {}).items()))
        with self._lock:
            if key not in self._plans:
                self._plans[key] = CudaPlan(self._lowering.schedule(dict(key)), run_on_cpu)
                while len(self._plans) > _MOST_PLANS:
                    self._plans.popitem(last=False)
            return self._plans[key]

    def _accept(self, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        leaves: list[Any] = []
        tensors: list[tuple[Tensor, tuple[int, ...], str]] = []
        for leaf, own, place in named_leaves(self.function, arguments):
            if hasattr(leaf, "__cuda_array_interface__"):
                _require_fit(leaf, own, place)
            elif isinstance(own, Scalar):
                leaf = scalar_argument(leaf, own, place)
            elif isinstance(own, Tensor | Vector | Matrix):
                leaf = array_argument(leaf, own, place)
            if isinstance(own, Tensor):
                tensors.append((own, tuple(leaf.shape), place))
            leaves.append(leaf)
        return leaves, learn_sizes(tensors)


def _require_fit(array: Any, type: Type, place: str) -> None:
    """An array of the device has the very type of its parameter and is dense."""
    held = array.__cuda_array_interface__
    if not isinstance(type, Tensor) or held["typestr"] != type.element.dtype.str or held.get("strides"):
        found = f"{held['typestr']} with strides {held.get('strides')}"
        raise UsageError(f"{place} does not fit", where=caller_origin(), expected=f"a dense {type}", found=found)


# Equal functions that were written at different lines are kept apart if they may have to name their line.
_functions: OrderedDict[tuple[Any, ...], CudaFunction] = OrderedDict()
_functions_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_functions_lock")


def compile_function(function: Function) -> CudaFunction:
    """The compiled form of a function, kept for as long as it is among those used last."""
    key = (function, tuple(places for node, places in function.places.items() if node.op.checked))
    with _functions_lock:
        if key not in _functions:
            _functions[key] = CudaFunction(function)
            while len(_functions) > _MOST_FUNCTIONS:
                _functions.popitem(last=False)
        _functions.move_to_end(key)
        return _functions[key]


def run_function(function: Function, *arguments: Any) -> Any:
    """The function's value at these arguments, computed on the device."""
    return compile_function(function)(*arguments)

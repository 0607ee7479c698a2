"""Cache entries of `jit`: the compiled function of a signature, and the fast call that checks arguments natively.

Results are tensors whose nodes are created on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import ref

from livegrad.diagnostics.errors import Origin, caller_origins
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type
from livegrad.lazy.counts import RepeatedRun
from livegrad.lazy.devices import device_compiler, device_plan
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.native.plan_call import ARRAYS, HANDLES, NUMBERS
from livegrad.runtime.cpu.plan_entry import PlanEntry, make_plan_entry
from livegrad.tensors.array_handles import defer_array, defer_arrays
from livegrad.tensors.handle import Tensor
from livegrad.tensors.native_handles import handle_layout
from livegrad.tensors.pytrees import Structure, unflatten


class DeviceRun(NamedTuple):
    """A plan on a device, its runs for `lg.stats()`, and the compiler that made it."""

    plan: Any
    runs: RepeatedRun
    compiler: object


@dataclass
class Entry:
    """The compiled form of one signature.

    `captures` are the tensors that the function captured. `captured_handles` are the handles behind them, each with the
    node that it held when the function was traced.
    """

    make_function: Callable[[], Function]
    result_types: tuple[Type, ...]
    captures: tuple[Tensor, ...]
    captured_handles: tuple[tuple[ref[Tensor], Node], ...]
    structure: Structure
    make_plan: Callable[[], CompiledPlan]
    nodes: int
    is_new: bool = True  # whether this entry is the first of its program
    has_fast_call: bool = False  # whether a fast call exists or is impossible
    _device_run: DeviceRun | None = None

    @cached_property
    def function(self) -> Function:
        """The traced function, with the sizes of this signature."""
        return self.make_function()

    @cached_property
    def plan(self) -> CompiledPlan:
        """The plan for the CPU. It is compiled on first use: data on a device never needs it."""
        return self.make_plan()

    @cached_property
    def runs(self) -> RepeatedRun:
        """The runs on the CPU, for `lg.stats()`."""
        return _count_runs(self.plan.step_counts, self.nodes, self.is_new)

    def device_run(self) -> DeviceRun:
        """The plan for the device with the data, compiled on first use, and its runs."""
        run, compiler = self._device_run, device_compiler()
        if run is None or run.compiler != compiler:
            plan = device_plan(self.function)
            run = self._device_run = DeviceRun(plan, _count_runs(plan.step_counts, self.nodes, True), compiler)
        return run

    def is_current(self) -> bool:
        """Whether no captured tensor has been updated in place since the trace."""
        return is_current(self.captured_handles)

    def reads_variables(self) -> bool:
        """Whether the function captures a gradient variable; gradients flow only through a graph."""
        for reference, _ in self.captured_handles:
            handle = reference()
            if handle is not None and handle._extra is not None:
                return True
        return False


def _count_runs(step_counts: tuple[int, int], nodes: int, is_new: bool) -> RepeatedRun:
    """What runs of a plan with so many kernels and library calls add to `lg.stats()`."""
    kernels, library_calls = step_counts
    each = {"executions": 1, "kernels_run": kernels, "library_calls": library_calls, "nodes_computed": nodes}
    first = {**each, "programs_compiled" if is_new else "programs_reused": 1}
    return RepeatedRun(first, {**each, "programs_reused": 1})


def is_current(captured_handles: Sequence[tuple[ref[Tensor], Node]]) -> bool:
    """Whether handles still hold the nodes that they held during the trace."""
    for reference, node in captured_handles:
        handle = reference()
        if handle is not None and handle._node is not node:
            return False
    return True


class FastCall:
    """The fast path for a signature of tensors, arrays and numbers: `run` is a built-in that takes them unchanged.

    It checks the arguments itself and returns the results, or None if they have another signature.
    """

    __slots__ = ("caller", "captures", "entry", "run", "runs", "type")

    def __init__(self, entry: Entry, run: PlanEntry) -> None:
        self.entry, self.run, self.runs = entry, run, entry.runs
        self.captures = entry.captures or None
        # The type of a single result that is not in a container.
        self.type: Any = entry.result_types[0] if entry.structure is None else None
        # The last call site: code and instruction, and the source locations of its results.
        self.caller: tuple[CodeType | None, int, tuple[Origin, ...]] = (None, 0, ())

    def run_with_captures(self, arguments: Sequence[Any]) -> Any:
        """Calls `run` with the captured tensors; None if one of their handles was rebound or is a gradient variable."""
        if not self.entry.is_current() or self.entry.reads_variables():
            return None
        return self.run(*arguments, *self.entry.captures)

    def find_origins(self, frame: FrameType) -> tuple[Origin, ...]:
        """Returns the source locations of results when this frame calls `jit`; caches them if it is a user frame."""
        origins = caller_origins(2)
        if origins and origins[0].code is frame.f_code:
            self.caller = frame.f_code, frame.f_lasti, origins
        return origins

    def wrap_result(self, results: Any) -> Any:
        """Wraps the results of `run` in the structure that the call returns."""
        return wrap_results(self.entry, results if results.__class__ is list else [results])


def make_fast_call(entry: Entry, parts: Sequence[Any]) -> FastCall | None:
    """Creates a fast call for the parts of a signature; None if native code does not support some of their kinds."""
    sources = []
    for part in parts:
        if isinstance(part, Type):
            sources.append(HANDLES)
        elif part is float or part is int:
            sources.append(NUMBERS)
        elif part.__class__ is tuple:
            sources.append(ARRAYS)
        else:
            return None
    sources += [HANDLES] * len(entry.captures)
    run = make_plan_entry(entry.plan, sources, handle_layout(), frozen=True)
    return None if run is None else FastCall(entry, run)


def wrap_results(entry: Entry, results: Sequence[Any]) -> Any:
    """Wraps computed arrays in tensors and in the structure that the call returns."""
    types: Any = entry.result_types
    structure = entry.structure
    if structure is None:
        return defer_array(results[0], types[0])
    tensors = defer_arrays(results, types)
    if structure[0] is tuple and not any(structure[1:]):  # most are flat tuples of tensors
        return tuple(tensors)
    return unflatten(structure, tensors)

"""What `jit` keeps for a signature: the compiled function, and how it is called without looking at the arguments twice.

In: a traced function and its plan. Out: the results of calls, as tensors whose nodes are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FrameType
from typing import Any
from weakref import ref

from livegrad.diagnostics.errors import Origin, caller_origins
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type
from livegrad.lazy.counts import RepeatedRun
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.native.plan_call import ARRAYS, HANDLES, NUMBERS
from livegrad.runtime.cpu.plan_entry import PlanEntry, make_plan_entry
from livegrad.tensors.handle import Tensor, defer_array, defer_arrays
from livegrad.tensors.native_handles import handle_words
from livegrad.tensors.pytrees import Structure, unflatten


@dataclass
class Entry:
    """What one signature was compiled to; `captures` are the tensors that the function took from around it.

    `read` are the handles behind the captures, each with the node that it stood for when the function was traced.
    """

    make_function: Callable[[], Function]
    result_types: tuple[Type, ...]
    captures: tuple[Tensor, ...]
    captured_handles: tuple[tuple[ref[Tensor], Node], ...]
    structure: Structure
    plan: CompiledPlan
    runs: RepeatedRun  # for the statistics
    has_fast_call: bool = False  # whether it has a quick call, or cannot have one
    is_for_sizes: bool = False  # whether it was made from a template, for sizes that may not come again

    @cached_property
    def function(self) -> Function:
        """What the function was traced to, with the sizes of this signature."""
        return self.make_function()

    def is_current(self) -> bool:
        """Whether none of the tensors that the function read has been updated in place since."""
        return is_current(self.captured_handles)

    def reads_variables(self) -> bool:
        """Whether the function read a tensor that wants a gradient, which can only go through a graph."""
        for reference, _ in self.captured_handles:
            handle = reference()
            if handle is not None and handle._extra is not None:
                return True
        return False


def is_current(captured_handles: Sequence[tuple[ref[Tensor], Node]]) -> bool:
    """Whether handles still stand for the nodes that a trace found."""
    for reference, node in captured_handles:
        handle = reference()
        if handle is not None and handle._node is not node:
            return False
    return True


class FastCall:
    """A signature whose arguments are tensors, arrays and numbers: `run` is a built-in that takes them as they are.

    It looks at the arguments itself, gives the results, and None for those of another signature.
    """

    __slots__ = ("caller", "captures", "entry", "run", "runs", "type")

    def __init__(self, entry: Entry, run: PlanEntry) -> None:
        self.entry, self.run, self.runs = entry, run, entry.runs
        self.captures = entry.captures or None
        # Of the result, if there is one that is not in a container.
        self.type: Any = entry.result_types[0] if entry.structure is None else None
        # The call that was made last: its code and instruction, and the line that its results come from.
        self.caller: tuple[CodeType | None, int, tuple[Origin, ...]] = (None, 0, ())

    def run_with_captures(self, arguments: Sequence[Any]) -> Any:
        """`run` with the tensors that the function took from around it; None if one of them is another one now."""
        if not self.entry.is_current() or self.entry.reads_variables():
            return None
        return self.run(*arguments, *self.entry.captures)

    def find_origins(self, frame: FrameType) -> tuple[Origin, ...]:
        """The line that results come from when this frame calls `jit`, kept if the frame is the user's own."""
        origins = caller_origins(2)
        if origins and origins[0].code is frame.f_code:
            self.caller = frame.f_code, frame.f_lasti, origins
        return origins

    def wrap_result(self, results: Any) -> Any:
        """What the call returns."""
        return wrap_results(self.entry, results if results.__class__ is list else [results])


def make_fast_call(entry: Entry, parts: Sequence[Any]) -> FastCall | None:
    """A quick call for arguments of these parts of a signature; None if some are of kinds that native code declines."""
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
    run = make_plan_entry(entry.plan, sources, handle_words(), frozen=True)
    return None if run is None else FastCall(entry, run)


def wrap_results(entry: Entry, results: Sequence[Any]) -> Any:
    """What a call returns, from the arrays that it computed."""
    types: Any = entry.result_types
    structure = entry.structure
    if structure is None:
        return defer_array(results[0], types[0])
    tensors = defer_arrays(results, types)
    if structure[0] is tuple and not any(structure[1:]):  # of tensors alone, as most are
        return tuple(tensors)
    return unflatten(structure, tensors)

"""Instantiates plans with symbolic sizes. In: a plan whose decisions hold under guards. Out: plans for concrete sizes.

Each instance evaluates only the polynomials in argument slots, and chooses the launches of library kernels, such as
matrix products, again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from livegrad.codegen.argument_slots import ArgumentSlot
from livegrad.ir.line_sites import SourceLocations
from livegrad.ir.node import Function
from livegrad.ir.polynomial import Terms
from livegrad.ir.size_guards import SizeGuards
from livegrad.ir.symbolic_size import SymbolicSize, symbolic_within
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from livegrad.runtime.cpu.plan_serialiser import finish_plan, serialise_steps
from livegrad.runtime.cpu.serialised_plan import SerialisedKernel
from livegrad.runtime.cpu.step_calls import Workspace, whole_lines
from livegrad.runtime.serialised import SerialisedArray, SerialisedArrays
from livegrad.schedule.plan import Plan


class HostStepsError(Exception):
    """A plan has host steps, which templates do not support."""


class Polynomials:
    """The polynomials of a template, each evaluated once for a set of sizes."""

    def __init__(self) -> None:
        self.terms: list[Terms] = []
        self._number_of: dict[Terms, int] = {}

    def add(self, size: SymbolicSize) -> int:
        """Adds a size's polynomial if it is new, and returns its index."""
        number = self._number_of.setdefault(size.terms, len(self.terms))
        if number == len(self.terms):
            self.terms.append(size.terms)
        return number

    def bind(self, value: Any) -> Callable[[Sequence[int]], Any]:
        """A function from the values of the polynomials to `value` with concrete sizes."""
        if type(value) is SymbolicSize:
            return _PolynomialValue(self.add(value)).of
        if symbolic_within((value,)) is None:
            return _Constant(value).of
        if isinstance(value, tuple):
            members = [self.bind(member) for member in value]
            make: Callable[[list[Any]], Any] = getattr(type(value), "_make", tuple)
            return lambda values: make([member(values) for member in members])
        fields = {name: self.bind(part) for name, part in vars(value).items()}
        return lambda values: replace(value, **{name: part(values) for name, part in fields.items()})


@dataclass(frozen=True)
class _PolynomialValue:
    number: int

    def of(self, values: Sequence[int]) -> int:
        return values[self.number]


@dataclass(frozen=True)
class _Constant:
    value: Any

    def of(self, values: Sequence[int]) -> Any:
        return self.value


@dataclass(frozen=True)
class _Kernel:
    """A kernel with polynomials as values or offsets of some slots."""

    kernel: SerialisedKernel
    holes: tuple[tuple[int, int, ArgumentSlot | None], ...]  # slot index, polynomial, and the slot if it is its offset
    total: int | None  # a polynomial; None if the kernel's `total` is constant
    grain: int | None

    def for_values(self, values: Sequence[int]) -> SerialisedKernel:
        slots = list(self.kernel.slots)
        for position, number, slot in self.holes:
            slots[position] = values[number] if slot is None else ArgumentSlot(slot.kind, slot.buffer, values[number])
        kernel = self.kernel
        total = kernel.total if self.total is None else values[self.total]
        grain = kernel.grain if self.grain is None else values[self.grain]
        return SerialisedKernel(
            kernel.object_key,
            tuple(slots),
            total,
            grain,
            kernel.interruptible,
            kernel.sites,
            kernel.library,
            kernel.symbol,
        )


class PlanTemplate:
    """A compiled plan with symbolic sizes. `for_sizes` instantiates it for sizes that satisfy the guards."""

    def __init__(
        self,
        plan: Plan,
        guards: SizeGuards,
        source: Function,
        source_locations: SourceLocations,
        compiler: KernelCompiler | None = None,
    ) -> None:
        self.guards, self._source, self._source_locations = guards, source, source_locations
        steps = serialise_steps(plan, compiler)
        if None in steps.steps or None in steps.arguments or None in steps.results:
            raise HostStepsError
        self._codes, self._library_scratch = steps.codes, steps.library_scratch
        self._polynomials = Polynomials()
        bind = self._polynomials.bind
        items = [item for step in steps.steps if step is not None for item in step]
        self._items = [self._kernel(item) if isinstance(item, SerialisedKernel) else bind(item) for item in items]
        self._arguments, self._results = (self._arrays(arrays) for arrays in (steps.arguments, steps.results))
        self._arena_bytes, self._scratch = bind(steps.arena_bytes), bind(steps.scratch)

    def _kernel(self, kernel: SerialisedKernel) -> _Kernel | SerialisedKernel:
        add = self._polynomials.add
        holes: list[tuple[int, int, ArgumentSlot | None]] = []
        for position, slot in enumerate(kernel.slots):
            if type(slot) is SymbolicSize:
                holes.append((position, add(slot), None))
            elif isinstance(slot, ArgumentSlot) and type(slot.offset) is SymbolicSize:
                holes.append((position, add(slot.offset), slot))
        total, grain = (add(n) if type(n) is SymbolicSize else None for n in (kernel.total, kernel.grain))
        return (
            _Kernel(kernel, tuple(holes), total, grain) if holes or total is not None or grain is not None else kernel
        )

    def _arrays(self, arrays: SerialisedArrays) -> list[tuple[SerialisedArray, Callable[[Sequence[int]], Any]]]:
        return [(array, self._polynomials.bind(array.shape)) for array in arrays if array is not None]

    def for_sizes(self, sizes: Sequence[int], run_nested: Callable[..., Any]) -> CompiledPlan:
        """The compiled plan for sizes that satisfy the guards."""
        values = self.guards.evaluate(sizes, self._polynomials.terms)
        arena_bytes = self._arena_bytes(values)
        workspace = Workspace(whole_lines(arena_bytes), self._library_scratch)
        kernels: list[SerialisedKernel] = []
        for item in self._items:
            if isinstance(item, SerialisedKernel):
                kernels.append(item)
            elif isinstance(item, _Kernel):
                kernels.append(item.for_values(values))
            else:
                kernels += item(values).kernels(workspace)
        arguments, results = (
            tuple([SerialisedArray(array.number, array.element, shape(values)) for array, shape in side])
            for side in (self._arguments, self._results)
        )
        plan = finish_plan(arguments, results, arena_bytes, kernels, self._scratch(values), workspace)
        compiled = CompiledPlan(plan, self._codes, None, run_nested, (), self._source_locations)
        compiled.source = self._source
        return compiled

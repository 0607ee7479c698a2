"""The loop nest of a kernel step: the decisions of the loop passes.

Backends create one from a step for their device, and `livegrad.compiler.lower_loops` runs the passes over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

from livegrad.schedule.kernel import Kernel
from livegrad.schedule.loops.dimensions import Dimensions, loop_dimensions
from livegrad.schedule.plan import KernelStep

LoopKind = Literal["parallel", "serial", "vector", "unrolled"]


class Loop(NamedTuple):
    """One loop of a nest: how it runs, how often, and of what."""

    kind: LoopKind
    extent: int  # 0 while that is not decided
    of: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.extent or '?'} {self.of}"


@dataclass(frozen=True, eq=False)
class LoopNest:
    """A step of a plan: loops over the points of its domain, which run in parallel, and over inner points."""

    step: KernelStep

    @property
    def kernel(self) -> Kernel:
        return self.step.kernel

    @cached_property
    def dimensions(self) -> Dimensions:
        """What code loops over: the step's dimensions, merged where memory allows."""
        return loop_dimensions(self.step)

    def replace(self, **changes: Any) -> Self:
        """The nest with something else decided."""
        made = object.__new__(type(self))
        kept = {**self.__dict__, **changes}  # dimensions too, which take longest to find
        kept.pop("layout", None)
        if "step" in changes:
            kept.pop("dimensions", None)
        made.__dict__.update(kept)
        return made

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, the outermost first."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """What else was decided."""
        return []

    def __str__(self) -> str:
        sizes = [*self.dimensions.domain, *(f"inner {size}" for size in self.dimensions.inner)]
        title = f"kernel {self.kernel.name or 'copy'} over {' x '.join(map(str, sizes)) or 'one point'}"
        built = [f"split: {self.step.chunk} inner points a chunk"] if self.kernel.split else []
        scratch = sum(port.scratch for port in self.kernel.outputs)
        built += [f"scratch: {scratch} kept for each inner point, for later sweeps"] if scratch else []
        return "\n  ".join([title, *map(str, self.loops), *built, *self.notes()])


N = TypeVar("N", bound=LoopNest)


@dataclass(frozen=True)
class LoopPass(Generic[N]):
    """One decision about a loop nest."""

    run: Callable[[N], N]
    by_tile: bool = False  # decides otherwise in a chain
    optional: bool = False  # an optimisation that `Target.without` leaves out

    @property
    def name(self) -> str:
        return self.run.__name__

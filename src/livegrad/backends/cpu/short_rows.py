"""Rows that are shorter than a vector: lanes run across them instead, each taking a row of its own.

A kernel step comes in; if it is one over short rows (points of three coordinates, say), it goes out with the rows as
inner dimension and lanes across the dimension before. `kernels.py` calls it; other backends have other ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from livegrad.backends.cpu.bind import SHORT_ROW
from livegrad.backends.cpu.emit.body import has_divergence
from livegrad.backends.cpu.turned import has_turned_reads, swept_dimension, turn_step
from livegrad.backends.dimensions import loop_dimensions
from livegrad.schedule.kernel import Kernel, Level, Port, Stage
from livegrad.schedule.plan import KernelStep, View

# Measured at 1M × 3 single numbers, two threads: x * s, with a number for each row, takes 4.2 ms in rows of lanes and
# 1.2 across them; the length of each row 6.2 and 1.0; x divided by it 15 and 2.5.
_MANY_ROWS = 64
# Longer rows, up to this many numbers, are turned in tiles. A softmax of 1M numbers takes 6.5 ms along rows of 10 and
# 0.8 across them, 2.1 and 0.8 with rows of 32, 0.9 and 1.1 with 50; sums 0.47 and 0.23, 0.22 and 0.24, 0.21 and 0.25.
_TILED_ROW = 32


def across_short_rows(step: KernelStep) -> KernelStep:
    """The step with lanes across short rows; itself where it has none. Chains work row by row: not for their steps."""
    kernel = step.kernel
    if kernel.split or kernel.written or any(stage.scan is not None for stage in kernel.stages):
        return step
    if kernel.along:
        across = _has_short_rows(step) or has_turned_reads(step)
        return replace(step, kernel=replace(kernel, along=False)) if across else step
    if step.inner or _uses_rows(kernel):
        return step
    dimensions = loop_dimensions(step)
    domain = dimensions.domain
    if len(domain) < 2 or domain[-1] > SHORT_ROW or prod(domain[:-1]) < _MANY_ROWS:
        return turn_step(step)
    if swept_dimension(dimensions) not in (None, len(domain) - 2) and (turned := turn_step(step)) is not step:
        return turned  # lanes across the rows would be far apart
    first = next(axis for axis in range(len(step.domain)) if prod(step.domain[axis:]) == domain[-1])
    return _with_inner(step, first) if first else step


def _has_short_rows(step: KernelStep) -> bool:
    points, dimensions = prod(step.inner), loop_dimensions(step)
    if points <= SHORT_ROW:
        return prod(step.domain) >= _MANY_ROWS
    across = dimensions.domain[-1] if dimensions.domain else 1
    # A failed check names an element by its number in memory; lanes that go along rows know it.
    checked = any(has_divergence(stage.body) for stage in step.kernel.stages)
    return points <= _TILED_ROW and len(dimensions.inner) == 1 and across >= _MANY_ROWS and not checked


def _uses_rows(kernel: Kernel) -> bool:
    return any(end.kind == "row" for stage in kernel.stages for end in (*stage.sources, *stage.sinks))


def _with_inner(step: KernelStep, first: int) -> KernelStep:
    """The step with its dimensions from `first` on as inner ones."""
    kernel = step.kernel
    made = replace(
        kernel,
        domain_rank=first,
        inner_rank=kernel.domain_rank - first,
        reads=_leveled(kernel.reads, step.reads, first),
        outputs=tuple(port._replace(level="point") for port in kernel.outputs),
        stages=tuple(Stage("point", stage.body, stage.sources, stage.sinks) for stage in kernel.stages),
    )
    return replace(step, kernel=made, domain=step.domain[:first], inner=step.domain[first:])


def _leveled(ports: Sequence[Port], views: Sequence[View], first: int) -> tuple[Port, ...]:
    levels: list[Level] = ["point" if any(view.strides[first:]) else "row" for view in views]
    return tuple(port._replace(level=level) for port, level in zip(ports, levels, strict=True))

"""The first two iterations copy parts of the state that no iteration changes, one for each of the two buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu import loop_body
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.schedule.kept_parts import copies_of_kept_parts
from livegrad.schedule.plan import Buffer, HostStep, KernelStep
from livegrad.tensors.tracing import trace_call

GENERATOR = np.random.default_rng(9)
GRID, OTHER = GENERATOR.normal(size=(70, 90)), GENERATOR.normal(size=(70, 90))


def relax(lib: Any, i: Any, state: Any) -> Any:
    grid, other = state
    grid[1:-1, 1:-1] = 0.25 * (grid[2:, 1:-1] + grid[:-2, 1:-1] + grid[1:-1, 2:] + other[1:-1, :-2])
    return grid, other * 0.5


def move_box(lib: Any, i: Any, state: Any) -> Any:
    """Each iteration writes another box."""
    grid, other = state
    after = grid + 0.0
    after[i, :] = other[0, :]
    return after, other * 0.5 + grid


def shift(lib: Any, i: Any, state: Any) -> Any:
    """The copy has another offset, and goes from one field to the other."""
    grid, other = state
    a, b = grid + 0.0, other + 0.0
    a[2:, :] = grid[:-2, :]
    b[:60, :60] = grid[:60, :60] * 0.5
    return b, a


def cover(lib: Any, i: Any, state: Any) -> Any:
    """An edge that is first copied is written afterwards."""
    grid, other = state
    grid[1:-1, 1:-1] = other[2:, 1:-1] - grid[:-2, 1:-1]
    grid[:35, 1:] = grid[1:36, :-1] + other[:35, 1:]
    return grid, lib.roll(other, 1, axis=0) * 0.9


PROGRAMS = {"relax": relax, "move_box": move_box, "shift": shift, "cover": cover}


def looped(lib: Any, step: Any, count: Any, grid: Any, other: Any) -> Any:
    if lib is not np:
        return lib.fori_loop(0, count, lambda i, state: step(lib, i, state), (grid, other))
    state = grid.copy(), other.copy()
    for i in range(int(count)):
        state = step(np, i, tuple(field.copy() for field in state))
    return state


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_omitted_copies_do_not_change_results(
    name: str, skips: bool, monkeypatch: pytest.MonkeyPatch, without_caches: None
) -> None:
    if not skips:
        monkeypatch.setattr(loop_body, "copies_of_kept_parts", lambda plan, state: [False] * len(plan.steps))
    run = lg.jit(lambda count, x, y: looped(lg, PROGRAMS[name], count, x, y))
    for count in (0, 1, 2, 3, 4, 5, 8):
        x = GRID * (count + 1.0)
        for actual, expected in zip(run(count, x, OTHER), looped(np, PROGRAMS[name], count, x, OTHER), strict=True):
            np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-12, atol=1e-12)


def copied_domains(step: Any) -> list[tuple[int, ...]]:
    """The domains of the kernels of a loop body that only the first two iterations run."""
    program = lambda x, y: looped(lg, step, 5, x, y)  # noqa: E731
    types = [lg.asarray(GRID).type, lg.asarray(OTHER).type]
    plan = CpuFunction(trace_call(program, types, "program").function).schedule()
    (loop,) = [step.loop for step in plan.steps if isinstance(step, HostStep) and step.loop is not None]
    assert loop.plan is not None
    count = len(loop.state)
    pairs = zip(loop.plan.arguments[1 : 1 + count], loop.plan.results[:count], strict=True)
    state = {into: out for into, out in pairs if isinstance(into, Buffer) and isinstance(out, Buffer)}
    flags = zip(loop.plan.steps, copies_of_kept_parts(loop.plan, state), strict=True)
    return [step.domain for step, copied in flags if copied and isinstance(step, KernelStep)]


def test_edges_are_copied_by_two_iterations_and_the_inside_by_all() -> None:
    domains = copied_domains(relax)
    assert domains
    assert all(1 in domain for domain in domains)


def test_parts_that_move_or_are_rewritten_are_copied_by_all_iterations() -> None:
    assert copied_domains(shift) == []
    assert copied_domains(cover) == []

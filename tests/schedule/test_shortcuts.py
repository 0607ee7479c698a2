"""Each optimisation of the schedule can be switched off: the plan is another, and what it computes is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.authoring.tensor.tracing import trace_call
from livegrad.backends.cpu.execute import CompiledPlan
from livegrad.backends.cpu.function import CpuFunction, run_function
from livegrad.schedule.shortcuts import ALL, Shortcuts

GRID = np.sin(np.arange(64.0 * 64.0)).reshape(64, 64)


def written(x: Any) -> Any:
    y = lg.cumulative_sum(lg.reshape(x, (-1,)))
    y[lg.astype(lg.floor(x[:, :9] * 50.0), lg.int64) % 4096] = 0.5
    return y


def joined(x: Any) -> Any:
    return lg.grad(lambda p: lg.sum(lg.concat([p[:3], p[3:]]) * lg.cos(p)))(x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "fusion": lambda x: (lg.sin(x), lg.cos(x)),
    "guarded_loads": joined,
    "writes_in_place": written,
    "point_loops": lambda x: lg.fori_loop(0, 5, lambda i, s: lg.sin(s) + x, x),
    "small_products": lambda x: (lambda m: m @ lg.matrix_transpose(m))(lg.reshape(x, (-1, 2, 2))),
    "seams": lambda x: lg.roll(x, 1, axis=0) + lg.roll(x, -1, axis=0) + lg.roll(x, 1, axis=1) - 3.0 * x,
    "turned_products": lambda x: lg.matrix_transpose(x @ lg.matrix_transpose(x)[:, :8]),
    "shared_sweeps": lambda x: (lg.sum(lg.sin(x), axis=1), lg.sum(x * x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_without_an_optimisation_computes_the_same(name: str) -> None:
    function = trace_call(PROGRAMS[name], [lg.asarray(GRID).type], "program").function
    source, shortcuts = CpuFunction(function), ALL.without(name)
    usual, other = source.schedule(), source.schedule(shortcuts=shortcuts)
    assert "\n".join(map(str, usual.steps)) != "\n".join(map(str, other.steps))
    expected = CompiledPlan.from_plan(usual, run_function).run([GRID])
    found = CompiledPlan.from_plan(other, run_function, shortcuts=shortcuts).run([GRID])
    for own, usually in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, usually, rtol=1e-12, atol=1e-12)


def test_every_optimisation_has_a_name() -> None:
    assert set(PROGRAMS) <= set(Shortcuts.names())
    assert all(getattr(ALL, name) for name in Shortcuts.names())

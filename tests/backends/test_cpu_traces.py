"""What loops remember: bounded in memory, freed with the run, and an error when it is too much."""

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.backends.cpu.emit import kernel, trace_runtime


def endless(x: lg.Node) -> lg.Node:
    return ops.make_while_loop(lambda y: y > -1.0, lambda index, y: ops.sin(y) * x + 1.0, x)[0]


def repeated(x: lg.Node, n: lg.Node) -> lg.Node:
    return ops.make_for_loop(n, lambda index, y: ops.sin(y) * x + 1.0, x)[0]


def test_a_derivative_that_must_remember_too_much_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(trace_runtime.MOST_BYTES) in trace_runtime.RUNTIME
    small = trace_runtime.RUNTIME.replace(str(trace_runtime.MOST_BYTES), str(1 << 22))
    monkeypatch.setattr(kernel, "RUNTIME", small)
    gradient = lg.compile(lg.map_over(lg.vjp(lg.trace(endless, lg.f64)), lifted=(True, False)))
    with pytest.raises(lg.KernelCheckError, match="what a loop must remember for its derivative takes more than"):
        gradient(np.full(37, 0.5), 1.0)


def test_each_group_of_lanes_starts_with_empty_memory() -> None:
    """The limit is for one group at a time: thousands of groups may remember far more than it together."""
    gradient = lg.compile(lg.map_over(lg.vjp(lg.trace(repeated, lg.f64, lg.i64)), lifted=(True, False, False)))
    x = np.linspace(0.1, 0.9, 20_000)
    by_x, _ = gradient(x, 50, 1.0)
    _, tangent, *_ = lg.compile(lg.map_over(lg.jvp(lg.trace(repeated, lg.f64, lg.i64)), (True, False, False, False)))(
        x, 50, 1.0, ()
    )
    np.testing.assert_allclose(by_x, tangent, rtol=1e-10)

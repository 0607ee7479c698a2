"""Expressions of any depth are cut into equal pieces, whose code is compiled once."""

import numpy as np

import livegrad as lg
from livegrad.schedule.materialise import MOST_DEPTH
from livegrad.schedule.plan import KernelStep

LENGTH = 10 * MOST_DEPTH


def chain(x: lg.ir.Node, y: lg.ir.Node) -> lg.ir.Node:
    for _ in range(LENGTH):
        x = x + y
    return x


def test_a_long_chain_runs_in_pieces_that_share_one_kernel() -> None:
    row = lg.ir.types.Tensor(lg.f64, (5,))
    compiled = lg.ir.compile(lg.ir.trace(chain, row, row))
    steps = [step for step in compiled.schedule().steps if isinstance(step, KernelStep)]
    assert len(steps) >= LENGTH // MOST_DEPTH
    assert len({step.kernel for step in steps}) <= 3
    np.testing.assert_array_equal(compiled(np.zeros(5), np.ones(5)), np.full(5, float(LENGTH)))


def test_a_long_chain_of_scalars_runs_too() -> None:
    compiled = lg.ir.compile(lg.ir.trace(chain, lg.f32, lg.f32))
    assert compiled(0.5, 1.0) == LENGTH + 0.5
    steps = [step for step in compiled.schedule().steps if isinstance(step, KernelStep)]
    assert len({step.kernel for step in steps}) <= 3

"""Values that a sweep of a kernel keeps in thread-local memory for later sweeps."""

import numpy as np

from livegrad.ir.function import trace
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor, f64
from livegrad.ops.elementwise import select
from livegrad.ops.reduction import reduce, spread_back
from livegrad.ops.transcendental import exp, pow
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.reference import evaluate
from livegrad.schedule.plan import KernelStep

SHAPE, INNER = (3, 4), (1,)


def _kept_in_kept(x: Node) -> Node:
    """Two dear values that a later sweep reads both, one made of the other."""
    grown = exp(x)
    value = select(grown > 1.0, x, pow(grown, x))
    return value + spread_back(reduce(value, kind="sum", axes=INNER), SHAPE, INNER)


def test_a_sweep_does_not_read_what_it_keeps_itself() -> None:
    compiled = compile_function(trace(_kept_in_kept, Tensor(f64, SHAPE)))
    (step,) = compiled.schedule().steps
    assert isinstance(step, KernelStep)
    first = step.kernel.stages[0]
    kept = {number for number, port in enumerate(step.kernel.reads) if port.scratch}
    assert len(kept) == 2
    assert not any(source.kind == "read" and source.number in kept for source in first.sources)
    x = np.random.default_rng(0).standard_normal(SHAPE)
    np.testing.assert_allclose(compiled(x), evaluate(compiled.function, x), rtol=1e-12)

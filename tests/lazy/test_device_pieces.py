"""Graphs that run in pieces: a split may fall anywhere, also next to loops, branches and ops with several results."""

import numpy as np
import pytest

import livegrad as lg
from livegrad.lazy import execution

POINT = [0.1, -0.2, 0.3]


def loss(x: lg.Tensor, device: str) -> lg.Tensor:
    iterations = lg.astype(lg.clip(lg.sum(x) * 10.0 + 1.0, 0, 5), lg.int64)
    y = lg.fori_loop(0, iterations, lambda index, v: lg.sin(v) + x * 0.1, x)
    carried, each = lg.scan(lambda c, e: (c + e * 0.1, c * e), y[0], y)
    more, less = lg.cond(carried > 0.0, lambda v: (v * 2.0, v + 1.0), lambda v: (v, v * v), each)
    z = lg.while_loop(lambda v: lg.sum(v) < 9.0, lambda v: v * v + 0.2, more.to(device) + less.to(device) + 1.0)
    q, r = lg.linalg.qr(lg.linalg.outer(z, lg.cos(y)) + lg.eye(3, dtype=lg.float64))
    return lg.sum(q * r) + lg.sum(z)


@pytest.mark.parametrize("max_nodes", [1, 3])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_graph_split_anywhere_gives_the_same_values_and_gradients(monkeypatch, max_nodes, device):
    whole = lg.jit(lg.value_and_grad(lambda x: loss(x, "cpu")))(lg.asarray(POINT, dtype=lg.float64))
    monkeypatch.setattr(execution, "_MAX_NODES", max_nodes)
    value, slope = lg.value_and_grad(lambda x: loss(x, device))(lg.asarray(POINT, dtype=lg.float64))
    assert float(value) == pytest.approx(float(whole[0]), rel=1e-12)
    np.testing.assert_allclose(slope.numpy(), whole[1].numpy(), rtol=1e-10)

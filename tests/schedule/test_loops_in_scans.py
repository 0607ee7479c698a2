"""Scans over values that loops compute, in one kernel."""

import numpy as np

import livegrad as lg


def test_a_loop_inside_a_scan_of_one_row_compiles_and_computes_what_numpy_does() -> None:
    """The body of a scan takes its state before what it reads: passes over loops count from there."""

    def counts(x: lg.Tensor) -> lg.Tensor:
        y = lg.fori_loop(0, 5, lambda i, s: lg.where(s > 0.137, s * 0.5, s + x), x * 0.7)
        return lg.cumulative_sum(lg.astype(lg.floor(lg.tile(y, (301,)) * 3.137 + 0.1731), lg.int64), axis=0)

    x = np.array([0.3])
    y = x * 0.7
    for _ in range(5):
        y = np.where(y > 0.137, y * 0.5, y + x)
    expected = np.cumsum(np.floor(np.tile(y, 301) * 3.137 + 0.1731).astype(np.int64))
    np.testing.assert_array_equal(np.asarray(lg.jit(counts)(lg.asarray(x))), expected)

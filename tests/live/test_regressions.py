"""Regressions in the execution of lazy graphs, each with the program that revealed it."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import livegrad as lg
from livegrad.lazy import execution, lazy_values
from tests.forked import run_in_fork


def long_chain(x: lg.Tensor, steps: int) -> lg.Tensor:
    for _ in range(steps):
        x = x + 0.5
    return x


def test_a_cached_value_survives_a_long_execution_that_needs_it():
    first = (lg.asarray([1.0, 2.0]) * 1.5).execute()
    last = long_chain(first, execution._MAX_NODES + 500)
    again, end = lg.execute(first, last)
    assert again.tolist() == [1.5, 3.0]
    assert end.tolist() == [1.5 + 0.5 * (execution._MAX_NODES + 500), 3.0 + 0.5 * (execution._MAX_NODES + 500)]


def test_a_progress_callback_can_request_the_value_being_computed():
    end = long_chain(lg.asarray([1.0]), execution._MAX_NODES + 100)
    seen: list[float] = []
    worker = threading.Thread(
        target=lambda: lg.execute(end, progress=lambda done, total: seen.append(float(end[0]))), daemon=True
    )
    worker.start()
    worker.join(60)
    assert not worker.is_alive()
    assert set(seen) == {1.0 + 0.5 * (execution._MAX_NODES + 100)}


def test_an_interrupted_claim_leaves_nothing_pending(monkeypatch):
    result = lg.ones(1 << 15) * lg.asarray(np.full(1 << 15, 3.0, np.float32))  # too large for the fast path

    claim = execution._claim_work

    def interrupted(work):
        claim(work)
        assert result.node.cell.claim is not None
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(execution, "_claim_work", interrupted)
        with pytest.raises(KeyboardInterrupt):
            result.execute()
    assert result.node.cell.claim is None
    assert result.tolist() == [3.0] * (1 << 15)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_missing_thread():
    result = lg.asarray([1.0, 2.0]) * 7.0
    done = threading.Event()

    def claim() -> None:
        lazy_values.cell_of(result.node).claim = lazy_values.Claim()
        done.wait()

    worker = threading.Thread(target=claim)
    worker.start()
    while result.node.cell is None or result.node.cell.claim is None:
        pass
    status = run_in_fork(lambda: result.tolist() == [7.0, 14.0])
    result.node.cell.claim = None
    done.set()
    worker.join()
    assert status == 0


def test_a_part_of_an_unreferenced_value_is_computed_once():
    x = lg.asarray(np.arange(6.0))
    part = lg.sin(x)[2:4]
    lg.execute(part * 2.0)
    assert part.is_computed
    assert np.allclose((part + 1.0).numpy(), np.sin([2.0, 3.0]) + 1.0)


def test_the_next_batch_of_a_data_set_runs_the_same_program():
    data = lg.asarray(np.arange(200.0).reshape(20, 10))
    lg.reset_stats()
    for step in range(8):
        assert float(lg.sum(data[step * 2 : step * 2 + 2] * 2.5)) == np.arange(step * 20, step * 20 + 20).sum() * 2.5
        assert float(lg.sum(data[:, step] * 2.25)) == np.arange(step, 200, 10).sum() * 2.25
    assert lg.stats().programs_compiled == 2


def test_a_counter_is_not_part_of_the_code():
    data = lg.arange(10)
    lg.reset_stats()
    for step in range(100, 120):
        assert int(lg.sum(data * step)) == 45 * step
    assert lg.stats().programs_compiled <= 2


def test_a_fill_visits_each_dependent_once(monkeypatch):
    x = lg.asarray([1.0])
    held = [x * 1.5]
    for _ in range(60):
        held.append(held[-1] + 0.25)
    lg.execute(held)
    walks = 0
    plain = lazy_values.toposort

    def counted(*args, **kwargs):
        nonlocal walks
        walks += 1
        return plain(*args, **kwargs)

    monkeypatch.setattr(lazy_values, "toposort", counted)
    x.fill(2.0)
    assert float(held[-1][0]) == 3.0 + 60 * 0.25
    assert walks <= 3


def test_a_fill_by_another_thread_during_a_validity_check_is_detected(monkeypatch):
    x = lg.asarray([1.0])
    y = (x + 1.0).execute()
    lg.asarray([0.0]).fill(1.0)  # another change, so that the value is checked again
    plain = lazy_values.leaf_of

    def fill_behind(node):
        if node is y.node:  # the last node of the check, which has passed `x` already
            monkeypatch.undo()
            x.fill(5.0)
        return plain(node)

    monkeypatch.setattr(lazy_values, "leaf_of", fill_behind)
    lazy_values.cached_value(y.node)
    assert y.tolist() == [6.0]

"""Memory stays flat: loops truncate their history, graphs are freed with their tensors, long chains run and are freed.

`LIVEGRAD_LONG_TESTS=1` runs the sizes that the documentation speaks of; without it the same tests take seconds.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.lazy import compiled_graphs
from tests.long_forms import LONG
from tests.node_counts import settled_node_count

# What the allocator and the tables of the interpreter may add: a leak of one node an iteration is far above it.
MOST_GROWTH = 6 << 20


def resident_bytes() -> int:
    """Returns the resident memory of the process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


pytestmark = pytest.mark.own_process
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc to read memory use from")


def network() -> tuple[dict[str, lg.Tensor], Callable[[Any], Any]]:
    generator = np.random.default_rng(0)
    data = lg.asarray(generator.standard_normal((32, 4)).astype(np.float32))
    target = lg.sin(data[:, :1]).execute()
    parameters = {
        "first": lg.asarray(generator.standard_normal((4, 8)).astype(np.float32) * 0.5),
        "second": lg.asarray(generator.standard_normal((8, 1)).astype(np.float32) * 0.5),
    }
    return parameters, lambda p: lg.mean((lg.tanh(data @ p["first"]) @ p["second"] - target) ** 2)


def require_flat(step: Callable[[], Any], iterations: int, warm: int = 100) -> None:
    """Runs a step many times: node count and cached bytes must not change, resident memory hardly."""
    for _ in range(warm):
        step()
    nodes, cached, resident = settled_node_count(), lg.stats().bytes_cached, resident_bytes()
    for _ in range(iterations):
        step()
    assert settled_node_count() <= nodes + 50
    assert lg.stats().bytes_cached <= cached + 4096
    assert resident_bytes() <= resident + MOST_GROWTH


@needs_proc
def test_a_lazy_training_loop_is_flat():
    parameters, loss = network()
    losses: list[float] = []

    def step() -> None:
        nonlocal parameters
        value, slopes = lg.value_and_grad(loss)(parameters)
        parameters = lg.tree_map(lambda p, g: p - 0.05 * g, parameters, slopes)
        lg.execute(parameters)
        losses.append(float(value))

    require_flat(step, 10_000 if LONG else 400)
    assert losses[-1] < 0.2 * losses[0]


@needs_proc
def test_a_training_loop_by_backward_is_flat():
    parameters, loss = network()
    for parameter in parameters.values():
        parameter.requires_grad_()

    def step() -> None:
        loss(parameters).backward()
        for name, parameter in parameters.items():
            parameters[name] = (parameter - 0.05 * lg.asarray(parameter.grad)).execute().requires_grad_()

    require_flat(step, 10_000 if LONG else 300)


@needs_proc
def test_a_loop_that_builds_its_next_step_before_it_reads_the_last_is_flat():
    parameters, loss = network()
    losses: list[float] = []

    def step() -> None:
        nonlocal parameters
        value, slopes = lg.value_and_grad(loss)(parameters)
        parameters = lg.tree_map(lambda p, g: p - 0.05 * g, parameters, slopes)
        losses.append(float(value))

    require_flat(step, 10_000 if LONG else 300)
    assert losses[-1] < 0.2 * losses[0]
    assert len(parameters["first"].graph) < 1000


@needs_proc
def test_such_a_loop_by_backward_is_flat():
    parameters, loss = network()
    for parameter in parameters.values():
        parameter.requires_grad_()
    losses: list[float] = []

    def step() -> None:
        value = loss(parameters)
        value.backward()
        for name, parameter in parameters.items():
            parameters[name] = (parameter - 0.05 * lg.asarray(parameter.grad)).requires_grad_()
        losses.append(float(value))

    require_flat(step, 10_000 if LONG else 300)
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.own_process
def test_forty_variables_updated_in_place_keep_a_bounded_number_of_nodes():
    variables = [lg.asarray(np.full(3, 1.0 + index, np.float32)).requires_grad_() for index in range(40)]
    counted: list[int] = []
    for step in range(120):
        loss = lg.sum(lg.stack([lg.sum(variable * variable) for variable in variables]))
        loss.backward()
        for variable in variables:
            variable -= 0.1 * lg.asarray(variable.grad)
            variable.grad = None
        float(loss)
        if step >= 40 and step % 8 == 0:
            counted.append(settled_node_count())
    assert counted[-1] < 1.2 * max(counted[:3])


def test_tensors_built_on_a_pending_value_keep_their_values_and_companions():
    """Rebased onto the leaf that replaced its operand: the same numbers, each computed once."""
    x = lg.asarray(np.ones(3, np.float32))
    for number in range(20):
        following = lg.sin(x) * 2.0 + float(number)
        np.testing.assert_array_equal(x.numpy(), x.numpy())
        assert not following.is_computed
        x = following
    expected = np.ones(3, np.float32)
    for number in range(20):
        expected = (np.sin(expected) * np.float32(2.0) + np.float32(number)).astype(np.float32)
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5)
    assert len(x.graph) < 100


@needs_proc
def test_a_jitted_training_loop_is_flat():
    parameters, loss = network()
    optimizer = lg.optim.Adam(0.01)
    state = optimizer.init(parameters)

    @lg.jit
    def update(parameters, state):
        value, slopes = lg.value_and_grad(loss)(parameters)
        return value, *optimizer.update(parameters, slopes, state)

    losses: list[float] = []

    def step() -> None:
        nonlocal parameters, state
        value, parameters, state = update(parameters, state)
        losses.append(float(value))

    require_flat(step, 10_000 if LONG else 2_000)
    assert update.traces == 1
    assert losses[-1] < 0.1 * losses[0]


@needs_proc
def test_a_loop_that_assigns_in_place_is_flat():
    x = lg.zeros(64)

    def step() -> None:
        x[3:7] = x[2:6] * 0.5 + 1.0
        x.execute()

    require_flat(step, 10_000 if LONG else 500)
    assert len(x.graph) < 200


@needs_proc
def test_graphs_that_are_built_and_never_run_go_away():
    x = lg.asarray(np.ones(16, np.float32))

    def step() -> None:
        y = lg.softmax(x * 2.0 + 1.0, axis=0)
        lg.sum(y * y)

    require_flat(step, 10_000 if LONG else 2_000)


def test_reading_data_of_changing_shapes_keeps_a_bounded_number_of_programs(monkeypatch):
    monkeypatch.setattr(compiled_graphs.programs_of_session.current.by_key, "capacity", 8)
    for size in range(1, 30):
        x = lg.asarray(np.ones(size, np.float32))
        np.testing.assert_array_equal((x * 3.0 + 0.5).numpy(), np.full(size, 3.5))
        assert len(compiled_graphs.programs_of_session.current.by_key) <= 8


def test_a_tensor_takes_its_values_and_its_history_with_it():
    nodes, cached = settled_node_count(), lg.stats().bytes_cached
    x = lg.asarray(np.ones(1000, np.float32))
    middle = (x * 2.0).execute()
    last = (middle + x).execute()
    alive = [weakref.ref(tensor) for tensor in (x, middle, last)]
    assert lg.stats().bytes_cached == cached + 8000
    del x, middle, last
    gc.collect()
    assert [reference() for reference in alive] == [None] * 3
    assert settled_node_count() <= nodes + 10  # nodes that compiled programs retain
    assert lg.stats().bytes_cached == cached


def test_an_error_keeps_no_graph_alive():
    def step() -> None:
        with pytest.raises(lg.KernelCheckError):
            (lg.asarray([1, 2]) // lg.asarray([1, 0])).execute()
        with pytest.raises(lg.ShapeError):
            _ = lg.ones(3) + lg.ones(4)

    step()
    before = settled_node_count()
    for _ in range(20):
        step()
    assert settled_node_count() <= before + 5


@needs_proc
def test_a_long_chain_executes_and_is_freed():
    length = 1_000_000 if LONG else 100_000
    x = lg.asarray(np.ones(520, np.float64))  # too large for ops without nodes
    (x + x).execute()
    before = settled_node_count()
    y = x
    for _ in range(length):
        y = y + x
    assert settled_node_count() == before + length
    kernels = lg.stats().kernels_run
    np.testing.assert_array_equal(y.numpy(), np.full(520, length + 1.0))
    assert lg.stats().kernels_run - kernels == length // 2_000
    del y
    gc.collect()
    # Compiled pieces retain their graphs, and few of them differ.
    assert settled_node_count() <= before + 5 * 2_000


def test_a_loop_that_reads_its_loss_before_backward_reaches_its_variables() -> None:
    """Reading computes the variable too and may truncate its history; an earlier loss still leads to it."""
    p = lg.asarray(np.ones(3, np.float32)).requires_grad_()
    moved, value = 0, np.inf
    for _ in range(40):
        before = p.node
        loss = lg.sum((p * 2.0 - 1.0) ** 2)
        value = float(loss)
        moved += p.node is not before
        (loss + lg.sum(p * 0.0)).backward()  # through the old node and through the new one
        np.testing.assert_allclose(lg.asarray(p.grad).numpy(), 4.0 * (2.0 * p.numpy() - 1.0), rtol=1e-5, atol=1e-6)
        p = (p - 0.05 * lg.asarray(p.grad)).requires_grad_()
    assert moved
    assert value < 1e-12


@needs_proc
def test_an_unread_total_does_not_retain_its_terms():
    parameters, loss = network()
    total = lg.asarray(0.0)
    mean = parameters["second"]

    def step() -> None:
        nonlocal parameters, total, mean
        value, slopes = lg.value_and_grad(loss)(parameters)
        parameters = lg.tree_map(lambda p, g: p - 0.05 * g, parameters, slopes)
        total, mean = total + value, 0.9 * mean + 0.1 * parameters["second"]
        float(value)

    for _ in range(64):
        step()
    nodes = settled_node_count()
    for _ in range(128):
        step()
    assert settled_node_count() - nodes < 128 * 12  # nodes of the sum of the two; a step has seventy nodes
    assert float(total) > 0.0


def test_values_computed_from_a_truncated_value_are_outdated_when_its_origin_changes() -> None:
    x = lg.asarray(np.ones(3, np.float32))
    z = x
    for _ in range(9):
        z = (z * 0.5 + x).execute()
    y = (z + 1.0).execute()
    x.fill(5.0)
    with pytest.raises(lg.UsageError, match="can no longer be recomputed"):
        y.numpy()


def test_a_training_loop_of_many_parameters_forgets_its_steps():
    weights = [lg.asarray(np.full((3, 3), 0.1 * i)).requires_grad_() for i in range(40)]
    x = lg.asarray(np.ones((2, 3)))
    counts = []
    for step in range(33):
        h = x
        for w in weights:
            h = lg.tanh(h @ w)
        loss = lg.mean(h * h)
        loss.backward()
        float(loss)
        for w in weights:
            assert w.grad is not None
            w -= w.grad * 0.01
            w.grad = None
        if step % 8 == 0 and step >= 16:
            counts.append(settled_node_count())
    assert len(set(counts)) == 1, counts

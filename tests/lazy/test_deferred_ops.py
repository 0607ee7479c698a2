"""Ops over small data have no nodes until something needs them; everything else behaves as if they had."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.node import live_node_count
from livegrad.lazy import execution
from livegrad.lazy.deferred_ops import MAX_DEPTH, DeferredOp
from livegrad.state import fresh_session
from livegrad.tensors import repeated_calls, tensor_operators


def is_deferred(x: Any) -> bool:
    return x._deferred is not None and x._deferred[0].__class__ is DeferredOp


def make_data() -> tuple[lg.Tensor, lg.Tensor]:
    return lg.asarray([1.0, 2.0, 3.0]), lg.asarray([4.0, 5.0, 6.0])


def test_reading_an_op_makes_no_node() -> None:
    x, y = make_data()
    for _ in range(3):
        (x + y).numpy()
        float(lg.sum(x * y))
    before = live_node_count()
    total = x + y
    assert total.tolist() == [5.0, 7.0, 9.0]
    norm = lg.sum(x * y)
    assert float(norm) == 32.0
    assert is_deferred(total)
    assert is_deferred(norm)
    assert live_node_count() == before


def test_the_node_has_the_source_location_and_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = make_data()
    for _ in range(3):
        (x - y).numpy()
    z = x - y
    assert z.tolist() == [-3.0, -3.0, -3.0]
    (listed,) = [node for node in z.graph.nodes if node.op == "sub"]
    assert listed.is_computed
    assert listed.origin is not None
    assert os.path.basename(listed.origin.file) == os.path.basename(__file__)
    assert not is_deferred(z)
    monkeypatch.setattr(execution, "run_small_graph", None)
    assert z.is_computed
    assert z.tolist() == [-3.0, -3.0, -3.0]


def test_equal_expressions_share_a_node_when_it_is_created() -> None:
    x, y = make_data()
    assert (x + y).node is (x + y).node


def test_held_values_are_cached_and_others_are_fused() -> None:
    with fresh_session():
        x, y = make_data()
        for _ in range(3):
            held = x * y
            float(lg.sum(held))
        held = x * y
        before = lg.stats()
        assert float(lg.sum(held)) == 32.0
        assert held.is_computed
        after = lg.stats()
        assert after.executions - before.executions == 1
        assert after.kernels_run - before.kernels_run == 1


def test_refilled_data_is_seen() -> None:
    x, y = make_data()
    z = x * y
    for _ in range(3):
        z = x * y
        assert z.tolist() == [4.0, 10.0, 18.0]
    later = z + 1.0
    x.fill(2.0)
    assert not z.is_computed
    assert later.tolist() == [9.0, 11.0, 13.0]
    assert z.tolist() == [8.0, 10.0, 12.0]
    assert (z - later).tolist() == [-1.0, -1.0, -1.0]


def test_a_long_loop_keeps_no_history_and_reports_values_that_cannot_be_recomputed() -> None:
    x, y = make_data()
    state = x * 1.0
    for _ in range(100):
        state = state * 0.5 + y
        float(state[0])
    assert state._deferred is not None
    depth, seen = 0, [state._deferred[0]]
    while seen:
        depth += 1
        seen = [operand for op in seen for operand in op.operands if operand.__class__ is DeferredOp]
    assert depth < 40
    y.fill(0.0)
    with pytest.raises(lg.LivegradError, match="been refilled"):
        (state + 1.0).numpy()
    with pytest.raises(lg.LivegradError, match="been refilled"):
        state.numpy()


def test_unread_ops_do_not_pile_up_without_nodes() -> None:
    x, _ = make_data()
    state = x
    for _ in range(5 * MAX_DEPTH):
        state = state + 1.0
        if is_deferred(state) and (deferred := state._deferred) is not None:
            assert deferred[0].depth <= MAX_DEPTH
    assert state.tolist() == [61.0, 62.0, 63.0]


def test_updates_in_place_leave_earlier_tensors_as_they_are() -> None:
    x, y = make_data()
    for _ in range(3):
        z = x + y
        before, doubled = z * 1.0, z * 2.0
        z += 1.0
        z *= 2.0
        assert z.tolist() == [12.0, 16.0, 20.0]
        assert before.tolist() == [5.0, 7.0, 9.0]
        assert doubled.tolist() == [10.0, 14.0, 18.0]
        z[1] = 0.0
        assert z.tolist() == [12.0, 0.0, 20.0]


def test_gradients_flow_through_ops_that_were_read_before() -> None:
    x, y = make_data()
    z = x * y
    for _ in range(3):
        z = x * y
        z.numpy()
    x.requires_grad_()
    total = lg.sum(z * x)  # z was created before x became a variable, and still leads to x
    total.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 20.0, 36.0]
    x.requires_grad_(False)


def test_compiled_functions_take_deferred_ops() -> None:
    x, y = make_data()
    function = lg.jit(lambda a, b: a * b)
    for _ in range(4):
        assert function(x + y, x - y).tolist() == [-15.0, -21.0, -27.0]
        read = x + y
        read.numpy()
        assert function(read, read).tolist() == [25.0, 49.0, 81.0]


def test_debugging_looks_into_deferred_ops() -> None:
    x = lg.asarray([-1.0, 4.0])
    for _ in range(3):
        z = lg.sqrt(x)
        z.numpy()
    late = lg.sqrt(x) + 1.0
    with lg.debug_nans(), pytest.raises(lg.LivegradError, match="NaN"):
        late.numpy()
    assert np.isnan(late.numpy()[0])


def test_other_devices_take_the_general_way() -> None:
    x, y = make_data()
    for _ in range(3):
        assert ((x + y).to("reference") * 2.0).tolist() == [10.0, 14.0, 18.0]
        away = x.to("reference") + y.to("reference")
        assert away.device == "reference"
        assert away.tolist() == [5.0, 7.0, 9.0]


def test_threads_read_the_same_deferred_op() -> None:
    x, y = make_data()
    for _ in range(3):
        (x * y + x).numpy()
    shared = [x * y + x for _ in range(200)]
    found: list[list[Any]] = [[] for _ in range(4)]

    def read(own: list[Any]) -> None:
        own += [(z.tolist(), float(lg.sum(z + y)), z.node.op.name) for z in shared]

    threads = [threading.Thread(target=read, args=(own,)) for own in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [([5.0, 12.0, 21.0], 53.0, "add")] * len(shared)
    assert all(own == expected for own in found)


def test_unheld_tensors_are_collected() -> None:
    x, y = make_data()
    for _ in range(3):
        (x + y).numpy()
    z = x + y
    value = weakref.ref(z.numpy().base if z.numpy().base is not None else z.numpy())
    handle = weakref.ref(z)
    del z
    assert handle() is None
    gc.collect()
    assert value() is None


def test_calls_that_differ_in_a_number_are_distinguished() -> None:
    x, _ = make_data()
    for _ in range(3):
        assert np.signbit(lg.multiply(x, 0.0).numpy()).tolist() == [False] * 3
        assert np.signbit(lg.multiply(x, -0.0).numpy()).tolist() == [True] * 3
        assert lg.pow(x, 2).tolist() == [1.0, 4.0, 9.0]
        assert lg.pow(x, 3).tolist() == [1.0, 8.0, 27.0]
        assert lg.sum(x, axis=0, keepdims=True).shape == (1,)
        assert lg.sum(x, axis=0, keepdims=False).shape == ()
        assert x[:2].tolist() == [1.0, 2.0]
        assert x[1:].tolist() == [2.0, 3.0]
        assert lg.astype(x, lg.int32).dtype == lg.int32
        assert lg.astype(x, lg.float64).dtype == lg.float64


def test_a_number_that_changes_in_each_call_fills_no_table() -> None:
    with fresh_session():
        x, _ = make_data()
        for number in range(50):
            lg.multiply(x, float(number) + 0.3)
        assert len(repeated_calls._calls.current.calls) == 0


def test_repeated_calls_raise_the_same_errors_as_the_first() -> None:
    x, _ = make_data()
    matrix = lg.ones((2, 3)) * 1.0
    for _ in range(4):
        assert lg.matmul(matrix, x).tolist() == [6.0, 6.0]
        with pytest.raises(lg.LivegradError, match="matmul"):
            lg.matmul(x, matrix)
        with pytest.raises(lg.LivegradError):
            lg.sum(x, axis=3)


# --- evaluation op by op ---------------------------------------------------------------------------------------------


def test_a_long_chain_that_is_not_read_still_leads_to_a_late_variable() -> None:
    x, y = make_data()
    state = x * 1.0
    for _ in range(300):
        state = state * 0.99 + y
    x.requires_grad_()
    lg.sum(state).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.full(3, 0.99**300), rtol=1e-4)


def test_exact_ops_compile_nothing_and_others_once() -> None:
    with fresh_session():
        x, y = make_data()
        state = x
        for step in range(40):
            state = (state * (1.0 / (step + 2)) + y - 0.5 * step) / 3.0
        assert np.isfinite(state.numpy()).all()
        assert lg.stats().programs_compiled == 0
        compiled = []
        for step in range(40):
            state = lg.sin(state) * (1.0 / (step + 2))
            float(state[step % 3])
            compiled.append(lg.stats().programs_compiled)
        assert compiled[3] == compiled[-1]


def test_an_element_or_row_becomes_an_op_when_it_is_used() -> None:
    rows = lg.asarray(np.arange(12.0).reshape(4, 3)).execute()
    x = lg.asarray(np.array([1.0, 2.0, 3.0]))
    for number in range(-4, 4):
        row = rows[number]
        difference = row - x
        assert is_deferred(difference)
        np.testing.assert_array_equal(difference.numpy(), np.arange(12.0).reshape(4, 3)[number] - [1.0, 2.0, 3.0])
        assert difference.node.operands[0] is rows[number].node


def test_ops_that_fail_report_the_line_of_the_call() -> None:
    x = lg.asarray([6, 7])
    for divisor in (2, 3, 1):
        assert (x // lg.asarray([divisor, divisor])).tolist() == [6 // divisor, 7 // divisor]
    wrong = x // lg.asarray([0, 1])
    with pytest.raises(lg.LivegradError, match=r"division by zero.*test_deferred_ops\.py"):
        wrong.numpy()


def test_a_slice_has_the_size_that_its_computed_bounds_imply() -> None:
    x = lg.asarray(np.arange(8.0))
    i = lg.asarray(1)
    for _ in range(3):
        assert x[i : i + 2].shape == (2,)
        assert x[i : i + 3].tolist() == [1.0, 2.0, 3.0]


def test_numbers_take_the_type_of_the_tensor_or_promote_it() -> None:
    x = lg.asarray([1, 2, 3], dtype=lg.int8)
    for _ in range(3):
        assert (x * 2).dtype == lg.int8
        assert (x * 2.0).dtype.kind == "float"
        assert np.signbit((x * 1.0 * -0.0).numpy()).all()
        assert not np.signbit((x * 1.0 * 0.0).numpy()).any()
        with pytest.raises(lg.LivegradError, match="out of the range"):
            _ = x * 300


@pytest.mark.parametrize("seed", range(6))
def test_random_loops_give_the_same_bits_without_deferral(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each op is read at once on the general path: then it rounds as often as an op that runs alone."""
    programs = [
        lambda x, y, k: x * (1.0 / k) + y,
        lambda x, y, k: x / 1.7 - y * 0.3,
        lambda x, y, k: lg.sin(x) * k,
        lambda x, y, k: lg.maximum(x, y) - lg.mean(x),
        lambda x, y, k: lg.roll(x, 1, axis=0) + y[0],
        lambda x, y, k: lg.where(x > y, x - y, y),
        lambda x, y, k: lg.softmax(x) + lg.stack([x, y])[1],
        lambda x, y, k: x @ lg.eye(4) - y,
    ]

    def run(read: Any) -> list[bytes]:
        choose, rng = np.random.default_rng(seed), np.random.default_rng(seed)
        pool = [lg.asarray(rng.standard_normal(4).astype(np.float32)) for _ in range(2)]
        values = []
        for step in range(60):
            x, y = (pool[index] for index in choose.integers(0, len(pool), 2))
            pool = [*pool[-5:], read(programs[choose.integers(len(programs))](x, y, float(step + 2)))]
            if choose.random() < 0.3:
                values.append(pool[-1].numpy().tobytes())
        return [*values, *[x.numpy().tobytes() for x in pool]]

    monkeypatch.setattr("livegrad.codegen.llvm.fused_multiply_add.products_of", lambda order: set())
    monkeypatch.setenv("LIVEGRAD_CACHE_DIR", str(tmp_path))  # programs without fused products are others
    with fresh_session():
        run(lambda x: x)
        deferred = run(lambda x: x)
    with fresh_session():
        for module in (repeated_calls, tensor_operators):
            monkeypatch.setattr(module, "defer_op", lambda *op: None)
        assert run(lambda x: x.execute()) == deferred


def test_numbers_that_are_broadcast_have_the_shape_of_the_result() -> None:
    x, _ = make_data()
    matrix = lg.asarray(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    cases: list[tuple[Any, Any]] = [
        (lambda: lg.concat([x, lg.zeros(3)]), [1.0, 2.0, 3.0, 0.0, 0.0, 0.0]),
        (lambda: lg.zeros(3) + x, [1.0, 2.0, 3.0]),
        (lambda: lg.ones(3) + lg.ones(3), [2.0, 2.0, 2.0]),
        (lambda: lg.where(lg.asarray(True), 1.0, lg.zeros(2)), [1.0, 1.0]),
        (lambda: lg.where(x > 1.5, 1, 0), [0, 1, 1]),
        (lambda: lg.maximum(lg.ones((2, 2)), 3.0), [[3.0, 3.0], [3.0, 3.0]]),
        (lambda: lg.sum(lg.full((2, 2), 2.0)), 8.0),
        (lambda: lg.stack([lg.zeros(2), lg.ones(2)]), [[0.0, 0.0], [1.0, 1.0]]),
        (lambda: matrix * x[0] + x, [[1.0, 3.0, 5.0], [4.0, 6.0, 8.0]]),
        (lambda: lg.eye(2) * 2.0, [[2.0, 0.0], [0.0, 2.0]]),
        (lambda: lg.arange(3) + 1, [1, 2, 3]),
        (lambda: lg.linspace(0.0, 1.0, 3) * 1.0, [0.0, 0.5, 1.0]),
        (lambda: matrix[:, ::-1][0], [2.0, 1.0, 0.0]),
        (lambda: lg.broadcast_to(x, (2, 3))[1] / 2, [0.5, 1.0, 1.5]),
    ]
    for _ in range(4):
        for compute, expected in cases:
            assert compute().tolist() == expected


def test_threads_run_loops_of_small_ops_of_their_own() -> None:
    errors: list[list[float]] = [[] for _ in range(4)]

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        x, y = (lg.asarray(rng.standard_normal(5)) for _ in range(2))
        a, b = np.array(x), np.array(y)
        for step in range(120):
            number = float(rng.uniform(0.1, 0.9))
            x, a = x * number + y, a * number + b
            if step % 7 == 0:
                y, b = lg.sin(y) + x[1], np.sin(b) + a[1]
            if step % 11 == 0:
                errors[seed].append(abs(float(x[2]) - a[2]))
        errors[seed].append(float(np.abs(x.numpy() - a).max()))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(own) == 12 and max(own) < 1e-11 for own in errors)

"""Concurrent calls of compiled functions from many Python threads: of the same or other functions and sizes."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.native.pool import set_threads, threads

N = lg.ir.Dimension.symbol("n")


@pytest.fixture(autouse=True)
def _keep_threads() -> Iterator[None]:
    before = threads()
    yield
    set_threads(before)


def _together(work: Callable[[int], None], count: int = 8) -> None:
    """Runs `work(number)` on threads that start at the same moment; the first failure is raised here."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def _moments(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
    return x * 2.0 + 0.5, ops.reduce(x, kind="sum", axes=(0,)), ops.reduce(x * x, kind="max", axes=(0,))


def test_many_threads_call_one_function_with_their_own_values() -> None:
    run = CpuFunction(lg.ir.trace(_moments, lg.ir.types.Tensor(lg.f32, (N,))))

    def work(number: int) -> None:
        values = np.full(5000, number, np.float32)
        for _ in range(60):
            scaled, total, highest = run(values)
            assert np.all(scaled == number * 2 + 0.5)
            assert (total, highest) == (5000 * number, number * number)

    _together(work)


def test_many_threads_call_one_function_with_their_own_sizes() -> None:
    run = CpuFunction(lg.ir.trace(_moments, lg.ir.types.Tensor(lg.f32, (N,))))

    def work(number: int) -> None:
        for size in (1, 33, 1000 + number, 70_000 + number, number):
            scaled, total, _ = run(np.full(size, 3, np.float32)) if size else ([], 0, 0)
            assert len(scaled) == size
            assert total == 3 * size

    _together(work)


def test_many_threads_call_one_function_with_their_own_scalars() -> None:
    run = CpuFunction(lg.ir.trace(lambda a, b: (a - b, a * b), lg.f64, lg.f64))

    def work(number: int) -> None:
        for k in range(300):
            assert [float(v) for v in run(float(number), float(k))] == [number - k, number * k]

    _together(work)


def test_threads_compile_the_same_function_once_and_others_beside_it() -> None:
    shared = CpuFunction(lg.ir.trace(lambda x: ops.exp(x) * 0.9876, lg.ir.types.Tensor(lg.f32, (N,))))
    values = np.linspace(0, 1, 777, dtype=np.float32)
    plans = []

    def work(number: int) -> None:
        np.testing.assert_allclose(shared(values), np.exp(values) * 0.9876, rtol=1e-6)
        plans.append(shared.plan({"n": 777}))
        compiled = lg.ir.compile(lg.ir.trace(lambda x: ops.exp(x) + float(number), lg.ir.types.Tensor(lg.f32, (N,))))
        np.testing.assert_allclose(compiled(values), np.exp(values) + number, rtol=1e-5)

    _together(work)
    assert len(set(map(id, plans))) == 1


def test_a_failed_check_is_raised_on_the_thread_whose_values_failed() -> None:
    run = CpuFunction(
        lg.ir.trace(lambda t, i: ops.lookup(t, i), lg.ir.types.Tensor(lg.f32, (5,)), lg.ir.types.Tensor(lg.i64, (N,)))
    )
    table = np.arange(5, dtype=np.float32)

    def work(number: int) -> None:
        indices = np.zeros(2000, np.int64)
        if number % 2:
            indices[number] = 5
        for _ in range(60):
            if number % 2:
                with pytest.raises(lg.KernelCheckError, match=f"at element {number} "):
                    run(table, indices)
            else:
                assert not np.any(run(table, indices))

    _together(work)


ROWS, COLUMNS = 200, 3000


def _softmax(x: lg.ir.Node) -> lg.ir.Node:
    weights = ops.exp(x - ops.spread_back(ops.reduce(x, kind="max", axes=(1,)), (ROWS, COLUMNS), (1,)))
    return weights / ops.spread_back(ops.reduce(weights, kind="sum", axes=(1,)), (ROWS, COLUMNS), (1,))


def test_results_stay_right_while_the_number_of_threads_changes() -> None:
    run = CpuFunction(lg.ir.trace(_softmax, lg.ir.types.Tensor(lg.f32, (ROWS, COLUMNS))))
    values = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    expected = run(values)
    for count in (1, 4, 2, 7, 3, 1, 8):
        set_threads(count)
        assert np.array_equal(run(values), expected)


def test_another_thread_may_change_the_number_of_threads_during_a_run() -> None:
    run = CpuFunction(lg.ir.trace(_softmax, lg.ir.types.Tensor(lg.f32, (ROWS, COLUMNS))))
    values = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    expected = run(values)
    done = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            while not done.wait(0.0005):
                set_threads(1)
                set_threads(8)
            return
        try:
            for _ in range(40):
                assert np.array_equal(run(values), expected)
        finally:
            done.set()

    _together(work, count=2)


def test_arguments_that_are_changed_after_a_call_do_not_change_its_result() -> None:
    run: Any = CpuFunction(lg.ir.trace(lambda x: x + 1.0, lg.ir.types.Tensor(lg.f32, (N,))))
    values = np.zeros(100_000, np.float32)
    result = run(values)
    values[:] = 7.0
    assert np.all(result == 1.0)

"""Compiled functions work in a child of `os.fork` and of multiprocessing, and in the parent afterwards."""

import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.runtime.cpu.native.pool import set_threads, threads
from tests.forked import run_in_fork

N = lg.ir.Dimension.symbol("n")
VALUES = np.linspace(0.0, 1.0, 200_003, dtype=np.float32)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def _sum_of_squares() -> Any:
    return lg.ir.compile(
        lg.ir.trace(lambda x: ops.reduce(x * x, kind="sum", axes=(0,)), lg.ir.types.Tensor(lg.f32, (N,)))
    )


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = threads()
    set_threads(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # these tests fork with threads on purpose
        yield
    set_threads(before)


def test_a_compiled_function_works_in_a_fork_and_the_parent_goes_on() -> None:
    run = _sum_of_squares()
    expected = run(VALUES)
    for _ in range(3):
        assert run_in_fork(lambda: run(VALUES) == expected) == 0
        assert run(VALUES) == expected


def test_a_fork_compiles_and_checks() -> None:
    def child() -> bool:
        fresh = lg.ir.compile(lg.ir.map_over(lg.ir.trace(lambda x: ops.sin(x) + 0.123, lg.f32)))
        close = np.allclose(fresh(VALUES), np.sin(VALUES) + 0.123, atol=1e-5)
        try:
            lg.ir.compile(lg.ir.trace(lambda a, b: a // b, lg.i32, lg.i32))(1, 0)
        except lg.KernelCheckError:
            return close
        return False

    assert run_in_fork(child) == 0


def test_a_child_may_fork_again() -> None:
    run = _sum_of_squares()
    expected = run(VALUES)
    assert run_in_fork(lambda: run(VALUES) == expected and run_in_fork(lambda: run(VALUES) == expected) == 0) == 0


def test_a_fork_while_another_thread_runs_the_same_function_does_not_hang() -> None:
    def iterate(x: lg.ir.Node, iterations: lg.ir.Node) -> lg.ir.Node:
        return ops.make_for_loop(iterations, lambda i, v: ops.sin(v), x)[0]

    run = lg.ir.compile(lg.ir.trace(iterate, lg.f32, lg.i64))
    expected = run(1.0, 3)
    thread = threading.Thread(target=run, args=(1.0, 20_000_000))
    thread.start()
    time.sleep(0.05)
    assert run_in_fork(lambda: run(1.0, 3) == expected) == 0
    assert thread.is_alive(), "the other thread was to be inside the function"
    thread.join()
    assert run(1.0, 3) == expected


def test_forks_while_other_threads_compile_and_compute_do_not_hang() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []
    run = _sum_of_squares()
    expected = run(VALUES)

    def work(seed: int) -> None:
        number = seed * 1000
        try:
            while not stop.is_set():
                number += 1
                fresh = lg.ir.compile(lg.ir.trace(lambda x, k=number: x * float(k) + 1.0, lg.f32))
                assert fresh(2.0) == np.float32(2.0 * number + 1.0)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    try:
        statuses = [run_in_fork(lambda: run(VALUES) == expected) for _ in range(8)]
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert (statuses, failures) == ([0] * 8, [])


def _in_another_process(scale: float) -> float:
    return float(lg.ir.compile(lg.ir.trace(lambda x: x * 3.0, lg.f32))(scale)) + float(
        _sum_of_squares()(np.ones(70_000, np.float32))
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_compiled_functions_work_under_multiprocessing(method: str) -> None:
    expected = [_in_another_process(scale) for scale in (1.0, 2.0)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_in_another_process, [1.0, 2.0]).get(timeout=60) == expected
    assert _in_another_process(1.0) == expected[0]

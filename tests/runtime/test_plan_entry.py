"""Native entries of plans: same results as running step by step; unsupported calls are declined."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu import plan_entry
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.native.object_layout import find_layout
from livegrad.runtime.cpu.plan_entry import make_plan_entry
from livegrad.state import fresh_session
from livegrad.tensors.native_handles import handle_layout
from tests.forked import run_in_fork

BITS = {np.dtype(np.float64): np.uint64, np.dtype(np.float32): np.uint32}


def plan_of(function: Callable[..., Any], *arguments: Any) -> CompiledPlan:
    compiled = lg.jit(function)
    compiled(*arguments)
    (traced,) = compiled.functions
    return lg.ir.compile(traced).plan()


def bits_of(array: Any) -> list[Any]:
    return [array.dtype, array.shape, array.tobytes()]


def random_arguments(choose: random.Random, rng: np.random.Generator) -> list[Any]:
    """Arrays and numbers of random types, with NaNs that carry payloads, infinities and negative zeros."""
    dtype = choose.choice([np.float32, np.float64, np.int32, np.int64, np.complex64, np.float16, bool, np.uint8])
    shape = choose.choice([(), (1,), (3,), (0,), (2, 3), (4, 0), (5, 1, 2), (3, 41)])
    arrays = [np.array(rng.normal(size=shape) * 3).astype(dtype) for _ in range(2)]
    for array in arrays:
        bits = BITS.get(array.dtype)
        if bits is not None and array.size:
            special = [np.nan, -np.nan, np.inf, -np.inf, -0.0]
            array.reshape(-1)[:1] = choose.choice(special)
            if choose.random() < 0.3:
                array.reshape(-1)[:1].view(bits)[:] |= bits(0x1234)
    return arrays


FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: (lg.maximum(a, b), lg.sum(a), b),
    lambda a, b: lg.concat([lg.reshape(a, (-1,)), lg.reshape(b, (-1,))]),
    lambda a, b: {"x": lg.where(a == b, a, b), "y": [a * b]},
    lambda a, b: lg.sum(a) + 2,
]


@pytest.mark.parametrize("seed", range(60))
def test_entries_compute_the_bits_of_running_step_by_step(seed: int) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    arguments = random_arguments(choose, rng)
    if arguments[0].dtype.kind in "bc" or (arguments[0].dtype.kind == "u"):
        function = FUNCTIONS[2]
    else:
        function = choose.choice(FUNCTIONS)
    plan = plan_of(function, *arguments)
    expected = plan.run_step_by_step(arguments)
    entry = make_plan_entry(plan)
    if entry is None:
        assert not plan.only_kernels
        return
    actual = entry(*arguments)
    actual = actual if isinstance(actual, list) else [actual]
    assert list(map(bits_of, actual)) == list(map(bits_of, expected))
    assert all(array.flags.writeable and array.flags.carray for array in actual)
    frozen = make_plan_entry(plan, frozen=True)
    assert frozen is not None
    again = frozen(*arguments)
    again = again if isinstance(again, list) else [again]
    assert list(map(bits_of, again)) == list(map(bits_of, expected))
    assert not any(array.flags.writeable for array in again)


class _Array(np.ndarray[Any, Any]):
    pass


class _Float(float):
    pass


def test_unsupported_arguments_are_declined() -> None:
    array = np.arange(6.0).reshape(2, 3)
    entry = make_plan_entry(plan_of(lambda a, s: a * s, array, 2.0))
    assert entry is not None
    assert bits_of(entry(array, 2.0)) == bits_of(array * 2.0)
    assert bits_of(entry(array, np.array(2.0))) == bits_of(array * 2.0)
    others = [
        array.T,
        array[:, ::-1],
        array[:1],
        array.reshape(-1),
        array.astype(">f8"),
        array.astype(np.float32),
        array.view(_Array),
        np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:].view(np.float64).reshape(2, 3),
        array.tolist(),
        None,
    ]
    for other in others:
        assert entry(other, 2.0) is None
    for wrong in (2, True, _Float(2.0), np.float64(2.0), np.array([2.0]), 2j, "2", None):
        assert entry(array, wrong) is None
    assert entry(array) is None
    assert entry() is None
    assert entry(array, 2.0, 3.0) is None
    array.setflags(write=False)
    assert bits_of(entry(array, 2.0)) == bits_of(array * 2.0)


def test_integers_that_do_not_fit_are_declined() -> None:
    entry = make_plan_entry(plan_of(lambda a: a + 1, 5))
    assert entry is not None
    assert entry(2**62).item() == 2**62 + 1
    assert entry(-(2**63)).item() == -(2**63) + 1
    assert entry(2**63) is None
    assert entry(-(2**63) - 1) is None


def test_jit_computes_the_same_with_and_without_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(seed: int) -> list[Any]:
        choose, rng = random.Random(seed), np.random.default_rng(seed)
        function = lg.jit(lambda x, y, s, n: (x * s + y) * n)
        values: list[Any] = []
        for _ in range(12):
            dtype = choose.choice([np.float32, np.float64, np.int64])
            x, y = (rng.integers(-5, 5, (3, 2)).astype(dtype) for _ in range(2))
            s, n = choose.choice([0.5, 2.0, -0.0, np.nan, 3, 10**30]), choose.choice([1, 7, -2, 2**70, 0.25, True])
            kinds = [lg.asarray, lambda a: a, lambda a: lg.asarray(a) + 1, lambda a: a.T.copy().T, lambda a: a[::-1]]
            try:
                result = function(choose.choice(kinds)(x), choose.choice(kinds)(y), s, n)
                values.append([result.dtype, *bits_of(np.asarray(result)), np.asarray(result).flags.writeable])
            except lg.LivegradError as error:
                values.append(str(error))
        return [*values, function.traces]

    for seed in range(25):
        quick = outcome(seed)
        with monkeypatch.context() as patch:
            patch.setattr(plan_entry.settings, "enabled", False)
            with fresh_session():
                assert outcome(seed) == quick


def test_a_quick_call_runs_one_python_function() -> None:
    function, x = lg.jit(lambda a, b: a * b + 1.0), lg.ones(4)
    names: list[str] = []

    def call() -> Any:
        return function(x, 2.0)

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    for _ in range(3):
        call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    assert names == ["call", "__call__"]


@pytest.mark.own_process
def test_a_hundred_thousand_calls_leak_nothing() -> None:
    x, y = np.arange(4.0), np.ones(4)
    plan = plan_of(lambda a, b, s: (a * b, a + s), x, y, 2.0)
    entry = make_plan_entry(plan, frozen=True)
    assert entry is not None
    number = 2.5
    watched = [x, y, number, x.dtype, entry, None]
    entry(x, y, number)
    gc.collect()
    before, blocks = [sys.getrefcount(value) for value in watched], sys.getallocatedblocks()
    for _ in range(100_000):
        entry(x, y, number)  # runs
        entry(x, y, 1)  # declines the last argument
    gc.collect()
    after = [sys.getrefcount(value) for value in watched]
    assert after[:-1] == before[:-1]
    assert abs(after[-1] - before[-1]) < 100  # of None, which has other users
    assert abs(sys.getallocatedblocks() - blocks) < 200


def test_a_plan_in_use_is_left_to_the_lock() -> None:
    x = np.arange(4.0)
    plan = plan_of(lambda a: a * 3.0, x)
    entry = make_plan_entry(plan)
    assert entry is not None
    with plan.lock:
        assert entry(x) is None
    assert entry(x).tolist() == [0.0, 3.0, 6.0, 9.0]
    assert not plan.lock.locked()


def test_threads_share_a_plan() -> None:
    large = np.arange(300_000.0)  # several chunks, so the GIL is released
    plan = plan_of(lambda a: lg.sum(a * 2.0) + a, large)
    wrong: list[int] = []

    def work(number: int) -> None:
        argument = large + number
        expected = plan_of_own(argument)
        for _ in range(20):
            if not np.array_equal(plan.run([argument])[0], expected):
                wrong.append(number)

    def plan_of_own(argument: Any) -> Any:
        return plan.run([argument])[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not plan.lock.locked()


def test_a_failed_check_names_the_line_and_the_next_call_is_good() -> None:
    function = lg.jit(lambda x, i: x[i])
    x = lg.asarray([1.0, 2.0, 3.0])
    for _ in range(3):
        assert float(function(x, lg.asarray(1))) == 2.0
        with pytest.raises(lg.LivegradError, match="test_plan_entry"):
            function(x, lg.asarray(7)).numpy()
        assert float(function(x, lg.asarray(2))) == 3.0


def test_tensors_are_accepted_without_conversion() -> None:
    x = lg.asarray(np.arange(3.0))
    plan = plan_of(lambda a: a + 1.0, x)
    entry = make_plan_entry(plan, [2], handle_layout())
    assert entry is not None
    assert entry(x).tolist() == [1.0, 2.0, 3.0]
    assert entry(np.arange(3.0)) is None  # an array is another signature
    computed = (x * 2.0).execute()
    assert entry(computed).tolist() == [1.0, 3.0, 5.0]
    for _ in range(3):
        (x * 3.0).numpy()
    deferred = x * 3.0
    assert entry(deferred) is None  # not computed
    deferred.numpy()
    assert entry(deferred).tolist() == [1.0, 4.0, 7.0]
    assert entry(lg.jit(lambda a: a * 2.0)(x)).tolist() == [1.0, 3.0, 5.0]
    assert entry(x[1:2]) is None
    x.fill(1.0)
    assert entry(computed) is None  # no longer valid
    assert entry(deferred) is None
    assert entry(x).tolist() == [2.0, 2.0, 2.0]
    variable = lg.ones(2).requires_grad_()
    assert entry((x * 2.0).execute()) is None  # a gradient may depend on it
    del variable
    assert entry(x.requires_grad_()) is None
    x.requires_grad_(False)
    gone = lg.asarray(np.arange(3.0))
    gone.free()
    assert entry(gone) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_runs_plans_that_its_parent_was_running() -> None:
    x = np.arange(4.0)
    plan = plan_of(lambda a: a - 1.0, x)
    plan.run([x])
    with plan.lock:
        status = run_in_fork(lambda: not plan.lock.locked() and plan.run([x])[0].tolist() == [-1.0, 0.0, 1.0, 2.0])
    assert status == 0


def test_this_interpreter_has_entries() -> None:
    assert find_layout() is not None
    assert handle_layout() is not None

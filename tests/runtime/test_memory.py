"""Results belong to the caller: they never share memory, and freed memory returns to the pool."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.runtime.cpu import memory_pool
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.memory_pool import MemoryPool, memory_of_results

N = lg.ir.Dimension.symbol("n")
VECTOR = lg.ir.types.Tensor(lg.f32, (N,))

RESULT_FORMS: dict[str, Callable[[lg.ir.Node], Any]] = {
    "the argument itself": lambda x: x,
    "the argument twice": lambda x: (x, x),
    "one value twice": lambda x: (x + 1.0, x + 1.0),
    "a value and its reshaped form": lambda x: (x * 2.0, ops.reshape(x * 2.0, shape=(1, N))),
    "the argument reshaped": lambda x: (ops.reshape(x, shape=(N, 1)), x),
    "a value and its reverse": lambda x: (x * 2.0, ops.flip(x * 2.0, axes=(0,))),
    "a whole slice": lambda x: ops.slice_(x, start=(0,), size=(N,), step=(1,)),
    "constants": lambda x: (ops.filled(1.0, x.type), ops.filled(1.0, x.type)),
    "sums": lambda x: (ops.reduce(x, kind="sum", axes=(0,)), ops.reduce(x, kind="sum", axes=(0,))),
}


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("size", [7, 200_000])
@pytest.mark.parametrize("form", RESULT_FORMS)
def test_results_share_no_memory(form: str, size: int) -> None:
    compiled = lg.ir.compile(lg.ir.trace(RESULT_FORMS[form], VECTOR))
    argument = np.arange(size, dtype=np.float32)
    before = argument.copy()
    arrays = [argument, *_parts(compiled(argument)), *_parts(compiled(argument))]
    for index, array in enumerate(arrays):
        assert array.flags.writeable
        assert not any(np.shares_memory(array, other) for other in arrays[:index])
    for array in arrays[1:]:
        array[...] = -1.0
    assert np.array_equal(argument, before)
    assert [part.tolist() for part in _parts(compiled(argument))] == [
        np.asarray(part).tolist() for part in _parts(lg.ir.evaluate(compiled.function, argument))
    ]


@pytest.mark.parametrize("size", [10, 100_000])
def test_results_that_are_kept_are_not_overwritten(size: int) -> None:
    compiled = lg.ir.compile(lg.ir.trace(lambda x: x * 2.0, VECTOR))
    results = [compiled(np.full(size, number, np.float32)) for number in range(40)]
    assert all(np.all(array == 2 * number) for number, array in enumerate(results))


def test_a_view_keeps_the_memory_of_its_result() -> None:
    compiled = lg.ir.compile(lg.ir.trace(lambda x: x * 2.0, VECTOR))
    views = [compiled(np.full(100_000, number, np.float32))[5:9] for number in range(20)]
    exported = memoryview(compiled(np.full(100_000, 50, np.float32)))
    gc.collect()
    others = [compiled(np.full(100_000, -1, np.float32)) for _ in range(20)]
    assert [view.tolist() for view in views] == [[2.0 * number] * 4 for number in range(20)]
    assert exported[99_999] == 100.0
    assert all(np.all(array == -2) for array in others)


def test_the_memory_of_dropped_results_is_used_again_and_bounded() -> None:
    compiled = CpuFunction(lg.ir.trace(lambda x: x * 2.0, VECTOR))
    values = np.ones(200_000, np.float32)
    compiled(values)
    gc.collect()
    before = memory_of_results.current.free_bytes
    for _ in range(50):
        compiled(values)
    gc.collect()
    assert memory_of_results.current.free_bytes <= before + 2 * values.nbytes


def test_a_plan_reuses_the_memory_of_a_dropped_plan_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = lg.ir.trace(lambda x: ops.matmul(ops.matmul(x, x) + 1.0, x), lg.ir.types.Tensor(lg.f32, (300, 300)))
    fresh: list[int] = []
    original = memory_pool.aligned_memory
    monkeypatch.setattr(memory_pool, "aligned_memory", lambda size: (fresh.append(size), original(size))[1])
    counts = []
    for _ in range(3):
        compiled = CpuFunction(traced)
        compiled(np.ones((300, 300), np.float32))
        del compiled
        gc.collect()
        counts.append(sum(size >= memory_pool._SMALL for size in fresh))
    assert counts[0] == counts[1] == counts[2]


def test_a_pool_keeps_no_more_than_its_limit() -> None:
    pool = MemoryPool(max_bytes=1 << 20)
    arrays = [pool.array(lg.f32, (100_000,), 400_000) for _ in range(10)]
    del arrays
    gc.collect()
    assert 0 < pool.free_bytes <= 1 << 20
    again = pool.array(lg.f32, (100_000,), 400_000)
    assert again.shape == (100_000,)
    assert again.ctypes.data % 64 == 0


def test_a_full_pool_evicts_the_least_recently_used_size() -> None:
    pool = MemoryPool(max_bytes=1 << 20)
    for size in (400_000, 500_000, 300_000):
        pool.array(lg.f32, (size // 4,), size)
    gc.collect()
    free_bytes = pool.free_bytes
    assert pool.array(lg.f32, (125_000,), 500_000).size == 125_000
    assert pool.free_bytes == free_bytes, "it was there, and is again"
    assert pool.array(lg.f32, (100_000,), 400_000).size == 100_000
    assert pool.free_bytes != free_bytes, "it was not, and takes the place of another"
    assert pool.array(lg.f32, (1 << 19,), 1 << 21).size == 1 << 19, "more than it keeps"
    assert pool.free_bytes <= 1 << 20


def test_a_failed_run_gives_its_memory_back() -> None:
    checked = lg.ir.trace(lambda x: ops.check(x, x < 1.28125, message="too large"), lg.f32)
    compiled = lg.ir.compile(lg.ir.map_over(checked))
    good, bad = np.ones(200_000, np.float32), np.full(200_000, 2, np.float32)
    compiled(good)
    gc.collect()
    before = memory_of_results.current.free_bytes
    for _ in range(20):
        with pytest.raises(lg.KernelCheckError):
            compiled(bad)
    gc.collect()
    assert memory_of_results.current.free_bytes <= before + 2 * good.nbytes
    assert np.all(compiled(good) == 1.0)


def test_intermediate_memory_of_a_call_does_not_affect_the_next() -> None:
    def chain(x: lg.ir.Node) -> lg.ir.Node:
        total = ops.reduce(x, kind="sum", axes=(0,))
        scaled = x - ops.spread_back(total, (N,), (0,))
        return ops.reduce(scaled * scaled, kind="sum", axes=(0,))

    compiled = lg.ir.compile(lg.ir.trace(chain, VECTOR))
    ones = np.ones(100, np.float32)
    expected = float(compiled(ones))
    compiled(np.full(100, np.nan, np.float32))
    compiled(np.full(70_000, np.inf, np.float32))
    assert float(compiled(ones)) == expected == 100 * 99.0**2

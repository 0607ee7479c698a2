"""The fast paths of eager programs give the same bits as the general path, and leave other cases to it."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.lazy import execution, small_graphs
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.state import fresh_session
from livegrad.tensors import handle, index_keys, indexing, repeated_calls, tensor_operators

DTYPES = [
    lg.bool,
    lg.int8,
    lg.int16,
    lg.int32,
    lg.int64,
    lg.uint8,
    lg.uint16,
    lg.uint32,
    lg.uint64,
    lg.float16,
    lg.bfloat16,
    lg.float32,
    lg.float64,
    lg.complex64,
    lg.complex128,
]


@contextmanager
def general_way(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disables deferred elements and ops and small graphs inside the context, and runs plans step by step."""
    with monkeypatch.context() as patch:
        patch.setattr(tensor_operators, "defer_op", lambda *op: None)
        patch.setattr(repeated_calls, "defer_op", lambda *op: None)
        patch.setattr(CompiledPlan, "run", CompiledPlan.run_step_by_step)
        patch.setattr(execution, "run_small_graph", lambda root: (None, None))
        patch.setattr(handle, "element_index", lambda source, before, key: None)
        yield


def random_data(rng: np.random.Generator, dtype: Any) -> lg.Tensor:
    shape = tuple(rng.integers(1, 4, rng.integers(0, 4)))
    numbers = rng.integers(0, 5, shape) if dtype.kind in ("unsigned", "bool") else rng.integers(-4, 5, shape)
    if dtype.kind == "complex":
        numbers = numbers + 1j * rng.integers(-4, 5, shape)
    return lg.astype(lg.asarray(numbers / 2 if dtype.kind in ("float", "complex") else numbers), dtype)


def elements(x: lg.Tensor, choose: random.Random) -> lg.Tensor:
    if not x.size or not x.ndim:
        return x
    key = tuple(choose.randrange(-size, size) for size in x.shape[: choose.randint(1, x.ndim)])
    return x[key[0] if len(key) == 1 else key]


STEPS: list[Callable[[lg.Tensor, lg.Tensor, random.Random], lg.Tensor]] = [
    lambda x, y, choose: x + x,
    lambda x, y, choose: x * y,
    lambda x, y, choose: x - y,
    lambda x, y, choose: x * choose.choice([2, 3, -1]),
    lambda x, y, choose: choose.choice([0.1, 2.5, 1 / 3]) * x,
    lambda x, y, choose: x < y,
    lambda x, y, choose: x == y,
    lambda x, y, choose: x & y,
    lambda x, y, choose: -x,
    lambda x, y, choose: lg.maximum(x, y),
    lambda x, y, choose: lg.sum(x),
    lambda x, y, choose: lg.sum(x, axis=-1, keepdims=True),
    lambda x, y, choose: lg.max(x),
    lambda x, y, choose: lg.sin(x),
    lambda x, y, choose: lg.exp(x) * x,
    lambda x, y, choose: x / y,
    lambda x, y, choose: x // y,
    lambda x, y, choose: elements(x, choose),
    lambda x, y, choose: elements(x, choose) * elements(y, choose),
    lambda x, y, choose: x[1:] if x.ndim else x,
    lambda x, y, choose: lg.reshape(x, (-1,)),
    lambda x, y, choose: lg.mean(x),
    lambda x, y, choose: lg.where(x > y, x, y),
    lambda x, y, choose: lg.clip(x, 0, 1),
    lambda x, y, choose: lg.stack([x, x]),
    lambda x, y, choose: lg.concat([x, y], axis=0),
    lambda x, y, choose: x @ y,
    lambda x, y, choose: x**2,
    lambda x, y, choose: lg.abs(x) + y,
    lambda x, y, choose: (x - y) * (x - y),
    lambda x, y, choose: x[..., ::-1] if x.ndim else x,
    lambda x, y, choose: lg.permute_dims(x, tuple(reversed(range(x.ndim)))),
    lambda x, y, choose: x[99] if choose.random() < 0.1 else x,
    lambda x, y, choose: x[(0,) * (x.ndim + 1)] if choose.random() < 0.1 else x,
]


def outcome_of(seed: int, run: Callable[[lg.Tensor], Any]) -> list[Any]:
    """Returns what a random program reads, with dtypes and errors; sometimes it reads twice, or late."""
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    dtype = choose.choice(DTYPES)
    pool = [random_data(rng, dtype) for _ in range(3)]
    seen: list[Any] = []
    for _ in range(12):
        step, x, y = choose.choice(STEPS), choose.choice(pool), choose.choice(pool)
        late, state = choose.random() < 0.3, choose.getstate()
        try:
            made = step(x, y, choose)
            if not late:
                seen.append(run(made))
            pool.append(made)
        except lg.LivegradError as error:
            seen.append((type(error), str(error)))
        choose.setstate(state)  # an error must not change what follows
        choose.random()
    return [*seen, *[read_or_error(run, made) for made in pool]]


def read_or_error(run: Callable[[lg.Tensor], Any], made: lg.Tensor) -> Any:
    try:
        return run(made)
    except lg.LivegradError as error:
        return type(error), str(error)


def read(x: lg.Tensor) -> Any:
    array = np.asarray(x)
    numbers = [x.item(), bool(x), complex(x)] if x.shape == () else [len(x)]
    if x.shape == () and x.dtype.kind != "complex":
        numbers += [float(x)]
    return x.dtype, x.shape, array.dtype, array.tobytes(), repr(numbers), array.flags.writeable


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_programs_read_the_same_on_both_paths(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 20):
        with general_way(monkeypatch):
            expected = outcome_of(seed, read)
        assert outcome_of(seed, read) == expected  # caches structures
        assert outcome_of(seed, read) == expected  # runs from the cache


def test_the_second_graph_of_a_structure_takes_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_session():
        x, y = lg.asarray([1.0, 2.0]), lg.asarray([3.0, 4.0])
        assert float(lg.sum(x + y)) == 10.0
        monkeypatch.setattr(execution, "_execute_general", None)
        assert float(lg.sum(y + x)) == 10.0


def test_statistics_equal_those_of_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> tuple[Any, ...]:
        x = lg.asarray([1.0, 2.0, 3.0])
        held = (x * 0.3).execute()
        kept = held + x
        before = lg.stats()
        assert float(lg.sum(kept * 2.0)) == pytest.approx(15.6)
        kept.numpy()
        after = lg.stats()
        names = ("executions", "programs_reused", "kernels_run", "cache_hits", "programs_compiled")
        return tuple(getattr(after, name) - getattr(before, name) for name in names)

    with fresh_session():
        work()
        with general_way(monkeypatch):
            expected = work()
        work()
        assert work() == expected


def test_a_filled_leaf_and_an_in_place_update_are_seen() -> None:
    x = lg.asarray([1.0, 2.0])
    element, row = x[1], lg.asarray([[1.0, 2.0]])[0]
    assert float(element) == 2.0
    x.fill(5.0)
    assert float(element) == 5.0
    y = x * 2.0
    assert float(y[0]) == 10.0
    first = y[0]
    x.fill(1.0)
    assert float(first) == 2.0
    y += 1.0
    assert (float(first), float(y[0])) == (2.0, 3.0)
    assert row.tolist() == [1.0, 2.0]


def test_gradients_go_through_elements() -> None:
    w = lg.asarray([1.0, 2.0, 3.0]).requires_grad_()
    assert float(w[1]) == 2.0
    (w[1] * w[1] + w[-1]).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [0.0, 4.0, 1.0]
    rows = lg.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert lg.grad(lambda x: lg.sum(x * rows[1]))(rows[0]).tolist() == [3.0, 4.0]


def test_an_element_inside_a_trace_is_part_of_it() -> None:
    table = lg.asarray([1.0, 2.0, 3.0])
    outside = table[2]
    traced = lg.jit(lambda x: x * table[1] + outside)
    assert float(traced(2.0)) == 7.0
    table += 1.0
    assert float(traced(2.0)) == 9.0  # `outside` keeps its value
    assert lg.vmap(lambda x: x * table[0])(lg.asarray([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert float(lg.fori_loop(0, 3, lambda i, total: total + table[0], lg.asarray(0.0))) == 6.0


def test_elements_of_an_evicted_value_are_computed_again() -> None:
    with fresh_session():
        x = lg.asarray([1.0, 2.0])
        y = (x * 3.0).execute()
        element = y[1]
        lg.set_cache_budget(0)
        assert not y.is_computed
        assert float(element) == 6.0


def test_an_element_has_the_source_location_of_its_expression() -> None:
    x = lg.asarray([3, 0])
    wrong = x[0] // x[1]
    with pytest.raises(lg.LivegradError, match=r"test_small_graphs\.py"):
        int(wrong)
    with pytest.raises(lg.LivegradError, match=r"test_small_graphs\.py"):
        int(x[0] // x[1])  # again, now that the structure is cached


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3), (1, 1), (1, 4), (2, 1, 3)])
def test_the_node_of_an_element_is_that_of_any_other_key(shape: tuple[int, ...]) -> None:
    x = lg.ones(shape) * 2.0
    for length in range(1, len(shape) + 1):
        for index in np.ndindex(*shape[:length]):
            last = tuple(place - size for place, size in zip(index, shape, strict=False))
            expected = indexing.read_spans(x.node, index_keys.parse_key(index, shape))
            assert x[index].node is x[last].node is expected


def test_a_result_of_jit_is_a_leaf_when_it_is_used() -> None:
    scaled = lg.jit(lambda x, y: (x * y, x + y))
    product, total = scaled(2.0, 3.0)
    assert (float(product), total.item(), product.dtype, total.shape) == (6.0, 5.0, lg.float32, ())
    assert product.is_computed
    assert float(product * total) == 30.0
    product.fill(1.0)
    assert (float(product), float(product + 1.0)) == (1.0, 2.0)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(total)[...] = 0.0


def test_threads_read_the_same_tensor_as_one_leaf() -> None:
    results = [lg.jit(lambda x: x * 2.0)(float(number)) for number in range(50)]
    seen: list[list[Any]] = [[], []]
    ready = threading.Barrier(2)

    def use(own: list[Any]) -> None:
        ready.wait()
        own += [result.node for result in results]

    threads = [threading.Thread(target=use, args=(own,)) for own in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(first is second for first, second in zip(*seen, strict=True))


def test_a_loop_that_reads_each_step_forgets_its_history() -> None:
    x, step = lg.asarray([1.0, 2.0]), lg.asarray([0.5, 0.25])
    for _ in range(100):
        x = x * 0.5 + step
        float(x[0])
    assert len(lg.Tensor.graph.fget(x).nodes) < 40  # type: ignore[attr-defined]


def test_many_elements_wait_for_their_tensor() -> None:
    with fresh_session():
        x = (lg.arange(9000) * 2).execute()
        elements, node = list(x), x.node
        del x
        before = lg.stats().nodes_computed
        assert [int(element) for element in elements[:5000:1000]] == [0, 2000, 4000, 6000, 8000]
        assert int(elements[3] + elements[4]) == 14
        big = lg.sum(elements[5] + lg.ones(1 << 15, dtype=lg.int64))  # on the general path
        assert int(big) == 11 << 15
        assert int(elements[-1]) == 17998
        assert lg.stats().nodes_computed - before < 20  # `x` was not computed again
        assert node.cell.value is not None


def test_values_that_other_tensors_wait_for_take_the_general_path() -> None:
    def read_two_sums() -> None:
        shared = lg.exp(x) * y
        first, second = lg.sum(shared), lg.max(shared)
        del shared
        float(first)
        before = lg.stats().nodes_computed
        float(second)
        assert lg.stats().nodes_computed == before + 1

    with fresh_session():
        x, y = lg.asarray([1.0, 2.0]), lg.asarray([3.0, 4.0])
        for _ in range(3):
            read_two_sums()


def test_keys_tell_constants_and_data_apart() -> None:
    x = lg.asarray([1.0, 2.0])
    tenth = lg.asarray([0.1, 0.1])
    for _ in range(3):
        assert (x * tenth).tolist() == (x * 0.1).tolist()
        assert (x * 0.1 + 0.2).tolist() == (x * tenth + 0.2).tolist()
        assert (x * 0.3 + 0.3).tolist() != (x * 0.3 + 0.2).tolist()
        assert (x * 0.0).tolist() == [0.0, 0.0]
        assert np.signbit(np.asarray(x * -0.0)).all()


def test_no_more_structures_are_kept_than_allowed() -> None:
    with fresh_session():
        programs = small_graphs.programs_of_session.current
        programs.small_graph_runners.capacity = 4
        for size in range(1, 12):
            x = lg.ones(size)
            for _ in range(2):
                assert float(lg.sum(x + x)) == 2.0 * size
        assert len(programs.small_graph_runners) == 4
        lg.clear_caches()
        assert not programs.small_graph_runners


# --- how much Python runs --------------------------------------------------------------------------------------------


def python_calls(operation: Callable[[], Any]) -> int:
    """Counts the Python functions that an operation calls once its structure is cached, without C functions.

    The least of some runs: now and then tables are cleared up.
    """
    for _ in range(5):
        operation()
    return min(_calls_of_one_run(operation) for _ in range(3))


def _calls_of_one_run(operation: Callable[[], Any]) -> int:
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        operation()
    finally:
        sys.setprofile(before)
    return calls - 1  # the operation itself


def test_eager_operations_call_few_python_functions() -> None:
    x, y = lg.asarray([1.0, 2.0, 3.0]), lg.asarray([4.0, 5.0, 6.0])
    a, b = (x * 2.0 + y).execute(), (x * y).execute()
    matrix = lg.asarray(np.arange(12.0).reshape(3, 4)).execute()
    scalars = lg.jit(lambda p, q, r: p * q + r)
    most = {
        "making a node": (lambda: a + b, 3),
        "making a node with a number": (lambda: a * 2.0, 6),
        "an element": (lambda: float(a[1]), 10),
        "an element of a leaf": (lambda: float(x[-1]), 9),
        "an element of a matrix": (lambda: matrix[1, 2].item(), 10),
        "a sum read at once": (lambda: np.asarray(a + b), 17),
        "two operations read at once": (lambda: float((a + b).sum()), 28),
        "a compiled function of three numbers": (lambda: float(scalars(1.0, 2.0, 3.0)), 11),
    }
    counted = {name: python_calls(operation) for name, (operation, _) in most.items()}
    assert {name: calls for name, calls in counted.items() if calls > most[name][1]} == {}

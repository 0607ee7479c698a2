"""`vmap` of loops and branches: each member runs independently, with the same values and derivatives as alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.function import trace
from livegrad.ir.node import Function
from livegrad.ir.propagate_lines import forget_derivations
from livegrad.ir.types import Tensor, f64, i64
from livegrad.ir.walk import ops_in
from livegrad.ops.maps import map_
from livegrad.passes.batch import batch, walk
from livegrad.runtime.cpu import run_function
from livegrad.tensors.tracing import trace_call
from tests.schedule.plans import host_ops, plan_of

MEMBERS = 23


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


def shrinking(v: Any) -> Any:
    def step(state: Any) -> Any:
        x, count = state
        return lg.flip(x, axis=0) * 0.7 + lg.sum(x) * 0.1, count + 1

    return lg.while_loop(lambda s: (lg.sum(s[0] * s[0]) > 0.5) & (s[1] < 20), step, (v, lg.zeros((), dtype=lg.int64)))


def indexed(v: Any) -> Any:
    place = lg.argmax(v)
    v = lg.cond(v[place] > 1.0, lambda v: v / v[place], lambda v: v.at[place].set(0.25), v)
    total = lg.fori_loop(0, place + 1, lambda k, s: s + v[k], lg.zeros((), dtype=v.dtype))
    return lg.max(v), lg.min(v * v), total


def scanned(v: Any) -> Any:
    return lg.scan(lambda s, x: (s + x, s * x), lg.zeros((), dtype=v.dtype), v)


def products(v: Any) -> Any:
    matrix = lg.reshape(v, (2, 2))
    return lg.fori_loop(0, 3, lambda k, a: a @ matrix, matrix)


def switched(v: Any) -> Any:
    branches = [lambda v: v * 2.0, lambda v: lg.sin(v), lambda v: lg.concat([v[2:], v[:2]])]
    return lg.switch(lg.astype(lg.abs(v[0]) * 3.0, lg.int64) % 3, branches, v)


def nested(v: Any) -> Any:
    def outer(i: Any, s: Any) -> Any:
        return lg.while_loop(lambda x: lg.abs(x) > 0.3, lambda x: x * 0.6 + 0.05 * lg.sin(v[1]), s + v[i])

    return lg.fori_loop(0, 4, outer, v[0])


def scattered(v: Any) -> Any:
    def step(k: Any, s: Any) -> Any:
        place = lg.astype(lg.floor(lg.abs(v[k]) * 2.0), lg.int64) % 4
        return s.at[place].add(v[k]).at[place - 1].set(s[place] * 0.5)

    return lg.fori_loop(0, 4, step, v)


BY_POINT: list[Callable[[Any], Any]] = [shrinking, indexed, products, switched, nested, scattered]
PROGRAMS = [*BY_POINT, scanned]  # the outputs of a scan are rows of a tensor


def as_tuple(value: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(own) for own in (value if isinstance(value, tuple) else (value,)))


def loss(program: Callable[[Any], Any], v: Any) -> Any:
    results = program(v)
    floats = [own for own in (results if isinstance(results, tuple) else (results,)) if own.dtype == lg.float64]
    return sum((lg.sum(lg.sin(own)) for own in floats), lg.zeros((), dtype=lg.float64))


@pytest.mark.parametrize("program", PROGRAMS)
def test_members_compute_what_they_compute_alone(program: Callable[[Any], Any]) -> None:
    rows = numbers(MEMBERS, 4)
    found = as_tuple(lg.vmap(program)(lg.asarray(rows)))
    alone = [as_tuple(program(lg.asarray(row))) for row in rows]
    for index, own in enumerate(found):
        np.testing.assert_allclose(own, np.stack([values[index] for values in alone]), 1e-12, 1e-12)


@pytest.mark.parametrize("program", PROGRAMS)
def test_members_differentiate_as_they_do_alone(program: Callable[[Any], Any]) -> None:
    rows = numbers(MEMBERS, 4)
    alone = np.stack([np.asarray(lg.grad(lambda v: loss(program, v))(lg.asarray(row))) for row in rows])
    inside = lg.vmap(lg.grad(lambda v: loss(program, v)))(lg.asarray(rows))
    outside = lg.grad(lambda x: lg.sum(lg.vmap(lambda v: loss(program, v))(x)))(lg.asarray(rows))
    direction = numbers(MEMBERS, 4) ** 2
    forward = lg.jvp(lambda x: lg.vmap(lambda v: loss(program, v))(x), [lg.asarray(rows)], [lg.asarray(direction)])[1]
    for gradient in (inside, outside):
        np.testing.assert_allclose(np.asarray(gradient), alone, 1e-10, 1e-10)
    np.testing.assert_allclose(np.asarray(forward), np.sum(alone * direction, axis=1), 1e-10, 1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("program", BY_POINT)
def test_members_compute_what_whole_tensors_do(
    program: Callable[[Any], Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(seed).standard_normal((MEMBERS, 4))
    types = [Tensor(f64, (MEMBERS, 4))]
    by_point = trace_call(lambda x: lg.vmap(program)(x), types, "by_point").function
    forget_derivations()
    monkeypatch.setattr(walk, "run_by_point", lambda *arguments: None)
    over_tensors = trace_call(lambda x: lg.vmap(program)(x), types, "over_tensors").function
    forget_derivations()
    assert map_ in ops_in(by_point)
    assert by_point is not over_tensors
    for own, right in zip(
        as_tuple(run_function(by_point, rows)), as_tuple(run_function(over_tensors, rows)), strict=True
    ):
        np.testing.assert_allclose(own, right, 1e-12, 1e-12)


@pytest.mark.parametrize("program", BY_POINT)
def test_a_batch_is_one_kernel_without_loops_over_tensors(program: Callable[[Any], Any]) -> None:
    function = trace_call(lambda x: lg.vmap(program)(x), [Tensor(f64, (MEMBERS, 4))], "batch").function
    assert not [name for name in host_ops(plan_of(function)) if name.endswith(("_loop", "cond", "switch"))]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint32, np.bool_, np.complex64, np.complex128])
def test_members_carry_any_element_type(dtype: Any) -> None:
    rows = (numbers(MEMBERS, 3) * 3.0).astype(np.int8).astype(dtype)

    def program(v: Any) -> Any:
        def step(k: Any, s: Any) -> Any:
            return lg.where(lg.arange(3) == k, s[::-1], lg.stack([s[1], s[2], s[0]]))

        return lg.fori_loop(0, 1 + lg.astype(lg.sum(lg.astype(v != v[0], lg.int64)), lg.int64), step, v)

    alone = [np.asarray(program(lg.asarray(row))) for row in rows]
    np.testing.assert_array_equal(np.asarray(lg.vmap(program)(lg.asarray(rows))), np.stack(alone))


def test_members_read_shared_tables_and_rows_of_their_own() -> None:
    table, rows = numbers(50), numbers(MEMBERS, 40)

    def program(row: Any, start: Any) -> Any:
        def step(state: Any) -> Any:
            k, total = state
            return k + 1 + lg.astype(lg.abs(row[k]), lg.int64), total + table_tensor[k] * row[k]

        return lg.while_loop(lambda state: state[0] < 40, step, (start, lg.zeros((), dtype=lg.float64)))[1]

    table_tensor, starts = lg.asarray(table), np.arange(MEMBERS)
    found = np.asarray(lg.vmap(program)(lg.asarray(rows), lg.asarray(starts)))
    for own, row, start in zip(found, rows, starts, strict=True):
        k, total = int(start), 0.0
        while k < 40:
            k, total = k + 1 + int(abs(row[k])), total + table[k] * row[k]
        np.testing.assert_allclose(own, total, 1e-12)


def test_random_numbers_by_key_are_those_of_each_member() -> None:
    def walk_until_far(key: Any) -> Any:
        def step(state: Any) -> Any:
            place, count = state
            return place + lg.random.normal(lg.random.fold_in(key, count), ()), count + 1

        return lg.while_loop(lambda s: lg.abs(s[0]) < 2.0, step, (lg.zeros(()), lg.zeros((), dtype=lg.int64)))[1]

    keys = lg.random.split(lg.random.key(3), MEMBERS)
    found = np.asarray(lg.vmap(walk_until_far)(keys))
    assert found.tolist() == [int(walk_until_far(keys[index])) for index in range(MEMBERS)]
    assert len(set(found.tolist())) > 1


def test_members_that_are_done_do_not_fail() -> None:
    table = lg.asarray([1, 2, 3, 5])

    def program(start: Any) -> Any:
        return lg.while_loop(lambda k: k < 4, lambda k: k + table[k], start)

    # A member that has stopped would read behind the end of the table.
    assert np.asarray(lg.vmap(program)(lg.asarray([0, 1, 2, 4, 9]))).tolist() == [8, 8, 5, 4, 9]


def test_an_index_out_of_range_names_the_line() -> None:
    table = lg.asarray([1.0, 2.0, 3.0])

    def program(start: Any) -> Any:
        return lg.while_loop(lambda k: k < 5, lambda k: k + lg.astype(table[k], lg.int64), start)

    with pytest.raises(lg.LivegradError, match=r"(?s)out of range.*test_batch_by_point.py"):
        np.asarray(lg.vmap(program)(lg.asarray([0, 3])))


def test_a_loop_that_exceeds_its_limit_is_an_error_for_any_member() -> None:
    def program(x: Any) -> Any:
        return lg.while_loop(lambda x: x > 1.0, lambda x: x * 0.5, x, max_iters=3)

    assert np.asarray(lg.vmap(program)(lg.asarray([1.0, 7.0]))).tolist() == [1.0, 0.875]
    with pytest.raises(lg.LivegradError, match="limit of 3"):
        np.asarray(lg.vmap(program)(lg.asarray([1.0, 100.0])))


def batched_ops(function: Function) -> set[str]:
    return {op.name for op in ops_in(batch(function, 0, size=8))}


def test_arrays_too_large_for_registers_stay_tensors() -> None:
    def program(v: Any) -> Any:
        return lg.fori_loop(0, 3, lambda i, s: lg.cumulative_sum(s) * 0.5, v)

    function = trace_call(program, [Tensor(f64, (100,))], "large").function
    assert "for_loop" in batched_ops(function)
    assert "map" not in batched_ops(function)


def test_functions_without_control_flow_stay_as_they_are() -> None:
    assert map_.name not in batched_ops(trace(lambda x: x * x, Tensor(f64, (3,))))
    assert batched_ops(trace(lambda x, y: x + y, Tensor(i64, ()), Tensor(i64, ()))) == {"parameter", "add"}


def test_reductions_of_empty_rows_are_batched() -> None:
    x = lg.asarray(np.ones((3, 0, 2)))
    programs = [
        (lambda r: lg.fori_loop(0, 2, lambda i, s: s + lg.sum(r, axis=0), lg.zeros(2, dtype=lg.float64)), (3, 2)),
        (lambda r: lg.cond(lg.sum(r) > 1.0, lambda: lg.sum(r, axis=1), lambda: lg.sum(r * 2.0, axis=1)), (3, 0)),
        (lambda r: lg.cond(lg.sum(r) < 1.0, lambda: lg.max(r, axis=1), lambda: lg.min(r, axis=1)), (3, 0)),
        (lambda r: lg.cond(lg.sum(r) < 1.0, lambda: lg.argmax(r, axis=1), lambda: lg.argmin(r, axis=1)), (3, 0)),
    ]
    for program, shape in programs:
        result = lg.vmap(program)(x).numpy()
        assert result.shape == shape
        assert not result.any()

"""Compiled functions and control flow in the graph: traced once, correct in both derivative modes."""

from __future__ import annotations

import _thread
import inspect
import queue
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.tensors import weak_types


def data(*shape: int, seed: int = 0) -> lg.Tensor:
    return lg.asarray(np.random.default_rng(seed).standard_normal(shape))


def test_a_function_is_traced_once_for_each_signature():
    @lg.jit
    def f(x, rate, flag=True):
        return (x * rate if flag else x), {"twice": 2.0 * x}

    x = data(3)
    f(x, 0.5), f(data(3, seed=1), 0.25), f(x, 3)
    assert f.traces == 2  # a float and an integer differ in kind
    f(data(4), 0.5)
    assert f.traces == 3
    f(x, 0.5, flag=False)
    assert f.traces == 4
    np.testing.assert_allclose(f(x, 0.5)[0].numpy(), x.numpy() * 0.5)


def test_numbers_take_the_type_of_the_tensor_beside_them():
    @lg.jit
    def f(x, rate, step):
        return x - rate * (1.0 - 0.9**step) * x

    single, double = lg.asarray([1.0], dtype=lg.float32), lg.asarray([1.0], dtype=lg.float64)
    assert f(single, 0.1, 2).dtype == lg.float32
    assert f(double, 0.1, 2).dtype == lg.float64
    assert float(f(double, 0.1, 2)[0]) == pytest.approx(1.0 - 0.1 * (1.0 - 0.81), abs=1e-15)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: x * (number / 3),
        lambda x, number: x * -(2 / (number + abs(number))),
        lambda x, number: lg.clip(x, number, None),
        lambda x, number: lg.einsum("i,->i", x, number),
        lambda x, number: lg.checkpoint(lambda a, b: a * b)(x, number),
        lambda x, number: lg.vmap(lambda a, b: a * b, in_axes=(0, None))(x, number),
        lambda x, number: lg.asarray(number),
        lambda x, number: lg.full(2, number),
        lambda x, number: lg.sin(number),
        lambda x, number: (x > 0) & (number > 0),
        lambda x, number: x * lg.ones((), dtype=lg.float64),
        lambda x, number: number,
    ],
)
@pytest.mark.parametrize("number", [7, 0.1])
@pytest.mark.parametrize("element", [lg.float32, lg.float64])
def test_numbers_of_a_traced_call_compute_and_settle_as_in_a_plain_one(function, number, element):
    x = lg.asarray([1.0, -2.0], dtype=element)
    plain, traced = lg.asarray(function(x, number)), lg.jit(function)(x, number)
    assert traced.dtype == plain.dtype
    np.testing.assert_allclose(traced.numpy(), plain.numpy(), rtol=1e-15 if element is lg.float64 else 1e-6)


def test_a_number_of_a_traced_call_is_never_wrapped_round():
    add = lg.jit(lambda x, number: x + number)
    assert add(lg.asarray([1], dtype=lg.uint8), 200).tolist() == [201]
    for number in (300, -1):
        with pytest.raises(lg.KernelCheckError, match="out of the range of uint8"):
            add(lg.asarray([1], dtype=lg.uint8), number)
    with pytest.raises(lg.NumberRangeError, match="does not fit int64"):
        add(lg.asarray([1], dtype=lg.uint64), 1 << 63)


def test_assignment_takes_a_number_of_a_traced_call():
    @lg.jit
    def f(x, number):
        x = x + 0
        x[0] = number
        return x

    assert f(lg.asarray([1, 2], dtype=lg.int32), 5).tolist() == [5, 2]


def test_tensors_from_around_are_read_at_each_call():
    scale = lg.asarray([2.0])
    f = lg.jit(lambda x: x * scale)
    assert f(lg.asarray([3.0])).tolist() == [6.0]
    scale.fill(5.0)
    assert f(lg.asarray([3.0])).tolist() == [15.0]
    assert f.traces == 1


def test_static_arguments_are_part_of_the_signature():
    f = lg.jit(lambda x, n: lg.stack([x] * n), static_argnums=(1,))
    assert f(lg.asarray(1.0), 3).shape == (3,)
    assert f(lg.asarray(1.0), 2).shape == (2,)
    assert f.traces == 2
    with pytest.raises(lg.UsageError, match="must be a tensor or hashable"):
        lg.jit(lambda x, n: x)(lg.asarray(1.0), {1, 2})


def test_jit_inside_grad_inside_jit():
    f = lg.jit(lambda x: lg.sum(lg.sin(x) * x))
    g = lg.jit(lambda x: lg.grad(f)(x) * 2.0)
    x = data(4)
    np.testing.assert_allclose(g(x).numpy(), 2.0 * (np.cos(x.numpy()) * x.numpy() + np.sin(x.numpy())), rtol=1e-12)


def test_results_that_are_arguments_are_separate_values():
    x = data(3)
    a, b = lg.jit(lambda x: (x, x))(x)
    assert np.array_equal(a.numpy(), x.numpy())
    assert np.array_equal(b.numpy(), x.numpy())


CHOICES = {
    "cond": lambda taken, unused, x: lg.cond(lg.sum(x) > 100.0, unused, taken),
    "switch": lambda taken, unused, x: lg.switch(lg.astype(lg.sum(x) > 100.0, lg.int64), [taken, unused]),
    "cond in cond": lambda taken, unused, x: lg.cond(
        lg.sum(x) > 100.0, unused, lambda: lg.cond(lg.sum(x) > 50.0, unused, taken)
    ),
}


@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_a_branch_over_captures_is_computed_only_if_taken(choose):
    x = lg.asarray([0.0, 4.0], dtype=lg.float64)

    def loss(x):
        doubled = 2.0 * x
        return choose(lambda: lg.sum(doubled * x), lambda: lg.sum(lg.sqrt(x) * doubled), x)

    assert float(loss(x)) == 32.0
    for gradient in (lg.grad(loss), lg.jit(lg.grad(loss)), lg.jacfwd(loss)):
        np.testing.assert_array_equal(gradient(x), [0.0, 16.0])  # 0 * infinity would be NaN


SMOOTH = [(lambda x: x * x, lambda x: 2 * x), (lambda x: lg.sin(x) + 1.0, np.cos), (lambda x: x + 3.0, lambda x: 1.0)]
SINGULAR = [lg.sqrt, lambda x: lg.log(x) * 2.0, lambda x: 1.0 / x]


def random_choice(rng: np.random.Generator, depth: int, before: list, x: lg.Tensor) -> tuple[lg.Tensor, float]:
    """Builds a branch over captured tensors and its derivative; only the branch taken is smooth at zero."""
    one, slope = SMOOTH[rng.integers(len(SMOOTH))]
    more, more_slope = (one(x), slope(0.0)) if depth == 0 else (None, 0.0)
    found = []

    def taken():
        value = more
        if value is None:
            value, inner = random_choice(rng, depth - 1, before, x)
            found[:] = [inner]
        return value * 2.0 + before[0]

    def unused():
        wrong = SINGULAR[rng.integers(len(SINGULAR))](x) * before[0]
        return wrong if depth == 0 else wrong + random_choice(rng, depth - 1, before, wrong)[0]

    branches = [taken, unused] if rng.random() < 0.5 else [unused, taken]
    value = lg.switch(branches.index(taken), branches)
    return value, 2.0 * (found[0] if found else more_slope) + 5.0


@pytest.mark.parametrize("seed", range(8))
def test_random_branches_over_captures_have_the_derivative_of_the_branch_taken(seed):
    slopes = []

    def loss(x):
        value, slope = random_choice(np.random.default_rng(seed), seed % 3, [5.0 * x], x)
        slopes.append(slope)
        return value

    assert float(lg.grad(loss)(lg.asarray(0.0, dtype=lg.float64))) == slopes[0]


def test_a_check_in_a_branch_that_is_not_taken_does_not_fail():
    rows, row = lg.asarray([1.0, 2.0]), lg.asarray(5)
    assert float(lg.cond(row < 2, lambda: rows[row], lambda: lg.sum(rows))) == 3.0
    with pytest.raises(lg.LivegradError):
        float(rows[row])


def test_a_branch_reuses_values_computed_before_it():
    x = lg.asarray([1.0, 2.0])
    table = lg.exp(x)
    chosen = lg.cond(x[0] > 0.0, lambda: lg.sum(table), lambda: lg.sum(x))
    assert table.node in chosen.node.operands
    assert float(chosen) == pytest.approx(np.exp([1.0, 2.0]).sum())


def test_cond_computes_one_side_and_differentiates_it():
    def f(x):
        return lg.cond(lg.sum(x) > 0.0, lambda x: lg.sum(x * x), lambda x: lg.sum(lg.log(-x)), x)

    up, down = lg.asarray([1.0, 2.0], dtype=lg.float64), lg.asarray([-1.0, -2.0], dtype=lg.float64)
    lg.check_gradients(f, up)
    lg.check_gradients(f, down)
    assert not np.any(np.isnan(lg.grad(f)(up).numpy()))
    with pytest.raises(lg.UsageError, match="different tree structures"):
        lg.cond(lg.asarray(True), lambda x: x, lambda x: (x, x), up)


def test_switch_takes_the_branch_by_number_and_checks_the_number():
    branches = [lambda x: x, lambda x: x * x, lambda x: lg.exp(x)]
    x = data(2)
    for index, expected in enumerate((x.numpy(), x.numpy() ** 2, np.exp(x.numpy()))):
        np.testing.assert_allclose(lg.switch(index, branches, x).numpy(), expected)
    with pytest.raises(lg.KernelCheckError):
        lg.switch(5, branches, x).execute()


def test_while_loop_has_the_derivative_of_the_path_it_takes():
    def f(x):
        state = lg.while_loop(
            lambda s: s["x"] < 50.0, lambda s: {"x": s["x"] * s["x"] + s["k"], "k": s["k"]}, {"x": x, "k": x * 0.5}
        )
        return state["x"]

    lg.check_gradients(f, lg.asarray(1.5))
    with pytest.raises(lg.KernelCheckError, match="limit of 3"):
        lg.while_loop(lambda x: x > 0.0, lambda x: x, lg.asarray(1.0), max_iters=3).execute()


def test_fori_loop_counts_from_lower_to_upper():
    total = lg.fori_loop(2, 6, lambda i, s: s + i, lg.asarray(0))
    assert int(total) == 2 + 3 + 4 + 5
    lg.check_gradients(lambda x: lg.sum(lg.fori_loop(0, 4, lambda i, y: lg.sin(y) * x, x)), data(3))


def test_scan_equals_the_loop_and_its_gradient():
    def step(carry, row):
        state = lg.tanh(carry @ row["w"] + row["b"])
        return state, {"norm": lg.sum(state * state), "state": state}

    start = data(2)
    rows = {"w": data(5, 2, 2, seed=1), "b": data(5, 2, seed=2)}
    last, outputs = lg.scan(step, start, rows)
    state, norms = start.numpy(), []
    for w, b in zip(rows["w"].numpy(), rows["b"].numpy(), strict=True):
        state = np.tanh(state @ w + b)
        norms.append(np.sum(state * state))
    np.testing.assert_allclose(last.numpy(), state, rtol=1e-12)
    np.testing.assert_allclose(outputs["norm"].numpy(), norms, rtol=1e-12)
    assert outputs["state"].shape == (5, 2)

    def loss(start, rows):
        last, outputs = lg.scan(step, start, rows)
        return lg.sum(last) + lg.sum(outputs["norm"] * outputs["state"][:, 0])

    lg.check_gradients(loss, start, rows)
    back, _ = lg.scan(lambda c, x: (c * 2.0 + x, None), lg.asarray(0.0), lg.asarray([1.0, 2.0, 3.0]), reverse=True)
    assert float(back) == (3.0 * 2 + 2.0) * 2 + 1.0
    counted, _ = lg.scan(lambda c, _: (c + 1, None), lg.asarray(0), length=4)
    assert int(counted) == 4


def test_loops_reject_a_state_that_changes_its_type():
    with pytest.raises(lg.UsageError, match="changes the type of the loop's state"):
        lg.fori_loop(0, 3, lambda i, x: x * 1.5, lg.asarray(1))
    with pytest.raises(lg.ShapeError, match="a single value"):
        lg.cond(lg.asarray([True, False]), lambda: 1.0, lambda: 2.0)


def test_numbers_are_weak_only_while_a_function_is_traced():
    seen: list[int] = []

    def f(x, rate):
        seen.append(weak_types.python_numbers.current.traces)
        if rate.dtype == lg.int64:
            raise ValueError("an integer")
        return x * rate

    jitted = lg.jit(f)
    jitted(lg.asarray([1.0]), 0.5)
    with pytest.raises(ValueError, match="an integer"):
        jitted(lg.asarray([1.0]), 2)
    assert seen == [1, 1]
    assert weak_types.python_numbers.current.traces == 0


def test_loops_in_loops_have_a_hessian() -> None:
    def rows(state: lg.Tensor) -> lg.Tensor:
        return lg.scan(lambda carried, row: (lg.sin(carried) * row, carried + row), state[0], state)[1]

    def counted(x: lg.Tensor) -> lg.Tensor:
        return lg.sum(lg.fori_loop(0, 2, lambda _, state: state * 0.5 + rows(state), x))

    def until(x: lg.Tensor) -> lg.Tensor:
        return lg.sum(lg.while_loop(lambda state: lg.sum(state * state) < 9.0, lambda s: s * 2.0 + rows(s), x))

    def chosen(x: lg.Tensor) -> lg.Tensor:
        def step(state: lg.Tensor, row: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
            return lg.cond(row > 0.0, lambda: rows(rows(state)), lambda: rows(state) * row), state

        return lg.sum(lg.scan(step, x, x)[1])

    x = lg.asarray([0.3, -0.7], dtype=lg.float64)
    for function in (counted, until, chosen):
        np.testing.assert_allclose(lg.hessian(function)(x).numpy(), lg.jacfwd(lg.jacfwd(function))(x).numpy())


def test_members_of_a_batch_differentiate_loops_in_separate_branches() -> None:
    def rows(x: lg.Tensor) -> lg.Tensor:
        return lg.scan(lambda state, row: (lg.sin(state) + row, state * row), lg.sum(x), x)[1]

    def loss(x: lg.Tensor) -> lg.Tensor:
        return lg.sum(lg.cond(x[0] > 0.0, lambda: rows(x) * x, lambda: x * 0.5))

    batch = lg.asarray([[0.3, -0.7], [-0.5, 0.2], [0.9, 0.4]], dtype=lg.float64)
    for derivative in (lg.grad(loss), lg.hessian(loss)):
        found = lg.vmap(derivative)(batch).numpy()
        np.testing.assert_allclose(found, np.stack([derivative(x).numpy() for x in batch]), atol=1e-12)
    lg.check_gradients(loss, batch[0])


def test_numbers_that_a_loop_begins_with_may_be_added_to() -> None:
    wide = lg.asarray(1.5, dtype=lg.float64)

    def added(i: lg.Tensor, total: lg.Tensor) -> lg.Tensor:
        total += wide
        return total

    def computed(i: lg.Tensor, state: tuple[lg.Tensor, lg.Tensor]) -> tuple[lg.Tensor, lg.Tensor]:
        before, total = state
        total = total * 2.0
        before = total
        total += wide
        return before, total

    found = lg.fori_loop(0, 3, added, 0.0)
    assert (float(found), found.dtype) == (4.5, lg.float64)
    before, total = lg.fori_loop(0, 3, computed, (0.0, 0.0))
    # Numbers are immutable: `before` keeps its value.
    assert (float(before), float(total)) == (9.0, 10.5)
    assert float(lg.while_loop(lambda t: t < 4.0, lambda t: added(t, t), 0.0)) == 4.5
    assert float(lg.scan(lambda t, x: (added(x, t), x), 0.0, data(3))[0]) == 4.5


def test_a_tensor_that_a_loop_begins_with_keeps_its_type() -> None:
    def added(i: lg.Tensor, total: lg.Tensor) -> lg.Tensor:
        total += lg.asarray(1.5, dtype=lg.float64)
        return total

    with pytest.raises(lg.TypeRuleError, match="must keep shape and type"):
        lg.fori_loop(0, 3, added, lg.asarray(0.0))


def test_statistics_count_what_compiled_functions_run():
    double = lg.jit(lambda x: lg.sum(x * 2.0) + lg.linalg.det(x))
    x = lg.asarray(np.eye(5))
    lg.reset_stats()
    double(x)
    first = lg.stats()
    assert (first.executions, first.programs_compiled, first.programs_reused, first.library_calls) == (1, 1, 0, 1)
    assert first.kernels_run > 0
    assert first.nodes_computed > 0
    double(x)
    second = lg.stats()
    assert (second.executions, second.programs_compiled, second.programs_reused) == (2, 1, 1)
    assert second.kernels_run == 2 * first.kernels_run


def test_an_element_type_is_part_of_the_signature() -> None:
    cast = lg.jit(lambda x, dtype: lg.astype(x, dtype))
    for dtype in (lg.float64, lg.int32, lg.float64):
        assert cast(lg.ones(2), dtype).dtype is dtype
    assert cast.traces == 2
    with pytest.raises(lg.UsageError, match="takes tensors and numbers"):
        lg.grad(lambda x: x)(cast_to_any(lg.float32))


def cast_to_any(value: Any) -> Any:
    return value


def test_results_know_the_line_that_called_the_compiled_function() -> None:
    double, x = lg.jit(lambda x: x * 2.0), data(3)
    for _ in range(3):
        first, line = double(x), inspect.currentframe().f_lineno  # type: ignore[union-attr]
        second = double(x)
        third = next(map(double, [x]))
        assert [y.node.origin.line - line for y in (first, second, third)] == [0, 1, 2]


def test_a_thread_without_python_code_may_call_a_compiled_function() -> None:
    results: queue.SimpleQueue[lg.Tensor] = queue.SimpleQueue()
    double, x = lg.jit(lambda x: x * 2.0), data(3)
    double(x), double(x)
    _thread.start_new_thread(list, (map(results.put, map(double, [x])),))
    np.testing.assert_array_equal(results.get(timeout=60).numpy(), 2.0 * x.numpy())

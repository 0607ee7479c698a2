"""Regression tests: each is a program that once failed."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import livegrad as lg

# --- gradients -------------------------------------------------------------------------------------------------------


def test_a_gradient_reaches_a_variable_through_many_executions():
    w = lg.asarray([1.0], dtype=lg.float64).requires_grad_()
    y = w * 1.0
    for _ in range(20):
        y = (y * 1.1).execute()
    (lg.sum(y) + lg.sum(w)).backward()
    assert w.grad is not None
    assert w.grad.numpy() == pytest.approx([1.0 + 1.1**20])


def test_a_gradient_goes_through_a_compiled_function():
    double = lg.jit(lambda x: x * 2.0)
    w = lg.asarray([1.0, 2.0]).requires_grad_()
    (lg.sum(double(w)) + lg.sum(w)).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [3.0, 3.0]


def test_a_compiled_gradient_of_a_loop_remembers_nothing_from_around_it():
    def loss(x):
        last, rows = lg.scan(lambda carried, row: (lg.tanh(carried + row), carried * row), x[0], x)
        return lg.sum((rows + last) * lg.asarray([1.0, 2.0, 3.0]))  # weights that the backward pass captures

    x = lg.asarray([0.5, -1.0, 2.0])
    assert lg.jit(lg.grad(loss))(x).tolist() == lg.grad(loss)(x).tolist()


@pytest.mark.parametrize("copied", [copy.copy, lambda w: lg.asarray(w, copy=True)])
def test_a_gradient_goes_through_a_copy_of_a_variable(copied):
    w = lg.asarray([1.0, 2.0, 3.0]).requires_grad_()
    y = copied(w)
    y[0] = 5.0
    lg.sum(y * y).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [0.0, 4.0, 6.0]
    with pytest.raises(lg.UsageError, match="computed"):
        copied(w).fill(7.0)
    assert w.tolist() == [1.0, 2.0, 3.0]


def test_a_gradient_goes_through_a_compiled_function_to_its_captures():
    w = lg.asarray([1.0, 2.0]).requires_grad_()
    scaled = lg.jit(lambda x: x * w)
    lg.sum(scaled(lg.asarray([10.0, 20.0]))).backward()
    assert w.grad is not None
    assert w.grad.tolist() == [10.0, 20.0]


def test_a_gradient_by_a_value_that_a_custom_rule_closes_over_is_an_error():
    def by_vjp(w):
        @lg.custom_vjp
        def scaled(x):
            return x * w

        scaled.defvjp(lambda x: (x * w, None), lambda saved, ct: (ct * w,))
        return scaled(lg.asarray(2.0))

    def by_jvp(w):
        @lg.custom_jvp
        def scaled(x):
            return x * w

        scaled.defjvp(lambda primals, tangents: (primals[0] * w, tangents[0] * w))
        return scaled(lg.asarray(2.0))

    for function in (by_vjp, by_jvp):
        assert float(function(lg.asarray(3.0))) == 6.0
        with pytest.raises(lg.DifferentiationError, match="uses an outer value") as caught:
            lg.grad(function)(lg.asarray(3.0))
        assert "test_regressions.py" in str(caught.value)
        with pytest.raises(lg.DifferentiationError, match="uses an outer value"):
            lg.jvp(function, [lg.asarray(3.0)], [lg.asarray(1.0)])


def test_a_jacobian_by_rows_is_not_spoiled_by_an_infinite_result():
    found = lg.jacrev(lambda x: (x * 2.0, x + lg.inf))(lg.asarray(3.0))
    assert float(found[0]) == 2.0


def test_jacobians_take_several_arguments_from_either_end_and_by_name():
    x, y = lg.asarray([1.0, 2.0]), lg.asarray([3.0, 4.0])

    def product(x, y, scale=1.0):
        return x * y * scale

    for jacobian in (lg.jacfwd, lg.jacrev):
        both = jacobian(product, argnums=(0, 1))(x, y, scale=10.0)
        assert both[0].tolist() == [[30.0, 0.0], [0.0, 40.0]]
        assert both[1].tolist() == [[10.0, 0.0], [0.0, 20.0]]
        assert jacobian(product, argnums=-1)(x, y).tolist() == [[1.0, 0.0], [0.0, 2.0]]
        with pytest.raises(lg.UsageError, match="2 positional arguments"):
            jacobian(product, argnums=2)(x, y)
    blocks = lg.hessian(lambda x, y: lg.sum(x * x * y), argnums=(0, 1))(x, y)
    assert blocks[0][1].tolist() == [[2.0, 0.0], [0.0, 4.0]]


# --- compiled functions ----------------------------------------------------------------------------------------------


def test_a_compiled_function_sees_in_place_updates_of_its_captures():
    w = lg.asarray([1.0])
    add = lg.jit(lambda x: x + w * 1.0)
    x = lg.asarray([0.0])
    assert add(x).tolist() == [1.0]
    w += 1.0
    assert add(x).tolist() == [2.0]
    w[0] = 10.0
    assert add(x).tolist() == [10.0]
    traces = add.traces
    add(x)
    assert add.traces == traces


def test_a_compiled_function_inside_a_transform_may_capture_traced_values():
    x = lg.asarray([1.0, 2.0])
    assert float(lg.grad(lambda w: lg.jit(lambda x: lg.sum(x * w))(x))(lg.asarray(2.0))) == 3.0
    assert lg.vmap(lambda w: lg.jit(lambda x: lg.sum(x * w))(x))(lg.asarray([1.0, 2.0])).tolist() == [3.0, 6.0]


def test_numbers_of_numpy_are_arguments_of_a_compiled_function():
    scaled = lg.jit(lambda x, rate: x * rate)
    x = lg.ones(2)
    for rate in (0.5, 0.25, 2.0):
        assert scaled(x, np.float32(rate)).tolist() == [rate, rate]
    assert scaled.traces == 1
    assert scaled(x, np.float64(0.5)).dtype == lg.float64


def test_a_compiled_function_takes_arrays_in_any_layout():
    double = lg.jit(lambda x: x * 2.0)
    array = np.arange(6.0).reshape(2, 3)
    for given in (array, array[::-1, ::-1], array.T, array.astype(">f8"), array[:, ::2]):
        assert double(given).tolist() == (given * 2.0).tolist()


def test_static_arguments_are_distinguished_by_type_and_sign():
    scaled = lg.jit(lambda x, sizes: x * sizes[0], static_argnums=1)
    x = lg.ones(2, dtype=lg.int32)
    assert scaled(x, (2,)).dtype == lg.int32
    assert scaled(x, (2.0,)).dtype == lg.float32
    signed = lg.jit(lambda x, sign: lg.copysign(x, sign), static_argnums=(1,))
    assert signed(lg.ones(1), 0.0).tolist() == [1.0]
    assert signed(lg.ones(1), -0.0).tolist() == [-1.0]
    nothing = lg.jit(lambda x, value: x + value, static_argnums=1)
    for _ in range(3):
        nothing(lg.ones(1), float("nan"))
    assert nothing.traces == 1


def test_a_static_argument_is_static_however_it_is_passed():
    folded = lg.jit(lambda x, rows: lg.reshape(x, (rows, -1)), static_argnames="rows")
    assert folded(lg.ones(4), 2).shape == folded(lg.ones(4), rows=2).shape == (2, 2)
    folded = lg.jit(lambda x, rows: lg.reshape(x, (rows, -1)), static_argnums=-1)
    assert folded(lg.ones(4), 2).shape == folded(lg.ones(4), rows=2).shape == (2, 2)


def test_a_method_can_be_compiled():
    class Model:
        scale = 3.0

        @lg.jit
        def __call__(self, x):
            return x * self.scale

    assert Model()(lg.ones(2)).tolist() == [3.0, 3.0]


# --- nests -----------------------------------------------------------------------------------------------------------


def test_dicts_with_the_same_keys_in_another_order_are_alike():
    assert lg.tree_map(lambda a, b: a - b, {"b": 2, "a": 1}, {"a": 10, "b": 20}) == {"b": -18, "a": -9}
    found = lg.cond(lg.asarray(False), lambda x: {"a": x, "b": x * 2.0}, lambda x: {"b": x * 3.0, "a": -x}, lg.ones(()))
    assert list(found) == ["a", "b"]
    assert (float(found["a"]), float(found["b"])) == (-1.0, 3.0)
    step = lg.jit(lambda p: p["x"] - p["y"])
    assert float(step({"x": lg.asarray(5.0), "y": lg.asarray(3.0)})) == 2.0
    assert float(step({"y": lg.asarray(3.0), "x": lg.asarray(5.0)})) == 2.0
    assert step.traces == 1
    mapped = lg.vmap(lambda p: p["y"] - p["x"], in_axes=({"x": None, "y": 0},))
    assert mapped({"y": lg.asarray([1.0, 2.0]), "x": lg.asarray(10.0)}).tolist() == [-9.0, -8.0]


def test_all_kinds_of_dicts_and_data_classes_are_nests():
    @dataclass(frozen=True)
    class Layer:
        weight: Any
        offset: Any = field(init=False, default=2.0)

    slopes = lg.grad(lambda p: lg.sum(p["w"] ** 2))(OrderedDict(w=lg.asarray([1.0, 2.0])))
    assert isinstance(slopes, OrderedDict)
    grouped = lg.grad(lambda p: lg.sum(p["w"][0] ** 2))(defaultdict(list, w=[lg.asarray([3.0])]))
    assert grouped["w"][0].tolist() == [6.0]
    assert grouped["other"] == []
    slope = lg.grad(lambda layer: lg.sum(layer.weight * layer.offset))(Layer(lg.ones(2)))
    assert slope.weight.tolist() == [2.0, 2.0]
    assert float(slope.offset) == 2.0


# --- functions -------------------------------------------------------------------------------------------------------


def test_the_body_of_a_scan_is_called_once_however_deep_scans_nest():
    calls = 0

    def add(total, x):
        nonlocal calls
        calls += 1
        return total + x, total

    def rows(total, x):
        return lg.scan(add, total, x)[0], total

    total, _ = lg.scan(lambda t, x: (lg.scan(rows, t, x)[0], t), lg.asarray(0.0), lg.ones((2, 3, 4)))
    assert float(total) == 24.0
    assert calls == 1


def test_a_loop_that_splits_its_key_runs_the_same_programs_at_each_step():
    key = lg.random.key(1)
    for step in range(8):
        key, drawn = lg.random.split(key)
        lg.random.normal(drawn, 3).execute()
        if step == 2:
            lg.reset_stats()
    assert lg.stats().programs_compiled == 0


def test_vmap_takes_named_arguments_and_an_axis_for_each_result():
    rows = lg.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert lg.vmap(lambda x, scale: x[0] * scale)(rows, scale=lg.asarray([1.0, 10.0, 100.0])).tolist() == [1, 30, 500]
    first, second = lg.vmap(lambda x: (x, x), out_axes=(1, 0))(rows)
    assert (first.shape, second.shape) == ((2, 3), (3, 2))
    with pytest.raises(lg.UsageError, match="out_axes has a different tree structure"):
        lg.vmap(lambda x: x, out_axes=(0, 1))(rows)


def test_functions_of_numpy_that_call_methods_take_tensors():
    x = lg.asarray([1.0, 2.0, 6.0])
    assert float(np.sum(x)) == 9.0
    assert float(np.mean(x)) == 3.0
    assert float(np.max(x)) == 6.0
    assert float(np.var(x, ddof=1)) == 7.0
    assert x.std(ddof=1).numpy() == pytest.approx(7.0**0.5)
    with pytest.raises(lg.UsageError, match="cannot be written into an array"):
        np.sum(x, out=np.zeros(()))


def test_a_differentiated_function_may_branch_on_the_values_of_its_arguments():
    def branch(x):
        return x * x if x > 0.0 else -x

    assert float(lg.grad(branch)(lg.asarray(3.0))) == 6.0
    assert float(lg.grad(branch)(lg.asarray(-3.0))) == -1.0
    assert float(lg.grad(lg.grad(branch))(lg.asarray(3.0))) == 2.0
    masked = lg.grad(lambda x: lg.sum(x[x > 0.0] ** 2))
    assert masked(lg.asarray([1.0, -1.0, 2.0])).tolist() == [2.0, 0.0, 4.0]
    scaled = lg.grad(lambda x: x * float(lg.stop_gradient(x)))
    assert float(scaled(lg.asarray(3.0))) == 3.0
    value, moved = lg.jvp(branch, [lg.asarray(3.0)], [lg.asarray(1.0)])
    assert (float(value), float(moved)) == (9.0, 6.0)


def test_reading_a_number_inside_a_differentiated_function_raises():
    with pytest.raises(lg.UsageError, match="derivative would be lost"):
        lg.grad(lambda x: x * float(x))(lg.asarray(3.0))
    rate = lg.asarray(2.0) * 1.5
    assert float(lg.grad(lambda x: x * float(rate))(lg.asarray(3.0))) == 3.0
    for outer in (lg.jit, lg.vmap):
        with pytest.raises(lg.UsageError, match="not known while a function is being traced"):
            outer(lg.grad(lambda x: x if x > 0.0 else -x))(lg.asarray([3.0]) if outer is lg.vmap else lg.asarray(3.0))


def test_debug_nans_finds_a_nan_inside_a_compiled_function():
    logarithm = lg.jit(lambda x: lg.log(x) * 2.0)
    logarithm(lg.asarray([-1.0]))
    with lg.debug_nans(), pytest.raises(lg.KernelCheckError, match="`log` produced the first NaN"):
        logarithm(lg.asarray([-1.0]))


def test_gradients_of_complex_functions_can_be_checked():
    lg.check_gradients(lambda x: lg.exp(1j * x), lg.asarray([0.3, 0.5]))
    lg.check_gradients(lambda z: lg.exp(z) * lg.conj(z), lg.asarray([0.3 + 0.5j]))

    @lg.custom_jvp
    def wrong(z):
        return z * z

    wrong.defjvp(lambda primals, tangents: (primals[0] ** 2, lg.conj(primals[0]) * 2.0 * tangents[0]))
    with pytest.raises(lg.DifferentiationError, match="disagree"):
        lg.check_gradients(wrong, lg.asarray([0.3 + 0.5j]))


def test_a_value_and_its_gradient_are_computed_by_one_execution():
    x = lg.asarray(np.linspace(0.0, 1.0, 10))
    value, slope = lg.value_and_grad(lambda x: lg.sum(lg.exp(lg.sin(x))))(x)
    lg.reset_stats()
    assert float(value) == pytest.approx(np.exp(np.sin(x.numpy())).sum())
    assert slope.is_computed
    assert slope.numpy() == pytest.approx(np.exp(np.sin(x.numpy())) * np.cos(x.numpy()))
    assert lg.stats().executions == 1
    value, _ = lg.value_and_grad(lambda x: lg.sum(x * x))(x)
    del slope, _
    lg.reset_stats()
    float(value)
    assert lg.stats().kernels_run == 1  # nobody holds the gradient


def test_a_computed_tensor_cannot_be_filled_however_long_its_history_is():
    w = lg.asarray([1.0, 2.0])
    for _ in range(20):
        w = (w * 0.9).execute()
        with pytest.raises(lg.UsageError, match="this tensor is computed"):
            w.fill(1.0)
    variable = lg.ones(2).requires_grad_()
    variable.fill(3.0)
    assert variable.tolist() == [3.0, 3.0]

"""Python numbers, strings and objects as arguments of transforms mean the same as in a plain call."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg


def scaled(x: Any, k: Any) -> Any:
    return x * k


by_reverse = lg.custom_vjp(scaled)
by_reverse.defvjp(lambda x, k: (x * k, (x, k)), lambda saved, ct: (ct * saved[1], None))
by_forward = lg.custom_jvp(scaled)
by_forward.defjvp(lambda primals, tangents: (scaled(*primals), tangents[0] * primals[1] + primals[0] * tangents[1]))

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "checkpoint": lg.checkpoint(scaled),
    "vmap": lg.vmap(scaled, in_axes=(0, None)),
    "custom_vjp": by_reverse,
    "custom_jvp": by_forward,
    "vjp": lambda x, k: lg.vjp(scaled, x, k)[0],
    "jvp": lambda x, k: lg.jvp(scaled, (x, k), (x, 0.0))[0],
    "cond": lambda x, k: lg.cond(lg.asarray(True), scaled, scaled, x, k),
    "switch": lambda x, k: lg.switch(0, [scaled, scaled], x, k),
    "scan": lambda x, k: lg.scan(lambda c, _: ((c[0] * c[1], c[1]), None), (x, k), None, length=1)[0][0],
    "fori_loop": lambda x, k: lg.fori_loop(0, 1, lambda i, c: (c[0] * c[1], c[1]), (x, k))[0],
    "while_loop": lambda x, k: lg.while_loop(lambda c: c[2] < 1, lambda c: (c[0] * c[1], c[1], c[2] + 1), (x, k, 0))[0],
    "jit": lg.jit(scaled),
    "asarray": lambda x, k: x * lg.reshape(lg.asarray(k, dtype=x.dtype), (1,)),
    "astype": lambda x, k: x * lg.broadcast_to(lg.astype(lg.asarray(k, dtype=lg.float64), x.dtype), x.shape),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("name", CALLS)
def test_a_number_takes_the_type_of_the_tensor_beside_it(name, dtype, compiled):
    x = np.array([1.0, 2.0], dtype)
    call = lg.jit(CALLS[name]) if compiled else CALLS[name]
    result = call(lg.asarray(x), 0.1)
    assert result.numpy().dtype == dtype
    assert result.numpy().tolist() == (x * dtype(0.1)).tolist()


def test_gradients_with_numbers_among_the_arguments_are_exact():
    x = lg.asarray(2.0, dtype=lg.float64)
    for name in ("checkpoint", "custom_vjp", "custom_jvp", "cond", "scan", "jit"):
        assert float(lg.grad(CALLS[name])(x, 0.1)) == 0.1
        assert float(lg.jit(lg.grad(CALLS[name]))(x, 0.1)) == 0.1
    by_both = lg.grad(scaled, argnums=(0, 1))(x, 0.1)
    assert [float(slope) for slope in by_both] == [0.1, 2.0]
    assert by_both[1].dtype == lg.float64


def test_tangents_and_cotangents_may_be_numbers():
    x = lg.asarray(3.0, dtype=lg.float64)
    assert [float(part) for part in lg.jvp(lambda x: x * x, (x,), (1.0,))] == [9.0, 6.0]
    assert float(lg.vjp(lambda x: x * x, x)[1](0.1)[0]) == pytest.approx(0.6, abs=1e-15)
    with pytest.raises(lg.UsageError, match="a tangent of the wrong type"):
        lg.jvp(lambda x: x * x, (lg.ones(2),), (1.0,))


def test_a_state_that_begins_as_a_number_takes_the_type_of_the_body():
    x = lg.asarray([0.1, 0.2], dtype=lg.float64)
    assert float(lg.scan(lambda c, v: (c + v, None), 0, x)[0]) == 0.1 + 0.2
    total = lg.fori_loop(0, 2, lambda i, c: c + x[i], 0.0)
    assert (float(total), total.dtype) == (0.1 + 0.2, lg.float64)
    doubled = lg.while_loop(lambda c: c < 3.0, lambda c: c * lg.asarray(2.0, dtype=lg.float64), 1)
    assert (float(doubled), doubled.dtype) == (4.0, lg.float64)
    with pytest.raises(lg.UsageError, match="changes the type of the loop's state"):
        lg.fori_loop(0, 2, lambda i, c: c + x[i], lg.asarray(0.0))


def test_numbers_returned_by_branches_and_bodies_take_the_type_of_the_others():
    x = lg.asarray(0.1, dtype=lg.float64)
    for predicate, wanted in ((True, 0.2), (False, 0.7)):
        result = lg.cond(lg.asarray(predicate), lambda x: x + x, lambda x: 0.7, x)
        assert (float(result), result.dtype) == (wanted, lg.float64)
    reset = lg.scan(lambda c, v: (0.7, c), x, lg.zeros(2))
    assert (float(reset[0]), reset[0].dtype) == (0.7, lg.float64)
    with pytest.raises(lg.TypeRuleError, match="the branches return different types"):
        lg.cond(lg.asarray(True), lambda: lg.asarray(1.0), lambda: lg.asarray(1))


def test_text_truth_values_and_objects_reach_the_function_as_they_are():
    class Layer:
        def __init__(self, weight: float) -> None:
            self.weight = lg.asarray(weight)

        @lg.checkpoint
        def __call__(self, x: Any, flip: bool = False, mode: str = "plain") -> Any:
            y = lg.sin(x) if mode == "sine" else x
            return self.weight * (-y if flip else y)

    layer, x = Layer(3.0), lg.asarray(2.0)
    assert float(layer(x)) == 6.0
    assert float(layer(x, True)) == -6.0
    assert float(layer(x, mode="sine")) == pytest.approx(3.0 * np.sin(2.0))
    assert float(lg.grad(lambda x: layer(x, flip=True))(x)) == -3.0
    chosen = lg.vmap(lambda x, mode: x if mode == "plain" else -x, in_axes=(0, None))
    assert chosen(lg.asarray([1.0]), "other").tolist() == [-1.0]


def test_rules_get_the_arguments_of_their_function():
    @lg.custom_vjp
    def powered(x: Any, n: int, mode: str = "plain") -> Any:
        return x**n if mode == "plain" else x

    powered.defvjp(
        lambda x, n, mode: (powered(x, n, mode), (x, n)), lambda saved, ct: (ct * saved[1] * 100.0, None, None)
    )
    x = lg.asarray(2.0)
    assert float(powered(x, n=3)) == 8.0
    assert float(lg.grad(lambda x: powered(x, n=3))(x)) == 300.0
    assert float(lg.grad(powered)(x, 3, "other")) == 300.0
    with pytest.raises(lg.UsageError, match="`powered` cannot be called with these arguments"):
        powered(x, m=3)


def test_filling_with_a_number_of_a_call_never_drops_its_fraction():
    whole = lg.asarray([1, 2])
    with pytest.raises(lg.TypeRuleError):
        lg.full_like(whole, 2.5)
    for fill in (lambda x, k: lg.full_like(x, k), lambda x, k: lg.full((2,), k, dtype=lg.int32)):
        with pytest.raises(lg.DtypeError, match="`full` cannot convert a float value to i"):
            lg.jit(fill)(whole, 2.5)
        assert lg.jit(fill)(whole, 2).tolist() == [2, 2]
    with pytest.raises(lg.DtypeError, match="`full` cannot convert a complex value to f64"):
        lg.full((2,), lg.asarray(1j), dtype=lg.float64)


GIVEN_A_TYPE: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda x, k: lg.grad(lambda x: x * k)(x),
    "vjp": lambda x, k: lg.vjp(lambda x: x * k, x)[1](1.0)[0],
    "jvp": lambda x, k: lg.jvp(lambda x: x * k, (x,), (1.0,))[1],
    "zeros": lambda x, k: lg.zeros((), dtype=lg.float64) + k,
    "ones_like": lambda x, k: lg.ones_like(x) * k,
    "full": lambda x, k: lg.full((), 0.3, dtype=lg.float64) * k,
    "sum": lambda x, k: lg.sum(lg.ones(2, dtype=lg.float64)) * k,
    "asarray": lambda x, k: lg.reshape(lg.asarray(k, dtype=lg.float64), (1,))[0],
    "astype": lambda x, k: lg.reshape(lg.astype(k, lg.float64), (1,))[0],
}


@pytest.mark.parametrize("name", GIVEN_A_TYPE)
def test_a_tensor_with_a_requested_type_keeps_it_beside_a_traced_number(name):
    x = lg.asarray(2.0, dtype=lg.float64)
    plain, compiled = GIVEN_A_TYPE[name](x, 0.1), lg.jit(GIVEN_A_TYPE[name])(x, 0.1)
    assert plain.dtype == compiled.dtype == lg.float64
    assert float(plain) == float(compiled) == (0.2 if name == "sum" else 0.03 if name == "full" else 0.1)


def test_an_integer_with_a_requested_type_keeps_it_beside_a_traced_integer():
    f = lg.jit(lambda n: lg.ones((), dtype=lg.int64) * n + lg.asarray(3, dtype=lg.int32))
    assert f(2).dtype == lg.int64
    assert lg.jit(lambda n: n + lg.asarray(3, dtype=lg.int32))(2).dtype == lg.int32

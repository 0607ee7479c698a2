"""Transforms on the lazy graph: both modes agree with finite differences, to any order, over pytrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.ir.walk import nodes_of


def data(*shape: int, seed: int = 0, dtype=np.float64) -> lg.Tensor:
    return lg.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def close(found: lg.Tensor | None, expected, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


def test_grad_over_any_nest_has_its_structure():
    @dataclass
    class Layer:
        weight: lg.Tensor
        bias: lg.Tensor

    tree = {"layers": [Layer(data(2, 3), data(3)), Layer(data(3, 1), data(1))], "scale": (data(), None)}

    def loss(p, x):
        hidden = lg.tanh(x @ p["layers"][0].weight + p["layers"][0].bias)
        return lg.sum(hidden @ p["layers"][1].weight + p["layers"][1].bias) * p["scale"][0]

    x = data(5, 2, seed=1)
    found = lg.grad(loss)(tree, x)
    assert isinstance(found["layers"][0], Layer)
    assert found["scale"][1] is None
    lg.check_gradients(
        lambda w: loss({**tree, "layers": [Layer(w, tree["layers"][0].bias), tree["layers"][1]]}, x),
        tree["layers"][0].weight,
    )
    close(found["layers"][1].bias, [5.0 * float(tree["scale"][0])])


def test_several_argnums_and_auxiliary_results():
    def f(x, y):
        product = x * y
        return lg.sum(product), {"product": product}

    x, y = data(3), data(3, seed=1)
    (value, aux), (dx, dy) = lg.value_and_grad(f, (0, 1), has_aux=True)(x, y)
    close(value, np.sum(x.numpy() * y.numpy()))
    close(aux["product"], x.numpy() * y.numpy())
    close(dx, y)
    close(dy, x)
    gradient, aux = lg.grad(f, has_aux=True)(x, y)
    close(gradient, y)


def test_all_nestings_to_third_order_agree():
    f = lambda x: x**4 * lg.sin(x)  # noqa: E731
    x = lg.asarray(0.7, dtype=lg.float64)

    def forward(g):
        return lambda x: lg.jvp(g, [x], [lg.ones_like(x)])[1]

    orders = [lg.grad, forward]
    values = {float(a(b(c(f)))(x)) for a in orders for b in orders for c in orders}
    h = 1e-3
    fs = [float(f(lg.asarray(0.7 + k * h, dtype=lg.float64))) for k in (-2, -1, 1, 2)]
    numeric = (fs[3] - 2 * fs[2] + 2 * fs[1] - fs[0]) / (2 * h**3)
    for value in values:
        assert value == pytest.approx(numeric, rel=1e-4)
    assert max(values) - min(values) < 1e-9


def test_gradients_inside_a_differentiated_function_use_only_its_argument():
    x, y = lg.asarray(2.0), lg.asarray(3.0)
    inner = lambda y: lg.grad(lambda x: x * x * y)(x)  # noqa: E731
    close(lg.grad(inner)(y), 4.0)


def test_vjp_and_jvp_are_adjoint():
    f = lambda a, b: {"sum": a @ b, "norm": lg.sqrt(lg.sum(a * a))}  # noqa: E731
    a, b = data(3, 4), data(4, 2, seed=1)
    da, db = data(3, 4, seed=2), data(4, 2, seed=3)
    value, tangent = lg.jvp(f, [a, b], [da, db])
    again, pullback = lg.vjp(f, a, b)
    close(value["sum"], again["sum"])
    ct = {"sum": data(3, 2, seed=4), "norm": data(seed=5)}
    ga, gb = pullback(ct)
    left = np.sum(ga.numpy() * da.numpy()) + np.sum(gb.numpy() * db.numpy())
    right = np.sum(ct["sum"].numpy() * tangent["sum"].numpy()) + float(ct["norm"]) * float(tangent["norm"])
    assert left == pytest.approx(right, rel=1e-12)


def test_indexing_differentiates_to_scatter_add():
    x = data(5)
    index = lg.asarray([0, 2, 2, 4])
    gradient = lg.grad(lambda x: lg.sum(x[index] * lg.asarray([1.0, 2.0, 3.0, 4.0], dtype=lg.float64)))(x)
    close(gradient, [1.0, 0.0, 5.0, 0.0, 4.0])
    lg.check_gradients(lambda x: lg.sum(lg.sin(x[1:4:2]) * x[-1]), x)


def test_setting_items_is_differentiable():
    def f(x, v):
        y = x * 2.0
        y[1:3] = v
        y[0] = y[0] * y[1]
        return lg.sum(y * y)

    lg.check_gradients(f, data(4), data(2, seed=1))


def test_backward_adds_into_grad():
    w = data(3).requires_grad_()
    x = data(3, seed=1)
    lg.sum(w * x).backward()
    lg.sum(w * w).backward()
    assert w.grad is not None
    close(w.grad, x.numpy() + 2.0 * w.numpy())
    w.grad = None
    lg.sum(w).backward()
    close(w.grad, np.ones(3))
    w -= 0.5 * lg.asarray(w.grad)
    assert w.requires_grad
    lg.sum(w * w).backward()
    with pytest.raises(lg.DifferentiationError, match="one real number"):
        (w * w).backward()
    with pytest.raises(lg.DifferentiationError, match="nothing here requires a gradient"):
        lg.sum(x).backward()


def test_stop_gradient_and_detach():
    x = lg.asarray(3.0)
    close(lg.grad(lambda x: x * lg.stop_gradient(x * x))(x), 9.0)
    close(lg.grad(lambda x: x * x.detach())(x), 3.0)


def test_hessian_and_jacobians_agree():
    f = lambda x: lg.sum(lg.sin(x) * x[0]) ** 2  # noqa: E731
    x = data(3)
    hessian = lg.hessian(f)(x).numpy()
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    np.testing.assert_allclose(lg.jacrev(lg.grad(f))(x).numpy(), hessian, atol=1e-10)
    g = lambda x: lg.stack([lg.sum(x * x), lg.prod(x), x[1]])  # noqa: E731
    np.testing.assert_allclose(lg.jacfwd(g)(x).numpy(), lg.jacrev(g)(x).numpy(), atol=1e-12)


def test_vmap_equals_a_loop_and_composes_with_grad_and_jit():
    f = lambda row, scale: lg.sum(lg.tanh(row) * scale["a"]) + scale["b"]  # noqa: E731
    rows, scale = data(6, 4), {"a": data(4, seed=1), "b": data(seed=2)}
    looped = np.stack([f(rows[index], scale).numpy() for index in range(6)])
    close(lg.vmap(f, in_axes=(0, None))(rows, scale), looped)
    close(lg.jit(lg.vmap(f, in_axes=(0, None)))(rows, scale), looped)
    per_row = lg.vmap(lg.grad(f), in_axes=(0, None))(rows, scale)
    for index in range(6):
        close(per_row[index], lg.grad(f)(rows[index], scale))
    close(lg.vmap(f, in_axes=(1, {"a": None, "b": None}))(lg.permute_dims(rows, (1, 0)), scale), looped)
    with pytest.raises(lg.ShapeError, match="different batch sizes"):
        lg.vmap(lambda a, b: a + b)(data(3), data(4))


def test_custom_rules_are_used_in_both_modes_and_inside_jit():
    @lg.custom_vjp
    def clipped(x):
        return x * 1.0

    clipped.defvjp(lambda x: (x * 1.0, None), lambda saved, ct: (lg.clip(ct, -1.0, 1.0),))
    close(lg.grad(lambda x: 100.0 * clipped(x))(lg.asarray(2.0)), 1.0)
    close(lg.jit(lg.grad(lambda x: 100.0 * clipped(x)))(lg.asarray(2.0)), 1.0)

    @lg.custom_jvp
    def safe_sqrt(x):
        return lg.sqrt(x)

    safe_sqrt.defjvp(lambda p, t: (safe_sqrt(*p), t[0] * lg.where(p[0] > 0.0, 0.5 / lg.sqrt(p[0] + 1e-30), 0.0)))
    close(lg.grad(safe_sqrt)(lg.asarray(4.0)), 0.25, 1e-6)
    close(lg.grad(safe_sqrt)(lg.asarray(0.0)), 0.0)
    close(lg.jvp(safe_sqrt, [lg.asarray(4.0)], [lg.asarray(2.0)])[1], 0.5, 1e-6)
    with pytest.raises(lg.UsageError, match="has no derivative rule"):
        lg.custom_vjp(lambda x: x)(lg.asarray(1.0))


def test_errors_say_what_to_do():
    with pytest.raises(lg.DifferentiationError, match=r"with respect to integers \(test_transforms\.py.*found int64"):
        lg.grad(lambda x: lg.sum(x))(lg.asarray([1, 2]))
    with pytest.raises(lg.DifferentiationError, match="needs one real number"):
        lg.grad(lambda x: x * 2.0)(lg.asarray([1.0, 2.0]))
    with pytest.raises(lg.UsageError, match="argnums 3"):
        lg.grad(lambda x: lg.sum(x), 3)(lg.asarray([1.0]))
    with pytest.raises(lg.UsageError, match="derivative would be lost"):
        lg.grad(lambda x: x if float(x) > 0 else -x)(lg.asarray(1.0))


def test_check_gradients_finds_a_wrong_rule():
    @lg.custom_jvp
    def wrong(x):
        return x * x

    wrong.defjvp(lambda p, t: (wrong(*p), 3.0 * p[0] * t[0]))
    with pytest.raises(lg.DifferentiationError, match="forward mode and central differences disagree"):
        lg.check_gradients(wrong, lg.asarray(2.0))


def test_checkpoint_recomputes_what_it_does_not_store():
    weights = [data(6, 6, seed=index) for index in range(4)]
    x = data(3, 6, seed=9)

    def network(layer):
        def loss(weights):
            hidden = x
            for weight in weights:
                hidden = layer(hidden, weight)
            return lg.sum(hidden)

        return loss

    def layer(hidden, weight):
        return lg.tanh(lg.sin(hidden @ weight))

    stored, computed = lg.jit(lg.grad(network(layer))), lg.jit(lg.grad(network(lg.checkpoint(layer))))
    plain, again = stored(weights), computed(weights)
    for first, second in zip(plain, again, strict=True):
        close(first, second)
    assert _count_ops(stored, "sin") == 4
    assert _count_ops(computed, "sin") == 7  # the last layer's residuals are still live when the backward pass begins


def _count_ops(jitted, name: str) -> int:
    (entry,) = jitted._entries.values()
    return sum(node.op.name == name for node in nodes_of(lg.ir.compile(entry.function).lowered))


# --- transforms of transforms ----------------------------------------------------------------------------------------


def test_a_compiled_gradient_of_a_compiled_function_is_the_gradient():
    cube = lg.jit(lambda x: x**3)
    x = lg.asarray(2.0, dtype=lg.float64)
    assert float(lg.jit(lg.grad(cube))(x)) == 12.0
    assert float(lg.jit(lg.grad(lg.jit(lg.grad(cube))))(x)) == 12.0
    assert lg.jit(lg.vmap(cube))(lg.asarray([1.0, 2.0])).tolist() == [1.0, 8.0]
    assert float(lg.jit(lg.checkpoint(cube))(x)) == 8.0
    assert lg.jit(lg.jacrev(cube))(x).tolist() == 12.0


def test_a_rule_given_to_a_derivative_of_a_function_with_a_rule_is_its_own():
    double = lg.custom_jvp(lambda x: x + x)
    double.defjvp(lambda primals, tangents: (double(*primals), 10.0 * tangents[0]))
    outer = lg.custom_jvp(lg.checkpoint(double))
    outer.defjvp(lambda primals, tangents: (outer(*primals), 7.0 * tangents[0]))
    assert float(lg.grad(outer)(lg.asarray(1.0))) == 7.0
    assert float(lg.grad(double)(lg.asarray(1.0))) == 10.0


def test_backward_rejects_a_loss_computed_before_a_variable_was_updated():
    w: Any = lg.asarray([1.0, 2.0]).requires_grad_()
    u: Any = lg.ones(2).requires_grad_()
    product, chosen, detached = lg.sum(w * u), lg.sum(lg.where(w > 1.5, u, 0.0)), lg.sum(w.detach() * u)
    w[0] = 10.0
    with pytest.raises(
        lg.DifferentiationError, match="updated in place after this number was computed from it"
    ) as caught:
        product.backward()
    assert "test_transforms.py" in str(caught.value.where)
    assert w.grad is u.grad is None
    chosen.backward()
    assert u.grad.tolist() == [0.0, 1.0]  # no gradient flows through a comparison
    detached.backward()
    assert u.grad.tolist() == [1.0, 3.0]
    lg.sum(w * w).backward()
    assert w.grad.tolist() == [20.0, 4.0]
    w -= 0.5 * w.grad
    lg.sum(w * w).backward()
    assert w.grad.tolist() == [20.0, 4.0]  # its current value is zero


def test_vmap_without_mapped_arguments_raises():
    with pytest.raises(lg.UsageError, match="`<lambda>` has nothing to map over"):
        lg.vmap(lambda x: x, in_axes=None)(lg.ones(3))

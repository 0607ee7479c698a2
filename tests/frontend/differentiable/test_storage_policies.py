"""Storage policies of reverse mode: recomputation, checkpoints, byte budgets, and the storage report."""

import math

import pytest

import livegrad as lg


@lg.differentiable
def wave(x: float) -> float:
    return math.sin(x) * x


@lg.prefer_checkpoint
@lg.differentiable
def stored_wave(x: float) -> tuple[float, float]:
    return math.sin(x) * x, math.cos(x)


@lg.differentiable
def power(x: float, n: int) -> float:
    y = x
    for _ in range(n):
        y = math.sin(y) * x
    return y


def test_the_report_names_values_bytes_and_loops():
    report = power.remembered()
    assert {value.op for value in report.values if value.kind == "traced"} == {"sin", "cos"}
    assert list(report.bytes_per_iteration.values()) == [16]
    assert "16 bytes at each iteration of the loop at test_storage_policies.py:" in str(report)


def test_recomputed_calls_store_only_their_arguments():
    def body(x: float) -> float:
        return math.exp(math.sin(x)) * wave(x)

    assert lg.differentiable(body).remembered().bytes == 40
    assert lg.prefer_recompute(lg.differentiable(body)).remembered().bytes == 0


def test_a_checkpoint_inside_a_recomputed_call_is_stored():
    @lg.prefer_recompute
    @lg.differentiable
    def f(x: float) -> float:
        a, b = stored_wave(x)
        return a * b * a

    x = 0.7
    assert f.remembered().bytes == 16
    slope = 2.0 * math.sin(x) * x * (math.cos(x) * x + math.sin(x)) * math.cos(x) - (math.sin(x) * x) ** 2 * math.sin(x)
    assert math.isclose(lg.bwd_diff(f)(x, 1.0)[0], slope, rel_tol=1e-13)


def test_a_byte_budget_splits_loops_into_segments():
    within = lg.remember_at_most(256)(lg.differentiable(power.python_function))
    expected = lg.bwd_diff(power)(1.1, 300, 1.0)[0]
    assert math.isclose(lg.bwd_diff(within)(1.1, 300, 1.0)[0], expected, rel_tol=1e-12)
    assert any(value.kind == "again" for value in within.remembered().values)
    assert not any(value.kind == "again" for value in power.remembered().values)


def test_policies_combine_with_custom_derivatives():
    @lg.prefer_recompute
    @lg.differentiable
    def f(x: float) -> float:
        return x * x

    @f.backward_derivative
    def _(x: float, d: float) -> tuple[float]:
        return (10.0 * d,)

    assert lg.bwd_diff(f)(3.0, 1.0) == (10.0,)


def test_policies_need_a_differentiable_function():
    with pytest.raises(lg.FunctionError, match="`prefer_checkpoint` takes a differentiable function"):
        lg.prefer_checkpoint(lg.function(lambda x: x))  # type: ignore[arg-type]
    with pytest.raises(lg.UsageError, match="must be positive"):
        lg.remember_at_most(0)

"""Vectorised reductions of scalar loops: every length and prefix, in both tiers, and several totals in one loop."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.ir.types import Tensor
from livegrad.ops.control import for_loop
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.tensors.tracing import trace_call

LENGTHS = (16, 17, 31, 63, 64, 95, 130, 255)


def in_both_tiers(
    program: Callable[..., Any], arrays: list[Any], monkeypatch: pytest.MonkeyPatch
) -> list[list[np.ndarray[Any, Any]]]:
    function = trace_call(program, [lg.asarray(array).type for array in arrays], "reduce_rows").function
    found = []
    for choice in ("baseline", "optimised"):
        monkeypatch.setenv("LIVEGRAD_CODE", choice)
        forget_kernels()
        results = CpuFunction(function)(*arrays)
        found.append([np.asarray(r) for r in (results if isinstance(results, (tuple, list)) else [results])])
    return found


def prefixes(a: Any, sums: Any, greatest: Any) -> Any:
    """The sum and the maximum of the first i elements of each row i."""
    places = lg.arange(a.shape[1])

    def row(i: Any, state: Any) -> Any:
        sums, greatest = state
        sums[i] = lg.sum(lg.where(places < i, a[i] * a[i], 0.0))
        greatest[i] = lg.max(a[i])
        return sums, greatest

    return lg.fori_loop(0, a.shape[0], row, (sums, greatest))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("length", LENGTHS)
def test_reductions_of_any_length_are_correct_and_have_the_same_bits_in_both_tiers(
    length: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = np.random.default_rng(length).normal(size=(length + 3, length)).astype(dtype)
    zeros = np.zeros(length + 3, dtype)
    baseline, optimised = in_both_tiers(prefixes, [a, zeros, zeros], monkeypatch)
    assert [r.tobytes() for r in baseline] == [r.tobytes() for r in optimised]
    expected = [np.sum((a[i, :i] * a[i, :i]).astype(np.float64)) for i in range(length + 3)]
    np.testing.assert_allclose(optimised[0], expected, rtol=1e-12 if dtype is np.float64 else 1e-5)
    np.testing.assert_array_equal(optimised[1], a.max(axis=1))


def filtered(x: Any, w: Any, y: Any) -> Any:
    """A convolution: each element of y is the dot product of a row of x and the reversed w."""

    def row(i: Any, y: Any) -> Any:
        y[i] = lg.sum(x[i] * lg.flip(w))
        return y

    return lg.fori_loop(0, x.shape[0], row, y)


def text_of(program: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    function = trace_call(program, [Tensor(lg.f64, shape) for shape in shapes], "program").function
    steps = [step for step in CpuFunction(function).schedule().steps if isinstance(step, KernelStep)]
    (text,) = [emit_kernel(lower_loops(for_cpu(s, CPU, 64))).text for s in steps if s.kernel.name == "for_loop"]
    return text


@pytest.mark.parametrize("length", [16, 37, 100])
def test_lanes_that_count_down_load_a_vector_and_reverse_it(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = np.random.default_rng(length).normal(size=(9, length)), np.linspace(-1.0, 2.0, length)
    for (found,) in in_both_tiers(filtered, [x, w, np.zeros(9)], monkeypatch):
        np.testing.assert_allclose(found, x @ w[::-1], rtol=1e-12)
    assert "gather" not in text_of(filtered, (9, length), (length,), (9,))


def two_totals(count: Any, x: Any, y: Any) -> Any:
    """A vectorised loop with two totals, which have different initial values."""

    def term(k: Any, total: Any, product: Any, x: Any, y: Any) -> Any:
        value = ops.lookup(x, k)
        return total - value * ops.lookup(y, k), ops.maximum(product, value)

    body = lg.ir.trace(term, lg.i64, lg.f64, lg.f64, x.type, y.type)
    start = [lg.ir.constant(number, lg.f64) for number in (0.5, -3.0)]
    return for_loop(count, *start, x, y, body=body, carried=2, reverse=False, lanes=16)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 40, 63])
def test_totals_of_one_loop_have_their_own_initial_values(count: int) -> None:
    x, y = np.random.default_rng(count).normal(size=(2, 64))
    line = Tensor(lg.f64, (64,))
    compiled = lg.ir.compile(lg.ir.trace(two_totals, lg.i64, line, line))
    total, greatest = compiled(count, x, y)
    np.testing.assert_allclose(total, 0.5 - x[:count] @ y[:count], rtol=1e-13)
    assert greatest == max([-3.0, *x[:count]])


def test_remaining_terms_run_in_half_as_many_lanes_without_a_loop() -> None:
    text = text_of(prefixes, (90, 90), (90,), (90,))
    for lanes in (32, 16, 8, 4, 2):
        assert f"load <{lanes} x double>" in text

"""Python functions inside programs, on both backends: control flow, derivatives, program order and batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import DifferentiationError, TypeRuleError, UsageError
from livegrad.ir.digest import function_digest
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Node
from livegrad.ir.types import Struct, Tensor, Vector, bool_, f32, f64, i64
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import make_cond, make_for_loop
from livegrad.ops.host import HostFunction, host_call, make_host_call, make_print
from livegrad.ops.maps import make_map, map_over
from livegrad.ops.order import after, each_after
from livegrad.ops.reduction import reduce
from livegrad.ops.transcendental import sin
from livegrad.passes.batch import batch
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import run_function
from livegrad.runtime.reference import evaluate
from tests.differentiate.checks import check_first_order

Run = Callable[..., Any]
both = pytest.mark.parametrize("run", [evaluate, run_function], ids=["reference", "cpu"])
ROW = Tensor(f64, (4,))
PAIR = Struct("Pair", (("a", f64), ("b", Vector(f64, 2))))


def doubled(x: Any) -> Any:
    return x * 2.0


def sorted_row(x: Any) -> Any:
    return np.sort(x)


@both
def test_a_callable_runs_among_native_code(run: Run) -> None:
    function = trace(lambda x: sin(make_host_call(HostFunction(sorted_row), [ROW], x * 2.0)) + 1.0, ROW)
    row = np.array([0.3, -0.2, 0.9, 0.1])
    np.testing.assert_allclose(run(function, row), np.sin(np.sort(row * 2.0)) + 1.0, rtol=1e-15)
    scalar = trace(lambda x: make_host_call(HostFunction(doubled), [f64], x) + x, f64)
    assert run(scalar, 3.0) == 9.0


@both
def test_a_callable_may_give_several_values_and_structs(run: Run) -> None:
    def split(x: Any, pair: Any) -> Any:
        return x + pair[0], (pair[0], pair[1] * x)

    function = trace(lambda x, p: make_tuple(make_host_call(HostFunction(split), [f64, PAIR], x, p)), f64, PAIR)
    ((total, (a, b)),) = [*run(function, 2.0, (1.0, np.array([3.0, 4.0])))]
    assert (total, a) == (3.0, 1.0)
    np.testing.assert_array_equal(b, [6.0, 8.0])


@both
def test_a_callable_runs_in_loops_branches_and_maps(run: Run) -> None:
    calls: list[float] = []

    def counted(x: Any) -> Any:
        calls.append(float(x))
        return x + 1.0

    host = HostFunction(counted)
    loop = trace(lambda n, x: make_for_loop(n, lambda i, a: make_host_call(host, [f64], a) * 2.0, x)[0], i64, f64)
    assert run(loop, 3, 1.0) == 22.0
    assert calls == [1.0, 4.0, 10.0]
    calls.clear()
    branch = trace(lambda x: make_cond(x > 0.0, lambda a: make_host_call(host, [f64], a), lambda a: a, x), f64)
    assert run(branch, -1.0) == -1.0
    assert calls == [], "a branch that is not taken calls nothing"
    mapped = map_over(trace(lambda x: make_host_call(host, [f64], x) * x, f64))
    np.testing.assert_array_equal(run(mapped, np.array([1.0, 2.0, 3.0])), [2.0, 6.0, 12.0])
    assert calls == [1.0, 2.0, 3.0]


@both
def test_sizes_may_be_known_only_at_run_time(run: Run) -> None:
    rows = Tensor(f64, (Dimension.symbol("n"), 4))
    function = trace(lambda x: make_host_call(HostFunction(lambda a: a[::-1]), [rows], x), rows)
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(run(function, x), x[::-1])


# --- derivatives -----------------------------------------------------------------------------------------------------


def cubed(x: Any) -> Any:
    return x**3


def cubed_vjp(x: Any, ct: Any) -> Any:
    return 3.0 * x**2 * ct


@both
def test_a_gradient_uses_the_vjp_that_was_given(run: Run) -> None:
    host, rule = HostFunction(cubed), HostFunction(cubed_vjp)
    for type, x in ((f64, 1.3), (ROW, np.array([0.3, -0.2, 0.9, 0.1]))):
        function = trace(lambda a, t=type: sin(make_host_call(host, [t], a, vjp=rule)), type)
        expected = np.cos(np.power(x, 3)) * 3.0 * np.power(x, 2)
        np.testing.assert_allclose(run(vjp(function), x, np.ones_like(x)), expected, rtol=1e-14)
        with pytest.raises(DifferentiationError, match=r"host function .*cubed_vjp"):
            jvp(function)


def test_with_both_rules_the_modes_agree() -> None:
    host = HostFunction(cubed)
    rules: dict[str, Any] = {"vjp": HostFunction(cubed_vjp), "jvp": HostFunction(lambda x, dx: 3.0 * x**2 * dx)}
    function = trace(lambda x: make_host_call(host, [ROW], x, **rules) * x, ROW)
    check_first_order(function, (np.array([0.3, -0.2, 0.9, 0.1]),), np.random.default_rng(0))


def test_a_callable_without_a_rule_cannot_be_differentiated() -> None:
    function = trace(lambda x: make_host_call(HostFunction(doubled), [f64], x), f64)
    for mode in (jvp, vjp):
        with pytest.raises(DifferentiationError, match=r"`.*doubled` \(test_host.py.*pass its vjp"):
            mode(function)


# --- printing --------------------------------------------------------------------------------------------------------


def traced_prints(x: Node) -> Node:
    first = make_print("x is {:.2f}", x)
    second = make_print("x is {:.2f}", x, follows=[first])
    y = x * 2.0
    third = make_print("y is {}", y, follows=[second])
    return after(y, third)


@both
def test_prints_come_in_the_order_of_the_program_each_time(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    function = trace(traced_prints, f64)
    assert run(function, 1.5) == 3.0
    assert run(function, 1.5) == 3.0
    assert capsys.readouterr().out == "x is 1.50\nx is 1.50\ny is 3.0\n" * 2


@both
def test_tensors_and_structs_can_be_printed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def show(x: Node, p: Node) -> Node:
        return after(x + 1.0, make_print("{} and {}", x, p))

    run(trace(show, Tensor(f64, (2,)), PAIR), np.array([1.0, 2.0]), (1.0, np.array([3.0, 4.0])))
    assert capsys.readouterr().out == "[1. 2.] and (1.0, array([3., 4.]))\n"


@both
def test_a_loop_that_carries_the_token_prints_at_each_iteration(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def noisy(n: Node, x: Node) -> Node:
        def step(i: Node, a: Node, token: Node) -> tuple[Node, Node]:
            return a * 2.0, make_print("{}: {}", i, a, follows=[token])

        value, token = make_for_loop(n, step, x, constant(False, bool_))
        return each_after(value, token)

    function = trace(noisy, i64, f64)
    assert run(function, 3, 1.0) == 8.0
    assert capsys.readouterr().out == "0: 1.0\n1: 2.0\n2: 4.0\n"


@both
def test_a_gradient_prints_what_its_function_prints(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def noisy(x: Node) -> Node:
        return after(sin(x), make_print("x = {}", x)) * x

    function = trace(noisy, f64)
    for derived in (jvp(function), vjp(function), vjp(function, with_value=True)):
        run(derived, 0.5, 1.0)
        assert capsys.readouterr().out == "x = 0.5\n"


# --- batches ---------------------------------------------------------------------------------------------------------


@both
def test_a_batch_calls_once_for_each_member(run: Run) -> None:
    observed: list[Any] = []

    def remembers(x: Any, y: Any) -> Any:
        observed.append(float(y))
        return np.sort(x) * y, y + 1.0

    host = HostFunction(remembers)
    function = trace(lambda x, y: make_tuple(make_host_call(host, [ROW, f64], x, y)), ROW, f64)
    rows, factors = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 5.0, 2.0, 0.0]]), np.array([2.0, 3.0])
    ((first, second),) = run(batch(function, size=2), rows, factors)
    np.testing.assert_array_equal(first, np.sort(rows) * factors[:, None])
    np.testing.assert_array_equal(second, factors + 1.0)
    assert observed == [2.0, 3.0]
    scalars = batch(trace(lambda y: make_host_call(HostFunction(doubled), [f64], y), f64), size=2)
    np.testing.assert_array_equal(run(scalars, factors), factors * 2.0)


@both
def test_a_batch_of_symbolic_size_calls_for_each_member(run: Run) -> None:
    function = trace(lambda x: make_host_call(HostFunction(sorted_row), [ROW], x), ROW)
    made = batch(function, size=Dimension.symbol("n"))
    rows = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 5.0, 2.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    np.testing.assert_array_equal(run(made, rows), np.sort(rows))


def test_gradients_of_batches_use_the_rule_for_each_member() -> None:
    host, rule = HostFunction(cubed), HostFunction(cubed_vjp)
    function = trace(lambda x: reduce(make_host_call(host, [ROW], x, vjp=rule), kind="sum", axes=(0,)), ROW)
    rows = np.arange(8.0).reshape(2, 4)
    np.testing.assert_allclose(evaluate(vjp(batch(function, size=2)), rows, np.ones(2)), 3.0 * rows**2)
    np.testing.assert_allclose(evaluate(batch(vjp(function), size=2), rows, np.ones(2)), 3.0 * rows**2)


# --- mistakes --------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("callable", "message"),
    [
        (
            lambda x: np.zeros(3),
            r"returned values that do not have the declared types.*expected tensor<f32, \[4\]>, found float64\[3\]",
        ),
        (lambda x: np.zeros(4, complex), r"found complex128\[4\]"),
        (lambda x: (x, x), "returned values that do not have the declared types"),
        (lambda x: x[7], "failed: IndexError"),
    ],
)
def test_a_callable_that_breaks_its_promise_is_named(run: Run, callable: Any, message: str) -> None:
    type = Tensor(f32, (4,))
    function = trace(lambda x: make_host_call(HostFunction(callable, name="wrong"), [type], x) + 1.0, type)
    with pytest.raises(UsageError, match=f"host function `wrong`.*{message}"):
        run(function, np.zeros(4, np.float32))


def test_what_a_host_call_needs_is_checked() -> None:
    with pytest.raises(TypeRuleError, match="must return something"):
        trace(lambda x: make_host_call(HostFunction(doubled), [], x), f64)
    with pytest.raises(TypeRuleError, match="needs a HostFunction"):
        trace(lambda x: host_call(x, function=None, results=(f64,), follows=0), f64)
    with pytest.raises(UsageError, match="cannot have side effects"):
        trace(lambda x: make_host_call(HostFunction(doubled, effect=True), [f64], x, vjp=HostFunction(doubled)), f64)


def test_a_callable_is_itself_unless_it_has_a_version() -> None:
    def call(host: HostFunction) -> Any:
        return trace(lambda x: make_host_call(host, [f64], x), f64)

    assert call(HostFunction(doubled)) != call(HostFunction(doubled))
    assert call(HostFunction(doubled, version=1)) == call(HostFunction(doubled, version=1))
    assert call(HostFunction(doubled, version=1)) != call(HostFunction(doubled, version=2))
    assert function_digest(call(HostFunction(doubled, version=1))) is None, "no other process has the callable"


@both
def test_what_a_callable_keeps_stays_what_it_was(run: Run) -> None:
    kept: list[Any] = []

    def keeps(x: Any) -> Any:
        kept.append(x)
        return x

    function = trace(lambda x: make_host_call(HostFunction(keeps), [ROW], x * 2.0) * x, ROW)
    for number in (1.0, 2.0):
        run(function, np.full(4, number))
    np.testing.assert_array_equal(kept, [np.full(4, 2.0), np.full(4, 4.0)])


@both
def test_a_map_and_a_host_call_of_its_points(run: Run) -> None:
    square = trace(lambda x: x * x, f64)
    function = trace(lambda x: make_map(square, make_host_call(HostFunction(sorted_row), [ROW], x)), ROW)
    np.testing.assert_array_equal(run(function, np.array([3.0, 1.0, 2.0, 0.0])), [0.0, 1.0, 4.0, 9.0])
    several = trace(lambda x: get(make_host_call(HostFunction(np.frexp), [ROW, Tensor(i64, (4,))], x), index=1), ROW)
    np.testing.assert_array_equal(run(several, np.array([1.0, 2.0, 4.0, 8.0])), [1, 2, 3, 4])

"""Run-time checks in native code: the message, the failing element and the line of the user's program."""

# ruff: noqa: F821  (names of sizes are variables of a captured function)
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.runtime.cpu.cpu_function import CpuFunction

N, M = lg.ir.Dimension.symbol("size_of_checks"), lg.ir.Dimension.symbol("size_of_table")
TABLE = np.arange(10, dtype=np.float32)


def _location(text: str) -> str:
    """The location of the first occurrence of `text` in this file, in the format of errors."""
    before = Path(__file__).read_text(encoding="utf-8").partition(text)[0]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"{Path(__file__).name}:{line}:{column}"


def _error_message(compiled: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(lg.KernelCheckError) as raised:
        compiled(*arguments)
    return str(raised.value)


def _over(function: Callable[..., Any], *types: Any, lifted: tuple[bool, ...] | None = None) -> CpuFunction:
    return lg.ir.compile(lg.ir.map_over(lg.ir.trace(function, *types), lifted, size="size_of_checks"))


def _look_up(table: lg.ir.Node, index: lg.ir.Node) -> lg.ir.Node:
    return ops.lookup(table, index) + 17.25


LOOK_UP = lg.ir.compile(lg.ir.trace(_look_up, lg.ir.types.Tensor(lg.f32, (M,)), lg.ir.types.Tensor(lg.i64, (N,))))


def _indices(*bad: int, size: int = 1000, value: int = 10) -> Any:
    indices = np.zeros(size, np.int64)
    indices[list(bad)] = value
    return indices


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [10, -1, 2**40, -(2**63)])
def test_an_index_out_of_range_names_element_and_line(wrong: int) -> None:
    location = _location("ops.lookup(table, index) + 17.25")
    message = _error_message(LOOK_UP, TABLE, _indices(7, value=wrong, size=20))
    results = f"{wrong}" if wrong >= 0 else f"{wrong} after counting from the end"
    assert message == f"index out of range for axis 0, at element 7 ({location}): expected 0 to 9, found {results}"


def test_an_index_is_checked_along_each_axis() -> None:
    def pick(table: lg.ir.Node, i: lg.ir.Node, j: lg.ir.Node) -> lg.ir.Node:
        return ops.lookup(table, i, j) - 19.5

    compiled = _over(pick, lg.ir.types.Tensor(lg.f32, (4, 6)), lg.i32, lg.i32, lifted=(False, True, True))
    table = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows, columns = np.array([0, 3, 2, 1], np.int32), np.array([0, 5, 6, -1], np.int32)
    location = _location("ops.lookup(table, i, j) - 19.5")
    message = _error_message(compiled, table, rows, columns)
    assert message == f"index out of range for axis 1, at element 2 ({location}): expected 0 to 5, found 6"
    assert compiled(table, rows[:2], columns[:2]).tolist() == [-19.5, 3.5]


@pytest.mark.parametrize("element", [lg.i8, lg.i16, lg.i64, lg.u8, lg.u32], ids=str)
def test_integer_division_by_zero_names_element_and_line(element: Any) -> None:
    divide = _over(lambda a, b: (a + 31) // b, element, element)
    modulo = _over(lambda a, b: (a + 37) % b, element, element)
    ones = np.ones(100, element.dtype)
    zero_at_41 = ones.copy()
    zero_at_41[41:43] = 0
    assert _error_message(divide, ones, zero_at_41) == (
        f"integer division by zero, at element 41 ({_location('(a + 31) // b')})"
    )
    assert (
        _error_message(modulo, ones, zero_at_41)
        == f"integer division by zero, at element 41 ({_location('(a + 37) % b')})"
    )
    assert divide(ones, ones).tolist() == [32] * 100


def test_the_lowest_integer_divided_by_minus_one_wraps_without_an_error() -> None:
    divide = _over(lambda a, b: ((a + 5) // b, (a + 5) % b), lg.i32, lg.i32)
    quotient, rest = divide(np.full(5, -(2**31) - 5 + 2**32, np.int64).astype(np.int32), np.full(5, -1, np.int32))
    assert (quotient.tolist(), rest.tolist()) == ([-(2**31)] * 5, [0] * 5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31) - 2**9, 1e30])
def test_a_cast_rejects_a_float_that_no_integer_holds(wrong: float) -> None:
    compiled = _over(lambda x: ops.cast(x * 1.0000001, type=lg.i32), lg.f32)
    values = np.full(50, 3.75, np.float32)
    assert compiled(values).tolist() == [3] * 50
    values[33] = wrong
    location = _location("ops.cast(x * 1.0000001, type=lg.i32)")
    assert _error_message(compiled, values) == f"a value does not fit i32, at element 33 ({location})"


@pytest.mark.parametrize(
    ("source", "target", "good", "bad"),
    [
        (lg.f64, lg.i64, [2.0**63 - 1024, -(2.0**63)], [2.0**63, -(2.0**63) - 2048]),
        (lg.f64, lg.u64, [2.0**64 - 2048, -0.99], [2.0**64, -1.0]),
        (lg.f32, lg.i8, [127.99, -128.99], [128.0, -129.0]),
        (lg.f32, lg.u8, [255.99, -0.5], [256.0, -1.0]),
        (lg.f16, lg.i16, [32752.0, -32768.0], [32768.0, np.inf]),
        (lg.f64, lg.u32, [2.0**32 - 0.5], [2.0**32]),
    ],
    ids=str,
)
def test_casts_accept_exactly_the_floats_that_truncate_into_range(
    source: Any, target: Any, good: list[float], bad: list[float]
) -> None:
    compiled = _over(lambda x: ops.cast(ops.copysign(x, x), type=target), source)
    values = np.array(good, source.dtype)
    assert compiled(values).tolist() == [int(value) for value in values.tolist()]
    for value in bad:
        message = _error_message(compiled, np.array([value], source.dtype))
        assert message.startswith(f"a value does not fit {target}, at element 0 (")


def test_an_assertion_reports_its_message() -> None:
    def root(x: lg.ir.Node) -> lg.ir.Node:
        return ops.sqrt(ops.check(x, x > 0.3125, message="the radius is too small"))

    compiled = _over(root, lg.f32)
    values = np.ones(40, np.float32)
    values[[13, 39]] = 0.25
    location = _location('ops.check(x, x > 0.3125, message="the radius')
    assert _error_message(compiled, values) == f"the radius is too small, at element 13 ({location})"
    assert (
        _error_message(compiled, np.array([np.nan], np.float32))
        == f"the radius is too small, at element 0 ({location})"
    )
    assert compiled(values[:13]).tolist() == [1.0] * 13


def test_only_a_loop_past_its_limit_is_an_error() -> None:
    def count_down(x: lg.ir.Node) -> lg.ir.Node:
        return ops.make_while_loop(lambda v: v > 0.4375, lambda i, v: v - 1.0, x, limit=10)[0]

    compiled = _over(count_down, lg.f32)
    values = np.full(100, 10.0, np.float32)
    assert compiled(values).tolist() == [0.0] * 100
    values[[71, 72]] = 11.0
    location = _location("ops.make_while_loop(lambda v: v > 0.4375")
    assert _error_message(compiled, values) == f"the loop ran past its limit of 10, at element 71 ({location})"
    alone = lg.ir.compile(lg.ir.trace(count_down, lg.f32))
    assert _error_message(alone, 11.0) == f"the loop ran past its limit of 10, at element 0 ({location})"
    assert alone(10.0) == 0.0


def test_a_loop_that_is_the_same_for_all_lanes_names_the_first_lane_that_runs_it() -> None:
    def sometimes(x: lg.ir.Node) -> lg.ir.Node:
        def count_up(x: lg.ir.Node) -> lg.ir.Node:
            one = lg.ir.constant(1, lg.i64)
            return x + ops.cast(ops.make_while_loop(lambda v: v > 0, lambda i, v: v + 53, one, limit=5)[0], type=lg.f32)

        return ops.make_cond(x > 0.46875, count_up, lambda x: x, x)

    compiled = _over(sometimes, lg.f32)
    assert "limit of 5, at element 2 " in _error_message(compiled, np.array([-1, -1, 1, 1], np.float32))
    assert compiled(np.full(5, -1, np.float32)).tolist() == [-1.0] * 5


@pytest.mark.parametrize("wrong", [2, -1, 2**31 - 1, -(2**31)])
def test_a_switch_with_an_invalid_index_is_an_error(wrong: int) -> None:
    def choose(index: lg.ir.Node, x: lg.ir.Node) -> lg.ir.Node:
        return ops.make_switch(index, [lambda x: x + 0.0625, lambda x: -x], x)

    compiled = _over(choose, lg.i32, lg.f32)
    selectors = np.array([0, 1, wrong, wrong], np.int32)
    location = _location("ops.make_switch(index, [lambda x: x + 0.0625")
    message = _error_message(compiled, selectors, np.ones(4, np.float32))
    assert message == f"switch index out of range (2 branches), at element 2 ({location})"


def test_an_index_into_an_array_value_is_checked() -> None:
    type = lg.ir.Array(lg.f32, 3)

    def member(x: lg.ir.Node, index: lg.ir.Node) -> lg.ir.Node:
        return ops.get_at(ops.make(x, x + 0.71875, x * 2.0, type=type), index)

    compiled = _over(member, lg.f32, lg.i32)
    location = _location("ops.get_at(ops.make(x, x + 0.71875")
    message = _error_message(compiled, np.ones(5, np.float32), np.array([0, 1, 2, 3, -1], np.int32))
    assert message == f"index out of range for 3 members, at element 3 ({location}): expected 0 to 2, found 3"


def test_the_error_carries_its_parts() -> None:
    with pytest.raises(lg.KernelCheckError) as raised:
        LOOK_UP(TABLE, _indices(3))
    error = raised.value
    assert error.code == "check"
    assert error.what == "index out of range for axis 0, at element 3"
    assert error.where is not None
    assert error.where.file == __file__
    assert error.where.function == "_look_up"


# --- at which element ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [(0,), (999,), (500, 999), (31,), (32,), (63, 64)], ids=str)
def test_the_lowest_failing_element_is_named(bad: tuple[int, ...]) -> None:
    assert f"at element {bad[0]} " in _error_message(LOOK_UP, TABLE, _indices(*bad))


def test_the_lowest_failing_element_of_all_threads_is_named() -> None:
    for _ in range(10):
        assert "at element 150001 " in _error_message(LOOK_UP, TABLE, _indices(150_001, 199_999, 170_000, size=200_003))


def test_an_element_of_many_dimensions_is_counted_in_row_major_order() -> None:
    compiled = lg.ir.compile(
        lg.ir.trace(_look_up, lg.ir.types.Tensor(lg.f32, (M,)), lg.ir.types.Tensor(lg.i64, (30, 7, 11)))
    )
    indices = np.zeros((30, 7, 11), np.int64)
    indices[29, 6, 10] = indices[12, 3, 5] = -5
    assert f"at element {(12 * 7 + 3) * 11 + 5} " in _error_message(compiled, TABLE, indices)


@pytest.mark.parametrize("shape", [(1_000_003,), (100, 300), (3, 70_001)], ids=str)
def test_a_check_inside_a_reduction_names_the_element(shape: tuple[int, ...]) -> None:
    def total(table: lg.ir.Node, indices: lg.ir.Node) -> lg.ir.Node:
        return ops.reduce(ops.lookup(table, indices) * 0.90625, kind="sum", axes=(len(shape) - 1,))

    compiled = lg.ir.compile(lg.ir.trace(total, lg.ir.types.Tensor(lg.f32, (M,)), lg.ir.types.Tensor(lg.i64, shape)))
    indices = np.ones(shape, np.int64)
    np.testing.assert_allclose(compiled(TABLE, indices), np.full(shape[:-1], 0.90625 * shape[-1]), rtol=1e-5)
    indices.reshape(-1)[[indices.size // 2 + 7, indices.size - 1]] = 10
    assert f"at element {indices.size // 2 + 7} " in _error_message(compiled, TABLE, indices)


def test_a_check_inside_a_column_reduction_names_the_column() -> None:
    def total(table: lg.ir.Node, indices: lg.ir.Node) -> lg.ir.Node:
        return ops.reduce(ops.lookup(table, indices) * 0.84375, kind="sum", axes=(0,))

    compiled = lg.ir.compile(
        lg.ir.trace(total, lg.ir.types.Tensor(lg.f32, (M,)), lg.ir.types.Tensor(lg.i64, (100, 300)))
    )
    indices = np.ones((100, 300), np.int64)
    indices[[7, 90], [200, 299]] = -1
    assert "at element 200 " in _error_message(compiled, TABLE, indices)


def test_of_two_failed_checks_at_one_element_the_first_in_program_order_is_reported() -> None:
    def both(x: lg.ir.Node) -> lg.ir.Node:
        positive = ops.check(x, x > 0.15625, message="first")
        return ops.check(positive, positive > 1.15625, message="second")

    compiled = _over(both, lg.f32)
    assert _error_message(compiled, np.array([2, 0, 0], np.float32)).startswith("first, at element 1 ")
    assert _error_message(compiled, np.array([2, 1, 0], np.float32)).startswith("second, at element 1 ")


# --- only where it is due --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 65, 100, 1025])
def test_lanes_past_the_end_of_an_array_raise_no_error(size: int) -> None:
    def delicate(x: lg.ir.Node, d: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        positive = ops.check(x, x > 0.21875, message="lanes past the end are zero")
        return ops.cast(1.0 / positive, type=lg.i32), (d + 13) // d

    compiled = _over(delicate, lg.f32, lg.i32)
    first, second = compiled(np.ones(size, np.float32), np.ones(size, np.int32))
    assert (first.tolist(), second.tolist()) == ([1] * size, [14] * size)


@pytest.mark.parametrize("cost", ["cheap", "dear"])
def test_a_branch_that_is_not_taken_raises_no_error(cost: str) -> None:
    def guarded(table: lg.ir.Node, index: lg.ir.Node) -> lg.ir.Node:
        def inside(index: lg.ir.Node) -> lg.ir.Node:
            value = ops.lookup(table, index) + 0.28125
            for _ in range(0 if cost == "cheap" else 12):
                value = ops.sin(value)
            return value

        return ops.make_cond(
            (index >= 0) & (index < 10),
            inside,
            lambda i: ops.cast((i - 3) // (i - 3) + (i - 2) % (i - 3), type=lg.f32),
            index,
        )

    compiled = _over(guarded, lg.ir.types.Tensor(lg.f32, (M,)), lg.i64, lifted=(False, True))
    indices = np.arange(-40, 60)
    results = compiled(TABLE, indices)
    outside = (indices < 0) | (indices >= 10)
    assert (
        results[outside].tolist() == (1 + (indices[outside] - 2) % (indices[outside] - 3)).astype(np.float32).tolist()
    )
    assert np.isfinite(results).all()


def test_a_branch_of_a_switch_that_is_not_taken_raises_no_error() -> None:
    def choose(k: lg.ir.Node, x: lg.ir.Node) -> lg.ir.Node:
        return ops.make_switch(k, [lambda x: x + 29, lambda x: (x + 91) // x, lambda x: (x + 1) % x], x)

    compiled = _over(choose, lg.i32, lg.i64)
    selectors = np.arange(90, dtype=np.int32) % 3
    values = np.where(selectors == 0, 0, 7)
    expected = np.where(selectors == 0, 29, np.where(selectors == 1, 14, 1))
    assert compiled(selectors, values).tolist() == expected.tolist()


def test_lanes_that_have_left_a_loop_raise_no_error() -> None:
    def walk(table: lg.ir.Node, steps: lg.ir.Node) -> lg.ir.Node:
        def step(i: lg.ir.Node, position: lg.ir.Node, total: lg.ir.Node) -> tuple[lg.ir.Node, lg.ir.Node]:
            return position - 1, total + ops.lookup(table, position - 1) * 1.03125

        start = lg.ir.constant(0.0, lg.f32)
        return ops.make_while_loop(lambda position, total: position > 0, step, steps, start, limit=64)[1]

    compiled = _over(walk, lg.ir.types.Tensor(lg.f32, (M,)), lg.i64, lifted=(False, True))
    steps = np.arange(11).repeat(9)[::-1].copy()
    np.testing.assert_allclose(compiled(TABLE, steps), [1.03125 * sum(range(k)) for k in steps.tolist()], rtol=1e-5)
    steps[50] = 11
    assert "index out of range for axis 0, at element 50 " in _error_message(compiled, TABLE, steps)


def test_checks_inside_nested_loops_are_masked_by_lane() -> None:
    def nest(table: lg.ir.Node, outer: lg.ir.Node, inner: lg.ir.Node) -> lg.ir.Node:
        def row(i: lg.ir.Node, total: lg.ir.Node) -> lg.ir.Node:
            def column(j: lg.ir.Node, total: lg.ir.Node) -> lg.ir.Node:
                return total + ops.lookup(table, i * 4 + j) * 1.09375

            return ops.make_for_loop(inner, column, total)[0]

        return ops.make_for_loop(outer, row, lg.ir.constant(0.0, lg.f32))[0]

    compiled = _over(nest, lg.ir.types.Tensor(lg.f32, (M,)), lg.i64, lg.i64, lifted=(False, True, True))
    outer, inner = np.tile([0, 1, 2, 3], 20), np.repeat([0, 2, 1, 4, 0], 16)
    inner[(outer == 3) & (inner > 2)] = 2
    table = np.arange(10, dtype=np.float32)
    expected = [
        sum(table[i * 4 + j] * 1.09375 for i in range(o) for j in range(k)) for o, k in zip(outer, inner, strict=True)
    ]
    np.testing.assert_allclose(compiled(table, outer, inner), expected, rtol=1e-5)
    inner[[47, 79]], outer[[47, 79]] = 3, 3
    assert "index out of range for axis 0, at element 47 " in _error_message(compiled, table, outer, inner)


# --- afterwards ------------------------------------------------------------------------------------------------------


def test_after_a_failure_the_same_function_works_and_fails_again() -> None:
    for _ in range(3):
        assert "at element 5 " in _error_message(LOOK_UP, TABLE, _indices(5))
        assert LOOK_UP(TABLE, _indices()).tolist() == [17.25] * 1000
        assert "at element 6 " in _error_message(LOOK_UP, TABLE, _indices(6))


def test_a_failing_run_stops_a_plan_of_several_kernels() -> None:
    each = lg.ir.trace(lambda x: ops.check(x, x > -1.21875, message="too low"), lg.f32)

    def checked_sums(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
        total = ops.reduce(ops.make_map(each, x), kind="sum", axes=(0,))
        return total, x - ops.spread_back(total, (N,), (0,))

    compiled = lg.ir.compile(lg.ir.trace(checked_sums, lg.ir.types.Tensor(lg.f32, (N,))))
    values = np.zeros(100_003, np.float32)
    results = compiled(values)
    values[70_000] = -2.0
    assert "too low, at element 70000 " in _error_message(compiled, values)
    assert not np.any(results[1])
    assert not np.any(compiled(np.zeros(100_003, np.float32))[1])


def test_a_check_whose_value_is_unused_is_not_eliminated_from_a_loop() -> None:
    def ignored(x: lg.ir.Node) -> lg.ir.Node:
        def body(i: lg.ir.Node, v: lg.ir.Node) -> lg.ir.Node:
            return ops.check(v, x > 0.34375, message="checked at every iteration") + 1.0

        return ops.make_for_loop(lg.ir.constant(3, lg.i64), body, x)[0] * 0.0

    compiled = _over(ignored, lg.f32)
    assert compiled(np.ones(3, np.float32)).tolist() == [0.0] * 3
    assert _error_message(compiled, np.zeros(3, np.float32)).startswith("checked at every iteration, at element 0 (")


def test_the_derivative_of_a_checked_function_checks_too() -> None:
    def reciprocal(x: lg.ir.Node) -> lg.ir.Node:
        return 1.0 / ops.check(x, x > 0.40625, message="division by almost nothing")

    gradient = _over(lambda x, ct: ops.bwd_diff(x, ct, function=lg.ir.trace(reciprocal, lg.f32)), lg.f32, lg.f32)
    ones = np.ones(9, np.float32)
    np.testing.assert_allclose(np.ravel(gradient(ones * 2, ones)), [-0.25] * 9)
    message = _error_message(gradient, np.array([1, 0.1], np.float32), ones[:2])
    assert message == f"division by almost nothing, at element 1 ({_location('ops.check(x, x > 0.40625')})"


def test_different_lines_with_different_expressions_report_their_own() -> None:
    def two_lines(a: lg.ir.Node, b: lg.ir.Node, c: lg.ir.Node) -> lg.ir.Node:
        first = (a + 43) % b
        second = (a + 43) % c
        return first + second

    compiled = _over(two_lines, lg.i64, lg.i64, lg.i64)
    ones, zeros = np.ones(3, np.int64), np.zeros(3, np.int64)
    assert _location("(a + 43) % b") in _error_message(compiled, ones, zeros, ones)
    assert _location("(a + 43) % c") in _error_message(compiled, ones, ones, zeros)


def test_equal_expressions_on_different_lines_report_their_own() -> None:
    def here(a: lg.ir.Node, b: lg.ir.Node) -> lg.ir.Node:
        return (a + 47) % b

    def there(a: lg.ir.Node, b: lg.ir.Node) -> lg.ir.Node:
        return (a + 47) % (b)

    ones, zeros = np.ones(3, np.int64), np.zeros(3, np.int64)
    first, second = _over(here, lg.i64, lg.i64), _over(there, lg.i64, lg.i64)
    assert _location("(a + 47) % b") in _error_message(first, ones, zeros)
    assert _location("(a + 47) % (b)") in _error_message(second, ones, zeros)


# --- loops -----------------------------------------------------------------------------------------------------------


def test_an_endless_loop_ends_after_a_failed_check() -> None:
    def root(x: lg.ir.Node) -> lg.ir.Node:
        checked = ops.check(x, x > -3.0, message="too low")
        return ops.make_while_loop(lambda v: v > 0.0, lambda i, v: ops.sqrt(v), checked)[0]

    message = _error_message(_over(root, lg.f32), np.array([-4.0, 2.0, 2.0], np.float32))
    assert "too low" in message


@lg.function
def _follow(links: lg.array[int, "n"], i: int) -> int:
    steps = 0
    place = i
    while links[place] != i:  # endless if reads after the failed one gave zero
        place = links[place]
        steps += 1 + min(0, steps // (steps + 1))
    return steps


@lg.function
def _follow_all(links: lg.array[int, "n"], out: lg.inout[lg.array[int, "n"]]):
    for i in lg.parallel(n):
        out[i] = _follow(links, i)


def test_the_first_failed_check_of_a_scalar_loop_ends_it() -> None:
    ring = np.roll(np.arange(2_000), -1)
    assert _follow(ring, 7) == 1_999
    np.testing.assert_array_equal(_follow_all(ring, np.zeros(2_000, int)), np.full(2_000, 1_999))
    ring[1_500] = 5_000
    for call in (lambda: _follow(ring, 7), lambda: _follow_all(ring, np.zeros(2_000, int))):
        assert "while links[place] != i" in _line_of_error(call)


def _line_of_error(function: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(lg.KernelCheckError) as raised:
        function(*arguments)
    location = raised.value.where
    assert location is not None
    return Path(__file__).read_text(encoding="utf-8").splitlines()[location.line - 1]

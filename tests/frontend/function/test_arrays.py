"""Whole arrays in captured functions: reads, slices, writes and results agree with CPython on NumPy arrays."""

# ruff: noqa: F821  (names of sizes are variables of a captured function)
# pyright: reportUndefinedVariable=false, reportReturnType=false, reportInvalidTypeForm=false

import math
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.compiler import compile_plan
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.schedule.plan import KernelStep

LINE = lg.array[float, "n"]
GRID = lg.array[float, "n", "m"]
SQUARE = lg.array[float, "n", "n"]
WHOLE = lg.array[int, "n"]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 2.0, shape)


def assert_like_python(function: CapturedFunction, *arguments: Any, exactly: bool = True) -> Any:
    """Checks that the function returns what CPython computes from its source, and leaves its arguments unchanged."""
    before = [np.copy(argument) for argument in arguments]
    result, expected = function(*arguments), function.python(*arguments)
    is_tuple = isinstance(expected, tuple)
    assert isinstance(result, tuple) is is_tuple
    for actual, reference in zip(result if is_tuple else [result], expected if is_tuple else [expected], strict=True):
        assert np.asarray(actual).dtype == np.asarray(reference).dtype
        if exactly:
            np.testing.assert_array_equal(actual, reference)
        else:
            np.testing.assert_allclose(actual, reference, rtol=1e-13)
    for argument, old in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(argument, old)
    return result


def assert_one_kernel(function: CapturedFunction) -> None:
    """Checks that the plan has two steps: it copies the argument, and one kernel writes the copy."""
    for specialization in function._specializations.values():
        copy, loop = compile_plan(specialization.function, CPU).steps
        assert isinstance(loop, KernelStep)
        assert isinstance(copy, KernelStep)


# --- elements ---------------------------------------------------------------------------------------------------------


@lg.function
def relax(a: lg.inout[GRID], w: float) -> GRID:
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            a[i, j] = (a[i - 1, j] + a[i + 1, j]) * w
    return a


def test_a_loop_nest_is_one_kernel_that_writes_in_place():
    assert_like_python(relax, random(6, 7), 0.5)
    assert_one_kernel(relax)


@lg.function
def factorise(a: lg.inout[SQUARE]):
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]


def test_a_function_without_a_result_returns_its_inout_array():
    assert_like_python(factorise, random(7, 7) + 4.0 * np.eye(7), exactly=False)
    assert_one_kernel(factorise)


def test_several_inout_arrays_are_returned_as_a_tuple():
    @lg.function
    def exchange(a: lg.inout[LINE], b: lg.inout[LINE]):
        for i in range(len(a)):
            kept = a[i]
            a[i] = b[i]
            b[i] = kept

    assert_like_python(exchange, random(4), random(4) + 1.0)


def test_negative_indices_and_sizes():
    @lg.function
    def reverse(a: LINE) -> LINE:
        b = lg.zeros(n)
        for i in range(a.shape[0]):
            b[-1 - i] = a[i] + a.size + a.ndim
        return b

    assert_like_python(reverse, random(5))


def test_local_arrays_of_all_kinds():
    @lg.function
    def count(a: WHOLE, w: lg.array[lg.f32, "m"]):
        ones = np.ones((n, 2), dtype=np.int32)
        seen = lg.zeros(n, dtype=bool)
        weights = lg.full(m, 2.5, dtype=lg.f32)
        twice = lg.zeros_like(a)
        for i in range(n):
            seen[i] = a[i] % 2 == 0
            twice[i] = a[i] * 2 + int(ones[i, 1])
        for j in range(m):
            weights[j] = w[j] * weights[j]
        return ones, seen, weights, twice

    assert_like_python(count, np.arange(6), random(3).astype(np.float32))


def test_arange_counts_like_numpy():
    @lg.function
    def ranges(a: LINE):
        return np.arange(n), lg.arange(2, n), np.arange(n, 0, -2), np.arange(0.5, n, 0.75), np.arange(3, dtype=np.int8)

    assert_like_python(ranges, random(7))


def test_the_range_of_an_array_must_be_known():
    @lg.function
    def count(a: WHOLE):
        return np.arange(a[0])

    with pytest.raises(lg.FunctionError, match="must be known at compile time"):
        count(np.arange(3))


def test_types_of_numpy_convert_numbers():
    @lg.function
    def convert(x: float, n: int):
        mixed = np.uint64(14695981039346656037) ^ np.uint64(n)
        return np.float32(x) * np.float32(0.1), np.uint8(n) + np.uint8(250), mixed, np.bool_(n), np.int16(x)

    assert_like_python(convert, 2.7, 7)


def test_complex_arrays():
    @lg.function
    def square(a: lg.array[complex, "n"]):
        b = lg.empty(n, dtype=complex)
        for i in range(n):
            b[i] = a[i] * a[i] + 1.0
        return b

    assert_like_python(square, random(4) + 1j * random(4), exactly=False)


def test_tuples_of_arrays():
    @lg.function
    def add(pair: tuple[LINE, LINE], w: float) -> tuple[LINE, LINE]:
        x, y = pair
        z = x.copy()
        for i in range(n):
            z[i] = x[i] * w + y[i]
        return z, x

    z, x = add((random(3), random(3)), 2.0)
    np.testing.assert_array_equal(z, 3.0 * random(3))
    np.testing.assert_array_equal(x, random(3))


def test_a_provably_nonnegative_index_needs_no_adjustment():
    def selects(bounds: str, index: str) -> bool:
        text = f"def f(a: lg.inout[LINE], k: int):\n    for i in range({bounds}):\n        a[{index}] = 1.0\n"
        function = lg.function(lg.run_source(text, {"lg": lg, "LINE": LINE})["f"])
        assert_like_python(function, random(4), 1)
        (specialization,) = function._specializations.values()
        return "select" in lg.ir.print_function(specialization.function)

    assert not selects("n", "i")
    assert not selects("1, n", "i - 1")
    assert not selects("n - 1, -1, -1", "i")
    assert not selects("n", "n - 1 - i")
    assert not selects("n", "(i + k) % n")
    assert selects("-n, n", "i")
    assert selects("n", "i - 1")
    assert selects("k, n", "i")


# --- rows and slices --------------------------------------------------------------------------------------------------


def test_rows_and_slices():
    @lg.function
    def rows(a: lg.inout[GRID]):
        for i in range(1, n):
            a[i] = a[i - 1] * 2.0 + 1.0
        a[1:-1, 0] = a[0, 1 : n - 1]
        a[..., -1] += 3.0
        a[:] -= 1.0
        a[0][1] = 7.0
        a *= 0.5

    assert_like_python(rows, np.round(random(4, 4), 1))


def test_functions_of_whole_rows():
    @lg.function
    def sums(a: GRID) -> LINE:
        total = lg.zeros(n)
        for i, row in enumerate(a):
            total[i] = sum(row) + lg.max(row)
        return lg.sqrt(total) + total

    assert_like_python(sums, random(3, 5), exactly=False)


# --- control flow -----------------------------------------------------------------------------------------------------


@lg.function
def mark_until(a: lg.inout[LINE], x: float) -> LINE:
    for i in range(n):
        if a[i] > x:
            return a
        a[i] = -1.0
    return a


@pytest.mark.parametrize("limit", [-1.0, 2.5, 9.0])
def test_an_early_return_from_a_loop_carries_one_array(limit: float):
    assert_like_python(mark_until, np.arange(6.0), limit)
    assert_one_kernel(mark_until)


@lg.function
def find_above(a: lg.inout[LINE], counts: lg.inout[WHOLE], limit: float) -> tuple[LINE, tuple[int, float], WHOLE]:
    total = 0.0
    for i in range(n):
        if a[i] > limit:
            return a, (i, total), counts
        counts[i] += 1
        for _ in range(2):
            total += a[i]
            a[i] *= 0.5
            if total > 20.0:
                return a, (-1, total), counts
    return a, (n, 0), counts


@pytest.mark.parametrize("limit", [-1.0, 2.5, 7.5, 9.0])
def test_arrays_and_numbers_returned_early_are_written_in_place(limit: float):
    assert_like_python(find_above, np.arange(8.0), np.zeros(8, int), limit)
    for specialization in find_above._specializations.values():
        assert all(isinstance(step, KernelStep) for step in compile_plan(specialization.function, CPU).steps)


@pytest.mark.parametrize("x", [-1.0, 0.5, 3.0])
def test_tuples_of_different_arrays_are_returned_on_different_paths(x: float):
    @lg.function
    def choose(a: LINE, x: float) -> tuple[LINE, int]:
        b = a.copy()
        c = lg.ones(n)
        for i in range(n):
            if x < a[i]:
                b[i] = 5.0
                if x < 0.0:
                    return b, i
                return c, -i
            c[i] += a[i]
        return c, n

    assert_like_python(choose, np.arange(3.0), x)


def test_while_break_and_continue():
    @lg.function
    def halve(a: lg.inout[LINE], limit: float) -> tuple[LINE, int]:
        rounds = 0
        while a[0] > limit:
            for i in range(n):
                if i == 1:
                    continue
                a[i] *= 0.5
                if a[i] < 0.01:
                    break
            rounds += 1
        else:
            a[-1] = 0.0
        return a, rounds

    assert_like_python(halve, np.array([8.0, 4.0, 0.015, 3.0]), 0.3)
    assert_like_python(halve, np.array([0.1, 4.0, 0.015, 3.0]), 0.3)


@pytest.mark.parametrize("x", [-1.0, 0.5, 3.0])
def test_different_arrays_are_returned_on_different_paths(x: float):
    @lg.function
    def choose(a: LINE, x: float) -> LINE:
        b = a.copy()
        c = lg.ones(n)
        for i in range(n):
            if x < a[i]:
                b[i] = 5.0
                if x < 0.0:
                    return b
                return c
            c[i] += a[i]
        return c + b

    assert_like_python(choose, np.array([0.0, 1.0, 2.0]), x)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_buffers_may_be_swapped_after_each_step(steps: int):
    @lg.function
    def jacobi(a: LINE, steps: int) -> LINE:
        old = a.copy()
        new = a.copy()
        for _ in range(steps):
            for i in range(1, n - 1):
                new[i] = (old[i - 1] + old[i + 1]) * 0.5
            old, new = new, old
        return old

    assert_like_python(jacobi, random(6), steps)


@pytest.mark.parametrize("last", ["old = new", "if a[0] > i:\n            old, new = new, old", "old, new = new, new"])
def test_swapping_buffers_that_may_be_one_array_is_rejected(last: str):
    text = f"""
def f(a: LINE, steps: int):
    old = a.copy()
    new = a.copy()
    for i in range(steps):
        new[0] = old[1]
        {last}
    return old
"""
    function = lg.function(lg.run_source(text, {"lg": lg, "LINE": LINE})["f"])
    with pytest.raises(lg.FunctionError, match="LG106: `new` has a second name"):
        function(random(4), 3)


# --- helpers ----------------------------------------------------------------------------------------------------------


@lg.function
def swap(a: lg.inout[LINE], i: int, j: int):
    kept = a[i]
    a[i] = a[j]
    a[j] = kept


def test_a_call_writes_the_array_of_its_caller():
    @lg.function
    def sort(a: lg.inout[LINE]):
        for i in range(n):
            for j in range(n - 1 - i):
                if a[j] > a[j + 1]:
                    swap(a, j, j + 1)

    np.testing.assert_array_equal(assert_like_python(sort, random(9)), np.sort(random(9)))
    assert_one_kernel(sort)


@lg.function
def normalise(row: lg.inout[LINE]) -> float:
    total = 0.0
    for x in row:
        total += x * x
    for i in range(n):
        row[i] /= math.sqrt(total)
    return total


def test_a_call_writes_the_row_that_is_passed():
    @lg.function
    def every(a: lg.inout[GRID]):
        norms = lg.zeros(n)
        for i in range(n):
            norms[i] = normalise(a[i])
        return a, norms

    assert_like_python(every, random(3, 4), exactly=False)


def test_a_local_function_reads_arrays():
    @lg.function
    def blur(a: LINE) -> LINE:
        b = lg.zeros(n)

        def at(i):
            return a[min(max(i, 0), n - 1)]

        for i in range(n):
            b[i] = (at(i - 1) + at(i + 1)) / 2.0
        return b

    assert_like_python(blur, random(6))


# --- parallel loops ---------------------------------------------------------------------------------------------------


@lg.function
def histogram(x: WHOLE, h: lg.inout[lg.array[int, "m"]]):
    for i in lg.parallel(n):
        h[x[i]] += 1


@lg.function
def last_index(x: WHOLE, h: lg.inout[lg.array[int, "m"]]):
    for i in lg.parallel(n):
        h[x[i]] = i


def test_parallel_loops_add_in_order():
    x, h = np.array([1, 2, 1, 0]), np.zeros(4, int)
    assert_like_python(histogram, x, h)
    np.testing.assert_array_equal(histogram.debug(x, h), histogram(x, h))


def test_debugging_finds_two_iterations_that_write_one_element():
    with pytest.raises(lg.FunctionError, match="iterations 0 and 2 of a parallel loop") as caught:
        last_index.debug(np.array([1, 2, 1, 0]), np.zeros(4, int))
    assert "h[x[i]] = i" in str(caught.value)
    np.testing.assert_array_equal(last_index.debug(np.array([1, 2, 3, 0]), np.zeros(4, int)), [3, 0, 1, 2])


@lg.function
def shifted(x: lg.inout[LINE]):
    for i in lg.parallel(1, n):
        x[i] = x[i - 1] * 0.5


@lg.function
def shifted_back(x: lg.inout[LINE]):
    for i in lg.parallel(n - 1):
        x[i] = x[i + 1] * 0.5


@lg.function
def exchanged(x: lg.inout[LINE], order: WHOLE):
    for i in lg.parallel(n // 2):
        x[2 * i], x[order[2 * i + 1]] = x[2 * i + 1], x[2 * i]


def test_debugging_finds_iterations_that_read_what_another_one_writes():
    with pytest.raises(lg.FunctionError, match="iteration 2 of a parallel loop reads what iteration 1 writes"):
        shifted.debug(np.ones(5))
    with pytest.raises(lg.FunctionError, match=r"iteration 1 .* writes what iteration 0 reads") as caught:
        shifted_back.debug(np.ones(5))
    assert "the element at [1]" in str(caught.value)
    np.testing.assert_array_equal(exchanged.debug(np.arange(4.0), np.arange(4)), [1.0, 0.0, 3.0, 2.0])
    with pytest.raises(lg.FunctionError, match="iterations 0 and 1 of a parallel loop write one element"):
        exchanged.debug(np.arange(4.0), np.array([0, 1, 2, 1]))


BODIES = {
    "a[i] = 1.0": True,
    "a[n - 1 - i] = 1.0": True,
    "a[i - 1] = 1.0": True,
    "a[0] += 1.0": True,
    "a[i * k % 3] = 1.0": True,
    "t = lg.zeros(n)\nt[0] = 1.0\na[i] = t[0]": True,
    "if a[i] > 0.0:\n    a[0] = 1.0": True,
    "for j in range(k):\n    a[j] = 1.0": True,
    "s = 0\ns = s + i\na[s] = 1.0": True,
    "a[0] = 1.0": False,
    "a[k] = 1.0": False,
    "a[i // 2] = 1.0": False,
    "a[i % 3] = 1.0": False,
    "for j in range(2):\n    a[j] = 1.0": False,
    "for j in range(2):\n    a[i // 2] = 1.0": False,
}


@pytest.mark.parametrize("body", BODIES)
def test_provable_races_are_rejected(body: str):
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    text = f"def f(a: lg.inout[LINE], k: int):\n    s = 0\n    for i in lg.parallel(n):\n{lines}\n"
    function = lg.function(lg.run_source(text, {"lg": lg, "LINE": LINE})["f"])
    if BODIES[body]:
        assert_like_python(function, np.arange(5.0), 2)
    else:
        with pytest.raises(lg.FunctionError, match="LG111"):
            function(np.arange(5.0), 2)


# --- derivatives, tensors, blocks -------------------------------------------------------------------------------------


@lg.differentiable
def smooth(a: lg.inout[GRID], w: float) -> GRID:
    for i in range(1, n - 1):
        for j in lg.parallel(1, m - 1):
            a[i, j] = (a[i - 1, j] + a[i + 1, j]) * w * a[i, j]
    return a


@lg.differentiable
def energy(a: GRID, w: float) -> float:
    b = smooth(a.copy(), w)
    total = 0.0
    for i in range(n):
        for j in range(m):
            total += b[i, j] * b[i, j]
    return total


def differences(function: Any, x: np.ndarray) -> np.ndarray:
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        found[place] = (function(x + step) - function(x - step)) / 2e-6
    return found


def test_both_modes_differentiate_writes():
    a, w = random(4, 5), 0.3
    np.testing.assert_allclose(lg.grad(energy)(a, w), differences(lambda x: energy(x, w), a), rtol=1e-6, atol=1e-8)
    slope = (energy(a, w + 1e-6) - energy(a, w - 1e-6)) / 2e-6
    np.testing.assert_allclose(lg.grad(energy, argnums=1)(a, w), slope, rtol=1e-6)
    da, dw = lg.bwd_diff(smooth)(a, w, np.ones((4, 5)))
    along = lg.fwd_diff(smooth)(lg.pair(a, a), lg.pair(w, 1.0)).differential
    np.testing.assert_allclose(np.sum(da * a) + dw, np.sum(along), rtol=1e-12)


def test_tensors_jit_vmap_and_blocks():
    a, w = random(4, 5), 0.3
    expected, slope = smooth(a, w), lg.bwd_diff(smooth)(a, w, np.ones((4, 5)))[0]
    tensor = lg.asarray(a)
    np.testing.assert_array_equal(smooth(tensor, w).numpy(), expected)
    weight = lg.asarray(w, dtype=lg.float64)
    np.testing.assert_array_equal(lg.jit(lambda x, w: smooth(x * 1.0, w))(tensor, weight).numpy(), expected)
    np.testing.assert_allclose(lg.jit(lg.grad(lambda x: lg.sum(smooth(x, w))))(tensor).numpy(), slope, rtol=1e-12)
    many = np.stack([a, a + 1.0])
    mapped = lg.vmap(smooth, in_axes=(0, None))(lg.asarray(many), w)
    np.testing.assert_array_equal(mapped.numpy(), [smooth(own, w) for own in many])
    engine = lg.Engine()
    block = engine.add(lg.block(smooth))
    engine.set(block["a"], a)
    engine.set(block["w"], w)
    engine.step()
    np.testing.assert_array_equal(engine.read(block), expected)


def test_a_tuple_of_tensors():
    @lg.differentiable
    def product(pair: tuple[LINE, LINE]) -> float:
        x, y = pair
        total = 0.0
        for i in range(n):
            total += x[i] * y[i]
        return total

    x = lg.asarray(random(3))
    assert float(product((x, x))) == pytest.approx(float(np.sum(random(3) ** 2)))


def test_only_a_new_size_compiles_again():
    @lg.function
    def total(a: LINE) -> float:
        s = 0.0
        for x in a:
            s += x
        return s

    assert [total(np.ones(k)) for k in (3, 4, 3, 4)] == [3.0, 4.0, 3.0, 4.0]
    assert total.compile_count == 2


def test_a_slice_with_a_negative_computed_start_follows_python():
    @lg.function
    def read(a: lg.array[float, "n"], i: int):
        return a[i : i + 2]

    @lg.function
    def write(a: lg.inout[lg.array[float, "n"]], i: int):
        a[i : i + 2] = 7.0
        return a

    data = np.arange(6.0)
    for i in range(-8, 8):
        expected = data[i : i + 2]
        if len(expected) == 2:
            assert read(data, i).tolist() == expected.tolist()
            changed = data.copy()
            changed[i : i + 2] = 7.0
            assert write(data.copy(), i).tolist() == changed.tolist()
        else:  # the number of elements is part of the type
            with pytest.raises(lg.LivegradError, match="out of range for axis 0"):
                read(data, i)
            with pytest.raises(lg.LivegradError, match="out of range for axis 0"):
                write(data.copy(), i)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "float64"])
def test_lazy_tensors_widen_to_the_element_type_like_numpy_arrays(dtype):
    @lg.function
    def total(a: lg.array[float, "n", "m"]) -> float:
        result = 0.0
        for i in range(n):
            for j in range(m):
                result += a[i, j] * (i + 1)
        return result

    data = np.ones((2, 3), dtype)
    result = total(lg.asarray(data))
    assert (result.dtype, float(result)) == (lg.float64, total(data)) == (lg.float64, 9.0)


def test_arguments_that_are_not_arrays_are_described_in_the_error():
    @lg.function
    def first(a: lg.array[lg.f32, "n"]) -> lg.f32:
        return a[0]

    with pytest.raises(lg.LivegradError, match=r'`a` expects array\[f32, "n"\], found no array'):
        first("abc")
    with pytest.raises(lg.LivegradError, match="found lists of different lengths"):
        first([[1, 2], [3]])
    with pytest.raises(lg.LivegradError, match=r'expects array\[f32, "n"\], found tensor\[float, 2\]'):
        first(lg.ones(2, dtype=lg.float64))

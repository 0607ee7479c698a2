"""Kernels of scalar loops compute the same bits without bounds checks, vectorised by LLVM, and in versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import livegrad as lg
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.diagnostics import KernelCheckError
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, run_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import KernelCompiler
from livegrad.runtime.cpu.native.llvm_jit import cross_assemble, cross_compile, parsed_module
from livegrad.runtime.cpu.native.llvm_passes import LOOP_SPEED, has_unsafe_loads, optimize
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from livegrad.schedule.target import Target
from livegrad.tensors.tracing import trace_call

OPTIMISATIONS = (
    *("eliminate_bounds_checks", "unroll_and_jam", "split_index_sets"),
    *("version_loops", "optimise_scalar_loops"),
)
N, M = 37, 41
Arrays = tuple[Any, ...]


def repeat(lib: Any, start: Any, stop: Any, step: Callable[[Any, Any], Any], state: Any) -> Any:
    if lib is not np:
        return lib.fori_loop(start, stop, step, state)
    for index in range(int(start), int(stop)):
        state = step(index, state)
    return state


def function_of(program: Callable[..., Any], arrays: Arrays) -> Any:
    types = [lg.asarray(array).type for array in arrays]
    return trace_call(lambda *tensors: program(lg, *tensors), types, program.__name__).function


def run(program: Callable[..., Any], arrays: Arrays, target: Target) -> list[bytes]:
    """The results of the optimised tier, as bytes."""
    plan = CpuFunction(function_of(program, arrays)).schedule(target=target)
    compiled = CompiledPlan.from_plan(plan, run_function, compiler=KernelCompiler(target))
    background_compiler.current.wait()
    return [np.asarray(result).tobytes() for result in compiled.run(list(arrays))]


# --- programs --------------------------------------------------------------------------------------------------------


def product(lib: Any, a: Any, b: Any, c: Any) -> Any:
    def update(i: Any, k: Any) -> Callable[[Any, Any], Any]:
        def element(j: Any, c: Any) -> Any:
            c[i, j] = c[i, j] + a[i, k] * b[k, j]
            return c

        return element

    rows = a.shape[0]
    return repeat(
        lib, 0, rows, lambda i, c: repeat(lib, 0, rows, lambda k, c: repeat(lib, 0, M, update(i, k), c), c), c + 0.0
    )


def shortest_paths(lib: Any, d: Any) -> Any:
    size = d.shape[0]

    def through(k: Any, d: Any) -> Any:
        def row(i: Any, d: Any) -> Any:
            first = d[i, k] + 0.0

            def element(j: Any, d: Any) -> Any:
                d[i, j] = lib.minimum(d[i, j], first + d[k, j])
                return d

            return repeat(lib, 0, size, element, d)

        return repeat(lib, 0, size, row, d)

    return repeat(lib, 0, size, through, d + 0.0)


def elimination(lib: Any, a: Any) -> Any:
    size = a.shape[0]

    def column(k: Any, a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            factor = a[i, k] / a[k, k]

            def element(j: Any, a: Any) -> Any:
                a[i, j] = a[i, j] - factor * a[k, j]
                return a

            return repeat(lib, k, size, element, a)

        return repeat(lib, k + 1, size, row, a)

    return repeat(lib, 0, size - 1, column, a + 0.0)


def red_and_black(lib: Any, u: Any) -> Any:
    def sweep(s: Any, u: Any) -> Any:
        def row(i: Any, u: Any) -> Any:
            start = 1 + (i + s) % 2

            def element(k: Any, u: Any) -> Any:
                j = start + 2 * k
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
                return u

            return repeat(lib, 0, (M - start) // 2, element, u)

        return repeat(lib, 1, N - 1, row, u)

    return repeat(lib, 0, 4, sweep, u + 0.0)


def running_sums(lib: Any, u: Any) -> Any:
    def row(i: Any, u: Any) -> Any:
        def element(j: Any, u: Any) -> Any:
            u[i, j] = u[i, j] + u[i, j - 1]
            return u

        return repeat(lib, 1, M, element, u)

    return repeat(lib, 0, N, row, u + 0.0)


def dot_products(lib: Any, a: Any, b: Any, total: Any) -> Any:
    def row(i: Any, total: Any) -> Any:
        total[i] = repeat(lib, 0, M, lambda j, s: s + a[i, j] * b[i, M - 1 - j], 0.5)
        return total

    return repeat(lib, 0, N, row, total + 0.0)


def conditional_swaps(lib: Any, values: Any) -> Any:
    def phase(p: Any, values: Any) -> Any:
        def pair(k: Any, values: Any) -> Any:
            i = 2 * k + p % 2
            low, high = values[i] + 0.0, values[i + 1] + 0.0
            values[i], values[i + 1] = lib.minimum(low, high), lib.maximum(low, high)
            return values

        return repeat(lib, 0, (values.shape[0] - p % 2) // 2, pair, values)

    return repeat(lib, 0, values.shape[0], phase, values + 0.0)


def shifted_by_data(lib: Any, values: Any, shifts: Any) -> Any:
    """The distance between reads and writes is known only at run time."""
    size = values.shape[0]

    def thing(t: Any, values: Any) -> Any:
        shift = shifts[t]

        def element(k: Any, values: Any) -> Any:
            j = size - 1 - k
            values[j] = lib.maximum(values[j], values[j - shift] + 0.25)
            return values

        return repeat(lib, 0, size - shift, element, values)

    return repeat(lib, 0, shifts.shape[0], thing, values + 0.0)


def sieve(lib: Any, prime: Any) -> Any:
    """The stride of the writes is the index of the outer loop."""
    size = prime.shape[0]

    def strike_multiples(i: Any, prime: Any) -> Any:
        def strike(k: Any, prime: Any) -> Any:
            prime[i * k] = 0
            return prime

        return repeat(lib, i, lib.where(prime[i] == 1, (size - 1) // i + 1, i), strike, prime)

    return repeat(lib, 2, int(size**0.5) + 1, strike_multiples, prime + 0)


def strided_by_data(lib: Any, values: Any, strides: Any) -> Any:
    """Also backwards, beyond the start: then indices count from the end."""

    def thing(t: Any, values: Any) -> Any:
        stride = strides[t]

        def element(k: Any, values: Any) -> Any:
            values[k * stride] = values[k * stride] * 0.5 + values[k]
            return values

        return repeat(lib, 0, 10, element, values)

    return repeat(lib, 0, strides.shape[0], thing, values + 0.0)


def counted(lib: Any, values: Any, counts: Any) -> Any:
    """A histogram: an index from data is in range because it is a remainder."""

    def count(i: Any, counts: Any) -> Any:
        counts[values[i] % 10] = counts[values[i] % 10] + 1
        return counts

    return repeat(lib, 0, values.shape[0], count, counts + 0)


def conditional_reads(lib: Any, a: Any, b: Any, c: Any) -> Any:
    """Some elements are read only where a condition holds, before something is written there."""

    def row(i: Any, c: Any) -> Any:
        def element(j: Any, c: Any) -> Any:
            before = choose(lib, a[i, j] > 0.0, lambda: c[i, j] + b[i, j], lambda: a[i, j] * 0.5)
            c[i, j] = a[i, j] - 1.0
            c[i, M - 1 - j] = before
            return c

        return repeat(lib, 0, M, element, c)

    return repeat(lib, 0, N, row, c + 0.0)


def choose(lib: Any, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    if lib is not np:
        return lib.cond(condition, then, otherwise)
    return then() if condition else otherwise()


def masked_elimination(lib: Any, a: Any) -> Any:
    """Columns up to the pivot do not change, so the loop over columns is split there."""
    size = a.shape[0]
    columns = lib.arange(size)

    def column(k: Any, a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            a[i] = lib.where(columns > k, a[i] - a[i, k] / a[k, k] * a[k], a[i])
            return a

        return repeat(lib, k + 1, size, row, a)

    return repeat(lib, 0, size - 1, column, a + 0.0)


def banded_rows(lib: Any, x: Any, y: Any) -> Any:
    """A band around the diagonal, from both sides, and a branch on the index."""
    rows, columns = x.shape[0], lib.arange(x.shape[1])

    def row(i: Any, x: Any) -> Any:
        inside = (columns >= i - 3) & (columns < i + 5)
        x[i] = lib.where(inside, lib.sqrt(lib.abs(x[i])) / (1.0 + y[i] * y[i]), -0.0)
        x[i] = lib.where(2 * columns + 1 < i, x[i] + 0.0, x[i] * y[rows - 1 - i])
        return x

    return repeat(lib, 0, rows, row, x + 0.0)


GENERATOR = np.random.default_rng(7)
SQUARE = GENERATOR.normal(size=(N, N))
GRID, OTHER = GENERATOR.normal(size=(N, M)), GENERATOR.normal(size=(N, M))
LINE = GENERATOR.normal(size=501)
WITH_SPECIAL = np.where(
    GENERATOR.random(GRID.shape) < 0.1, np.nan, GENERATOR.choice([0.0, -0.0, np.inf, 2.5], GRID.shape)
)
PROGRAMS: dict[str, tuple[Callable[..., Any], Arrays]] = {
    "product": (product, (SQUARE, GRID, OTHER)),
    "product in single precision": (product, tuple(x.astype(np.float32) for x in (SQUARE, GRID, OTHER))),
    "shortest paths": (shortest_paths, (np.abs(SQUARE),)),
    "shortest paths among special values": (shortest_paths, (WITH_SPECIAL[:, :N],)),
    "elimination": (elimination, (SQUARE + N * np.eye(N),)),
    "red and black": (red_and_black, (GRID,)),
    "running sums": (running_sums, (GRID,)),
    "dot products": (dot_products, (GRID, OTHER, np.zeros(N))),
    "conditional swaps": (conditional_swaps, (LINE[:63],)),
    "shifts by data": (shifted_by_data, (LINE, np.array([1, 2, 3, 7, 64, 200]))),
    "sieve": (sieve, (np.ones(500, np.int8),)),
    "strides by data": (strided_by_data, (LINE, np.array([0, 1, 7, -3, 50, -50]))),
    "conditional reads": (conditional_reads, (GRID, OTHER, GRID * 0.5)),
    "masked elimination": (masked_elimination, (SQUARE + N * np.eye(N),)),
    "banded rows": (banded_rows, (GRID, OTHER)),
    "banded rows of special values": (banded_rows, (WITH_SPECIAL, OTHER)),
    "counted": (counted, (GENERATOR.integers(-50, 50, 300), np.zeros(10, np.int64))),
}


@pytest.mark.parametrize("left_out", OPTIMISATIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_optimisation_keeps_the_bits(name: str, left_out: str) -> None:
    program, arrays = PROGRAMS[name]
    assert run(program, arrays, CPU) == run(program, arrays, CPU.without(left_out))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_python_computes(name: str) -> None:
    program, arrays = PROGRAMS[name]
    (actual,) = run(program, arrays, CPU)
    expected = program(np, *arrays)
    tolerance = 1e-4 if expected.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(
        np.frombuffer(actual, expected.dtype).reshape(expected.shape), expected, tolerance, tolerance
    )


# --- random programs -------------------------------------------------------------------------------------------------


def random_program(seed: int) -> tuple[Callable[..., Any], Arrays]:
    """Two nested loops of random bounds, and statements at random distances from their indices."""
    random = np.random.default_rng(seed)
    triangular, reverse = bool(random.random() < 0.3), bool(random.random() < 0.3)
    width = int(random.choice([3, 8, 17, 60, 200]))
    statements = [
        (
            random.choice(["a", "b", "line"]),
            *random.integers(0, 3, 6).tolist(),
            random.choice(["+", "min", "where", "-"]),
        )
        for _ in range(int(random.integers(1, 4)))
    ]

    def program(lib: Any, a: Any, b: Any, line: Any, shift: Any) -> Any:
        def outer(i: Any, state: Any) -> Any:
            def inner(k: Any, state: Any) -> Any:
                j = width - 1 - k if reverse and not triangular else k
                a, b, line = state
                for target, p, q, r, s, t, u, op in statements:
                    near, far = a[i + p, j + q], b[i + r, j + s]
                    own = line[j + t + (shift if u == 2 else 0)]
                    match op:
                        case "+":
                            value = near * 0.5 + far * own
                        case "min":
                            value = lib.minimum(near, far + own)
                        case "where":
                            value = lib.where(near > own, far, near)
                        case _:
                            value = near * 0.25 - own
                    if target == "line":
                        line[j + u] = value
                    elif target == "a":
                        a[i + t, j + u] = value
                    else:
                        b[i + t, j + u] = value
                return a, b, line

            return repeat(lib, 0, i if triangular else width, inner, state)

        return repeat(lib, 0, min(width, 12), outer, (a + 0.0, b + 0.0, line + 0.0))

    shape = (width + 3, width + 3)
    return program, (random.normal(size=shape), random.normal(size=shape), random.normal(size=width + 9), np.array(2))


@pytest.mark.parametrize("seed", range(24))
def test_random_loops_keep_their_bits(seed: int) -> None:
    program, arrays = random_program(seed)
    usual = run(program, arrays, CPU)
    assert usual == run(program, arrays, CPU.without(*OPTIMISATIONS))
    expected = program(np, *[array.copy() for array in arrays])
    for actual, expected_line in zip(usual, expected, strict=True):
        np.testing.assert_allclose(np.frombuffer(actual).reshape(expected_line.shape), expected_line, 1e-9, 1e-9)


def random_masks(seed: int) -> tuple[Callable[..., Any], Arrays]:
    """Rows with random comparisons of the columns, from both sides, with the row or with data."""
    random = np.random.default_rng(seed)
    rows, width = int(random.integers(1, 9)), int(random.choice([1, 5, 16, 33, 70]))
    tests = [(*random.integers(0, 4, 2).tolist(), *random.integers(-3, width + 3, 2).tolist()) for _ in range(3)]
    step = int(random.choice([1, 1, 2, 3]))

    def program(lib: Any, a: Any, b: Any, bounds: Any) -> Any:
        columns = lib.arange(width)

        def compare(op: int, side: int, value: Any) -> Any:
            left, right = (step * columns + 1, value) if side % 2 else (value, columns)
            return (left < right, left <= right, left > right, left >= right)[op]

        def row(i: Any, a: Any) -> Any:
            for number, (op, side, offset, other) in enumerate(tests):
                value = i + offset if side < 2 else bounds[number] + other
                then = lib.exp(a[i] * 0.1) + b[i] if number % 2 else a[i] * b[rows - 1 - i]
                a[i] = lib.where(compare(op, side, value), then, (a[i], 0.0, b[i])[number])
            return a

        return repeat(lib, 0, rows, row, a + 0.0)

    shape = (rows, width)
    return program, (random.normal(size=shape), random.normal(size=shape), random.integers(-9, width + 9, 3))


@pytest.mark.parametrize("seed", range(60))
def test_random_masks_keep_their_bits(seed: int) -> None:
    program, arrays = random_masks(seed)
    usual = run(program, arrays, CPU)
    assert usual == run(program, arrays, CPU.without("split_index_sets"))
    expected = program(np, *arrays)
    np.testing.assert_allclose(np.frombuffer(usual[0]).reshape(expected.shape), expected, 1e-9, 1e-9)


def test_a_loop_is_split_where_its_mask_changes() -> None:
    """The part below the diagonal does nothing, so one loop over columns remains, without a comparison."""
    ops = [
        [node.op.name for function in reachable_functions([stage.body]) for node in nodes_of(function)]
        for target in (CPU, CPU.without("split_index_sets"))
        for step in CpuFunction(function_of(masked_elimination, (SQUARE,))).schedule(target=target).steps
        if isinstance(step, KernelStep) and step.kernel.name == "for_loop"
        for stage in lower_loops(for_cpu(step, target, 64)).kernel.stages
    ]
    assert [function_text.count("for_loop") for function_text in ops] == [3, 3]
    assert [function_text.count("select") for function_text in ops] == [0, 1]


def masked_sums(lib: Any, x: Any, w: Any) -> Any:
    """Sums of the first elements of rows times others in reverse order."""
    columns = lib.arange(x.shape[1])

    def row(i: Any, x: Any) -> Any:
        inside = columns < 3 * i
        turned = lib.where(inside, lib.take(w, lib.where(inside, 3 * i - columns, 0)), 0.0)
        x[i, 0] = lib.sum(x[i] * turned) + lib.sum(lib.where(columns >= i, x[i], 0.0))
        return x

    return repeat(lib, 0, x.shape[0], row, x + 0.0)


@pytest.mark.parametrize("width", [5, 40, 150])
def test_sums_under_a_mask_add_what_it_leaves(width: int) -> None:
    """Split, a sum in lanes has fewer terms: it may be rounded otherwise."""
    random = np.random.default_rng(width)
    arrays = random.normal(size=(11, width)), random.normal(size=80)
    expected = masked_sums(np, *arrays)
    for target in (CPU, CPU.without("split_index_sets")):
        (actual,) = run(masked_sums, arrays, target)
        np.testing.assert_allclose(np.frombuffer(actual).reshape(expected.shape), expected, 1e-11, 1e-11)


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 5, 495])
def test_an_index_is_in_range_in_each_version(shift: int) -> None:
    program = lg.jit(lambda x, s: shifted_by_data(lg, x, s))
    actual = np.asarray(program(lg.asarray(LINE), lg.asarray(np.array([shift]))))
    np.testing.assert_array_equal(actual, shifted_by_data(np, LINE, np.array([shift])))


@pytest.mark.parametrize("left_out", [(), OPTIMISATIONS])
def test_an_index_out_of_range_is_reported_with_its_line(left_out: tuple[str, ...]) -> None:
    def program(lib: Any, values: Any, start: Any) -> Any:
        def element(i: Any, values: Any) -> Any:
            values[i + start] = values[i] + 1.0
            return values

        return repeat(lib, 0, 20, element, values + 0.0)

    line = program.__code__.co_firstlineno + 2
    arrays = (np.zeros(24), np.array(5))
    with pytest.raises(lg.LivegradError, match="index out of range for axis 0") as caught:
        run(program, arrays, CPU.without(*left_out))
    assert caught.value.where is not None
    assert caught.value.where.line == line


def test_a_negative_index_still_counts_from_the_end() -> None:
    def program(lib: Any, values: Any, start: Any) -> Any:
        def element(i: Any, values: Any) -> Any:
            values[i] = values[i - start]
            return values

        return repeat(lib, 0, 20, element, values + 0.0)

    arrays = (np.arange(24.0), np.array(3))
    assert run(program, arrays, CPU) == [program(np, *arrays).tobytes()]


# --- other processors ------------------------------------------------------------------------------------------------

PROCESSORS = {"with AVX2": ("haswell", 32), "any x86-64": ("x86-64", 16), "with AVX-512": ("skylake-avx512", 64)}


def kernel_texts(name: str, vector_bytes: int) -> list[str]:
    steps = CpuFunction(function_of(*PROGRAMS[name])).schedule().steps
    nests = [lower_loops(for_cpu(step, CPU, vector_bytes)) for step in steps if isinstance(step, KernelStep)]
    return [emit_kernel(nest).text for nest in nests if nest.memories is not None]


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_compile_for_other_processors(name: str, processor: str) -> None:
    cpu, vector_bytes = PROCESSORS[processor]
    (text,) = kernel_texts(name, vector_bytes)
    assert b"kernel" in cross_compile(text, "x86_64-unknown-linux-gnu", cpu, speed=LOOP_SPEED)


@pytest.mark.parametrize(
    ("processor", "register"), [("with AVX2", "%ymm"), ("any x86-64", "%xmm"), ("with AVX-512", "%zmm")]
)
def test_rows_of_a_product_are_computed_in_whole_registers(processor: str, register: str) -> None:
    cpu, vector_bytes = PROCESSORS[processor]
    (text,) = kernel_texts("product", vector_bytes)
    lines = cross_assemble(text, "x86_64-unknown-linux-gnu", cpu, speed=LOOP_SPEED).splitlines()
    packed = [line for line in lines if "pd\t" in line and register in line and ("mul" in line or "fma" in line)]
    assert packed


def test_no_masked_store_replaces_a_choice() -> None:
    """Such stores are 20 times slower on some processors with AVX2."""
    (text,) = kernel_texts("shortest paths", 32)
    assert "maskmov" not in cross_assemble(text, "x86_64-unknown-linux-gnu", "znver3", speed=LOOP_SPEED)


# A loop over 64 elements that reads `b` where `a` is not 0, which LLVM's vectoriser turns into masked loads.
GUARDED_LOAD = """
define void @kernel(ptr noalias %a, ptr noalias %b, ptr noalias %c) {
start:
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %next, %join ]
  %pa = getelementptr double, ptr %a, i64 %i
  %x = load double, ptr %pa, align 8
  %test = fcmp one double %x, 0.0
  br i1 %test, label %read, label %join
read:
  %pb = getelementptr double, ptr %b, i64 %i
  %y = load double, ptr %pb, align 8
  br label %join
join:
  %z = phi double [ %y, %read ], [ %x, %loop ]
  %pc = getelementptr double, ptr %c, i64 %i
  store double %z, ptr %pc, align 8
  %next = add nuw nsw i64 %i, 1
  %again = icmp ult i64 %next, 64
  br i1 %again, label %loop, label %done
done:
  ret void
}
"""


def test_loops_with_masked_loads_are_not_vectorised() -> None:
    """LLVM 22.1 may move such loads after stores."""
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu="haswell", opt=3)
    with parsed_module(GUARDED_LOAD) as module:
        optimize(module, machine, LOOP_SPEED)
        assert has_unsafe_loads(module, LOOP_SPEED)
    assert "maskmov" not in cross_assemble(GUARDED_LOAD, "x86_64-unknown-linux-gnu", "haswell", speed=LOOP_SPEED)


@pytest.mark.parametrize("left_out", [(), ("split_index_sets",)])
def test_an_index_out_of_range_is_reported_where_a_mask_hides_it(left_out: tuple[str, ...]) -> None:
    def program(lib: Any, x: Any, y: Any) -> Any:
        columns = lib.arange(y.shape[1])

        def row(i: Any, y: Any) -> Any:
            y[i] = lib.where(columns < i, y[i] + lib.take(x, columns + 3), y[i])
            return y

        return repeat(lib, 0, y.shape[0], row, y + 0.0)

    run(program, (np.zeros(15), np.zeros((4, 12))), CPU.without(*left_out))
    with pytest.raises(KernelCheckError, match="index out of range"):
        run(program, (np.zeros(14), np.zeros((4, 12))), CPU.without(*left_out))


# --- calls of short loops --------------------------------------------------------------------------------------------


def kernels_of(program: Callable[..., Any], *arrays: Any) -> list[Any]:
    plan = CpuFunction(function_of(program, arrays)).schedule(target=CPU)
    nests = [lower_loops(for_cpu(step, CPU, 64)) for step in plan.steps if isinstance(step, KernelStep)]
    return [emit_kernel(nest) for nest in nests if "for_loop" in str(nest)]


def running_sum(lib: Any, x: Any) -> Any:
    def add(i: Any, x: Any) -> Any:
        x[i] += x[i - 1]
        return x

    return repeat(lib, 1, x.shape[0], add, x)


def test_a_loop_of_little_work_does_not_look_for_interrupts() -> None:
    (short,) = kernels_of(running_sum, np.zeros(1000))
    (long,) = kernels_of(running_sum, np.zeros(1_000_000))
    assert (short.interruptible, long.interruptible) == (False, True)
    assert "atomic" not in short.text


def test_each_of_many_points_with_a_loop_of_its_own_looks_for_interrupts() -> None:
    def powers(lib: Any, x: Any) -> Any:
        return lib.vmap(lambda v: repeat(lib, 0, 8_000, lambda i, y: y * v + 1.0 / (v + y), v))(x)

    (kernel,) = kernels_of(powers, np.zeros(1000))
    assert kernel.interruptible

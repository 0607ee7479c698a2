"""The vector math functions against NumPy and mpmath: accuracy, special values, and independence of the lane count."""

import ctypes
import math
import platform
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from livegrad.codegen.llvm.vector_math import MATH_FUNCTIONS, math_function_name, math_functions
from livegrad.codegen.llvm.vector_math.accuracy import ACCURACY, accuracy_page, accuracy_table
from livegrad.runtime.cpu.native.host_target import host_target
from tests.codegen.llvm_instructions import calls

Array = NDArray[Any]

ELEMENTS = ("f32", "f64")
LANES = (1, 8, 32)
DTYPE = {"f32": np.float32, "f64": np.float64}
BITS = {"f32": np.uint32, "f64": np.uint64}
SCALAR = {"f32": "float", "f64": "double"}
PAGE = Path(__file__).parents[2] / "docs" / "vector-math.md"

every_function = pytest.mark.parametrize("function", MATH_FUNCTIONS)
every_element = pytest.mark.parametrize("element", ELEMENTS)
every_lane_count = pytest.mark.parametrize("lanes", LANES)


# One module has all functions for both elements; it is compiled once for each number of lanes.

KERNEL = """
define void @kernel_{function}_{element}(i64 %count, ptr %x, ptr %y, ptr %out) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %address.x = getelementptr {scalar}, ptr %x, i64 %i
  %address.y = getelementptr {scalar}, ptr %y, i64 %i
  %address.out = getelementptr {scalar}, ptr %out, i64 %i
  %value.x = load {vector}, ptr %address.x, align {alignment}
  %value.y = load {vector}, ptr %address.y, align {alignment}
  %result = call fastcc {vector} @{name}({arguments})
  store {vector} %result, ptr %address.out, align {alignment}
  %next = add i64 %i, {lanes}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
ATTRIBUTES = """
attributes #0 = { nounwind "stackrealign" }
attributes #1 = { nounwind "stackrealign" }
"""


def kernel_text(function: str, element: str, lanes: int) -> str:
    scalar = SCALAR[element]
    vector = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
    return KERNEL.format(
        function=function,
        element=element,
        lanes=lanes,
        scalar=scalar,
        vector=vector,
        alignment=np.dtype(DTYPE[element]).itemsize,
        name=math_function_name(function, element, lanes),
        arguments=", ".join(f"{vector} %value.{name}" for name in "xy"[: MATH_FUNCTIONS[function]]),
    )


@cache
def engine(lanes: int, cpu: str, features: str, avx512: bool) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    requests = [(function, element, lanes) for function in MATH_FUNCTIONS for element in ELEMENTS]
    text = math_functions(requests, avx512)
    kernels = "".join(kernel_text(*request) for request in requests)
    module = llvm.parse_assembly("\n".join([text.definitions, *sorted(text.declarations), kernels, ATTRIBUTES]))
    module.verify()
    # Position-independent and of any size: code and constants may lie more than 2 GiB apart in a process that has
    # mapped much, and the JIT would abort it.
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=1, reloc="pic", codemodel="large", jit=True
    )
    compiled = llvm.create_mcjit_compiler(module, machine)
    compiled.finalize_object()
    return compiled


def evaluate(
    function: str,
    element: str,
    arguments: Sequence[Array],
    lanes: int = 32,
    cpu: tuple[str, str] | None = None,
    avx512: bool = True,
) -> Array:
    """The function over arrays; ``cpu`` is a name and its features, by default those of the host.

    Instructions of AVX-512 are used where the host has them, unless they are not wanted."""
    avx512 = avx512 and cpu is None and host_target().has_avx512
    cpu = cpu or (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    address = engine(lanes, *cpu, avx512).get_function_address(f"kernel_{function}_{element}")
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 3)(address)
    count = len(arguments[0])
    # The last vector is padded with NaN.
    padded = [np.full(-(-count // lanes) * lanes, np.nan, DTYPE[element]) for _ in (*arguments, None)]
    for array, argument in zip(padded, arguments, strict=False):
        array[:count] = argument
    kernel(len(padded[0]), padded[0].ctypes.data, padded[len(arguments) - 1].ctypes.data, padded[-1].ctypes.data)
    return padded[-1][:count]


# References

NUMPY: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in MATH_FUNCTIONS if hasattr(np, name)},
    **{name: getattr(np, f"arc{name[1:]}") for name in MATH_FUNCTIONS if name[0] == "a"},
    "pow": np.power,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
MPMATH: dict[str, Callable[..., Any]] = {
    **{name: getattr(mpmath, name) for name in MATH_FUNCTIONS if hasattr(mpmath, name)},
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "pow": mpmath.power,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    # Exact in float64 already.
    "fmod": lambda x, y: mpmath.mpf(math.fmod(x, y)),
}


def random_bit_patterns(element: str, count: int, random: np.random.Generator) -> Array:
    return random.integers(0, 2 ** (32 if element == "f32" else 64), count, dtype=BITS[element]).view(DTYPE[element])


def sample_arguments(function: str, element: str, count: int, seed: int = 1) -> list[Array]:
    """One third each: random bit patterns, the region where the function is steep, and the range in between."""
    random = np.random.default_rng(seed)
    reach = 88.0 if element == "f32" else 708.0

    def sample() -> Array:
        return np.concatenate(
            [
                random_bit_patterns(element, count // 3, random),
                random.uniform(-2.0, 2.0, count // 3).astype(DTYPE[element]),
                random.uniform(-1.02 * reach, 1.02 * reach, count // 3).astype(DTYPE[element]),
            ]
        )

    if function == "pow":  # most pairs overflow, so take those that do not
        x = np.exp(np.concatenate([random.uniform(-0.7, 0.7, count // 2), random.uniform(-reach, reach, count // 2)]))
        x = x.astype(DTYPE[element])
        return [x, (random.uniform(-0.99 * reach, reach, len(x)) / np.log(x)).astype(DTYPE[element])]
    return [sample() for _ in range(MATH_FUNCTIONS[function])]


def exact_results(function: str, element: str, arguments: Sequence[Array]) -> tuple[Array, Array]:
    """The results rounded to the element, and a float64 array of their rounding errors."""
    with np.errstate(all="ignore"):
        if element == "f32":
            exact = NUMPY[function](*(argument.astype(np.float64) for argument in arguments))
            rounded = exact.astype(np.float32)
            return rounded, np.where(np.isfinite(rounded), exact - rounded.astype(np.float64), 0.0)
        rounded, lost = NUMPY[function](*arguments), np.zeros(len(arguments[0]))
    with mpmath.workdps(40):
        # NumPy decides zeros and infinities, because mpmath's zero has no sign.
        values = np.array([rounded, *arguments])
        for i in np.flatnonzero(np.all(np.isfinite(values) & (values != 0), axis=0)):
            exact = MPMATH[function](*(mpmath.mpf(float(argument[i])) for argument in arguments))
            rounded[i] = float(exact)
            lost[i] = float(exact - mpmath.mpf(float(rounded[i]))) if math.isfinite(rounded[i]) else 0.0
    return rounded, lost


def ulp_errors(result: Array, rounded: Array, lost: Array) -> Array:
    """Errors in ulp of the exact result; infinite if only one of both results is finite, or only one is NaN."""
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.abs(rounded)).astype(np.float64)
        errors = np.abs((result.astype(np.float64) - rounded.astype(np.float64) - lost) / spacing)
    same = (result == rounded) & ~np.isfinite(rounded) | np.isnan(result) & np.isnan(rounded)
    return np.where(same, 0.0, np.where(np.isfinite(result) & np.isfinite(rounded), errors, np.inf))


@cache
def measured_error(function: str, element: str) -> float:
    arguments = sample_arguments(function, element, 600_000 if element == "f32" else 3_000)
    result = evaluate(function, element, arguments)
    return float(ulp_errors(result, *exact_results(function, element, arguments)).max())


# Accuracy


@every_element
@every_function
def test_errors_stay_within_the_stated_bound(function: str, element: str) -> None:
    assert measured_error(function, element) <= ACCURACY[function].bound(element)


@pytest.mark.parametrize("function", ["sin", "cos", "tan"])
@every_element
def test_angles_next_to_multiples_of_a_quarter_turn_are_accurate(function: str, element: str) -> None:
    random = np.random.default_rng(2)
    multiples = np.floor(2.0 ** random.uniform(0.0, 40.0, 600)) * (np.pi / 2)
    # The float64 nearest to a multiple of π/2, and the float32: 6381956970095103·2^797 and 16367173·2^72.
    hardest = [math.ldexp(6381956970095103, 797)] if element == "f64" else [math.ldexp(16367173, 72)]
    x = np.concatenate([multiples, hardest, [np.finfo(DTYPE[element]).max]]).astype(DTYPE[element])
    errors = ulp_errors(evaluate(function, element, [x]), *exact_results(function, element, [x]))
    assert errors.max() <= ACCURACY[function].bound(element)


@every_element
def test_high_powers_of_numbers_near_one_are_accurate(element: str) -> None:
    random = np.random.default_rng(7)
    reach = 120.0 if element == "f32" else 1000.0
    x = random.uniform(0.97, 1.04, 200_000 if element == "f32" else 1_000).astype(DTYPE[element])
    x = x[x != 1.0]
    exponents = random.choice([-1.0, 1.0], len(x)) * random.uniform(0.7 * reach, reach, len(x))
    arguments = [x, (exponents / np.log2(x.astype(np.float64))).astype(DTYPE[element])]
    errors = ulp_errors(evaluate("pow", element, arguments), *exact_results("pow", element, arguments))
    assert errors.max() <= ACCURACY["pow"].bound(element)


@every_element
def test_fmod_is_exact_for_any_ratio(element: str) -> None:
    random = np.random.default_rng(3)
    arguments = [random_bit_patterns(element, 20_000, random) for _ in range(2)]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluate("fmod", element, arguments), np.fmod(*arguments))


@pytest.mark.parametrize(
    ("function", "lower", "upper"),
    [("exp", -104.5, -86.5), ("exp2", -150.5, -125.5), ("sinh", -1e-38, 1e-38), ("expm1", -1e-38, 1e-38)],
)
def test_denormal_results_are_accurate(function: str, lower: float, upper: float) -> None:
    x = np.linspace(lower, upper, 5_000).astype(np.float32)
    errors = ulp_errors(evaluate(function, "f32", [x]), *exact_results(function, "f32", [x]))
    assert errors.max() <= ACCURACY[function].f32


def test_documentation_states_the_bounds_that_are_tested() -> None:
    assert PAGE.read_text(encoding="utf-8") == accuracy_page(), (
        "docs/vector-math.md is out of date; "
        "run `python -m livegrad.codegen.llvm.vector_math.accuracy > docs/vector-math.md`"
    )


def test_accuracy_table_shows_measured_errors_beside_the_bounds() -> None:
    measured = {(function, element): 0.25 for function in MATH_FUNCTIONS for element in ELEMENTS}
    assert "| `exp` | 1 | 2 | 2 | 0.25 | 0.25 |" in accuracy_table(measured)


# Special values


def special_values(element: str) -> Array:
    limits = np.finfo(DTYPE[element])
    magnitudes = [
        0.0,
        limits.smallest_subnormal,
        limits.tiny / 2,
        limits.tiny,
        limits.eps,
        0.3,
        0.5,
        1.0 - limits.epsneg,
    ]
    magnitudes += [1.0, 1.0 + limits.eps, 1.5, 2.0, 3.0, 4.5, 2.0**23 + 1, 2.0**53, limits.max, np.inf, np.nan]
    return np.array([sign * magnitude for magnitude in magnitudes for sign in (1.0, -1.0)], DTYPE[element])


@every_lane_count
@every_element
@every_function
def test_special_values_agree_with_numpy(function: str, element: str, lanes: int) -> None:
    values = special_values(element)
    grid = [values] if MATH_FUNCTIONS[function] == 1 else [axis.ravel() for axis in np.meshgrid(values, values)]
    result = evaluate(function, element, grid, lanes)
    expected, lost = exact_results(function, element, grid)
    wrong = ulp_errors(result, expected, lost) > ACCURACY[function].bound(element)
    wrong |= (np.signbit(result) != np.signbit(expected)) & ~np.isnan(expected)
    assert not wrong.any(), f"{function} of {[axis[wrong] for axis in grid]}: {result[wrong]}, not {expected[wrong]}"


# Independence of lanes and of the CPU


def assert_same_bits(result: Array, expected: Array) -> None:
    """Asserts equal bits, including the signs of zeros; all NaNs are equal."""
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result) & ~np.isnan(result), np.signbit(expected) & ~np.isnan(expected))


@every_element
@every_function
def test_lane_count_does_not_change_a_bit(function: str, element: str) -> None:
    arguments = sample_arguments(function, element, 3_000, seed=4)
    expected = evaluate(function, element, arguments, lanes=1)
    for lanes in LANES[1:]:
        assert_same_bits(evaluate(function, element, arguments, lanes), expected)


@pytest.mark.skipif(not host_target().has_avx512, reason="this processor has no AVX-512")
@every_element
@every_function
def test_instructions_of_avx_512_do_not_change_a_bit(function: str, element: str) -> None:
    arguments = sample_arguments(function, element, 30_000, seed=6)
    values = special_values(element)
    special = [values] if MATH_FUNCTIONS[function] == 1 else [axis.ravel() for axis in np.meshgrid(values, values)]
    arguments = [np.concatenate(pair) for pair in zip(arguments, special, strict=True)]
    assert_same_bits(evaluate(function, element, arguments), evaluate(function, element, arguments, avx512=False))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names an x86-64 CPU")
@every_element
@every_function
def test_cpu_without_fused_multiply_add_gives_the_same_bits(function: str, element: str) -> None:
    arguments = sample_arguments(function, element, 600, seed=5)
    plain = evaluate(function, element, arguments, lanes=1, cpu=("x86-64", ""))
    assert_same_bits(plain, evaluate(function, element, arguments, lanes=8))


# The functions that are defined


def library(*requests: tuple[str, str, int], avx512: bool = False) -> str:
    """A module with these functions, whose attribute group the caller defines."""
    text = math_functions(requests, avx512)
    return "\n".join([text.definitions, *sorted(text.declarations), 'attributes #1 = { "of-the-caller" }'])


def test_shared_helper_is_defined_once() -> None:
    module = library(("sin", "f32", 8), ("sin", "f32", 16), ("sin", "f32", 8))  # LLVM refuses a second definition
    defined = [function.name for function in llvm.parse_assembly(module).functions if not function.is_declaration]
    assert sorted(defined) == [
        *(f"lg_large_angles_for_sin_f32x{lanes}" for lanes in (1, 16, 8)),
        *(f"lg_sin_f32x{lanes}" for lanes in (16, 8)),
    ]


def test_declarations_are_separate_from_definitions() -> None:
    text = math_functions([("exp", "f32", 8)])
    (declared,) = llvm.parse_assembly("\n".join(text.declarations)).functions
    assert (declared.name, declared.is_declaration) == ("llvm.fma.v8f32", True)
    llvm.parse_assembly(library(("exp", "f32", 8)))  # LLVM refuses a second declaration


def test_avx_512_instructions_are_emitted_only_for_whole_registers() -> None:
    assert calls(library(("log", "f32", 32), avx512=True), "llvm.x86.avx512.mask.getexp.ps.512")
    assert not calls(library(("log", "f32", 8), avx512=True), "llvm.x86")
    assert not calls(library(("log", "f32", 32)), "llvm.x86")


def test_functions_are_outlined_and_take_their_attributes_from_the_caller() -> None:
    (function,) = [f for f in llvm.parse_assembly(library(("exp", "f32", 1))).functions if not f.is_declaration]
    attributes = b" ".join(function.attributes).split()
    assert (function.name, function.linkage) == ("lg_exp_f32x1", llvm.Linkage.internal)
    assert {b"noinline", b"nounwind", b'"of-the-caller"'} <= set(attributes)


def test_an_unknown_function_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="no math function 'sine'"):
        math_functions([("sine", "f32", 8)])


def test_an_unknown_element_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="found 'f16'"):
        math_functions([("sin", "f16", 8)])

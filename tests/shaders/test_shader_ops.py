"""Every op as GLSL and WGSL: the values of the reference, in headless Chromium and through `wgpu`.

The languages promise less than IEEE 754: subnormal numbers may be zero, operands may be assumed not to be NaN, and
functions have the errors of `ALLOWED`, from the accuracy tables of Vulkan and WGSL.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import livegrad as lg
from livegrad.codegen.c import GLSL
from livegrad.diagnostics import CompileError
from livegrad.ir.op import Op
from livegrad.ir.types import Scalar, Tensor, components, inner_types
from tests.codegen.test_c_ops import Example, examples
from tests.shaders.browser import Browser, reason_for_no_browser
from tests.shaders.run_shaders import Program, columns_of
from tests.shaders.viewport_page import serve_page
from tests.shaders.wgpu_device import reason_for_no_wgpu

LANGUAGES = [
    pytest.param("GLSL", marks=pytest.mark.skipif(bool(reason_for_no_browser()), reason=str(reason_for_no_browser()))),
    pytest.param("WGSL", marks=pytest.mark.skipif(bool(reason_for_no_wgpu()), reason=str(reason_for_no_wgpu()))),
]
TRIGONOMETRIC = (2.0**-10, 2.0**-9)
# The absolute and the relative error that an op may have; others have that of the quotient, 2.5 ulp, a few times.
ALLOWED: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("sin", "cos", "tan"), TRIGONOMETRIC),
    **dict.fromkeys(("log", "log2", "log10"), (2.0**-20, 2.0**-21)),
    # The error of a power is that of the logarithm times the exponent, which is below 89 for all finite results.
    **dict.fromkeys(("exp", "exp2", "expm1", "sinh", "cosh", "tanh"), (2.0**-22, 2.0**-16)),
    **dict.fromkeys(("pow", "cbrt"), (2.0**-22, 2.0**-14)),
    **dict.fromkeys(("log1p", "asinh", "acosh", "atanh"), (2.0**-20, 2.0**-20)),
    **dict.fromkeys(("asin", "acos", "atan", "atan2", "erf"), (2.0**-21, 2.0**-21)),
    "logaddexp": (2.0**-20, 2.0**-18),
}
# Programs that call trigonometric functions, and quotients whose rounding decides a step.
COMPOSED = {
    "call", "cond", "switch", "for_loop", "while_loop", "custom_call", "custom_linear", "recompute_call",
    "recompute_linear", "fwd_diff", "bwd_diff", "after", "kept", "members_call",
}  # fmt: skip
DEFAULT = (0.0, 2.0**-20)
SCALARS = ("bool", "i32", "u32", "i64", "f32")
# 64-bit integers are narrowed, so their bits are refused.
REFUSED = {"bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right", "integer_pow"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser | None]:
    """A browser, where one can run."""
    if reason_for_no_browser():
        yield None
        return
    browser = Browser()
    yield browser
    browser.close()


def is_possible(example: Example) -> bool:
    """Whether the types of an example exist in shaders."""
    types = (*example.function.parameter_types, *example.function.result_types)
    scalars = {part.name for type in types for part in inner_types(type) if isinstance(part, Scalar)}
    return scalars <= set(GLSL.scalars)


@cache
def shader_examples(scalar: str) -> list[Example]:
    return [example for example in examples(scalar) if is_possible(example)]


def is_ordinary(values: Any) -> NDArray[np.bool_]:
    """Whether numbers are neither NaN, subnormal nor beyond 32 bits; of vectors, whether all components are."""
    array = np.asarray(values)
    with np.errstate(all="ignore"):
        if array.dtype.kind == "f":
            ordinary = ~np.isnan(array) & ((array == 0) | (np.abs(array) > 1e-36))
        elif array.dtype == np.int64:
            ordinary = (array >= -(2**31)) & (array < 2**31)
        else:
            ordinary = np.ones(array.shape, bool)
    return np.asarray(ordinary.reshape(len(ordinary), -1).all(1))


def mismatches(example: Example, found: list[NDArray[Any]]) -> list[str]:
    """Where the results of a shader differ by more than they may."""
    name = example.case.op.name
    rest = iter(found)
    ordinary = np.ones(len(example.results[0]), bool)
    for argument, type in zip(example.arguments, example.types, strict=True):
        if not isinstance(type, Tensor):
            ordinary &= is_ordinary(argument)
            if name in ("sin", "cos", "tan"):
                ordinary &= np.abs(np.asarray(argument)).reshape(len(ordinary), -1).max(1) < 1000
            if name == "pow":
                ordinary &= ~(np.abs(np.asarray(example.arguments[1])).reshape(len(ordinary), -1).max(1) > 1000)
    lines: list[str] = []
    for expected, type in zip(example.results, example.result_types, strict=True):
        parts = [next(rest) for _ in components(type) or [type]]
        wanted = expected.reshape(len(expected), -1).T
        absolute, relative = TRIGONOMETRIC if name in COMPOSED else ALLOWED.get(name, DEFAULT)
        for value, right in zip(parts, wanted, strict=True):
            compared = ordinary & is_ordinary(right)
            with np.errstate(all="ignore"):
                limit = absolute + relative * np.abs(right.astype(np.float64))
                close = np.abs(value.astype(np.float64) - right.astype(np.float64)) <= limit
            if right.dtype.kind != "f":
                close = value == right
            wrong = np.flatnonzero(compared & ~(close | (value == right)))
            if len(wrong):
                arguments = [np.asarray(a)[wrong[0]] for a in example.arguments if np.ndim(a)]
                lines.append(f"{example.case.name}{arguments}: {value[wrong[0]]}, expected {right[wrong[0]]}")
    return lines


def run(example: Example, language: str, browser: Browser | None) -> list[NDArray[Any]]:
    columns = [
        [argument] if isinstance(type, Tensor) else columns_of(type, list(argument))
        for argument, type in zip(example.arguments, example.types, strict=True)
    ]
    function = example.function
    with np.errstate(all="ignore"):
        return Program(function, language).run(columns, len(example.results[0]), browser)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("scalar", SCALARS)
def test_shaders_agree_with_the_reference(scalar: str, language: str, browser: Browser | None) -> None:
    lines: list[str] = []
    for example in shader_examples(scalar):
        if scalar == "i64" and example.case.op.name in REFUSED:
            with pytest.raises(CompileError, match=f"has no {language}"):
                Program(example.function, language)
        elif not (scalar == "i64" and example.case.op.name == "constant"):
            lines += mismatches(example, run(example, language, browser))
    assert not lines, "\n".join(lines)


@pytest.mark.skipif(bool(reason_for_no_browser()), reason=str(reason_for_no_browser()))
def test_the_browser_accepts_every_op_in_wgsl(browser: Browser) -> None:
    """It is stricter than the compiler behind `wgpu`."""
    texts = [
        Program(example.function, "WGSL").text
        for scalar in SCALARS
        for example in shader_examples(scalar)
        if scalar != "i64" or example.case.op.name not in {*REFUSED, "constant"}
    ]
    with serve_page("") as address:
        browser.page.goto(address)
        problems = browser.check_wgsl(texts)
    if problems is None:
        pytest.skip("the browser has no WebGPU")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("language", ["GLSL", "WGSL"])
def test_every_scalar_op_has_a_shader(language: str) -> None:
    """What C has, shaders have too, on some type that they have."""
    ops_in_c = {example.case.op.name for scalar in (*SCALARS, "f64") for example in examples(scalar)}
    written = set()
    for scalar in SCALARS:
        for example in shader_examples(scalar):
            if scalar != "i64":
                Program(example.function, language)
            written.add(example.case.op.name)
    assert ops_in_c - written == set()
    assert not [name for name, op in Op.table.items() if op.code is not None and name not in written]


def test_types_that_shaders_lack_are_refused_with_the_line() -> None:
    def scale(x: lg.ir.Node) -> lg.ir.Node:
        return lg.ops.cast(lg.ops.cast(x * 411.5, type=lg.f64) * 412.5, type=lg.f32)

    with pytest.raises(CompileError, match=r"GLSL has no f64 \(test_shader_ops.py:\d+.*lg.f32") as raised:
        Program(lg.ir.trace(scale, lg.f32), "GLSL")
    assert raised.value.where is not None

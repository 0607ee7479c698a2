"""Subroutines of kernels: calls that are not inlined, and long code in pieces, with the same bits as inlined code."""

from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.llvm import function_body, subroutines
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import Register
from livegrad.compiler import lower
from livegrad.diagnostics import CompileError
from livegrad.ir.function import trace
from livegrad.ir.node import Function, Node
from livegrad.ir.types import f32, f64
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.ops.control import call, make_cond
from livegrad.ops.maps import map_over
from livegrad.passes import inline_calls as inline_calls_pass
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.state import fresh_session


def nested(levels: int) -> Function:
    """f(x, y) = max(g(x, y), g(y + c, x)), nested; the innermost function selects, and calls sin."""

    def leaf(x: Node, y: Node) -> Node:
        chosen = make_cond(x < y, lambda a, b: ops.sin(a * 3.0) + b, lambda a, b: a * b - 0.5, x, y)
        return chosen * x + y

    function = trace(leaf, f32, f32, name="leaf")
    for level in range(levels):

        def next_level(x: Node, y: Node, inner: Function = function, step: float = 0.1 + level) -> Node:
            return ops.max(call(x, y, function=inner), call(y + step, x, function=inner))

        function = trace(next_level, f32, f32, name=f"level{level}")
    return function


def expected(levels: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if not levels:
        chosen = np.where(x < y, np.sin(x * np.float32(3.0)) + y, x * y - np.float32(0.5))
        return chosen * x + y
    step = np.float32(0.1 + levels - 1)
    return np.maximum(expected(levels - 1, x, y), expected(levels - 1, y + step, x))


def points(count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x, y = generator.uniform(-1, 1, (2, count)).astype(np.float32)
    return x, y


@pytest.mark.parametrize("code", ["baseline", "optimised"])
def test_nested_calls_are_compiled_once_each_and_agree_with_numpy(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEGRAD_CODE", code)
    function = nested(10)
    lowered = lower(function, CPU)
    assert sum(len(nodes_of(each)) for each in reachable_functions([lowered])) < 200  # 1,024 leaves written out: 10,000
    x, y = points()
    np.testing.assert_allclose(compile_function(map_over(function))(x, y), expected(10, x, y), rtol=1e-4, atol=1e-4)


def test_calls_with_equal_arguments_are_computed_once() -> None:
    functions = [trace(lambda x: ops.sin(x), f32), trace(lambda x: ops.cos(x), f32)]
    for _ in range(60):  # as Fibonacci counts: 10^12 calls, of 62 different ones
        before, last = functions[-2:]
        functions.append(trace(lambda x, a=before, b=last: call(x, function=a) * 0.5 + call(x, function=b) * 0.5, f32))
    lowered = lower(functions[-1], CPU)
    assert len(nodes_of(lowered)) < 400
    assert not any(node.op is call for node in nodes_of(lowered))


def test_unbounded_recursion_is_an_error() -> None:
    text = "`level59` is too large: its functions call each other too many times.*expected at most 65,536 nodes"
    with pytest.raises(CompileError, match=f"(?s){text}"):
        compile_function(map_over(nested(60)))(*points(4))


def long_sum(terms: int) -> Function:
    """Code whose values, including masks, have uses nearby and far away."""
    generator = np.random.default_rng(1)

    def f(x: Node, y: Node) -> tuple[Node, Node]:
        total, far, early = x, y, []
        for a, b in generator.uniform(-1, 1, (terms, 2)).tolist():
            value = x * a + y * b
            is_low = value < total
            early.append((value, is_low))
            total = ops.select(is_low, total + value * 0.5, total * 0.75 - value)
        for value, is_low in early[::7]:
            far = ops.select(is_low, far * 0.5 + value, far - value * 0.25)
        return total, far

    return trace(f, f32, f32, name="long")


@pytest.mark.parametrize("code", ["baseline", "optimised"])
@pytest.mark.usefixtures("without_caches")
def test_code_in_pieces_has_the_same_bits(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEGRAD_CODE", code)
    function = map_over(long_sum(120))
    x, y = points()
    whole = compile_function(function)(x, y)
    monkeypatch.setattr(function_body, "LONG", 100)
    monkeypatch.setattr(subroutines, "_PIECE", 70)
    forget_kernels()
    pieces = []
    define = subroutines._add_subroutine
    monkeypatch.setattr(subroutines, "_add_subroutine", lambda *given: pieces.append(define(*given)) or pieces[-1])
    cut = compile_function(function)
    cut.forget_plans()
    for own, other in zip(cut(x, y), whole, strict=True):
        np.testing.assert_array_equal(own, other)
    assert len(pieces) >= 10


def test_functions_of_a_long_kernel_have_bounded_length() -> None:
    function = long_sum(2500)
    builder = KernelBuilder(8)
    function_body.emit_function(builder, function, [Register("%x", f32, 8), Register("%y", f32, 8)])
    longest = max(text.count("\n") for text in builder.definitions)
    assert len(nodes_of(function)) > 3 * function_body.LONG
    assert longest < 3 * function_body.LONG
    assert len(builder.lines) < function_body.LONG


@pytest.mark.parametrize("code", ["baseline", "optimised"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 9])
@pytest.mark.usefixtures("without_caches")
def test_functions_return_at_most_two_results_in_registers(
    count: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four floats, x86 returns two on the x87 stack, which LLVM's baseline code for AVX-512 cannot read."""
    monkeypatch.setenv("LIVEGRAD_CODE", code)
    written: list[str] = []
    add_subroutine = subroutines._add_subroutine

    def note(builder: KernelBuilder, inner: KernelBuilder, returned: str, parameters: list[str]) -> str:
        written.append(returned)
        return add_subroutine(builder, inner, returned, parameters)

    monkeypatch.setattr(subroutines, "_add_subroutine", note)
    monkeypatch.setattr(inline_calls_pass, "SMALL", 20)

    def several(x: Any, y: Any) -> tuple[Any, ...]:
        for n in range(10):
            x, y = x * 0.5 - y * (0.1 * n), y * 0.25 + x
        return tuple(x * float(n + 2) - y for n in range(count))

    inner = trace(several, f64, f64, name="several")

    def outer(x: Node, y: Node) -> Node:
        calls = [call(a, b, function=inner) for a, b in ((x, y), (y, x), (x + y, y), (x - y, x))]
        return sum((ops.get(each, index=n) * float(n + 1) for each in calls for n in range(count)), start=x)

    x, y = np.random.default_rng(count).uniform(-1, 1, (2, 100))
    right: Any = sum(
        (value * (n + 1) for a, b in ((x, y), (y, x), (x + y, y), (x - y, x)) for n, value in enumerate(several(a, b))),
        start=x,
    )
    compiled = compile_function(map_over(trace(outer, f64, f64, name=f"outer{count}")))
    compiled.forget_plans()
    forget_kernels()
    np.testing.assert_allclose(compiled(x, y), right, rtol=1e-12)
    assert written
    assert all(returned.count(",") < 2 for returned in written)


def test_reads_by_index_are_not_in_subroutines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read that cannot fail is not pure either: it uses the kernel's address of the tensor."""
    x = np.arange(12.0)

    def differences(value: lg.Tensor) -> lg.Tensor:
        return lg.sum(lg.sin(value[1:] * value[:-1] + value[2:-1].sum() * 0.25))

    gradient = lg.grad(differences)  # adds the contributions of slices, which are zero outside of them
    plain = np.asarray(lg.jit(gradient)(lg.asarray(x)))
    for module in (function_body, subroutines):
        monkeypatch.setattr(module, "LONG", 2, raising=False)
    monkeypatch.setattr(subroutines, "_PIECE", 3)
    with fresh_session():
        set_default_cache(ObjectCache(CacheSettings(None)))
        np.testing.assert_array_equal(np.asarray(lg.jit(lg.grad(differences))(lg.asarray(x))), plain)

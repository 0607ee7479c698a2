"""Kernels compile to object code for other machines, and narrower vectors give the same values here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.llvm.kernel_module import emit_kernel
from livegrad.compiler import lower_loops
from livegrad.runtime.cpu import kernel_code, math_library
from livegrad.runtime.cpu.cpu_function import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import cross_compile
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep

# Triple, processor, features, bytes of a vector, and how object files of that system begin.
TARGETS = {
    "Apple silicon": ("aarch64-apple-darwin", "apple-m1", "", 16, b"\xcf\xfa\xed\xfe"),
    "64-bit Arm Linux": ("aarch64-unknown-linux-gnu", "", "", 16, b"\x7fELF"),
    "Windows with AVX2": ("x86_64-pc-windows-msvc", "haswell", "", 32, b"\x64\x86"),
    "any x86-64": ("x86_64-unknown-linux-gnu", "x86-64", "", 16, b"\x7fELF"),
    "x86-64 with AVX-512": ("x86_64-unknown-linux-gnu", "skylake-avx512", "", 64, b"\x7fELF"),
}


def _wave(x: lg.ir.Node) -> lg.ir.Node:
    return ops.sin(x) * ops.exp(-x) + ops.sqrt(x)


def _square_sum(x: lg.ir.Node) -> lg.ir.Node:
    return ops.reduce(x * x, kind="sum", axes=(0,))


def _row_softmax(x: lg.ir.Node) -> lg.ir.Node:
    weights = ops.exp(x - ops.spread_back(ops.reduce(x, kind="max", axes=(1,)), (20, 333), (1,)))
    return weights / ops.spread_back(ops.reduce(weights, kind="sum", axes=(1,)), (20, 333), (1,))


def _newton(x: lg.ir.Node) -> lg.ir.Node:
    def is_far(v: lg.ir.Node) -> lg.ir.Node:
        return ops.abs(v * v - x) > 1e-3

    return ops.make_while_loop(is_far, lambda i, v: 0.5 * (v + x / v), x, limit=60)[0]


def _newton_gradient(x: lg.ir.Node) -> lg.ir.Node:
    return ops.bwd_diff(x, lg.ir.constant(1.0, lg.f32), function=lg.ir.trace(_newton, lg.f32, name="newton"))


def _gather(table: lg.ir.Node, index: lg.ir.Node) -> lg.ir.Node:
    return ops.lookup(table, index) + 0.5


def _mapped(function: Callable[..., Any], *types: Any) -> lg.ir.Function:
    return lg.ir.map_over(lg.ir.trace(function, *types))


LENGTH = 1003
POINTS = np.linspace(0.1, 4.0, LENGTH, dtype=np.float32)
SIZED = {"n": LENGTH}
PROGRAMS: dict[str, tuple[lg.ir.Function, dict[str, int], tuple[Any, ...]]] = {
    "elementwise": (_mapped(_wave, lg.f32), SIZED, (POINTS,)),
    "in double precision": (_mapped(_wave, lg.f64), SIZED, (POINTS.astype(np.float64),)),
    "in half precision": (_mapped(lambda x: x * x + 1.0, lg.f16), SIZED, (POINTS.astype(np.float16),)),
    "of bytes": (_mapped(lambda x: (x + 3) * x, lg.u8), SIZED, (np.arange(LENGTH).astype(np.uint8),)),
    "a sum": (lg.ir.trace(_square_sum, lg.ir.types.Tensor(lg.f32, (LENGTH,))), {}, (POINTS,)),
    "rows": (lg.ir.trace(_row_softmax, lg.ir.types.Tensor(lg.f32, (20, 333))), {}, (np.resize(POINTS, (20, 333)),)),
    "a loop": (_mapped(_newton, lg.f32), SIZED, (POINTS,)),
    "a loop with a trace": (_mapped(_newton_gradient, lg.f32), SIZED, (POINTS,)),
    "a gather": (
        lg.ir.trace(_gather, lg.ir.types.Tensor(lg.f32, (50,)), lg.ir.types.Tensor(lg.i64, (LENGTH,))),
        {},
        (POINTS[:50].copy(), np.arange(LENGTH) * 7 % 50),
    ),
    "an integer division": (
        _mapped(lambda a, b: (a // b, a % b), lg.i32, lg.i32),
        SIZED,
        (np.arange(LENGTH, dtype=np.int32) - 500, np.arange(LENGTH, dtype=np.int32) % 9 + 1),
    ),
    "a running sum": (
        lg.ir.trace(
            lambda x: ops.cumulative(x, kind="sum", axis=0, reverse=True, exclusive=True),
            lg.ir.types.Tensor(lg.f32, (30, 50)),
        ),
        {},
        (np.resize(POINTS, (30, 50)),),
    ),
}


def _kernel_texts(program: str, vector_bytes: int) -> list[str]:
    function, sizes, _ = PROGRAMS[program]
    steps = CpuFunction(function).schedule(sizes).steps
    nests = [lower_loops(for_cpu(step, CPU, vector_bytes)) for step in steps if isinstance(step, KernelStep)]
    return [emit_kernel(nest).text for nest in nests]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", ["elementwise", "a sum", "a loop with a trace", "a gather", "in half precision"])
def test_kernels_compile_for_other_machines(program: str, target: str) -> None:
    triple, cpu, features, vector_bytes, magic = TARGETS[target]
    texts = _kernel_texts(program, vector_bytes)
    assert texts
    for text in texts:
        image = cross_compile(text, triple, cpu, features)
        assert image.startswith(magic)
        assert b"kernel" in image


@pytest.fixture(params=[16, 32, 64], ids=lambda size: f"{size} bytes")
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, without_caches: None) -> int:
    """Compiles kernels for vectors of another size, without caches, which have kernels of this machine's size."""
    narrowed = replace(host_target(), vector_bytes=request.param)
    for module in (kernel_code, math_library):
        monkeypatch.setattr(module, "host_target", lambda: narrowed)
    return request.param


@pytest.mark.parametrize("program", PROGRAMS)
def test_vectors_of_any_size_give_the_same_values(program: str, narrow: int) -> None:
    function, _, arguments = PROGRAMS[program]
    run = CpuFunction(function)
    found = run(*arguments)
    expected = lg.ir.evaluate(run.lowered, *arguments)  # lowered, because the reference has no derivatives
    pairs = zip(*(value if isinstance(value, tuple) else (value,) for value in (found, expected)), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=2e-3 if one.dtype == np.float16 else 1e-4
        )


@pytest.mark.parametrize("size", [1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65])
def test_ends_of_arrays_are_correct_for_vectors_of_any_size(size: int, narrow: int) -> None:
    function = _mapped(lambda x, k: (x * 2.0, ops.cast(6.0 / x, type=lg.i32) + k), lg.f32, lg.i32)
    run = CpuFunction(function)
    doubled, whole = run(np.full(size, 1.5, np.float32), np.ones(size, np.int32))
    assert (doubled.tolist(), whole.tolist()) == ([3.0] * size, [5] * size)


def test_checks_name_the_lowest_element_for_vectors_of_any_size(narrow: int) -> None:
    function, _, arguments = PROGRAMS["a gather"]
    indices = arguments[1].copy()
    indices[[517, 518, 900]] = 50
    with pytest.raises(lg.KernelCheckError, match="at element 517 "):
        CpuFunction(function)(arguments[0], indices)

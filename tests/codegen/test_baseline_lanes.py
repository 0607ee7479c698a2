"""Functions that baseline modules call instead of inlining them: masked loads and stores, and lane reductions."""

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.llvm.kernel_module import KernelText, emit_kernel
from livegrad.compiler import lower_loops
from livegrad.ir.types import Scalar, Tensor
from livegrad.ir.types.scalars import SCALARS
from livegrad.runtime.cpu import CpuFunction
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.kernel_code import forget_kernels
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.llvm_jit import compile_image
from livegrad.schedule.loops.nest import for_cpu
from livegrad.schedule.plan import KernelStep
from tests.codegen.llvm_instructions import Instruction, calls, instructions

ELEMENTS = [SCALARS[name] for name in ("f32", "f64", "f16", "i8", "u16", "i32", "i64", "bool")]
LENGTHS = (1, 15, 16, 33, 64, 67, 300)  # of rows: multiples of the number of lanes, and others


def _reductions(x: lg.ir.Node) -> tuple[lg.ir.Node, ...]:
    """Reductions along the lanes, and an elementwise result."""
    if x.type.element.kind == "bool":  # type: ignore[attr-defined]
        return ops.reduce(x, kind="any", axes=(1,)), ops.reduce(x, kind="all", axes=(1,)), x
    sums = [ops.reduce(x, kind=kind, axes=(1,)) for kind in ("sum", "max", "min")]
    return *sums, ops.arg_reduce(x, kind="argmax", axis=1), x + x


def _baseline_kernels(function: lg.ir.Function) -> list[KernelText]:
    steps = [step for step in CpuFunction(function).schedule().steps if isinstance(step, KernelStep)]
    nests = [lower_loops(for_cpu(step, CPU, host_target().vector_bytes)) for step in steps]
    return [emit_kernel(nest, is_baseline=True) for nest in nests]


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_both_tiers_reduce_load_and_store_the_same_lanes(element: Scalar, monkeypatch: pytest.MonkeyPatch) -> None:
    for length in LENGTHS:
        function = lg.ir.trace(_reductions, Tensor(element, (5, length)))
        values = np.random.default_rng(length).integers(0, 2 if element.kind == "bool" else 50, (5, length))
        found = {}
        for choice in ("baseline", "optimised"):
            monkeypatch.setenv("LIVEGRAD_CODE", choice)
            forget_kernels()
            found[choice] = [np.asarray(r).tobytes() for r in CpuFunction(function)(values.astype(element.dtype))]
        assert found["baseline"] == found["optimised"], length


def test_a_baseline_module_calls_functions_instead_of_using_masks_and_constants() -> None:
    (kernel,) = _baseline_kernels(lg.ir.trace(lambda x: ops.sqrt(x) * 0.75 + 1.5, Tensor(lg.f32, (100,))))
    assert {function for function, _, _ in kernel.math} == {"load", "store"}
    assert not calls(kernel.text, "llvm.masked")
    operations = calls(kernel.text, "llvm.sqrt") + calls(kernel.text, "llvm.fmuladd")
    assert len(operations) == 2
    assert not any(operation.has_constants for operation in operations)
    compile_image(kernel.text, 0)  # verifies the module


def _masks(kernel: KernelText) -> list[Instruction]:
    """The comparisons of lane numbers."""
    return [each for each in instructions(kernel.text) if each.opcode == "icmp" and each.type.startswith("<")]


def test_a_conversion_that_cannot_fail_needs_no_mask() -> None:
    exact, checked = (
        _baseline_kernels(
            lg.ir.trace(
                lambda x, to=to: ops.reduce(ops.cast(x, type=to), kind="sum", axes=(1,)), Tensor(source, (9, 70))
            )
        )
        for source, to in ((lg.i32, lg.f32), (lg.f32, lg.i32))
    )
    assert not exact[0].sites
    assert not _masks(exact[0])
    assert checked[0].sites
    assert _masks(checked[0])

"""Kernels in CUDA C: their text, and compilation with NVRTC, which needs no GPU."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad import ops
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.codegen.cuda.kernel import KernelText, emit_kernel
from livegrad.codegen.cuda.launch import BoundKernel, bind
from livegrad.compiler import compile_plan
from livegrad.diagnostics import CompileError
from livegrad.ir.function import trace
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, Tensor, f16, f32, f64, i32
from livegrad.ops.maps import map_over
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cuda import DeviceError, reason_for_no_cuda
from livegrad.runtime.cuda.dependencies import plan_dependencies
from livegrad.runtime.cuda.nvrtc import compile_source, reason_for_no_compiler
from livegrad.schedule.loops.device import blocks_of_a_row
from livegrad.schedule.plan import KernelStep
from tests.conformance.cases import CASES
from tests.differentiate.checks import derived
from tests.differentiate.programs import PROGRAMS
from tests.long_forms import LONG

needs_nvrtc = pytest.mark.skipif(reason_for_no_compiler() is not None, reason=str(reason_for_no_compiler()))
ARCHITECTURES = ("sm_75", "sm_90", "sm_100") if LONG else ("sm_90",)
SIZES = {"n": 5, "m": 3, "k": 4}


def kernels(function: Function) -> list[KernelText]:
    plan = compile_plan(function, CUDA, SIZES)
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    return [emit_kernel(bind(step, plan).nest) for step in steps]


def own_lines(text: KernelText) -> str:
    """The text of a kernel without the common prelude."""
    return text.text[text.text.index("typedef") :]


def fold(shape: tuple[int, ...], axis: int, kind: str = "sum", element: Scalar = f32) -> Function:
    return trace(lambda x: ops.reduce(x, kind=kind, axes=(axis,)), Tensor(element, shape))


def bound(function: Function) -> BoundKernel:
    plan = compile_plan(function, CUDA, SIZES)
    (step,) = [step for step in plan.steps if isinstance(step, KernelStep)]
    return bind(step, plan, share_rows=True)


@pytest.mark.parametrize(
    ("shape", "axis", "rows", "shared"),
    [
        ((4, 100), 1, "warp", False),
        ((5000, 3000), 1, "block", False),
        ((70, 300_000), 1, "block", True),
        ((3000, 5000), 0, "columns", True),
        ((40, 100_000), 0, "columns", False),
        ((3, 1_000_000), 0, "thread", False),
    ],
)
def test_whether_a_thread_warp_or_block_reduces_a_row_depends_on_the_number_and_layout_of_rows(
    shape: tuple[int, int], axis: int, rows: str, shared: bool
) -> None:
    nest = bound(fold(shape, axis)).nest
    assert (nest.rows.by, blocks_of_a_row(nest) > 1) == (rows, shared)


def test_blocks_share_a_row_only_with_memory_for_partial_results() -> None:
    actual = bound(fold((70, 300_000), 1, element=f64))
    blocks = actual.slots["blocks"]
    assert actual.grid == 70 * blocks
    assert (actual.partial_bytes, actual.counters) == (8 * 70 * blocks, 70)


def sum_of_long_tensors() -> Function:
    return trace(lambda x, y: x + y, Tensor(f32, (1 << 20,)), Tensor(f32, (1 << 20,)))


def over_points(*functions: Any) -> Function:
    """Several scalar functions, mapped over an array."""
    return map_over(trace(lambda x: tuple(function(x) for function in functions), f32))


def choosing(*values: Any) -> Any:
    """Code with many min/max choices, whose result is a sum."""
    x, y = values
    for number in range(5):
        x, y = ops.max(x, y) - 0.5 * number, ops.min(x * y, y) * 0.75
    return ops.sqrt(ops.abs(x)) + y


def choosing_before(last: Any) -> Function:
    return map_over(trace(lambda x, y: last(choosing(x, y)), f32, f32))


# Golden files: each `*.cu` is a kernel without the prelude, named by what it shows.
GOLDEN = {
    "an_elementwise_kernel_is_one_loop_over_rows": trace(lambda x: x * x + 1.0, Tensor(f32, (8,))),
    "a_row_reduction_is_folded_by_a_warp_and_stored_once": fold((4, 100), 1),
    "threads_of_short_kernels_over_many_elements_read_ahead": sum_of_long_tensors(),
    "sine_and_cosine_of_one_number_are_one_call": trace(
        lambda x: ops.sin(x) * ops.cos(x) + ops.cos(x + 1.0), Tensor(f32, (9,))
    ),
    "a_quotient_that_becomes_a_whole_number_is_rounded_by_the_standard": trace(
        lambda x, y: ops.floor(x / y) + y / x, Tensor(f32, (9,)), Tensor(f32, (9,))
    ),
    "a_choice_is_one_instruction_where_nan_and_zeros_allow_it": over_points(
        lambda x: ops.max(x - 0.5, 0.0),
        lambda x: ops.max(x, 0.5),
        lambda x: ops.min(x, 0.0),
        lambda x: ops.max(constant(0.5, f32), x),
    ),
    "a_choice_is_a_comparison_where_nan_and_zeros_need_it": over_points(
        lambda x: ops.max(x, 0.0),  # Python's max of -0 and 0 is the first
        lambda x: ops.min(x, -0.0),
        lambda x: ops.max(x, x * 2.0),
    ),
    "code_with_many_choices_is_written_quickly_and_again_for_nan_and_zero": map_over(trace(choosing, f32, f32)),
    "code_whose_result_is_often_zero_is_written_once": choosing_before(lambda x: ops.max(x, 0.0)),
    "code_whose_quotient_tells_zeros_apart_is_written_once": choosing_before(lambda x: 1.0 / x + x),
    "code_that_copies_a_sign_is_written_once": choosing_before(lambda x: ops.copysign(x, x) + x),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_kernels_have_the_expected_code(name: str, check_golden: Callable[[Path, str], None]) -> None:
    (kernel,) = kernels(GOLDEN[name])
    check_golden(Path(__file__).parent / f"{name}.cu", own_lines(kernel))


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_reductions_of_all_layouts_compile(architecture: str) -> None:
    long = trace(_long_program, Tensor(f32, (64,)))
    cases = [
        (70, 300_000, 1, "sum", f32),
        (3000, 5000, 0, "max", f64),
        (4, 100, 1, "prod", i32),
        (70, 90_000, 1, "sum", f16),
    ]
    functions = [fold((n, m), axis, kind, element) for n, m, axis, kind, element in cases]
    functions.append(trace(lambda x: ops.arg_reduce(x, kind="argmax", axis=0), Tensor(f32, (30_000, 70))))
    functions += [long, trace(lambda x, y: x / y, Tensor(f32, (1 << 20,)), Tensor(f32, (1 << 20,)))]
    for function in functions:
        plan = compile_plan(function, CUDA, SIZES)
        for step in plan.steps:
            assert isinstance(step, KernelStep)
            text = emit_kernel(bind(step, plan, share_rows=True).nest)
            assert compile_source(text.text, architecture).startswith(b"\x7fELF")


def _long_program(x: Any) -> Any:
    for number in range(300):
        x = ops.max(x * (0.5 + number), 0.25) - 0.125
    return x


def test_a_check_names_its_site() -> None:
    (kernel,) = kernels(trace(lambda a, b: ops.floor_div(a, b), Tensor(i32, (4,)), Tensor(i32, (4,))))
    assert [site.message for site in kernel.sites] == ["integer division by zero"]
    assert kernel.sites[0].origin is not None
    assert kernel.sites[0].origin.file.endswith("test_kernels.py")


def test_kernels_with_tapes_run_one_at_a_time() -> None:
    """They share memory outside the plan's buffers."""
    function = trace(lambda x, y: (ops.sin(x), ops.cos(y)), Tensor(f32, (8,)), Tensor(f32, (9,)))
    plan = compile_plan(function, CUDA)
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    assert plan_dependencies(steps, plan) == [(), ()]
    assert plan_dependencies(steps, plan, exclusive={0: "tapes", 1: "tapes"}) == [(), (0,)]
    assert plan_dependencies(steps, plan, exclusive={0: "tapes", 1: "libraries"}) == [(), ()]


def test_launches_wait_only_for_launches_with_shared_resources() -> None:
    def function(x, y):  # type: ignore[no-untyped-def]
        # Two dependent reductions, and an independent one.
        first = ops.reduce(x, kind="sum", axes=(0,))
        return ops.reduce(x - ops.broadcast(first, shape=(64,), axes=()), kind="max", axes=(0,)), ops.reduce(
            y, kind="sum", axes=(0,)
        )

    plan = compile_plan(trace(function, Tensor(f32, (64,)), Tensor(f32, (32,))), CUDA)
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    actual = plan_dependencies(steps, plan)
    for number, before in enumerate(actual):
        written = {b for k in before for b in steps[k].results}
        assert {b for b in steps[number].inputs if any(b in s.results for s in steps[:number])} <= written
    assert any(not before for before in actual[1:])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_all_kinds_compile_without_a_gpu(architecture: str) -> None:
    texts = {kernel.text: case.name for case in CASES[::90] for kernel in kernels(case.function)}
    for text, name in texts.items():
        assert compile_source(text, architecture, name).startswith(b"\x7fELF")


@needs_nvrtc
@pytest.mark.parametrize("name", sorted(PROGRAMS)[::6])
def test_control_flow_and_tapes_compile(name: str) -> None:
    function, _ = derived(*PROGRAMS[name], "r", np.random.default_rng(3))
    for kernel in kernels(function):
        assert compile_source(kernel.text, "sm_90", name).startswith(b"\x7fELF")


@needs_nvrtc
def test_a_kernel_that_does_not_compile_says_why() -> None:
    with pytest.raises(CompileError, match=r"NVRTC rejects `broken`[\s\S]*undefined"):
        compile_source("__global__ void kernel() { x = 1; }", "sm_90", "broken")


@needs_nvrtc
def test_gradients_of_reductions_compile() -> None:
    function = vjp(trace(lambda x: ops.reduce(ops.sin(x), kind="prod", axes=(0,)), Tensor(f64, (300,))))
    for kernel in kernels(function):
        assert compile_source(kernel.text, "sm_90").startswith(b"\x7fELF")


def test_importing_livegrad_loads_no_driver() -> None:
    code = (
        "import livegrad; livegrad.asarray([1.0]) + 1.0; import livegrad.runtime.cuda; "
        "print('libcuda.so' in open('/proc/self/maps').read())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.skipif(reason_for_no_cuda() is None, reason="there is a GPU here")
def test_moving_a_tensor_to_a_missing_gpu_is_an_error() -> None:
    with pytest.raises(DeviceError, match="CUDA cannot be used"):
        np.asarray(lg.asarray([1.0, 2.0]).to("cuda") + 1.0)

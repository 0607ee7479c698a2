"""Kernel arguments have the layout, read from cubins, that the host packs; also in the live engine. Needs no GPU."""

from __future__ import annotations

import struct

import pytest

from livegrad import ops
from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.codegen.cuda.kernel import emit_kernel
from livegrad.codegen.cuda.launch import bind
from livegrad.compiler import compile_plan
from livegrad.diagnostics import CompileError, UsageError
from livegrad.ir.function import trace
from livegrad.ir.types import Tensor, f32, f64
from livegrad.live.blocks import cuda_block
from livegrad.live.cuda.control_kernels import APPEND_SLOTS, CONTROL_SLOTS, engine_sources
from livegrad.live.cuda.source_code import machine_code
from livegrad.live.graph.problems import PinError
from livegrad.live.graph.sources import InputType
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.runtime.cuda.nvrtc import compile_source, reason_for_no_compiler
from livegrad.schedule.plan import KernelStep
from tests.long_forms import LONG

pytestmark = pytest.mark.skipif(reason_for_no_compiler() is not None, reason=str(reason_for_no_compiler()))
ARCHITECTURES = ("sm_75", "sm_90", "sm_100")
COMPILED_FOR = ARCHITECTURES if LONG else ("sm_90",)  # the kernels of libraries, which take seconds to compile
_PARAMETER = 0x17  # EIATTR_KPARAM_INFO
SHIFT = """\
extern "C" __global__ void shift(const float* x, double by, float* result, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) result[i] = x[i] + by;
}
"""


def parameters_of(cubin: bytes, symbol: str) -> list[tuple[int, int]]:
    """(offset, bytes) of each parameter of a kernel, from the section `.nv.info` of a cubin."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + 64 * number) for number in range(count)]
    start = sections[names][4]
    actual: dict[int, tuple[int, int]] = {}
    for name, _, _, _, offset, size, *_ in sections:
        if cubin[start + name : cubin.index(b"\0", start + name)] != f".nv.info.{symbol}".encode():
            continue
        at = offset
        while at < offset + size:
            form, attribute, length = struct.unpack_from("<BBH", cubin, at)
            if attribute == _PARAMETER:
                _, ordinal, place, packed = struct.unpack_from("<IHHI", cubin, at + 4)
                actual[ordinal] = place, packed >> 18
            at += 4 + (length if form == 4 else 0)
    return [actual[ordinal] for ordinal in sorted(actual)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_kernel_takes_one_struct_with_the_packed_slots(architecture):
    function = trace(
        lambda x, y, s: (ops.reduce(x * y, kind="sum", axes=(1,)), x + y * ops.broadcast(s, shape=(3, 5), axes=())),
        Tensor(f32, (3, 5)), Tensor(f32, (3, 5)), f32,
    )  # fmt: skip
    plan = compile_plan(function, CUDA, {})
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    assert steps
    for step in steps:
        text = emit_kernel(bind(step, plan).nest)
        cubin = compile_source(text.text, architecture)
        assert parameters_of(cubin, "kernel") == [(0, 8 * len(text.slots))]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_kernels_of_the_engine_itself_compile_and_take_what_is_packed(architecture):
    words = {"begin_if": CONTROL_SLOTS, "next_for": CONTROL_SLOTS, "append_rows": APPEND_SLOTS, "time_stop": ("slot",)}
    symbols = set()
    for name, source in engine_sources().items():
        if architecture != "sm_90" and name not in ("control_f32", "append", "time"):
            continue
        cubin = compile_source(source, architecture, name)
        for symbol, slots in words.items():
            actual = parameters_of(cubin, symbol)
            if actual:
                symbols.add(symbol)
                assert actual == [(0, 8 * len(slots))]
    assert symbols == set(words)


def specialized(source: str = SHIFT, **options) -> CudaKernel:
    cuda = cuda_block(source, outputs={"result": "same(0)"}, sizes={"n": "result"}, **options)
    function = cuda.body.specialize((InputType(Tensor(f32, (5,))), InputType(Tensor(f64, ()), weak=True))).function
    assert isinstance(function, CudaKernel)
    return function


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_user_kernel_takes_each_slot_as_a_separate_parameter(architecture):
    kernel = specialized()
    sizes = [8 if a.kind in ("input", "output") else a.element.dtype.itemsize for a in kernel.arguments]
    assert [size for _, size in parameters_of(machine_code(kernel, architecture), "shift")] == sizes == [8, 8, 8, 4]
    assert (kernel.points, [str(type) for type in kernel.result_types]) == (5, ["tensor<f32, [5]>"])


def test_errors_of_nvrtc_name_the_users_line():
    kernel = specialized(SHIFT.replace("+ by", "+ bye"))
    with pytest.raises(CompileError, match=r'identifier "bye" is undefined') as caught:
        machine_code(kernel, "sm_90")
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_layout.py")


def test_an_error_in_a_source_file_names_the_file():
    cuda = cuda_block(
        """extern "C" __global__ void broken(const float* x, float* y)
{
    y[0] = z[0];
}
""",
        outputs={"y": "same(0)"},
    )
    kernel = cuda.body.specialize((InputType(Tensor(f32, (5,))),)).function
    assert isinstance(kernel, CudaKernel)
    with pytest.raises(CompileError) as caught:
        machine_code(kernel, "sm_90")
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert caught.value.where is not None
    assert lines[caught.value.where.line - 1].strip() == "y[0] = z[0];"


def test_unsupported_arguments_of_a_kernel_are_rejected_by_name():
    with pytest.raises(UsageError, match=r"may be written"):
        cuda_block('extern "C" __global__ void f(float* x, float* y) {}', outputs={"y": "same(0)"})
    with pytest.raises(UsageError, match=r"cannot be `float4 x`"):
        cuda_block('extern "C" __global__ void f(float4 x, float* y) {}', outputs={"y": "same(0)"})
    with pytest.raises(UsageError, match=r"has no parameter m"):
        cuda_block(SHIFT, outputs={"result": "same(0)"}, sizes={"m": "result"})
    with pytest.raises(PinError, match="`x` does not fit"):
        cuda_block(SHIFT, outputs={"result": "same"}, sizes={"n": "x"}).body.specialize(
            (InputType(Tensor(f64, (5,))), InputType(Tensor(f64, ()), weak=True))
        )

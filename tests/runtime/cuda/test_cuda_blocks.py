"""Blocks of CUDA C, PTX and cubin, library calls and faults, on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.blocks import block, captured_block, cuda_block, load_cuda_block, watch_cuda
from livegrad.live.blocks.cuda_source import CudaBody
from livegrad.live.engine import Engine
from livegrad.live.graph.block import State
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.regions import For
from livegrad.live.graph.sources import ExternalBuffer
from livegrad.live.update.diff_plans import Level
from livegrad.runtime.cuda.driver import device
from livegrad.runtime.cuda.nvrtc import compile_source
from livegrad.runtime.cuda.result_memory import memory_in_use
from tests.runtime.cuda.test_running import remembering

pytestmark = pytest.mark.gpu
NUMBERS = np.arange(1000, dtype=np.float32)
SHIFT = """\
extern "C" __global__ void shift(const float* x, float by, float* result, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) result[i] = x[i] + by;
}
"""
DESCRIPTION = {
    "kernel": "shift",
    "parameters": [
        {"name": "x", "kind": "input", "element": "f32"},
        {"name": "by", "kind": "number", "element": "f32", "default": 1.0},
        {"name": "result", "kind": "output", "element": "f32", "shape": "same(0)"},
        {"name": "n", "kind": "size", "element": "i32", "of": "result"},
    ],
}


def shifting(source: str = SHIFT, **options):
    return cuda_block(source, outputs={"result": "same(0)"}, sizes={"n": "result"}, defaults={"by": 1.0}, **options)


def test_cuda_c_stands_between_other_blocks_and_its_numbers_are_hot():
    engine = Engine("cuda")
    before = engine.add(block(lambda x: x * 2.0, name="before"))
    shift = engine.add(shifting())
    after = engine.add(block(lambda x: x * 10.0, name="after"))
    engine.set(before["x"], NUMBERS)
    engine.connect(before, shift["x"])
    engine.connect(shift, after["x"])
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(after), (NUMBERS * 2 + 1) * 10)
    engine.set(shift["by"], 5.0)
    assert engine.step().level is Level.HOT
    np.testing.assert_array_equal(engine.read(after), (NUMBERS * 2 + 5) * 10)
    engine.set(before["x"], NUMBERS[:7])
    assert engine.step().level in (Level.WARM, Level.CODE)
    np.testing.assert_array_equal(engine.read(after), (NUMBERS[:7] * 2 + 5) * 10)


def test_code_that_does_not_compile_leaves_the_old_running_and_names_the_line():
    engine = Engine("cuda")
    shift, apart = engine.add(shifting()), engine.add(block(lambda x=1.0: x + 1.0, name="apart"))
    engine.set(shift["x"], NUMBERS)
    engine.step()
    engine.edit(shift, shifting(SHIFT.replace("+ by", "+ bye")).body)
    (problem,) = engine.step().problems
    assert problem.block is shift
    assert 'identifier "bye" is undefined' in str(problem)
    assert apart.debug.errors == []
    np.testing.assert_array_equal(engine.read(shift, running=True), NUMBERS + 1)
    engine.edit(shift, shifting(SHIFT.replace("+ by", "- by")).body)
    assert engine.step().level is Level.CODE
    np.testing.assert_array_equal(engine.read(shift), NUMBERS - 1)


def test_parameters_that_the_kernel_does_not_have_are_rejected():
    engine = Engine("cuda")
    wrong = cuda_block(SHIFT.replace("int n)", "long long n)"), outputs={"result": "same(0)"}, sizes={"n": "result"})
    assert isinstance(wrong.body, CudaBody)
    wrong.body.code = wrong.body.code.with_text(SHIFT)  # the description of one, the code of the other
    engine.add(wrong)
    engine.set(wrong["x"], NUMBERS)
    engine.set(wrong["by"], 1.0)
    (problem,) = engine.step().problems
    assert "does not have the declared parameters" in str(problem)
    assert "[8, 4, 8, 4] bytes" in str(problem)


def write(folder: Path, suffix: str, source: str) -> Path:
    path = folder / f"shift{suffix}"
    path.with_suffix(".json").write_text(json.dumps(DESCRIPTION))
    if suffix == ".cubin":
        path.write_bytes(compile_source(source, device().architecture))
    elif suffix == ".ptx":
        path.write_text(PTX.replace("add.f32", "sub.f32") if "- by" in source else PTX)
    else:
        path.write_text(source)
    return path


PTX = """\
.version 7.0
.target sm_75
.address_size 64
.visible .entry shift(.param .u64 p0, .param .f32 p1, .param .u64 p2, .param .u32 p3)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [p0]; ld.param.f32 %f1, [p1]; ld.param.u64 %d2, [p2]; ld.param.u32 %r1, [p3];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %d3, %d1; cvta.to.global.u64 %d4, %d2;
    mul.wide.s32 %d5, %r5, 4;
    add.s64 %d6, %d3, %d5; add.s64 %d7, %d4, %d5;
    ld.global.f32 %f2, [%d6];
    add.f32 %f3, %f2, %f1;
    st.global.f32 [%d7], %f3;
DONE:
    ret;
}
"""


@pytest.mark.parametrize("suffix", [".cu", ".ptx", ".cubin"])
def test_a_watched_file_of_any_kind_is_reloaded_and_may_disappear(tmp_path, suffix):
    path = write(tmp_path, suffix, SHIFT)
    engine = Engine("cuda")
    shift = watch_cuda(engine, path)
    engine.set(shift["x"], NUMBERS)
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(shift), NUMBERS + 1)
    assert engine.step().ran == ()
    write(tmp_path, suffix, SHIFT.replace("+ by", "- by"))
    assert engine.step().level is Level.CODE
    np.testing.assert_array_equal(engine.read(shift), NUMBERS - 1)
    path.unlink()
    engine.step()
    assert "cannot read" in str(shift.debug.errors[0])
    np.testing.assert_array_equal(engine.read(shift), NUMBERS - 1)
    write(tmp_path, suffix, SHIFT)
    engine.step()
    assert shift.debug.errors == []
    np.testing.assert_array_equal(engine.read(shift), NUMBERS + 1)


def test_invalid_json_names_its_line(tmp_path):
    path = write(tmp_path, ".cu", SHIFT)
    path.with_suffix(".json").write_text('{\n"kernel": }')
    with pytest.raises(lg.LivegradError, match=r"shift.json:2"):
        load_cuda_block(path)


def test_arrays_of_cupy_and_torch_are_read_in_place():
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    engine = Engine("cuda")
    add = engine.add(block(lambda x, y: x + y, name="add"))
    first, second = cupy.arange(8, dtype=cupy.float32), torch.ones(8, device="cuda")
    engine.bind(add["x"], ExternalBuffer(first))
    engine.bind(add["y"], ExternalBuffer(second))
    engine.step()
    np.testing.assert_array_equal(engine.read(add), np.arange(8) + 1)
    first += 10
    second *= 5
    torch.cuda.synchronize()
    engine.step()
    np.testing.assert_array_equal(engine.read(add), np.arange(8) + 15)


def test_a_torch_call_is_captured_once_and_a_changed_number_needs_no_new_capture():
    torch = pytest.importorskip("torch")
    captures = []

    def scale(stream, x, factor, result):
        captures.append(stream)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            torch.mul(torch.as_tensor(x), torch.as_tensor(factor), out=torch.as_tensor(result))

    engine = Engine("cuda")
    scaled = engine.add(captured_block(scale, outputs={"result": "same(0)"}, in_memory=("factor",)))
    engine.set(scaled["x"], NUMBERS)
    engine.set(scaled["factor"], np.float32(2))
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(scaled), NUMBERS * 2)
    engine.set(scaled["factor"], np.float32(7))
    assert engine.step().level is Level.WARM
    np.testing.assert_array_equal(engine.read(scaled), NUMBERS * 7)
    assert len(captures) == 1


def test_a_captured_call_runs_in_every_iteration_of_a_loop():
    cupy = pytest.importorskip("cupy")

    def double(stream, x, result):
        with cupy.cuda.ExternalStream(stream):
            cupy.multiply(cupy.asarray(x), 2, out=cupy.asarray(result))

    body = Composite("body")
    inner = body.graph.add(captured_block(double, outputs={"result": "same(0)"}, name="double"))
    body.expose(inner["x"])
    body.expose(inner["result"])
    engine = Engine("cuda")
    loop = engine.add(For("loop", body, {"x": "result"}))
    engine.set(loop["x"], NUMBERS)
    engine.set(loop["count"], 5)
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_array_equal(engine.read(loop), NUMBERS * 32)


def test_matmul_is_part_of_the_graph():
    engine = Engine("cuda")
    product = engine.add(block(lambda a, b, gain=1.0: lg.tanh(a @ b) * gain, name="product"))
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(64, 32)).astype(np.float32), rng.normal(size=(32, 16)).astype(np.float32)
    engine.set(product["a"], a)
    engine.set(product["b"], b)
    assert engine.step().ok, engine.frame.problems
    np.testing.assert_allclose(engine.read(product), np.tanh(a @ b), rtol=1e-3, atol=1e-5)
    engine.set(product["a"], 2 * a)
    engine.set(product["gain"], 3.0)
    engine.step()
    np.testing.assert_allclose(engine.read(product), 3 * np.tanh(2 * a @ b), rtol=1e-3, atol=1e-5)


def test_a_tape_overflow_repeats_the_frame():
    function = remembering(3000)
    slopes = []
    for name in ("cpu", "cuda"):
        engine = Engine(name)
        state = engine.add(State("held", np.linspace(0.1, 0.2, 40)))
        slope = engine.add(block(function, inputs=("x", "seed"), name="slope"))
        move = engine.add(block(lambda x, slope: x + 1e-3 * slope, name="move"))
        engine.connect(state, slope["x"])
        engine.connect(state, move["x"])
        engine.connect(slope, move["slope"])
        engine.connect(move, state["next"])
        engine.set(slope["seed"], np.ones(40))
        for _ in range(3):
            frame = engine.step()
            assert frame.ok, frame.problems
            assert frame.failed == frozenset()
        slopes.append(engine.read(state))
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-9)


def test_random_edits_leak_nothing():
    def session() -> None:
        engine = Engine("cuda")
        blocks = [engine.add(block(lambda x=1.0, k=float(k): x * k, name=f"b{k}")) for k in range(8)]
        large = engine.add(block(lambda x: x * 2.0, name="large"))
        for size in (1 << 20, 1 << 21, 1 << 19):
            engine.set(large["x"], np.ones(size, np.float32))
            engine.step()
        for one in blocks[::2]:
            engine.remove(one)
            engine.step()
        engine.profiling = "block"
        engine.set(blocks[1]["x"], 5.0)
        engine.step()
        engine.read_async(large)
        engine.close()

    session()
    before = memory_in_use()[0]
    for _ in range(5):
        session()
    assert memory_in_use()[0] - before < 1 << 16


FAULT = """
import numpy as np
from livegrad.live.blocks import cuda_block
from livegrad.runtime.cuda.driver import DeviceError
from livegrad.live.engine import Engine
engine = Engine("cuda")
bad = engine.add(cuda_block('extern "C" __global__ void bad(const float* x, float* y) { ((float*)16)[0] = x[0]; }',
                            outputs={"y": "same(0)"}))
engine.set(bad["x"], np.ones(4, np.float32))
engine.step()
for again in range(2):
    try:
        engine.read(bad)
        print("no error")
    except DeviceError as error:
        print("ILLEGAL_ADDRESS" in str(error) and "restart the process" in str(error))
engine.close()
print("closed")
"""


def test_a_kernel_that_faults_ends_in_a_clear_error_and_the_engine_can_be_closed():
    done = subprocess.run([sys.executable, "-c", FAULT], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True", "closed"], done.stdout + done.stderr
    assert done.returncode == 0
    assert done.stderr == ""

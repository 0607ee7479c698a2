"""LIVEGRAD_CPU limits native code to a level of x86-64; half precision works without instructions for it."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from livegrad.diagnostics import UsageError
from livegrad.runtime.cpu.native import half_conversions_ir, host_target, llvm_jit
from livegrad.runtime.cpu.native.host_target import HostTarget

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
EVERYTHING = {name for level in LEVELS for name in host_target._LEVELS[level]}
is_x86 = host_target.host_target().triple.startswith("x86_64")

PROGRAM = """
import numpy as np
import livegrad as lg
from livegrad.runtime.cpu.native.host_target import host_target

halves = np.arange(65536, dtype=np.uint16).view(np.float16)
halves = halves[~np.isnan(halves)]
with np.errstate(over="ignore"):
    rounded = (halves.astype(np.float32) * np.float32(1.0003)).astype(np.float16)
x = lg.asarray(halves)
widened = lg.astype(x, lg.float32)
assert np.array_equal(widened.numpy(), halves.astype(np.float32))
assert np.array_equal(lg.astype(widened * lg.asarray(np.float32(1.0003)), lg.float16).numpy(), rounded)
ones = lg.asarray(np.ones((7, 33), np.float16))
assert lg.sum(ones).item() == 231.0
assert np.array_equal(lg.concat([ones, 2 * ones]).numpy()[6:8, 0], [1.0, 2.0])
square = np.arange(81.0).reshape(9, 9)
assert np.array_equal((lg.asarray(square) @ lg.asarray(square)).numpy(), square @ square)
print(host_target().cpu, host_target().vector_bytes)
"""


def target_of(level: str, missing: str = "") -> HostTarget:
    return host_target._target_of_level(level, EVERYTHING - {missing})


def test_a_level_has_the_vectors_and_instructions_that_all_its_processors_have() -> None:
    targets = [target_of(level) for level in LEVELS]
    assert [target.vector_bytes for target in targets] == [16, 16, 32, 64]
    assert [target.has_fma for target in targets] == [False, False, True, True]
    assert [target.has_half for target in targets] == [False, False, True, True]
    assert [target.cpu for target in targets] == list(LEVELS)


def test_a_level_that_the_processor_does_not_support_is_rejected() -> None:
    message = "this processor does not support x86-64-v4: it lacks avx512bw; unset LIVEGRAD_CPU"
    with pytest.raises(UsageError, match=message):
        target_of("x86-64-v4", missing="avx512bw")
    assert target_of("x86-64-v3", missing="avx512bw").vector_bytes == 32


def test_an_unknown_level_names_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4.*pentium"):
        target_of("pentium")
    with pytest.raises(UsageError, match="expected native, found x86-64"):
        host_target._target_of_level("x86-64", None)  # not an x86-64


@pytest.mark.skipif(not is_x86, reason="levels exist for x86-64 only")
@pytest.mark.parametrize("level", [level for level in LEVELS if level != "x86-64-v4"])
def test_programs_run_on_lower_levels(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if level == "x86-64-v3" and host_target.host_target().vector_bytes < 32:
        pytest.skip("this processor has no AVX2")
    monkeypatch.setenv("LIVEGRAD_CPU", level)
    monkeypatch.setenv("LIVEGRAD_CACHE_DIR", "")
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [level, "32" if level == "x86-64-v3" else "16"]


LOOP = """
define void @{name}(ptr %from, ptr %to, i64 %count) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %source = getelementptr {source}, ptr %from, i64 %i
  %target = getelementptr {target}, ptr %to, i64 %i
  %value = load {source}, ptr %source
  %converted = call {target} @{called}({source} %value)
  store {target} %converted, ptr %target
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""


@pytest.fixture(scope="module")
def conversions() -> llvm_jit.NativeFunction:
    loops = LOOP.format(name="widen", source="half", target="float", called="__extendhfsf2")
    loops += LOOP.format(name="narrow", source="float", target="half", called="__truncsfhf2")
    return llvm_jit.compile_kernel(half_conversions_ir.TEXT + loops, "widen", also_export=("narrow",), speed=1)


def convert(code: llvm_jit.NativeFunction, name: str, values: np.ndarray, dtype: type) -> np.ndarray:
    result = np.empty(values.shape, dtype)
    loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.addresses[name])
    loop(values.ctypes.data, result.ctypes.data, values.size)
    return result


def test_all_halves_are_widened_like_numpys(conversions: llvm_jit.NativeFunction) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    widened, expected = convert(conversions, "widen", halves, np.float32), halves.astype(np.float32)
    numbers = ~np.isnan(halves)
    assert np.array_equal(widened[numbers].view(np.uint32), expected[numbers].view(np.uint32))
    # NaN keeps its sign and payload, and is quiet, as F16C makes it.
    assert np.array_equal(widened[~numbers].view(np.uint32), expected[~numbers].view(np.uint32) | 0x400000)


def test_singles_are_rounded_to_halves_as_numpy_does(conversions: llvm_jit.NativeFunction) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = halves[~np.isnan(halves)].view(np.uint32)
    # Each half, the midpoint to the next, and the neighbours of both.
    near = [
        bits + np.uint32(0x1000 * middle) + np.uint32(step & 0xFFFFFFFF) for middle in (0, 1) for step in (-1, 0, 1)
    ]
    scattered = np.random.default_rng(0).integers(0, 1 << 32, 1_000_000, dtype=np.uint32)
    singles = np.concatenate([*near, scattered]).view(np.float32)
    singles = singles[~np.isnan(singles)]
    with np.errstate(over="ignore"):
        expected = singles.astype(np.float16)
    assert np.array_equal(convert(conversions, "narrow", singles, np.float16).view(np.uint16), expected.view(np.uint16))

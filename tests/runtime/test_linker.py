"""livegrad's linker loads the objects that it supports, and leaves the others to LLVM's linker."""

import ctypes
import struct
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import livegrad as lg
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.linker import LoadedCode, load
from livegrad.runtime.cpu.native.llvm_jit import NativeCompileError, compile_image, compile_kernel

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not host_target().triple.startswith("x86_64"),
    reason="knows Linux on x86-64",
)

CONSTANTS = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@start = internal global i64 5
@calls = global i64 0
define double @third(i64 %n) { %x = sitofp i64 %n to double  %y = fdiv double %x, 3.0  ret double %y }
define i64 @entry(i64 %n) {
  %p = getelementptr i64, ptr @table, i64 %n
  %v = load i64, ptr %p
  ret i64 %v
}
define i64 @count() {
  %before = load i64, ptr @calls
  %after = add i64 %before, 1
  store i64 %after, ptr @calls
  %base = load i64, ptr @start
  %sum = add i64 %after, %base
  ret i64 %sum
}
define i64 @choose(i64 %n) {
  switch i64 %n, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e ]
a: ret i64 7
b: ret i64 17
c: ret i64 -3
d: ret i64 99
e: ret i64 1
other: ret i64 0
}
"""
OUTSIDE = """
declare i64 @strlen(ptr)
declare i64 @twice(i64)
@address = internal global ptr @twice
define i64 @length(ptr %text) { %n = call i64 @strlen(ptr %text)  ret i64 %n }
define i64 @four_times(i64 %n) { %a = call i64 @twice(i64 %n)  %b = call i64 @twice(i64 %a)  ret i64 %b }
define ptr @where() { ret ptr @twice }
define ptr @kept() { %p = load ptr, ptr @address  ret ptr %p }
"""


def loaded(text: str, *exports: str, speed: int = 0, **imports: int) -> LoadedCode:
    code = load(compile_image(text, speed), exports, imports)
    assert code is not None
    return code


def call(code: LoadedCode, name: str, *arguments: object, result: type = ctypes.c_int64) -> object:
    types = [ctypes.c_char_p if isinstance(argument, bytes) else ctypes.c_int64 for argument in arguments]
    return ctypes.CFUNCTYPE(result, *types)(code.addresses[name])(*arguments)


@pytest.mark.parametrize("speed", [0, 2])
def test_constants_tables_and_writable_data_are_reached(speed: int) -> None:
    code = loaded(CONSTANTS, "third", "entry", "count", "choose", speed=speed)
    assert call(code, "third", 7, result=ctypes.c_double) == 7 / 3
    assert [call(code, "entry", place) for place in range(4)] == [10, 20, 30, 40]
    assert [call(code, "count") for _ in range(3)] == [6, 7, 8]
    assert [call(code, "choose", place) for place in range(-1, 6)] == [0, 7, 17, -3, 99, 1, 0]


def test_each_copy_has_its_own_writable_data() -> None:
    first, second = (loaded(CONSTANTS, "count") for _ in range(2))
    assert (call(first, "count"), call(first, "count"), call(second, "count")) == (6, 7, 6)


@pytest.mark.parametrize("speed", [0, 2])
def test_external_functions_are_called_and_their_addresses_are_loaded(speed: int) -> None:
    twice = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda number: 2 * number)
    address = ctypes.cast(twice, ctypes.c_void_p).value or 0
    code = loaded(OUTSIDE, "length", "four_times", "where", "kept", speed=speed, twice=address)
    assert call(code, "length", b"five!") == 5
    assert call(code, "four_times", 21) == 84
    assert call(code, "where") == call(code, "kept") == address


def test_vectors_are_read_at_aligned_addresses() -> None:
    width = 16
    text = f"""
define void @shift(ptr %x) {{
  %v = load <{width} x float>, ptr %x, align 4
  %w = fadd <{width} x float> %v, <{", ".join(f"float {lane}.5" for lane in range(width))}>
  store <{width} x float> %w, ptr %x, align 4
  ret void
}}
"""
    values = np.arange(width, dtype=np.float32)
    call(loaded(text, "shift", speed=2), "shift", values.ctypes.data, result=None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(values, 2 * np.arange(width) + 0.5)


def test_missing_symbols_are_reported_by_llvm(tmp_path: Path) -> None:
    text = "declare i64 @nobody_has_it(i64)\ndefine i64 @f(i64 %x) { %r = call i64 @nobody_has_it(i64 %x)  ret i64 %r }"
    assert load(compile_image(text, 0), ("f",), {}) is None
    assert load(compile_image(OUTSIDE, 0), ("no_such_export",), {"twice": 1}) is None
    with pytest.raises(NativeCompileError, match="nobody_has_it"):
        compile_kernel(text, "f")


def test_thread_local_memory_is_left_to_llvm() -> None:
    text = "@own = thread_local global i64 3\ndefine i64 @f() { %v = load i64, ptr @own  ret i64 %v }"
    assert load(compile_image(text, 0), ("f",), {}) is None


def test_a_damaged_object_is_not_loaded() -> None:
    image = compile_image(CONSTANTS, 0)
    for length in range(0, len(image), 7):
        assert load(image[:length], ("entry",), {}) is None
    other_machine = image[:18] + struct.pack("<H", 183) + image[20:]
    assert load(other_machine, ("entry",), {}) is None


def test_code_is_not_writable_and_memory_goes_with_it() -> None:
    code = loaded(CONSTANTS, "count")
    ranges = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    bounds = [([int(end, 16) for end in addresses.split("-")], rights) for addresses, rights in ranges]
    assert [rights for (start, end), rights in bounds if start <= code.addresses["count"] < end] == ["r-xp"]
    memory = code._memory
    code.close()
    assert memory.closed


@pytest.mark.usefixtures("without_caches")
def test_no_generated_kernel_needs_another_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("LLVM was asked to link")

    monkeypatch.setattr(llvm, "create_lljit_compiler", refuse)
    x = lg.asarray(np.linspace(0.1, 2.0, 300, dtype=np.float32).reshape(20, 15))
    results = [
        lg.softmax(lg.sin(x) @ x.mT),
        lg.sort(x),
        lg.cumulative_sum(x, axis=1),
        lg.where(x > 1, x**2.5, lg.log(x)),
    ]
    assert all(np.isfinite(result.numpy()).all() for result in results)

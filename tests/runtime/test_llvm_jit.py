"""`compile_kernel` compiles IR, links imports, frees dropped code, and explains errors."""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
import sys
import weakref
from pathlib import Path

import pytest

from livegrad.runtime.cpu.native import llvm_jit
from livegrad.runtime.cpu.native.llvm_jit import NativeCompileError, compile_kernel, cross_assemble, cross_compile
from livegrad.runtime.object_cache import CacheSettings, ObjectCache

NO_CACHE = ObjectCache(CacheSettings(None))

ADD = """
define i64 @add(i64 %x) {
  %y = add i64 %x, CONSTANT
  ret i64 %y
}
"""

CALL = """
declare i64 @NAME(i64)
define i64 @f(i64 %x) {
  %y = call i64 @NAME(i64 %x)
  ret i64 %y
}
"""

HEAP = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare float @sinf(float)
define float @through_heap(float %x) {
  %p = call ptr @malloc(i64 4)
  %s = call float @sinf(float %x)
  store volatile float %s, ptr %p
  %v = load volatile float, ptr %p
  call void @free(ptr %p)
  ret float %v
}
define i64 @address_of_sinf(i64 %unused) {
  %a = ptrtoint ptr @sinf to i64
  ret i64 %a
}
"""

# A jump table and constant vectors, which break if sections are too far apart for the small code model.
TABLES = """
define i64 @pick(i64 %x) {
entry:
  switch i64 %x, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d  i64 4, label %e ]
a:
  %va = call i64 @llvm.vector.reduce.add.v4i64(<4 x i64> <i64 1, i64 20, i64 300, i64 4000>)
  ret i64 %va
b:
  fence seq_cst
  ret i64 22
c:
  fence acquire
  ret i64 33
d:
  fence release
  ret i64 44
e:
  fence acq_rel
  ret i64 55
other:
  ret i64 -1
}
declare i64 @llvm.vector.reduce.add.v4i64(<4 x i64>)
"""


def call(function: llvm_jit.NativeFunction, value: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(function.address)(value)


@pytest.mark.parametrize("speed", [0, 1, 2, 3])
def test_every_speed_gives_the_same_function(speed: int) -> None:
    function = compile_kernel(ADD.replace("CONSTANT", "40"), "add", speed=speed, cache=NO_CACHE)
    assert call(function, 2) == 42


@pytest.mark.parametrize("speed", [0, 1, 2, 3])
def test_kernels_call_libc_and_take_its_addresses(speed: int) -> None:
    function = compile_kernel(HEAP, "through_heap", speed=speed, also_export=("address_of_sinf",), cache=NO_CACHE)
    through_heap = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(function.address)
    assert through_heap(0.5) == pytest.approx(0.4794255, abs=1e-6)
    address = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(function.addresses["address_of_sinf"])(0)
    assert ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(address)(0.0) == 0.0


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="places x86-64 code by Linux's mmap"
)
def test_kernels_reach_symbols_terabytes_away() -> None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    hints = (1 << 33, 1 << 38, 1 << 42, 1 << 45)  # other libraries in the process may allocate too
    far = min(libc.mmap(hint, 4096, 7, flags, -1, 0) for hint in hints)
    ctypes.memmove(far, b"\x48\x8d\x47\x07\xc3", 5)  # lea rax, [rdi + 7]; ret
    text = CALL.replace("NAME", "far") + "define ptr @place() {\n  ret ptr @far\n}\n"
    for speed in range(4):
        function = compile_kernel(text, "f", speed=speed, imports={"far": far}, also_export=("place",), cache=NO_CACHE)
        assert abs(function.address - far) > 1 << 32
        assert call(function, 5) == 12
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(function.addresses["place"])() == far


@pytest.mark.parametrize("speed", [0, 2, 3])
def test_jump_tables_and_constants_are_reached(speed: int) -> None:
    function = compile_kernel(TABLES, "pick", speed=speed, cache=NO_CACHE)
    assert [call(function, x) for x in range(-1, 6)] == [-1, 4321, 22, 33, 44, 55, -1]


def test_imports_bind_names_to_addresses() -> None:
    helper = compile_kernel(ADD.replace("CONSTANT", "7"), "add", cache=NO_CACHE)
    text = CALL.replace("NAME", "helper")
    function = compile_kernel(text, "f", imports={"helper": helper.address}, cache=NO_CACHE)
    assert call(function, 3) == 10


def test_a_syntax_error_names_the_line() -> None:
    text = "define i64 @f(i64 %x) {\nentry:\n  %y = add i64 %x, %nothing\n  ret i64 %y\n}\n"
    with pytest.raises(NativeCompileError, match=r"line 3, column .*undefined value '%nothing'") as caught:
        compile_kernel(text, "f", cache=NO_CACHE)
    assert caught.value.line_number == 3
    assert caught.value.line == "  %y = add i64 %x, %nothing"


def test_a_use_before_a_definition_is_an_error_with_its_line() -> None:
    text = "define i64 @f(i64 %x) {\n  %z = add i64 %y, 1\n  %y = add i64 %x, 1\n  ret i64 %z\n}\n"
    with pytest.raises(NativeCompileError, match="does not dominate") as caught:
        compile_kernel(text, "f", cache=NO_CACHE)
    assert caught.value.line_number in (2, 3)


def test_a_missing_symbol_is_named_and_does_not_abort_the_process() -> None:
    with pytest.raises(NativeCompileError, match="unknown symbols: no_such_symbol"):
        compile_kernel(CALL.replace("NAME", "no_such_symbol"), "f", cache=NO_CACHE)
    with pytest.raises(NativeCompileError, match="expected definitions of g"):
        compile_kernel(ADD.replace("CONSTANT", "1"), "g", cache=NO_CACHE)


@pytest.mark.usefixtures("own_session")
def test_a_failed_kernel_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    cache = ObjectCache(CacheSettings(tmp_path))
    for text in ("define", CALL.replace("NAME", "no_such")):
        with pytest.raises(NativeCompileError):
            compile_kernel(text, "f", cache=cache)
    assert llvm_jit.stats().failed == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("own_session")
def test_dropped_functions_free_their_code(tmp_path: Path) -> None:
    cache = ObjectCache(CacheSettings(tmp_path))
    text = ADD.replace("CONSTANT", "5")
    functions: list[weakref.ref[llvm_jit.NativeFunction]] = []
    for n in range(300):
        function = compile_kernel(text if n % 10 else f"; {n}\n{text}", "add", speed=0, cache=cache)
        functions.append(weakref.ref(function))
        assert llvm_jit.stats().alive == 1
        del function
    assert [function for function in functions if function() is not None] == []
    assert llvm_jit.stats().alive == 0


@pytest.mark.usefixtures("own_session")
def test_functions_in_reference_cycles_are_freed_in_order() -> None:
    for n in range(20):
        function = compile_kernel(ADD.replace("CONSTANT", str(n)), "add", speed=0, cache=NO_CACHE)
        cycle: list[object] = [function]
        cycle.append(cycle)
        del function, cycle
    gc.collect()
    assert llvm_jit.stats().alive == 0


def test_host_target_is_coherent() -> None:
    host = llvm_jit.host_target()
    assert host is llvm_jit.host_target()
    assert host.vector_bytes in (16, 32, 64)
    assert (host.vector_bytes == 64) <= ("+avx512f" in host.features)


@pytest.mark.parametrize(
    ("triple", "cpu", "magic"),
    [
        ("x86_64-unknown-linux-gnu", "haswell", b"\x7fELF"),
        ("aarch64-unknown-linux-gnu", "neoverse-n1", b"\x7fELF"),
        ("arm64-apple-macosx14.0", "apple-m1", b"\xcf\xfa\xed\xfe"),
        ("x86_64-pc-windows-msvc", "haswell", b"\x64\x86"),
    ],
)
def test_other_targets_compile(triple: str, cpu: str, magic: bytes) -> None:
    text = "define <8 x float> @f(<8 x float> %x) {\n %y = fmul <8 x float> %x, %x\n ret <8 x float> %y\n}"
    assert cross_compile(text, triple, cpu).startswith(magic)
    assert "mul" in cross_assemble(text, triple, cpu)

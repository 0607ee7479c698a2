"""The built-ins pass integers exactly, reject other values, keep the GIL for one chunk only, and read arrays."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from livegrad.runtime.cpu.native.invoke import ArgumentBlock, array_address, invoker
from livegrad.runtime.cpu.native.llvm_jit import compile_kernel

RECORD = """
define void @record(i64 %begin, i64 %end, ptr %args, i64 %worker) {
  store i64 %begin, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  store i64 %end, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %calls = load i64, ptr %p2
  %calls1 = add i64 %calls, 1
  store i64 %calls1, ptr %p2
  ret void
}
"""

# Waits until another Python thread has written args[0], so it ends only if the GIL is free meanwhile.
WAITING = """
define void @wait(i64 %begin, i64 %end, ptr %args, i64 %worker) {
entry:
  br label %loop
loop:
  %value = load atomic i64, ptr %args monotonic, align 8
  %set = icmp ne i64 %value, 0
  br i1 %set, label %finish, label %loop
finish:
  ret void
}
"""


def test_one_chunk_is_one_call() -> None:
    record = compile_kernel(RECORD, "record")
    for call in (invoker().invoke, invoker().invoke_released, invoker().invoke_interruptible):
        block = ArgumentBlock(3)
        call(record.address, 17, 100, block.address)
        assert block.ints.tolist() == [0, 17, 1]
        call(record.address, 0, 100, block.address)
        call(record.address, -5, 100, block.address)
        assert block.ints[2] == 1


def test_a_sequence_runs_its_records_in_order() -> None:
    record = compile_kernel(RECORD, "record")
    blocks = [ArgumentBlock(3) for _ in range(4)]
    records = ArgumentBlock(16)
    for n, block in enumerate(blocks):
        invoker().store_words(records.address, 4 * n, record.address, 10 + n, (5 if n == 2 else 100), block.address)
    invoker().invoke_sequence(records.address, 4)
    assert [block.ints[2] for block in blocks[:2] + blocks[3:]] == [1, 1, 1]
    assert [block.ints[1] for block in blocks[:2] + blocks[3:]] == [10, 11, 13]
    assert blocks[2].ints[2] >= 1
    invoker().invoke_sequence(records.address, 0)


@pytest.mark.parametrize("name", ["invoke", "invoke_released", "invoke_interruptible", "invoke_sequence"])
def test_the_gil_is_free_during_long_work(name: str) -> None:
    wait = compile_kernel(WAITING, "wait")
    block = ArgumentBlock(1)
    thread = threading.Thread(target=lambda: block.set_int(0, 1))
    thread.start()
    total = 2 if name in ("invoke", "invoke_sequence") else 1
    if name == "invoke_sequence":
        records = ArgumentBlock(4)
        invoker().store_words(records.address, 0, wait.address, total, 1, block.address)
        invoker().invoke_sequence(records.address, 1)
    else:
        getattr(invoker(), name)(wait.address, total, 1, block.address)
    thread.join()


@pytest.mark.parametrize("name", ["invoke", "invoke_released", "invoke_interruptible"])
def test_wrong_arguments_raise_and_run_nothing(name: str) -> None:
    call = getattr(invoker(), name)
    for wrong in ((0, 1, 1, 1), ("x", 1, 1, 1), (1.5, 1, 1, 1), (1, None, 1, 1)):
        with pytest.raises(TypeError):
            call(*wrong)
    with pytest.raises(OverflowError):
        call(1 << 80, 1, 1, 1)
    with pytest.raises(TypeError):
        call(1, 2, 3)


def test_none_keeps_its_reference_count() -> None:
    record = compile_kernel(RECORD, "record")
    block = ArgumentBlock(3)
    before = sys.getrefcount(None)
    for _ in range(1000):
        invoker().invoke(record.address, 1, 1, block.address)
    assert abs(sys.getrefcount(None) - before) < 100


def test_array_address_equals_numpys() -> None:
    class Derived(np.ndarray):
        pass

    arrays = [
        np.zeros(4),
        np.zeros((5, 6), np.float32)[2:, ::-1],
        np.zeros(0),
        np.array(3),
        np.zeros(3).view(Derived),
    ]
    for sample in arrays:
        assert array_address(sample) == sample.ctypes.data
    for wrong in (5, None, [1.0], np.float32(1), np.ndarray):
        with pytest.raises(TypeError, match=r"expected a numpy\.ndarray"):
            invoker().array_address(wrong)  # pyright: ignore[reportArgumentType]


def test_blocks_hold_words_and_keep_them_when_they_grow() -> None:
    block = ArgumentBlock(3)
    block.set_int(0, -(2**63))
    block.set_f64(1, 0.1)
    block.set_f32(2, 0.5)
    block.grow(100)
    assert len(block) == 100
    assert (block.ints[0], block.doubles[1], block.floats[4], block.ints[99]) == (-(2**63), 0.1, 0.5, 0)
    words = np.frombuffer(block.ints, np.int64)
    assert array_address(words) == block.address


def test_store_words_takes_integers_and_arrays() -> None:
    block = ArgumentBlock(6)
    array = np.zeros(3)
    invoker().store_words(block.address, 1, -1, array, 2**62)
    assert block.ints.tolist() == [0, -1, array.ctypes.data, 2**62, 0, 0]
    for wrong in ("x", 1.5, None):
        with pytest.raises(TypeError):
            invoker().store_words(block.address, 0, wrong)
    with pytest.raises(TypeError):
        invoker().store_words(block.address)

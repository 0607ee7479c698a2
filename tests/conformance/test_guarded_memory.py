"""Guarded memory itself: it stores values, and an access beyond its end is a crash that names the test."""

import signal
from collections.abc import Callable

import numpy as np

import livegrad as lg
from livegrad.runtime.cpu import cpu_function
from tests.conformance.guarded_memory import guarded_array, guarded_copy, run_guarded
from tests.forked import run_in_fork


def signal_of(run: Callable[[], object]) -> int:
    """The signal that ends a process that runs this; 0 when it ends by itself."""
    status = run_in_fork(run, report_crash=False)
    assert status <= 0, "the child raised an exception; it is printed"
    return -status


def test_arrays_are_equal_and_end_at_a_guard() -> None:
    values = np.arange(12.0).reshape(3, 4)
    copy = guarded_copy(values)
    np.testing.assert_array_equal(copy, values)
    end = copy.ctypes.data + copy.nbytes
    beyond = np.lib.stride_tricks.as_strided(copy.reshape(-1), (13,), (8,))
    assert end % 4096 == 0
    assert signal_of(lambda: beyond.sum()) == signal.SIGSEGV
    assert signal_of(lambda: copy.sum()) == 0


def make_step() -> lg.ir.Function:
    """A program with a buffer of each kind."""
    return lg.ir.trace(lambda x: lg.ops.matmul(lg.ops.sin(x), x) * lg.ops.cos(x), lg.ir.types.Tensor(lg.f32, (64, 64)))


def cut_short() -> np.ndarray:
    """An array that claims one row more than it has memory for."""
    rows = guarded_array((63, 64), np.float32)
    rows[...] = 1
    return np.lib.stride_tricks.as_strided(rows, (64, 64), rows.strides)


def test_a_kernel_that_goes_beyond_an_argument_or_a_result_ends_the_process() -> None:
    step, values = make_step(), np.ones((64, 64), np.float32)
    assert signal_of(lambda: run_guarded(step, values)) == 0
    assert signal_of(lambda: cpu_function.run_function(step, cut_short())) == signal.SIGSEGV
    plan = cpu_function.compile_function(step).plan()
    assert signal_of(lambda: plan.run([values], [cut_short()])) == signal.SIGSEGV


def test_every_buffer_of_an_arena_is_followed_by_a_guard() -> None:
    compiled = cpu_function.compile_function(make_step()).plan()
    assert compiled.plan is not None
    assert compiled.plan.arena_offsets, "the program must have a buffer in its arena"
    for buffer, offset in compiled.plan.arena_offsets.items():
        end = offset + buffer.reserved_bytes
        assert signal_of(lambda offset=offset, end=end: compiled._memory._arena[offset:end].sum()) == 0
        assert signal_of(lambda end=end: compiled._memory._arena[end - 1 : end + 1].sum()) == signal.SIGSEGV

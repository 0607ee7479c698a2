"""The pool runs each chunk once, for all sizes and numbers of threads, concurrent callers, fork, spawn, and SIGINT."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from livegrad.runtime.cpu.native import llvm_jit, pool
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_kernel, cross_compile
from livegrad.runtime.cpu.native.pool_ir import pool_ir
from livegrad.runtime.cpu.native.pool_sharing_ir import BRIEF, LONG_RUN, PERIOD, RECORD_BITS, TRIAL
from tests.forked import run_in_fork

# counts[i] += 1 for i in the chunk; owners[begin] = worker; args: counts, owners.
COUNTING = """
define void @count(i64 %begin, i64 %end, ptr %args, i64 %worker) {
entry:
  %counts = load ptr, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  %owners = load ptr, ptr %second
  %owner = getelementptr i64, ptr %owners, i64 %begin
  store i64 %worker, ptr %owner
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %loop, label %finish
loop:
  %place = getelementptr i64, ptr %counts, i64 %i
  %value = load i64, ptr %place
  %value1 = add i64 %value, 1
  store i64 %value1, ptr %place
  %i1 = add i64 %i, 1
  br label %check
finish:
  ret void
}
"""

# Each chunk waits until `needed` chunks have started, so the run ends only if that many threads take part.
MEETING = """
define void @meet(i64 %begin, i64 %end, ptr %args, i64 %worker) {
entry:
  %needed_place = getelementptr i64, ptr %args, i64 1
  %needed = load i64, ptr %needed_place
  %before = atomicrmw add ptr %args, i64 1 seq_cst
  br label %wait
wait:
  %arrived = load atomic i64, ptr %args seq_cst, align 8
  %enough = icmp sge i64 %arrived, %needed
  br i1 %enough, label %finish, label %wait
finish:
  ret void
}
"""

# Records when a chunk starts; the first chunk continues when a second one has started.
ARRIVING = """
define void @arrive(i64 %begin, i64 %end, ptr %args, i64 %worker) {
entry:
  %before = atomicrmw add ptr %args, i64 1 seq_cst
  %index = add i64 %begin, 1
  %place = getelementptr i64, ptr %args, i64 %index
  store i64 %before, ptr %place
  br label %wait
wait:
  %arrived = load atomic i64, ptr %args seq_cst, align 8
  %enough = icmp sge i64 %arrived, 2
  br i1 %enough, label %finish, label %wait
finish:
  ret void
}
"""

START = {"spawn": multiprocessing.get_context("spawn")}
if sys.platform != "win32":
    START["fork"] = multiprocessing.get_context("fork")  # pyright: ignore[reportArgumentType]

SOURCE = str(Path(llvm_jit.__file__).parents[4])


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = pool.threads()
    yield
    pool.set_threads(before)


def counting() -> NativeFunction:
    return compile_kernel(COUNTING, "count")


def run_counting(function: NativeFunction, total: int, grain: int, times: int = 1) -> tuple[np.ndarray, np.ndarray]:
    counts, owners = np.zeros(max(total, 1), np.int64), np.full(max(total, 1), -1, np.int64)
    block = ArgumentBlock(2)
    invoker().store_words(block.address, 0, counts, owners)
    for _ in range(times):
        invoker().invoke(function.address, total, grain, block.address)
    return counts[: max(total, 0)], owners[: max(total, 0)]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_element_is_processed_once(threads: int) -> None:
    pool.set_threads(threads)
    function = counting()
    for total in (-3, 0, 1, 2, 7, 64, 1000, 4099):
        for grain in (0, 1, 3, 64, 1000, 5000):
            counts, owners = run_counting(function, total, grain, times=3)
            assert (counts == 3).all()
            begins = np.flatnonzero(owners >= 0)
            assert (begins == np.arange(0, max(total, 0), max(grain, 1))).all()  # equal for all thread counts
            assert owners.max(initial=0) < threads


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_all_threads_take_part_with_dense_worker_ids(threads: int) -> None:
    pool.set_threads(threads)
    meet = compile_kernel(MEETING, "meet")
    for _ in range(20):
        block = ArgumentBlock(2)
        block.ints[1] = threads
        invoker().invoke(meet.address, threads, 1, block.address)
        assert block.ints[0] == threads


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux wakes threads on their waker's processor")
@pytest.mark.skipif(pool.default_threads() < 2, reason="one processor: there is no other to wake on")
def test_workers_that_slept_stay_off_their_callers_processor() -> None:
    pool.set_threads(2)
    allowed = os.sched_getaffinity(0)
    threads_before = set(os.listdir("/proc/self/task"))
    meet = compile_kernel(MEETING, "meet")
    for _ in range(2):  # the first run starts the worker; the second finds it asleep
        block = ArgumentBlock(2)
        block.ints[1] = 2
        invoker().invoke(meet.address, 2, 1, block.address)
        threading.Event().wait(0.05)
    (worker,) = (int(name) for name in set(os.listdir("/proc/self/task")) - threads_before)
    places = os.sched_getaffinity(worker)
    assert places < allowed
    assert len(places) == len(allowed) - 1


def test_each_thread_starts_with_its_own_part() -> None:
    pool.set_threads(2)
    arrive = compile_kernel(ARRIVING, "arrive")
    for chunks in (2, 7, 8, 100):
        block = ArgumentBlock(1 + chunks)
        invoker().invoke(arrive.address, chunks, 1, block.address)
        order = list(block.ints[1 : 1 + chunks])
        assert sorted(order) == list(range(chunks))
        assert {order[0], order[chunks // 2]} == {0, 1}


def test_one_chunk_or_one_thread_wakes_no_thread() -> None:
    function = counting()
    pool.set_threads(4)
    before = pool.stats()
    run_counting(function, 100, 100)
    pool.set_threads(1)
    run_counting(function, 100, 1)
    assert pool.stats() == before


def test_workers_start_once_and_sleep_between_runs() -> None:
    function = counting()
    pool.set_threads(3)
    before = pool.stats()
    for pause in (0.0, 0.001, 0.01) * 10:
        counts, _ = run_counting(function, 64, 1)
        assert (counts == 1).all()
        threading.Event().wait(pause)
    after = pool.stats()
    assert after.threads_started - before.threads_started == 2
    assert after.parallel_runs - before.parallel_runs == 30


class Records:
    """Times that the pool keeps of the only kernel that runs in a test."""

    def __init__(self) -> None:
        size = 1 << RECORD_BITS
        address = pool.runtime().code.addresses["pool_records"]
        self.all = np.ctypeslib.as_array((ctypes.c_int64 * (4 * size)).from_address(address)).reshape(size, 4)
        self.all[:] = 0

    def set(self, runs: int, alone: int, shared: int) -> None:
        """Sets how often the kernel ran, and the nanoseconds of an item in both ways; 0: unknown."""
        (index,) = np.flatnonzero(self.all[:, 0])
        self.all[index, 1:] = runs, alone << 20, shared << 20


@pytest.fixture
def records() -> Iterator[Records]:
    pool.share_every_run(False)
    yield Records()
    pool.share_every_run(True)


def run_once(function: NativeFunction, total: int, grain: int) -> bool:
    """Runs a kernel, and tells whether threads shared it."""
    before = pool.stats().parallel_runs
    counts, owners = np.zeros(total, np.int64), np.zeros(total, np.int64)
    block = ArgumentBlock(2)
    invoker().store_words(block.address, 0, counts, owners)
    invoker().invoke_released(function.address, total, grain, block.address)
    assert (counts == 1).all()
    return pool.stats().parallel_runs > before


SETTLED, TRIED = 3 * TRIAL, TRIAL + 1  # numbers of runs: after the first trial, and in it


@pytest.mark.parametrize("flag", [0, BRIEF])
def test_runs_whose_times_are_unknown_are_shared_unless_they_are_brief(records: Records, flag: int) -> None:
    pool.set_threads(3)
    function = counting()
    for _ in range(5):
        assert run_once(function, 64, 8 | flag) == (not flag)
    records.set(TRIED, 0, 0)
    assert run_once(function, 64, 8 | flag) == bool(flag)


@pytest.mark.parametrize("flag", [0, BRIEF])
@pytest.mark.parametrize(("alone", "shared"), [(100, 50), (50, 100)])
def test_short_runs_take_the_faster_way_and_try_the_other_at_times(
    records: Records, flag: int, alone: int, shared: int
) -> None:
    pool.set_threads(3)
    function = counting()
    run_once(function, 64, 8 | flag)
    for runs in (0, SETTLED, PERIOD - 1, 5 * PERIOD):
        records.set(runs, alone, shared)
        assert run_once(function, 64, 8 | flag) == (shared < alone)
    for runs in (TRIAL, TRIED, 2 * TRIAL - 1, 3 * PERIOD + TRIAL):
        records.set(runs, alone, shared)
        assert run_once(function, 64, 8 | flag) == (shared > alone)


def test_a_way_that_is_far_slower_is_not_tried(records: Records) -> None:
    pool.set_threads(3)
    function = counting()
    run_once(function, 64, 8)
    records.set(TRIED, 1001, 250)
    assert run_once(function, 64, 8)


def test_long_runs_are_shared_even_if_one_thread_seemed_faster(records: Records) -> None:
    pool.set_threads(3)
    function = counting()
    run_once(function, 64, 8)
    for shared, expected in ((LONG_RUN // 64 - 10, False), (LONG_RUN // 64 + 10, True)):
        records.set(SETTLED, 1, shared)
        assert run_once(function, 64, 8) == expected


def test_times_are_kept_for_each_kernel_size_and_number_of_threads(records: Records) -> None:
    function, other = counting(), compile_kernel(COUNTING + "; another one\n", "count")
    for kernel, total, threads in ((function, 64, 2), (other, 64, 2), (function, 640, 2), (function, 64, 3)):
        pool.set_threads(threads)
        run_once(kernel, total, 8)
    assert np.count_nonzero(records.all[:, 0]) == 4
    pool.set_threads(2)
    run_once(function, 100, 8)  # at most twice 64
    assert np.count_nonzero(records.all[:, 0]) == 4


def test_many_python_threads_may_call_at_once() -> None:
    function = counting()
    pool.set_threads(3)
    wrong: list[int] = []

    def work() -> None:
        for n in range(150):
            counts, _ = run_counting(function, 100 + n, 1 + n % 7)
            if not (counts == 1).all():
                wrong.append(n)

    callers = [threading.Thread(target=work) for _ in range(8)]
    before = pool.stats()
    for caller in callers:
        caller.start()
    for n in (2, 5, 1, 3):
        pool.set_threads(n)
    for caller in callers:
        caller.join()
    after = pool.stats()
    assert wrong == []
    assert after.parallel_runs + after.contended_runs > before.parallel_runs + before.contended_runs


def test_threads_are_checked() -> None:
    for count in (0, -1, 100_000):
        with pytest.raises(ValueError, match="expected between 1 and 512 threads"):
            pool.set_threads(count)


def check_in_child(path: str) -> None:
    pool.set_threads(3)
    counts, _ = run_counting(counting(), 1000, 10)
    Path(path).write_text("right" if (counts == 1).all() and pool.stats().threads_started >= 2 else "wrong")


def counts_once(function: NativeFunction) -> bool:
    """Whether code from before the fork and code compiled after it run each item once."""
    counts, _ = run_counting(function, 1000, 10)
    fresh = compile_kernel(COUNTING + "; compiled in the child\n", "count", speed=0)
    counts_of_fresh, _ = run_counting(fresh, 1000, 10)
    return bool((counts == 1).all() and (counts_of_fresh == 1).all())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_starts_its_own_workers() -> None:
    function = counting()
    pool.set_threads(3)
    run_counting(function, 1000, 10)
    for _ in range(5):
        assert run_in_fork(lambda: counts_once(function)) == 0
        counts, _ = run_counting(function, 1000, 10)
        assert (counts == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_during_runs_and_compilations_of_other_threads_leaves_a_working_child() -> None:
    function = counting()
    pool.set_threads(3)
    stop = threading.Event()

    def keep_busy() -> None:
        n = 0
        while not stop.is_set():
            run_counting(function, 5000, 10)
            compile_kernel(COUNTING + f"; {os.getpid()} {n}\n", "count", speed=0)
            n += 1

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        for _ in range(10):
            assert run_in_fork(lambda: counts_once(function)) == 0
    finally:
        stop.set()
        busy.join()


@pytest.mark.parametrize("method", list(START))
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_multiprocessing_children_work_and_exit_cleanly(method: str, tmp_path: Path) -> None:
    run_counting(counting(), 1000, 10)
    path = tmp_path / "result"
    child = START[method].Process(target=check_in_child, args=(str(path),))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert path.read_text() == "right"


SPINNING = """
define void @spin(i64 %begin, i64 %end, ptr %args, i64 %worker) {
entry:
  %flag = load ptr, ptr %args
  %count_place = getelementptr i64, ptr %args, i64 1
  %before = atomicrmw add ptr %count_place, i64 1 seq_cst
  br label %loop
loop:
  %set = load atomic i32, ptr %flag monotonic, align 4
  %stop = icmp ne i32 %set, 0
  br i1 %stop, label %finish, label %loop
finish:
  ret void
}
"""

QUICK = """
define void @quick(i64 %begin, i64 %end, ptr %args, i64 %worker) {
  store i64 7, ptr %args
  ret void
}
"""

INTERRUPTED = f"""
import signal, sys, threading, time
from livegrad.runtime.cpu.native import pool
from livegrad.runtime.cpu.native.llvm_jit import compile_kernel
from livegrad.runtime.cpu.native.invoke import ArgumentBlock, invoker
pool.set_threads(int(sys.argv[1]))
spin = compile_kernel('''{SPINNING}''', "spin")
quick = compile_kernel('''{QUICK}''', "quick")
block = ArgumentBlock(2)
block.ints[0] = pool.interrupt_flag_address()
handler = signal.getsignal(signal.SIGINT)
def announce():  # the kernel runs once its counter moves: no sleeping and hoping
    while block.ints[1] == seen:
        time.sleep(0.001)
    print("running", flush=True)
for attempt in range(3):
    seen = block.ints[1]
    threading.Thread(target=announce).start()
    try:
        invoker().invoke_interruptible(spin.address, 4, 1, block.address)
        print("not interrupted", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    small = ArgumentBlock(1)
    assert invoker().invoke_interruptible(quick.address, 1, 1, small.address) is False
    invoker().invoke(quick.address, 8, 1, small.address)
    assert small.ints[0] == 7
assert signal.getsignal(signal.SIGINT) is handler
signal.signal(signal.SIGINT, lambda *_: print("own handler", flush=True))
seen = block.ints[1]
threading.Thread(target=announce).start()
print("partial", invoker().invoke_interruptible(spin.address, 4, 1, block.address), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no sigaction here")
@pytest.mark.parametrize("threads", [1, 3])
def test_sigint_ends_an_endless_kernel_through_keyboard_interrupt(threads: int) -> None:
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", INTERRUPTED, str(threads)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for expected in ("interrupted\n", "interrupted\n", "interrupted\n", "own handler\n"):
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == expected
        assert process.stdout.readline() == "partial True\n"
        assert process.wait(timeout=20) == 0


def test_off_the_main_thread_the_flag_is_only_reported() -> None:
    spin = compile_kernel(SPINNING, "spin")
    block = ArgumentBlock(2)
    block.ints[0] = pool.interrupt_flag_address()
    results: list[bool] = []
    thread = threading.Thread(
        target=lambda: results.append(invoker().invoke_interruptible(spin.address, 1, 1, block.address))
    )
    thread.start()
    while block.ints[1] == 0:
        threading.Event().wait(0.001)
    ctypes.c_int32.from_address(pool.interrupt_flag_address()).value = 1  # as SIGINT in a run on the main thread does
    thread.join()
    assert results == [True]


@pytest.mark.parametrize(
    ("architecture", "triple", "system"),
    [
        ("x86", "x86_64-unknown-linux-gnu", "linux"),
        ("arm", "aarch64-unknown-linux-gnu", "linux"),
        ("arm", "arm64-apple-macosx14.0", "darwin"),
        ("other", "riscv64-unknown-linux-gnu", "linux"),
        ("x86", "x86_64-pc-windows-msvc", "win32"),
    ],
)
def test_the_pool_compiles_for_other_machines(architecture: str, triple: str, system: str) -> None:
    features = "+m,+a,+d" if triple.startswith("riscv") else ""  # LLVM aborts the process, because atomics are missing
    assert cross_compile(pool_ir(architecture, system), triple, features=features)


def test_the_pool_without_threads_runs_the_same_chunks() -> None:
    single = compile_kernel(pool_ir("x86", "win32"), "pool_run")
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(single.address)
    counts, owners = np.zeros(50, np.int64), np.full(50, -1, np.int64)
    block = ArgumentBlock(2)
    invoker().store_words(block.address, 0, counts, owners)
    function = counting()
    run(function.address, 50, 7, block.address)
    assert (counts == 1).all()
    assert np.flatnonzero(owners == 0).tolist() == list(range(0, 50, 7))

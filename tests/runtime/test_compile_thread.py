"""The compile thread: its code equals LLVM's, rejected modules raise errors, and forks and exits work."""

import ctypes
import os
import sys
import threading
from pathlib import Path

import pytest

from livegrad.runtime.cpu.native import compile_thread
from livegrad.runtime.cpu.native.compile_thread import PendingModule
from livegrad.runtime.cpu.native.compile_thread_ir import MAX_WAITING
from livegrad.runtime.cpu.native.llvm_jit import NativeCompileError, NativeFunction, compile_image, stats
from tests.forked import run_in_fork
from tests.runtime.subprocesses import run_python

TEXT = "define i64 @f(i64 %x) {\n  %y = mul i64 %x, NUMBER\n  ret i64 %y\n}"
CONTRADICTION = "define i64 @f(i64 %x) {\n  %y = add i64 %z, 1\n  %z = add i64 %x, 1\n  ret i64 %y\n}"


def _text(number: int) -> str:
    return TEXT.replace("NUMBER", str(number))


def _begin(text: str, verified: bool = True) -> PendingModule:
    return PendingModule(text, ("f",), {}, verified)


def _value(function: NativeFunction, argument: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(function.addresses["f"])(argument)


@pytest.fixture(params=[1, 2], ids=["one processor", "two processors"])
def _processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_thread, "default_threads", lambda: request.param)


@pytest.mark.usefixtures("_processors")
def test_it_compiles_the_same_code_as_the_caller() -> None:
    texts = [_text(number) for number in range(5)]
    pending = [_begin(text) for text in texts]
    pending[-1].compile_here()
    actual = [one.finish() for one in pending]
    assert [image for image, _ in actual] == [compile_image(text, 0) for text in texts]
    assert [_value(function, 7) for _, function in actual] == [0, 7, 14, 21, 28]


@pytest.mark.usefixtures("_processors")
def test_it_links_imports_of_a_module() -> None:
    text = "declare i64 @g(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @g(i64 %x)\n  ret i64 %y\n}"
    _, imported = _begin(_text(6)).finish()
    _, function = PendingModule(text, ("f",), {"g": imported.address}).finish()
    assert _value(function, 7) == 42


@pytest.mark.usefixtures("_processors")
def test_errors_of_llvm_have_a_line() -> None:
    with pytest.raises(NativeCompileError, match="line 2"):
        _begin("define void @f() {\n  nonsense\n}").finish()
    with pytest.raises(NativeCompileError, match="nowhere"):
        _begin("declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}").finish()
    assert _value(_begin(_text(3)).finish()[1], 2) == 6


def test_a_contradiction_is_found_where_texts_are_verified() -> None:
    with pytest.raises(NativeCompileError):
        _begin(CONTRADICTION, verified=True).finish()


def test_more_jobs_than_the_queue_has_room_for_run() -> None:
    pending = [_begin(_text(number)) for number in range(2 * MAX_WAITING + 3)]
    assert [_value(one.finish()[1], 2) for one in pending] == [2 * number for number in range(len(pending))]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems place threads themselves")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="one processor only")
def test_the_thread_avoids_the_processor_of_the_caller() -> None:
    allowed = os.sched_getaffinity(0)
    for number in range(2):  # the first job starts the thread, if it is not running
        assert _value(_begin(_text(number)).finish()[1], 5) == 5 * number
    thread = next(thread for thread in threading.enumerate() if thread.name == "livegrad-compile")
    processors = os.sched_getaffinity(thread.native_id or 0)
    assert processors < allowed
    assert len(processors) == len(allowed) - 1


@pytest.mark.usefixtures("own_session")
def test_unreferenced_code_is_freed() -> None:
    alive = stats().alive
    functions = [_begin(_text(number)).finish()[1] for number in range(3)]
    assert stats().alive == alive + 3
    del functions
    assert stats().alive == alive


def test_a_pending_module_may_be_dropped() -> None:
    for number in range(40):
        _begin(_text(number))
        _begin("nonsense")
    assert _value(_begin(_text(9)).finish()[1], 2) == 18


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_has_its_own_thread() -> None:
    pending = [_begin(_text(number)) for number in range(20)]

    def computes_all() -> bool:
        return [_value(one.finish()[1], 2) for one in (*pending, _begin(_text(20)))] == [*range(0, 42, 2)]

    assert run_in_fork(computes_all) == 0
    assert computes_all()


ENDING = """
from livegrad.runtime.cpu.native.compile_thread import PendingModule
import atexit
begun = [PendingModule("define void @f() { ret void }", ("f",), {}) for _ in range(30)]
atexit.register(lambda: print(len(begun[0].finish()[0]) > 0))
"""


def test_a_process_may_exit_during_a_compilation(tmp_path: Path) -> None:
    assert run_python(ENDING, tmp_path).split() == ["True"]


def test_jobs_may_start_while_another_thread_queries_the_queue() -> None:
    side = compile_thread._CompileThread()

    class Job:
        @property
        def is_waiting(self) -> bool:
            side._jobs.append(Job())  # type: ignore[arg-type]
            return len(side._jobs) > 5

    side._jobs.append(Job())  # type: ignore[arg-type]
    assert [side.is_idle for _ in range(3)] == [True, True, False]

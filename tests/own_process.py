"""Tests that run in a process of their own, by marker.

`opencl`: in a forked child, because a driver that aborts takes its process with it. A test whose driver gave up in its
own compiler is skipped, with what the driver said; any other crash is a failure.
`own_process`: in a fresh interpreter, because the test counts what is alive in the whole process.
Called by `conftest.py`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NoReturn

import pytest

from livegrad.backends.opencl import reason_for_no_opencl

MARKERS = (
    "opencl: needs an OpenCL device; runs in a forked child, since drivers have been seen to abort",
    "own_process: counts what is alive in the process, so it runs in a fresh one",
)
_PASSED, _FAILED, _SKIPPED = 0, 1, 77
_INSIDE = "LIVEGRAD_TEST_IN_OWN_PROCESS"


def run_apart(item: pytest.Function) -> bool:
    """Runs the test elsewhere if its markers ask for that; False where it should run here."""
    if item.get_closest_marker("opencl"):
        _run_in_fork(item)
        return True
    if item.get_closest_marker("own_process") and _INSIDE not in os.environ:
        _run_in_fresh_interpreter(item)
        return True
    return False


def _run_in_fresh_interpreter(item: pytest.Function) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", item.nodeid]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=item.config.rootpath, env=environment | {_INSIDE: "1"}, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.fail(f"in a process of its own:\n{done.stdout[-6000:]}{done.stderr[-2000:]}", pytrace=False)


def _run_in_fork(item: pytest.Function) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told, errors = Path(folder, "told"), Path(folder, "errors")
        child = os.fork()
        if child == 0:
            _run_in_child(item, told, errors)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        text = told.read_text("utf-8") if told.exists() else ""
        said = errors.read_text("utf-8", errors="replace")
    if status == _SKIPPED:
        pytest.skip(text)
    if status == _FAILED:
        pytest.fail(text, pytrace=False)
    if status < 0 and "LLVM ERROR: Cannot select" in said:
        pytest.skip(f"the OpenCL driver aborts in its own compiler: {said.strip().splitlines()[-1]}")
    if status != _PASSED:
        ended = signal.Signals(-status).name if status < 0 else status
        pytest.fail(f"the process of the test ended with {ended}:\n{said[-4000:]}", pytrace=False)


def _run_in_child(item: pytest.Function, told: Path, errors: Path) -> NoReturn:
    """The driver starts here and never in the parent, whose threads a fork would not have."""
    status = _FAILED
    try:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
        if (reason := reason_for_no_opencl()) is not None:
            told.write_text(reason, "utf-8")
            status = _SKIPPED
        else:
            names = item._fixtureinfo.argnames
            item.obj(**{name: item.funcargs[name] for name in names})
            status = _PASSED
    except BaseException:
        told.write_text(traceback.format_exc(), "utf-8")
    finally:
        os._exit(status)

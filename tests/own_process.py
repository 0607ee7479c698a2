"""Tests that run in a process of their own, by marker.

`opencl`: because a driver that aborts takes its process with it. A test whose driver gave up in its own compiler is
skipped, with what the driver said; any other crash is a failure.
`own_process`: because the test counts what is alive in the whole process.

The process is forked from a server that has imported the library and nothing else. It is never forked from the process
that runs tests: that has threads, whose locks the child would find taken for ever.
Called by `conftest.py`.
"""

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.config import default_plugins

from livegrad.runtime.opencl import reason_for_no_opencl

MARKERS = (
    "opencl: needs an OpenCL device; runs in a process of its own, since drivers have been seen to abort",
    "own_process: counts what is alive in the process, so it runs in a fresh one",
)
_INSIDE = "LIVEGRAD_TEST_IN_OWN_PROCESS"
_forks = multiprocessing.get_context("forkserver")
# Imported once: the library, and what every run of pytest imports.
_forks.set_forkserver_preload(
    [
        "pytest", "hypothesis", "hypothesis.extra.numpy", "livegrad.implicit", "livegrad.runtime.opencl",
        *(f"_pytest.{plugin}" for plugin in default_plugins),
    ]
)  # fmt: skip


def longest_test() -> float:
    """Seconds until a test counts as hanging, on a busy machine too.

    In a process of its own it is less, so that the stacks that are shown are those of the test and not of who waits.
    """
    return 540.0 if _INSIDE in os.environ else 600.0


def run_apart(item: pytest.Function) -> bool:
    """Runs the test elsewhere if its markers ask for that; False where it should run here."""
    if _INSIDE in os.environ:
        return False
    opencl = item.get_closest_marker("opencl") is not None
    if not opencl and item.get_closest_marker("own_process") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        output, skipped = Path(folder, "output"), Path(folder, "skipped")
        status = _run(item, output, skipped)
        text = output.read_text("utf-8", errors="replace") if output.exists() else ""
        reason = skipped.read_text("utf-8") if skipped.exists() else None
    if opencl and status < 0 and "LLVM ERROR: Cannot select" in text:
        pytest.skip(f"the OpenCL driver aborts in its own compiler: {text.strip().splitlines()[-1]}")
    if status != 0:
        ended = signal.Signals(-status).name if status < 0 else status
        pytest.fail(f"its own process ended with {ended}:\n{text[-8000:]}", pytrace=False)
    if reason is not None:
        pytest.skip(reason)
    return True


def _run(item: pytest.Function, output: Path, skipped: Path) -> int:
    """The exit status of the test's process."""
    settings = {name: os.environ[name] for name in os.environ if name.startswith(("LIVEGRAD_", "POCL_", "PYOPENCL_"))}
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", item.nodeid]
    process = _forks.Process(
        target=_run_in_child, args=(arguments, str(item.config.rootpath), settings, output, skipped), daemon=True
    )
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


class _Skips:
    """A plugin that notes why the one test was skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._path.write_text(report.longrepr[2].removeprefix("Skipped: "), "utf-8")

    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> None:
        """The driver is looked for here: in the process that runs all tests it is never started."""
        if pyfuncitem.get_closest_marker("opencl") and (reason := reason_for_no_opencl()) is not None:
            pytest.skip(reason)


def _run_in_child(arguments: Sequence[str], folder: str, settings: dict[str, str], output: Path, skipped: Path) -> None:
    os.chdir(folder)
    os.environ.update(settings | {_INSIDE: "1"})
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # to look for them takes as long as a small test
    written = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os._exit(pytest.main([*arguments], plugins=[_Skips(skipped)]))

"""Options, markers and fixtures for every test.

`--update-ir` rewrites golden files, `--no-skips` makes a skipped test a failure, and tests marked `gpu` are
skipped, with the reason, on a machine without a CUDA device.

Compiled code is cached in a directory of the session, which the workers of pytest-xdist share: tests never touch the
user's own cache. What collecting the tests, and then the tests themselves, leave in memory is kept out of the garbage
collector's sight."""

import atexit
import ctypes
import faulthandler
import functools
import gc
import itertools
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import own_process

if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker inherits the directory
    os.environ["LIVEGRAD_CACHE_DIR"] = tempfile.mkdtemp(prefix="livegrad-tests-")
    os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="pocl-tests-")
    os.environ["PYOPENCL_NO_CACHE"] = "true"
    for directory in ("LIVEGRAD_CACHE_DIR", "POCL_CACHE_DIR"):
        atexit.register(shutil.rmtree, os.environ[directory], ignore_errors=True)

# A shell without job control starts background commands with SIGINT ignored, as ./test does with pytest, and processes
# that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("local", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("livegrad")
    group.addoption("--update-ir", action="store_true", help="rewrite the golden files instead of comparing with them")
    group.addoption("--no-skips", action="store_true", help="fail when any test was skipped")


_errors = pytest.StashKey[int]()
_TESTS_BETWEEN_FREEZES, _TESTS_BETWEEN_LOOKS = 100, 1000
_tests_run = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_errors] = os.dup(2)  # before output is captured: what a process says last must be seen
    for marker in (
        *own_process.MARKERS,
        "code(tier): the code that kernels run in this test: optimised, baseline or tiered",
    ):
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that hangs, in native code too, ends its process with the stacks of all threads.

    pytest-xdist then names the test, and goes on with the others.
    """
    faulthandler.dump_traceback_later(own_process.longest_test(), exit=True, file=item.config.stash[_errors])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        count = next(_tests_run)
        if count % _TESTS_BETWEEN_FREEZES == 0:
            if count % _TESTS_BETWEEN_LOOKS == 0:
                gc.unfreeze()  # caches have let go of some of it since
            freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return own_process.run_apart(pyfuncitem) or None


# The tier of kernels: optimised where arithmetic is tested, baseline where little is computed, elsewhere tiered, as for
# users.
_LITTLE = (
    "contexts", "cuda", "differentiable", "differentiate", "diagnostics", "formats", "function", "fuzz", "implicit",
    "ir", "ops", "passes", "schedule", "tensors",
)  # fmt: skip
_CODE = {"conformance": "optimised"} | dict.fromkeys(_LITTLE, "baseline")


def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("code")
    os.environ["LIVEGRAD_CODE"] = marker.args[0] if marker else _CODE.get(item.path.parent.name, "tiered")


@functools.cache
def reason_for_no_gpu() -> str | None:
    """Why CUDA cannot be used here, or None when it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1) on this machine"
    status = driver.cuInit(0)
    if status != 0:
        return f"the CUDA driver does not start (cuInit returned {status})"
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    return None if count.value else "the CUDA driver finds no device"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Half a million objects belong to the collected tests and live as long as the session.

    They are frozen, so that collecting garbage costs what tests made since, and not 0.3 s each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        freeze()


def freeze() -> None:
    """Keeps what is alive now out of the garbage collector's sight: what caches hold is looked at once, and not always.

    What died in cycles until now must not be frozen: dead nodes would stay in the interning table.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (reason := reason_for_no_gpu()):
            item.add_marker(pytest.mark.skip(reason=reason))


def skipped_count(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", ())) if reporter else 0


def pytest_terminal_summary(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and config.getoption("--no-skips") and (count := skipped_count(config)):
        reporter.write_line(f"FAILED: {count} skipped where no skip is allowed", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--no-skips") and exitstatus == 0 and skipped_count(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def executor_name(request: pytest.FixtureRequest) -> str:
    """What runs a live engine: tests of its semantics take this, and hold every executor to the same."""
    return request.param


@pytest.fixture(autouse=True, scope="session")
def share_every_run() -> None:
    """Whether threads share a short run depends on its measured time; in tests they always do."""
    from livegrad.runtime.cpu.native import pool

    pool.share_every_run(True)


@pytest.fixture
def own_session() -> Iterator[None]:
    """Caches, counts and background threads that only this test uses."""
    from livegrad.state import fresh_session

    with fresh_session():
        yield


@pytest.fixture
def update_ir(request: pytest.FixtureRequest) -> bool:
    """True when golden files are to be rewritten."""
    return bool(request.config.getoption("--update-ir"))


@pytest.fixture
def check_golden(update_ir: bool) -> Callable[[Path, str], None]:
    """Compares text with a golden file, or rewrites the file under `--update-ir`."""

    def check(path: Path, actual: str) -> None:
        if update_ir:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        assert path.exists(), f"{path.name} is missing; write it with ./test --update-ir"
        assert actual == path.read_text(encoding="utf-8"), f"{path.name} differs; rewrite it with ./test --update-ir"

    return check

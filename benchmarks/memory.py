"""The memory that one call writes: what it allocates and what it reuses, such as the arena of a plan.

A child process shares all pages with its parent until it writes to them, so its own pages are those of the call."""

import os
import sys
from pathlib import Path

from benchmarks.problems import Run

_KILOBYTE = 1024


def _kilobytes(file: str, name: str) -> int:
    lines = Path(f"/proc/self/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _measure(run: Run) -> int:
    """Bytes of the pages that a call writes and of those that it gave back before it ended."""
    own, resident = _kilobytes("smaps_rollup", "Private_Dirty"), _kilobytes("status", "VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
    result = run()
    kept = _kilobytes("smaps_rollup", "Private_Dirty") - own
    transient = _kilobytes("status", "VmHWM") - max(resident, _kilobytes("status", "VmRSS"))
    del result
    return (kept + max(0, transient)) * _KILOBYTE


def bytes_of_call(run: Run) -> int | None:
    """None where the system does not count pages, or the child fails."""
    if sys.platform != "linux":
        return None
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            os.write(writing, str(_measure(run)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    return int(written) if written else None

"""The tests marked `gpu`, run on the machine that has one and kept for the record.

    python -m benchmarks.gpu_tests [PATHS] [-n8]

Writes `results/<date>T<time>-gpu-tests.json`: how many tests of each file passed, failed or were skipped, with the
names of those that failed, the machine and the version of its driver.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import machine
from benchmarks.record import write_record


class Tally:
    """Counts outcomes by file, as pytest reports them."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts.setdefault(report.nodeid.split("::")[0], Counter())[report.outcome] += 1
            if report.outcome == "failed":
                self.failed.append(report.nodeid)


def files_with_gpu_tests() -> list[str]:
    """The files with marked tests or with the engine's backend fixture; other files may need missing packages."""
    names = ("mark.gpu", "executor_name")
    files = [path for path in Path("tests").rglob("test_*.py") if any(n in path.read_text("utf-8") for n in names)]
    return sorted(map(str, files))


def main(arguments: Sequence[str]) -> int:
    tally = Tally()
    options = ["-m", "gpu", "-q", "-p", "no:cacheprovider", *(item for item in arguments if item.startswith("-"))]
    paths = [item for item in arguments if not item.startswith("-")] or files_with_gpu_tests()
    status = pytest.main([*options, *paths], plugins=[tally])
    names = ("passed", "failed", "skipped")
    tests = {file: {name: item[name] for name in names} for file, item in sorted(tally.counts.items())}
    more = {"command": "python -m benchmarks.gpu_tests", "tests": tests, "failed": tally.failed}
    path = write_record("gpu-tests", machine.describe({}), {}, **more)
    print(f"wrote benchmarks/results/{path.name}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

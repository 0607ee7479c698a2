"""Records results as JSON: `results/<date>T<time>-<suite>.json`. The page is generated from these files alone."""

import datetime
import json
import os
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


class RecordFile:
    """The file of one run, which no other run replaces. A long run writes it again with each row that it has measured,
    so that a run that is stopped keeps its rows."""

    def __init__(self, suite: str, folder: Path = RESULTS) -> None:
        self.suite, self.started = suite, datetime.datetime.now(datetime.UTC)
        folder.mkdir(exist_ok=True)
        self.path = folder / f"{self.started:%Y-%m-%dT%H%M%S}-{suite}.json"
        self.path.touch(exist_ok=False)

    def write(self, machine: dict[str, Any], rows: dict[str, Any], **more: Any) -> None:
        """Replaces the file in one step; `more` has additional data besides rows."""
        date, time = self.started.date().isoformat(), self.started.time().isoformat("seconds")
        record = {"date": date, "time": time, "suite": self.suite, "machine": machine, "benchmarks": rows} | more
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(partial, self.path)


def write_record(
    suite: str, machine: dict[str, Any], rows: dict[str, Any], folder: Path = RESULTS, **more: Any
) -> Path:
    """Writes a file with all results of a run."""
    file = RecordFile(suite, folder)
    file.write(machine, rows, **more)
    return file.path


def suite_of(path: Path, record: dict[str, Any]) -> str:
    """The suite of a record; older records have it only in the file name."""
    return record.get("suite") or path.stem.removeprefix(record["date"] + "-")

"""Records results as JSON: `results/<date>T<time>-<suite>.json`. The page is generated from these files alone."""

import datetime
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def write_record(
    suite: str, machine: dict[str, Any], rows: dict[str, Any], folder: Path = RESULTS, **more: Any
) -> Path:
    """Writes one file, which no other run replaces; `more` has additional data besides rows."""
    now = datetime.datetime.now(datetime.UTC)
    record = {"date": now.date().isoformat(), "time": now.time().isoformat("seconds"), "suite": suite}
    record |= {"machine": machine, "benchmarks": rows} | more
    folder.mkdir(exist_ok=True)
    path = folder / f"{now:%Y-%m-%dT%H%M%S}-{suite}.json"
    with open(path, "x", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return path


def suite_of(path: Path, record: dict[str, Any]) -> str:
    """The suite of a record; older records have it only in the file name."""
    return record.get("suite") or path.stem.removeprefix(record["date"] + "-")

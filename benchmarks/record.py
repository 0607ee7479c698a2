"""What was measured, kept as JSON: `results/<date>-<suite>.json`. The page is made from these files alone."""

import datetime
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def write_record(
    suite: str, machine: dict[str, Any], rows: dict[str, Any], folder: Path = RESULTS, **more: Any
) -> Path:
    """Writes one file, replacing what the same day gave before; `more` is what there is to keep beside rows."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    path = folder / f"{date}-{suite}.json"
    path.parent.mkdir(exist_ok=True)
    record = {"date": date, "machine": machine, "benchmarks": rows} | more
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path

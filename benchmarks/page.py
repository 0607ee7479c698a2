"""The page of benchmark results, made from the recorded JSON files alone: `./bench --page`.

In: `results/*.json`, as `report.write_json` leaves them. Out: the text of `docs/benchmarks.md`; a test compares them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.problems import PRIMAL
from benchmarks.record import suite_of
from benchmarks.report import OURS, RESULTS, format_seconds

PAGE = RESULTS.parents[1] / "docs" / "benchmarks.md"
Record = dict[str, Any]

OPENING = """\
# Benchmarks

This page is made from the files in `benchmarks/results/`, which hold every raw sample, by `./bench --page`; a test
fails when it is out of date. To measure on your machine:

```text
./bench --peers            install JAX, PyTorch and Numba into an environment of their own, once
./bench                    measure livegrad and them in one run, print the ratios
./bench NAME --json        one suite or row; keep the samples in benchmarks/results/
./bench --page             write this page anew
./bench --check            fail where a figure misses what is required
```

Contenders take turns, sample by sample, so that a noisy moment falls on all of them alike; all are pinned to the same
two processors and agree on the result before they are timed. A time is the median of all samples. The ratio is the
speed of livegrad over that of the fastest of the others in the same run: above 1, livegrad is faster. `handwritten`,
`memcpy` and `adjoint` are baselines of ours, written for one benchmark, and take no part in it. A figure that misses
its requirement says so.
"""


QUEUED = """\
Each contender runs in its own process, with inputs and results on the device, in full float32. Figures are: a call
until the device has done the work / one of up to 20 calls back to back, with one wait at the end / the first result,
with tracing and compiling but without the start of the device / the most memory in use. Each ratio is that to the peer
that is best in this figure; a contender whose result differs from the others' has no time.
"""


def latest_rows(folder: Path = RESULTS) -> dict[Path, dict[str, Record]]:
    """The rows of each file that no newer file has measured again."""
    newest: dict[str, Path] = {}
    # A run that was stopped before its first row leaves an empty file.
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))}
    records = {path: json.loads(text) for path, text in texts.items() if text}
    for path, record in records.items():
        measured = [name for name, row in record["benchmarks"].items() if _is_measured(row) or name not in newest]
        newest |= dict.fromkeys(measured, path)
    return {
        path: {name: row for name, row in record["benchmarks"].items() if newest[name] == path}
        for path, record in records.items()
    }


def _is_measured(row: Record) -> bool:
    """Whether the row has times. A skipped row (without a GPU, for example) does not replace a measured one."""
    return any("median" in timing for timing in row["seconds"].values())


def page(folder: Path = RESULTS) -> str:
    """The whole page."""
    parts = [OPENING]
    latest = latest_rows(folder)
    records = {path: json.loads(path.read_text(encoding="utf-8")) for path in latest}
    newest = {suite_of(path, record): path for path, record in records.items()}
    for path, rows in latest.items():
        record = records[path]
        if rows:
            parts.append(_suite(path, record, rows))
        if newest[suite_of(path, record)] == path:
            parts += [section(record) for name, section in SECTIONS.items() if name in record]
    return "\n".join(parts)


def _suite(path: Path, record: Record, rows: dict[str, Record]) -> str:
    suite = suite_of(path, record)
    command = record.get("command") or "./bench " + suite.replace("+", " ") + " --json"
    lines = [
        f"## {record.get('title') or suite.replace('+', ', ').capitalize()}\n",
        f"`{command}` on {record['date']}: {_machine(record['machine'])}\n",
    ]
    is_queued = any("queued" in timing for row in rows.values() for timing in row["seconds"].values())
    lines += [QUEUED] if is_queued else []
    lines += ["| | livegrad | others | ratio | required |", "|---|---|---|---|---|"]
    lines += [(_queued_row if is_queued else _row)(name, row) for name, row in rows.items()]
    lines += ["", *record["notes"]] if "notes" in record else []
    return "\n".join(lines) + "\n"


def _machine(machine: Record) -> str:
    packages = machine["packages"] | machine["peers"]
    versions = [f"{name} {version}" for name, version in packages.items() if version]
    told = f"{machine['processor']} ({machine['architecture']}), {machine['threads']} threads"
    if (gpu := machine.get("gpu")) is not None:
        told = f"{gpu['name']} ({gpu['architecture']}), driver {gpu['driver']}, CUDA {gpu['cuda_of_driver']}; {told}"
        versions += [f"{name} {version}" for name, version in gpu["packages"].items() if version]
    return f"{told}, {machine['system']}, Python {machine['python']}, {', '.join(versions)}."


def _row(name: str, row: Record) -> str:
    seconds = {contender: timing["median"] for contender, timing in row["seconds"].items() if "median" in timing}
    others = [
        f"{contender} {format_seconds(median)}" for contender, median in seconds.items() if contender != "livegrad"
    ]
    missing = [f"{contender}: {timing['reason']}" for contender, timing in row["seconds"].items() if "reason" in timing]
    peers = {n: median for n, median in seconds.items() if n not in OURS and not n.endswith(PRIMAL)}
    livegrad_seconds = seconds.get("livegrad")
    ratio = f"{min(peers.values()) / livegrad_seconds:.2f}" if peers and livegrad_seconds else ""
    shown = format_seconds(livegrad_seconds) if livegrad_seconds else ""
    if livegrad_seconds and row.get("unit"):
        shown += f" ({row['work'] / livegrad_seconds:.3g} {row['unit']})"
    required = "; ".join(_verdict(line) for line in row["required"])
    return f"| `{name}`: {row['title']} | {shown} | {', '.join(others + missing)} | {ratio} | {required} |"


def _queued_row(name: str, row: Record) -> str:
    """A row of a program on a GPU."""
    timings = row["seconds"]
    figures = {contender: _figures(timing) for contender, timing in timings.items() if "median" in timing}
    others = [f"{contender} {_slashed(numbers)}" for contender, numbers in figures.items() if contender != "livegrad"]
    missing = [f"{contender}: {timing['reason']}" for contender, timing in timings.items() if "reason" in timing]
    ours = figures.get("livegrad", [])
    peers = [numbers for contender, numbers in figures.items() if contender != "livegrad"]
    ratios = [_ratio(ours[place], [numbers[place] for numbers in peers]) for place in range(3)] if ours else []
    required = "; ".join(_verdict(line) for line in row["required"])
    shown = _slashed(ours) if ours else ""
    return f"| `{name}`: {row['title']} | {shown} | {', '.join(others + missing)} | {' / '.join(ratios)} | {required} |"


def _figures(timing: Record) -> list[float | None]:
    return [timing["median"], timing.get("queued", {}).get("median"), timing.get("first"), timing.get("peak_bytes")]


def _slashed(numbers: list[float | None]) -> str:
    *seconds, peak = numbers
    shown = ["–" if number is None else format_seconds(number) for number in seconds]
    return " / ".join([*shown, "–" if peak is None else f"{peak / 1e6:,.0f} MB"])


def _ratio(ours: float | None, peers: list[float | None]) -> str:
    there = [seconds for seconds in peers if seconds is not None]
    return f"{min(there) / ours:.2f}" if ours and there else "–"


def _tests(record: Record) -> str:
    """Tests that ran on a machine that CI does not have."""
    lines = [
        "## Tests on a GPU\n",
        f"`{record['command']}` on {record['date']}: {_machine(record['machine'])}\n",
        "| | passed | failed | skipped |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{file}` | {counts['passed']} | {counts['failed']} | {counts['skipped']} |"
        for file, counts in record["tests"].items()
    ]
    return "\n".join(lines) + "\n"


def _soak(record: Record) -> str:
    """Random edits of engines, compared with fresh ones."""
    runs = record["soak"]
    frames, compared = (sum(run[name] for run in runs) for name in ("frames", "compared"))
    edits = sum(sum(run["edits"].values()) for run in runs)
    lines = [
        f"## Soak on {'a GPU' if runs[0]['device_mib'] else 'the CPU'}\n",
        f"`{record['command']}` on {record['date']}: {_machine(record['machine'])}\n",
        f"{frames:,} frames of {len(runs)} engine(s) with {edits:,} random edits of every kind; {compared:,} buffers"
        " were equal, bit by bit, to those of fresh engines.\n",
        "| engine | frames | memory of the device after the first fifth, by the driver's counters | resident memory |",
        "|---|---|---|---|",
    ]
    for run in runs:
        device, host = (_span(run[name]) for name in ("device_mib", "resident_mib"))
        lines.append(f"| seed {run['seed']} | {run['frames']:,} | {device} | {host} |")
    return "\n".join(lines) + "\n"


def _span(samples: list[float]) -> str:
    later = samples[len(samples) // 5 :]
    return f"{min(later):.2f} to {max(later):.2f} MiB" if later else ""


SECTIONS = {"tests": _tests, "soak": _soak}


def _verdict(line: str) -> str:
    told = line.removeprefix("required: ")
    return told.replace("MISSED", "**missed**")


def write() -> Path:
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE

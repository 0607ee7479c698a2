"""The page of benchmark results is what the recorded files say."""

from __future__ import annotations

import json

from benchmarks import page

MACHINE = {
    "processor": "P", "architecture": "a", "threads": 2, "system": "S", "python": "3", "packages": {"livegrad": "1"},
    "peers": {"jax": "2"},
}  # fmt: skip


def write(folder, date, suite, rows):
    benchmarks = {
        name: {"title": name.upper(), "required": required, "seconds": {n: {"median": t} for n, t in seconds.items()}}
        for name, (seconds, required) in rows.items()
    }
    text = json.dumps({"date": date, "machine": MACHINE, "benchmarks": benchmarks})
    (folder / f"{date}-{suite}.json").write_text(text, encoding="utf-8")


def test_the_page_is_up_to_date():
    """After measuring: `./bench --page`."""
    assert page.PAGE.read_text(encoding="utf-8") == page.page()


def test_a_row_has_the_ratio_to_the_fastest_peer_and_says_what_was_missed(tmp_path):
    required = ["required: at least 3 × the speed of jax: MISSED (2.00 ×)"]
    times = {"livegrad": 0.5, "jax": 1.0, "torch": 4.0, "handwritten": 0.1, "livegrad:primal": 0.01}
    write(tmp_path, "2026-01-02", "sums", {"total": (times, required)})
    text = page.page(tmp_path)
    row = next(line for line in text.splitlines() if line.startswith("| `total`"))
    assert row.split(" | ")[1:] == [
        "500 ms", "jax 1 s, torch 4 s, handwritten 100 ms, livegrad:primal 10 ms", "2.00",
        "at least 3 × the speed of jax: **missed** (2.00 ×) |",
    ]  # fmt: skip
    assert "`./bench sums --json` on 2026-01-02: P (a), 2 threads, S, Python 3, livegrad 1, jax 2." in text


def test_only_the_newest_measurement_of_a_row_is_shown(tmp_path):
    write(tmp_path, "2026-01-02", "sums", {"total": ({"livegrad": 0.5}, []), "other": ({"livegrad": 0.7}, [])})
    write(tmp_path, "2026-01-03", "total", {"total": ({"livegrad": 0.25}, [])})
    text = page.page(tmp_path)
    assert "500 ms" not in text
    assert "250 ms" in text
    assert "700 ms" in text


def test_a_contender_that_could_not_run_is_named_with_the_reason(tmp_path):
    write(tmp_path, "2026-01-02", "sums", {"total": ({"livegrad": 0.5}, [])})
    path = tmp_path / "2026-01-02-sums.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["benchmarks"]["total"]["seconds"]["jax"] = {"reason": "not installed"}
    path.write_text(json.dumps(record), encoding="utf-8")
    assert "jax: not installed" in page.page(tmp_path)


def test_a_row_that_was_skipped_does_not_hide_one_that_was_measured(tmp_path):
    write(tmp_path, "2026-01-02", "gpu", {"total": ({"livegrad": 0.5}, [])})
    write(tmp_path, "2026-01-03", "sums", {"total": ({}, []), "other": ({"livegrad": 0.7}, [])})
    path = tmp_path / "2026-01-03-sums.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["benchmarks"]["total"]["seconds"]["livegrad"] = {"reason": "skipped: no GPU"}
    path.write_text(json.dumps(record), encoding="utf-8")
    text = page.page(tmp_path)
    assert "500 ms" in text
    assert "no GPU" not in text


def test_what_ran_on_a_gpu_is_told_with_the_version_of_its_driver(tmp_path):
    gpu = {
        "name": "G",
        "architecture": "sm_90",
        "driver": "580.1",
        "cuda_of_driver": "13.0",
        "packages": {"cupy": None},
    }
    record = {"date": "2026-01-02", "machine": MACHINE | {"gpu": gpu}, "benchmarks": {}, "command": "the command"}
    tests = {"tests/a.py": {"passed": 3, "failed": 1, "skipped": 0}}
    run = {
        "seed": 0,
        "frames": 4000,
        "compared": 70,
        "edits": {"add": 9},
        "resident_mib": [9.0],
        "device_mib": [1, 2, 3, 2, 2],
    }
    (tmp_path / "2026-01-02-gpu-tests.json").write_text(json.dumps(record | {"tests": tests}), encoding="utf-8")
    (tmp_path / "2026-01-02-soak.json").write_text(json.dumps(record | {"soak": [run, run]}), encoding="utf-8")
    text = page.page(tmp_path)
    assert "`the command` on 2026-01-02: G (sm_90), driver 580.1, CUDA 13.0; P (a), 2 threads" in text
    assert "| `tests/a.py` | 3 | 1 | 0 |" in text
    assert "8,000 frames of 2 engine(s) with 18 random edits of every kind; 140 buffers were equal" in text
    assert "| seed 0 | 4,000 | 2.00 to 3.00 MiB | 9.00 to 9.00 MiB |" in text


def test_a_run_that_was_stopped_before_its_first_row_is_left_out(tmp_path):
    (tmp_path / "2026-01-01T000000-loops.json").touch()
    assert page.latest_rows(tmp_path) == {}

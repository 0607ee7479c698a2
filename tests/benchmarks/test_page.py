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
        name: {"title": name.upper(), "required": required, "seconds": {n: {"best": t} for n, t in seconds.items()}}
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

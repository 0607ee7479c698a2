"""Requirements are judged by medians, and what was not measured is never counted as met."""

import dataclasses
import json
import time
from math import inf

from benchmarks.harness import (
    Benchmark,
    Effort,
    LocalSampler,
    Outcome,
    Result,
    calls_a_sample,
    interleave,
    join_outcomes,
)
from benchmarks.problems import Problem, time_calls
from benchmarks.record import RecordFile
from benchmarks.report import (
    missed,
    rows_record,
    suite_lines,
    table,
    worst_derivatives,
    worst_ratios,
    write_json,
)
from benchmarks.requirements import AtLeast, AtMost, DerivativesWithin, MeanAtLeast, ShareAtLeast

PEERS = ("jax", "torch", "numba", "numpy")


def softmax_outcome(livegrad: Result) -> Outcome:
    benchmark = Benchmark("softmax", "softmax", Problem("softmax", 4), ("livegrad", *PEERS), work=1.0, unit="GB/s")
    return Outcome(benchmark, {"livegrad": livegrad} | {name: Result([0.5, 0.4]) for name in PEERS})


def test_ratio_is_taken_against_the_fastest_rival():
    requirement = AtLeast("softmax", 2.0, ("jax", "torch"))
    assert requirement.judge({"livegrad": 0.1, "jax": 0.4, "torch": 0.25}) == (2.5, True)
    assert requirement.judge({"livegrad": 0.2, "jax": 0.3, "torch": 0.4}) == (0.3 / 0.2, False)


def test_ratio_with_a_missing_rival_is_not_judged():
    assert AtLeast("softmax", 2.0, ("jax", "torch")).judge({"livegrad": 0.1, "jax": 0.4}) is None


def test_requirement_without_livegrad_is_not_judged():
    assert AtMost("warm_cache", 0.005).judge({"jax": 1.0}) is None
    assert missed([softmax_outcome(Result(reason="not available yet"))])


def test_table_shows_ratio_reason_and_verdict():
    text = table(softmax_outcome(Result([0.1, 0.1, 0.9])))
    assert "4.50" in text
    assert "met (4.50 ×)" in text
    assert "not available yet" in table(softmax_outcome(Result(reason="not available yet")))


def test_slow_contender_stops_when_its_time_is_spent(monkeypatch):
    slow, quick = LocalSampler("livegrad"), LocalSampler("livegrad")
    monkeypatch.setattr(slow, "sample", lambda calls: 10.0)
    monkeypatch.setattr(quick, "sample", lambda calls: 0.1)
    results = {"slow": Result(), "quick": Result()}
    interleave({"slow": slow, "quick": quick}, results, {"slow": 1, "quick": 1}, Effort(rounds=3, seconds=5.0))
    assert [len(results[name].samples) for name in ("slow", "quick")] == [1, 3]


def test_json_keeps_every_sample(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.report.RESULTS", tmp_path)
    path = write_json("foundation", [softmax_outcome(Result([0.1, 0.2]))], {"threads": 2})
    assert path.name.endswith("-foundation.json")
    assert '"samples"' in path.read_text()


def test_a_run_that_is_stopped_keeps_the_rows_it_has_written(tmp_path):
    file = RecordFile("foundation", tmp_path)
    file.write({"threads": 2}, {"softmax": {}})
    file.write({"threads": 2}, {"softmax": {}, "memcpy": {}}, title="The foundation")
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text(encoding="utf-8"))
    assert (path, list(record["benchmarks"]), record["title"]) == (file.path, ["softmax", "memcpy"], "The foundation")


def test_a_sample_makes_as_many_calls_as_fit_into_its_time(monkeypatch):
    sampler = LocalSampler("livegrad")
    monkeypatch.setattr(sampler, "sample", lambda calls: 0.001)
    row = Benchmark("row", "row", Problem("softmax", 4), ("livegrad",), calls=3)
    assert calls_a_sample(sampler, row) == 3
    assert calls_a_sample(sampler, dataclasses.replace(row, sample_seconds=0.0105)) == 10
    assert calls_a_sample(sampler, dataclasses.replace(row, sample_seconds=1e-6)) == 1


def test_samples_of_several_processes_are_joined():
    joined = join_outcomes([softmax_outcome(Result([0.1, 0.2])), softmax_outcome(Result([0.3]))])
    assert joined.results["livegrad"].samples == [0.1, 0.2, 0.3]
    assert len(joined.results["jax"].samples) == 4


def test_a_contender_that_failed_in_one_process_is_not_measured():
    joined = join_outcomes([softmax_outcome(Result([0.1])), softmax_outcome(Result(reason="its result is wrong"))])
    assert (joined.results["livegrad"].samples, joined.results["livegrad"].reason) == ([], "its result is wrong")


def loop_outcome(name: str, livegrad: Result) -> Outcome:
    row = Benchmark(name, name, Problem("softmax", 4), ("livegrad", "jax"))
    return Outcome(row, {"livegrad": livegrad, "jax": Result([1.0])})


def test_of_a_program_the_worst_size_counts():
    outcomes = [loop_outcome("lu_l1", Result([0.5])), loop_outcome("lu_l2", Result([4.0]))]
    assert worst_ratios(outcomes) == {"lu": 0.25}
    assert worst_ratios([*outcomes, loop_outcome("lu_memory", Result(reason="it failed"))]) == {"lu": 0.0}


def gradient_outcome(name: str, reverse: float, forward: float | None) -> Outcome:
    """A row whose function takes a second on processors; the time of its derivatives was disturbed."""
    names = ("livegrad", "livegrad:primal", "livegrad_forward")
    row = Benchmark(name, name, Problem("softmax", 4), names, processor=True)
    results = {"livegrad": Result([90.0], processor=[reverse]), "livegrad:primal": Result([1.0], processor=[1.0])}
    failed = Result(reason="it failed") if forward is None else Result([80.0], processor=[forward])
    return Outcome(row, results | {"livegrad_forward": failed})


def test_derivatives_are_judged_by_time_on_processors_in_the_slower_mode():
    outcomes = [
        gradient_outcome("lu", 4.0, 6.0),
        gradient_outcome("fdtd", 2.0, 1.0),
        gradient_outcome("crc", 2.0, None),
    ]
    ratios = worst_derivatives(outcomes, "processor")
    assert ratios == {"lu": 6.0, "fdtd": 2.0, "crc": inf}
    assert DerivativesWithin(0.8, 5.0).judge(ratios) == (1 / 3, False)
    assert "time on processors: livegrad 4.00, livegrad_forward 6.00" in table(outcomes[0])


def test_time_on_processors_of_several_processes_is_joined_and_kept():
    joined = join_outcomes([gradient_outcome("lu", 4.0, 6.0), gradient_outcome("lu", 5.0, 7.0)])
    assert joined.results["livegrad"].processor == [4.0, 5.0]
    assert rows_record([joined])["lu"]["seconds"]["livegrad"]["processor"] == 4.5


def test_a_sample_has_the_time_on_processors():
    timing = time_calls(lambda: time.sleep(0.02), 2)
    assert timing.processor < timing.seconds
    assert timing.seconds >= 0.02


def test_suites_are_judged_by_all_programs():
    ratios = {"lu": 0.5, "crc": 2.0, "fdtd": 8.0}
    assert ShareAtLeast(0.8, 1.0).judge(ratios) == (2 / 3, False)
    assert ShareAtLeast(0.6, 1.0).judge(ratios) == (2 / 3, True)
    found, met = MeanAtLeast(1.5).judge(ratios)
    assert (round(found, 12), met) == (2.0, True)
    assert MeanAtLeast(1.5).judge({**ratios, "sieve": 0.0}) == (0.0, False)
    lines = suite_lines("loops", [loop_outcome("lu_l1", Result([4.0]))])
    assert lines[0].endswith("MISSED (0%)")
    assert lines[1].endswith("MISSED (0.25 ×)")

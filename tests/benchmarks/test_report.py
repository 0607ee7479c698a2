"""Requirements are judged by medians, and what was not measured is never counted as met."""

from benchmarks.harness import Benchmark, Effort, LocalSampler, Outcome, Result, interleave
from benchmarks.problems import Problem
from benchmarks.report import missed, table, write_json
from benchmarks.requirements import AtLeast, AtMost

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

"""livegrad beside another revision of itself: rows are measured in turn, and what one of them lacks is said."""

import pytest

from benchmarks.harness import Benchmark, Effort, Outcome, Result
from benchmarks.problems import Problem
from benchmarks.revisions import RevisionProcess, comparable, measure_row, row_line, rows_record
from benchmarks.worker import ROOT

ROW = Benchmark("call_overhead", "one call", Problem("call_overhead", 64), ("livegrad", "numpy"), calls=3)


@pytest.fixture
def processes():
    both = {"before": RevisionProcess(ROOT), "now": RevisionProcess(ROOT)}
    yield both
    for process in both.values():
        process.close()


def test_both_revisions_give_as_many_samples(processes):
    outcome = measure_row(ROW, processes, Effort(rounds=2, seconds=10.0))
    assert [len(result.samples) for result in outcome.results.values()] == [2, 2]
    assert "× as long" in row_line(outcome)
    assert list(rows_record([outcome])["call_overhead"]["seconds"]) == ["before", "now"]


def test_a_row_that_a_revision_lacks_is_named_with_the_reason(processes):
    row = Benchmark("memcpy", "a row without a contender of ours", Problem("memcpy", 4), ("memcpy",))
    outcome = measure_row(row, processes, Effort(2, 1.0))
    assert not outcome.results["before"].samples
    assert row_line(outcome) == "memcpy: no such contender"


def test_a_slower_row_is_marked_by_its_median():
    outcome = Outcome(ROW, {"before": Result([1.0, 1.0, 5.0]), "now": Result([1.06, 1.06, 1.0])})
    assert row_line(outcome) == "call_overhead: 1 s → 1.06 s, 1.06 × as long  SLOWER"
    quick = Outcome(ROW, {"before": Result([1.0]), "now": Result([1.05])})
    assert row_line(quick).endswith("1.05 × as long")


def test_rows_without_livegrad_and_skipped_rows_are_left_out():
    memcpy = Benchmark("memcpy", "memcpy", Problem("memcpy", 4), ("memcpy", "numpy"))
    skipped = Benchmark("prospero", "a picture", Problem("prospero", 64), ("livegrad",), skip="no sample")
    assert [row.name for row in comparable([ROW, memcpy, skipped])] == ["call_overhead"]

"""Reasons, reports, text and DOT of context programs."""

from typing import Any

import numpy as np
import pytest

from livegrad.contexts import ContextGraph

COLUMNS = ["computed", "hits", "reused", "evicted", "kept", "bytes", "ms", "needs"]


def document() -> tuple[ContextGraph, Any]:
    graph = ContextGraph()
    graph.value("speed", 2.0)
    graph.node("phase", lambda ctx, speed: ctx.animation_time * speed, plain="speed", extract="animation_time")
    graph.node("dots", lambda ctx, phase: [phase, ctx.footprint], plain="phase", extract="footprint")
    graph.node("page", lambda ctx, dots: dots(ctx.inject(index=1)), scoped="dots", inject="index")
    return graph, graph.compile("page", root=["animation_time", "footprint", "real_time"])


def test_why_before_and_after_the_first_computation():
    _, program = document()
    assert str(program.why("dots")) == "`dots` has not been computed"
    program.evaluate(animation_time=1.0, footprint=8, real_time=0.0)
    assert str(program.why("dots")) == "`dots` was computed for the first time"


def test_why_names_the_feature_with_its_old_and_new_value():
    _, program = document()
    for footprint in (8, 9):
        program.evaluate(animation_time=1.0, footprint=footprint, real_time=0.0)
    assert str(program.why("dots")) == "`dots` was computed again because of\n  feature `footprint`: 8 → 9"


def test_why_names_the_input_and_the_feature_below_it():
    _, program = document()
    for time in (1.0, 1.5):
        program.evaluate(animation_time=time, footprint=8, real_time=0.0)
    assert str(program.why("dots")) == (
        "`dots` was computed again because of\n"
        "  input `phase`: 2.0 → 3.0\n"
        "  below its inputs, feature `animation_time`: 1.0 → 1.5"
    )
    assert str(program.why("page")) == (
        "`page` was computed again because of\n"
        "  scoped input `dots`: [2.0, 8] → [3.0, 8]\n"
        "  below its inputs, feature `animation_time`: 1.0 → 1.5"
    )


def test_why_names_the_edit():
    graph, program = document()
    moment = {"animation_time": 1.0, "footprint": 8, "real_time": 0.0}
    program.evaluate(moment)
    graph.set("speed", 4.0)
    program.evaluate(moment)
    assert [str(change) for change in program.why("phase").changes] == ["input `speed`: 2.0 → 4.0"]

    def slower(ctx: Any, speed: float) -> float:
        return speed / 2

    graph.replace("phase", slower, extract=())
    program.evaluate(moment)
    edits = [change for change in program.why("phase").changes if change.kind == "edit"]
    assert [change.name for change in edits] == ["function", "features"]
    assert "slower (test_observe.py" in edits[0].new
    assert (edits[1].old, edits[1].new) == ("extract animation_time", "none")


def test_why_reports_evicted_results():
    graph, program = document()
    moment = {"animation_time": 1.0, "footprint": 8, "real_time": 0.0}
    program.evaluate(moment)
    graph.store.forget()
    program.evaluate(moment)
    assert str(program.why("dots")) == "`dots` was computed again: its result had been dropped from the cache"


def test_why_does_not_keep_large_values_alive():
    graph = ContextGraph()
    graph.node("image", lambda ctx: np.full(100_000, ctx.footprint), extract="footprint")
    graph.node("sum", lambda ctx, image: float(image.sum()), plain="image")
    program = graph.compile("sum", root="footprint")
    for footprint in (1.0, 2.0):
        program.evaluate(footprint=footprint)
    assert str(program.why("sum").changes[0]) == "input `image`: float64[100000] → float64[100000]"
    graph.store.forget()
    assert str(program.why("sum").changes[0]) == "input `image`: (no longer cached) → (no longer cached)"


def test_the_report_counts_each_node():
    _, program = document()
    for time in (1.0, 1.0, 2.0):
        program.evaluate(animation_time=time, footprint=8, real_time=0.0)
    report = program.report()
    assert [(node.name, node.counts.computed, node.counts.hits) for node in report.nodes] == [
        ("speed", 1, 1),
        ("phase", 2, 0),
        ("dots", 2, 0),
        ("page", 2, 1),
    ]
    assert report.computed == 7
    assert report["page"].need == ("animation_time", "footprint")
    assert all(node.counts.seconds >= 0.0 for node in report.nodes)
    text = str(report)
    assert text.splitlines()[0].split() == ["node", *COLUMNS]
    assert text.splitlines()[1].endswith("–")


def test_the_time_of_a_node_excludes_its_scoped_inputs(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("livegrad.contexts.evaluate.perf_counter", lambda: now[0])

    def takes(seconds: float) -> None:
        now[0] += seconds

    graph = ContextGraph()
    graph.node("inner", lambda ctx: takes(5.0))
    graph.node("outer", lambda ctx, inner: (takes(1.0), inner(ctx), takes(2.0)), scoped="inner")
    program = graph.compile("outer")
    program.evaluate()
    assert [node.counts.seconds for node in program.report().nodes] == [5.0, 3.0]


def test_print_shows_nodes_needs_and_nullifications(capsys: Any):
    _, program = document()
    program.print()
    assert capsys.readouterr().out == (
        "context: animation_time, footprint, real_time\n"
        "  nullify real_time\n"
        "  → page\n"
        "page: needs animation_time, footprint\n"
        "  scoped → inject index → nullify index → dots\n"
        "dots: needs animation_time, footprint\n"
        "  plain  → nullify footprint → phase\n"
        "phase: needs animation_time\n"
        "  plain  → nullify animation_time → speed\n"
        "speed: needs nothing\n"
    )
    program.print(color=True)
    coloured = capsys.readouterr().out
    assert "\x1b[" in coloured
    assert coloured.count("\x1b[0m") == 3  # all except `speed`, which needs nothing


def test_dot_has_nullifications_as_nodes_and_a_colour_for_each_need():
    _, program = document()
    dot = program.to_dot()
    assert dot.startswith("digraph context {")
    assert dot.count("shape=octagon") == len(program.linked.needs.nullifications) == 4
    fills = [line.split('fillcolor="')[1][:7] for line in dot.splitlines() if "\\nneeds" in line and "#" in line]
    assert len(fills) == 3
    assert len(set(fills)) == 2
    assert 'style=dashed, label="inject index"' in dot

"""The context document is what the table says: its least work is what the need equation gives, and livegrad does it."""

from benchmarks.context_contenders import build, build_frames
from benchmarks.context_document import ROOT, document, least_work, moments
from benchmarks.problems import Problem


def test_the_document_has_two_thousand_nodes():
    assert len(document(106)) == 2013


def test_every_change_computes_exactly_the_oracles_minimum():
    values = build_frames(Problem("context_whole", 20))()
    assert values == list(least_work(20, 12)[0])


def test_one_change_of_the_time_computes_moving_shapes_and_what_shows_them():
    items = document(20)
    program = build(items).compile(items[-1].name, root=ROOT)
    first, second = moments(2)
    program.evaluate(first)
    with program.events() as log:
        program.evaluate(second)
    assert len(log.names("computed")) == least_work(20, 2)[1][1]
    shapes = {name for name in log.names("computed") if not name.startswith("over")}
    assert {name.rstrip("0123456789").rstrip("_") for name in shapes} <= {
        *("phase", "dab", "dabs", "larger", "style0", "style1", "style2", "style3", "style4"),
    }


def test_without_nullification_every_change_computes_everything():
    items = document(5)
    program = build(items, everything=True).compile(items[-1].name, root=ROOT)
    first, second = moments(2)
    with program.events() as log:
        program.evaluate(first)
        before = len(log.names("computed"))
        program.evaluate(second)
    assert len(log.names("computed")) == 2 * before

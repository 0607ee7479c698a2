"""The architecture in three hundred lines: what it teaches is true, and is about as long as it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[2] / "examples" / "from_scratch.py"
PRINTED = """\
first frame   {'energy': 'cold', 'by_rate+by_height+loss': 'cold'}
fitting       {'energy': 'none', 'by_rate+by_height+loss': 'hot'}
result: height 2.0000, rate 1.5000, loss 1.7e-13
no change     {'energy': 'none', 'by_rate+by_height+loss': 'none'}
new model     {'energy': 'none', 'by_rate+by_height+loss': 'code'}
3 kernels compiled
"""


@pytest.fixture
def lesson() -> ModuleType:
    specification = importlib.util.spec_from_file_location("from_scratch", PATH)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["from_scratch"] = module
    specification.loader.exec_module(module)
    return module


def test_it_prints_what_each_edit_cost(lesson, capsys):
    lesson.main()
    printed = capsys.readouterr().out
    assert printed.split("loss")[0] == PRINTED.split("loss")[0]
    assert [line for line in printed.splitlines() if "e-" not in line] == [
        line for line in PRINTED.splitlines() if "e-" not in line
    ]


def test_equal_expressions_are_one_object(lesson):
    assert lesson.live("a") * lesson.row("x") + 1.0 is lesson.live("a") * lesson.row("x") + 1.0
    assert lesson.constant(1.0) is not lesson.constant(2.0)


def curve(lesson):
    a, b, x = lesson.live("a"), lesson.live("b"), lesson.row("x")
    model = a * lesson.make(lesson.sin, b * x) - lesson.make(lesson.exp, -(x * x)) + lesson.make(lesson.cos, a * x)
    return lesson.sum_of(model * model), (a, b, x)


LEAVES = {"a": 0.7, "b": 1.3, "x": np.linspace(-1.0, 1.0, 17)}


def test_gradients_are_central_differences(lesson):
    loss, (a, b, x) = curve(lesson)
    by_a, by_b, by_x = (lesson.evaluate(node, LEAVES) for node in lesson.gradients(loss, (a, b, x)))

    def moved(name, change):
        return lesson.evaluate(loss, LEAVES | {name: LEAVES[name] + change})

    assert by_a == pytest.approx((moved("a", 1e-6) - moved("a", -1e-6)) / 2e-6, rel=1e-7)
    assert by_b == pytest.approx((moved("b", 1e-6) - moved("b", -1e-6)) / 2e-6, rel=1e-7)
    steps = 1e-6 * np.eye(17)
    np.testing.assert_allclose(by_x, [(moved("x", s) - moved("x", -s)) / 2e-6 for s in steps], rtol=1e-6)


def test_both_modes_agree_and_nest(lesson):
    loss, (a, b, _) = curve(lesson)
    (by_a,) = lesson.gradients(loss, (a,))
    (by_a_by_b,) = lesson.gradients(by_a, (b,))
    pushed = lesson.push_forward(by_a, {b: lesson.constant(1.0)})
    assert lesson.evaluate(pushed, LEAVES) == pytest.approx(lesson.evaluate(by_a_by_b, LEAVES), rel=1e-12)
    (by_b_by_a,) = lesson.gradients(lesson.gradients(loss, (b,))[0], (a,))
    assert lesson.evaluate(by_b_by_a, LEAVES) == pytest.approx(lesson.evaluate(by_a_by_b, LEAVES), rel=1e-12)


def test_native_code_is_the_reference(lesson):
    loss, leaves = curve(lesson)
    by_a, by_b, by_x = lesson.gradients(loss, leaves)
    engine = lesson.Engine(**LEAVES)
    engine.want(loss=loss, by_a=by_a, by_b=by_b, by_x=by_x, scaled=by_a * 2.0 + by_b, nothing=lesson.constant(0.0))
    engine.step()
    for name, node in engine.results.items():
        np.testing.assert_allclose(engine.read(name), lesson.evaluate(node, LEAVES), rtol=1e-12)


def test_a_missing_rule_raises(lesson):
    floor = lesson.Op("floor", np.floor)
    with pytest.raises(NotImplementedError, match="`floor` has no derivative rule"):
        lesson.gradients(lesson.make(floor, lesson.live("a")), (lesson.live("a"),))


def test_one_structure_is_one_kernel(lesson):
    engine = lesson.Engine(x=[1.0, 2.0], y=[3.0, 4.0])
    engine.want(of_x=lesson.sum_of(lesson.row("x") * lesson.row("x")))
    engine.want(of_y=lesson.sum_of(lesson.row("y") * lesson.row("y")))
    engine.step()
    assert (float(engine.read("of_x")), float(engine.read("of_y"))) == (5.0, 25.0)
    assert len(lesson.KERNELS) == 1


def test_it_is_about_three_hundred_lines():
    lines = PATH.read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    assert 250 <= len(code) <= 320

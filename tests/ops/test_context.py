"""Features of contexts, and the leaf op that reads one."""

import pytest

import livegrad as lg
from livegrad.diagnostics import UsageError
from livegrad.ir.types import Vector
from livegrad.ops.context import context, feature_leaves, feature_of, parse_feature, register_feature


def test_the_same_feature_and_type_are_the_same_leaf():
    assert context("animation_time") is context("animation_time")
    assert context("animation_time") is not context("animation_time", lg.f64)
    assert context("index") is not context("index@1")
    assert context("pointer_position").type is Vector(lg.f32, 2)


def test_leaves_are_found_in_the_order_of_use():
    value = context("animation_time", lg.f64) * context("real_time") + context("animation_time", lg.f64)
    assert [str(feature_of(leaf)) for leaf in feature_leaves([value])] == ["animation_time", "real_time"]


def test_the_reference_reads_a_feature_under_its_key():
    leaf = context("animation_time", lg.f64)
    function = lg.ir.Function("f", (), (leaf * 2.0,))
    assert float(lg.ir.evaluate(function, inputs={leaf.attribute("key"): 1.5})) == 3.0


@pytest.mark.parametrize("text", ["", "no_such", "index@", "index@-1", "footprint@1"])
def test_other_texts_are_refused(text: str):
    with pytest.raises(UsageError):
        parse_feature(text)


def test_a_name_must_be_an_identifier():
    with pytest.raises(UsageError, match="identifier"):
        register_feature("two words")

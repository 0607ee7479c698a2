"""Documents of live engines: their text, loading to an equal graph, and invalid files."""

from __future__ import annotations

import os
import sys
import tomllib

import numpy as np
import pytest

import livegrad as lg
from livegrad.live.documents.toml_text import toml_text

FACTOR = 3.0


def falloff(p, r=1.0):
    # comments stay
    return lg.exp(-(p * p) / (r * FACTOR))


@lg.differentiable
def cubed(x: lg.f32) -> lg.f32:
    return x * x * x


@pytest.fixture
def path(tmp_path):
    return tmp_path / "scene.lg"


def body_of(name, factor):
    body = lg.Composite(name)
    scale = body.graph.add(lg.block(lambda x, factor=factor: x * factor, name="scale/d"))
    body.expose(scale["x"])
    body.expose(scale["result"], "scaled.x")
    return body


def everything():
    """An engine with every kind of block and every kind of source."""
    engine = lg.Engine()
    fall = engine.add(lg.block(falloff, name="fall", shapes={"result": "same(0)"}))
    engine.set(fall["p"], np.linspace(0.1, 1.0, 5).astype(np.float32))
    fall.position = 10.0, 20.5
    count = engine.add(lg.State("count", [0.0, np.nan, -0.0]))
    more = engine.add(lg.block(lambda x, by=1: x + by, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    cube = engine.add(lg.block(cubed, name="cube"))
    engine.set(cube["x"], np.float32(0.1))
    shared = body_of("one", 2.0)
    either = engine.add(lg.IfElse("either", shared, body_of("one", 5.0)))
    engine.set(either["condition"], True)
    engine.connect(fall, either["x"])
    engine.add(shared)
    engine.connect(fall, shared["x"])
    often = engine.add(lg.For("often", body_of("body", 1.5), {"x": "scaled.x"}))
    engine.set(often["count"], 3)
    engine.connect(cube, often["x"])
    engine.add(lg.grad(of=cube["result"], by=[cube["x"]], name="slope"))
    engine.set_feature("animation_time", 0.25)
    return engine


def outputs(engine):
    assert engine.step().ok
    return {name: [engine.read(pin).tobytes() for pin in b.outputs.values()] for name, b in engine.graph.blocks.items()}


def test_a_loaded_engine_computes_the_same_bits_and_saves_the_same_text(path, tmp_path):
    engine = everything()
    engine.save(path)
    loaded = lg.load_document(path).engine(trust=True)
    assert outputs(loaded) == outputs(engine)
    assert outputs(loaded) == outputs(engine)  # states continue equally
    assert loaded.graph.blocks["fall"].position == (10.0, 20.5)
    loaded.save(tmp_path / "again.lg")
    assert (tmp_path / "again.lg").read_text() == path.read_text()


def test_a_document_is_readable_text(path):
    everything().save(path)
    text = path.read_text()
    assert '[blocks.fall.inputs]\np = { value = { dtype = "float32", values = [0.1, 0.325, 0.55' in text
    assert 'x = { from = "fall.result" }' in text
    assert "def falloff(p, r=1.0):\n    # comments stay\n" in text


def test_one_edit_changes_one_line(path):
    engine = everything()
    engine.save(path)
    before = path.read_text().split("\n")
    engine.set(engine.graph.blocks["fall"]["r"], 2.0)
    engine.save(path)
    after = path.read_text().split("\n")
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [("r = {}", "r = 2.0")]


def test_a_composite_with_two_uses_is_shared_after_loading(path):
    everything().save(path)
    loaded = lg.load_document(path).engine(trust=True)
    either, shared = loaded.graph.blocks["either"], loaded.graph.blocks["one"]
    assert isinstance(either, lg.IfElse)
    assert either.bodies["then"] is shared
    assert either.bodies["else"] is not shared


def test_no_code_runs_before_the_document_is_trusted(path):
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0: x, name="plain"))
    engine.save(path)
    text = path.read_text().replace('text = "recorded = lambda x=None: x"', 'text = "import sys; sys.ran = True"')
    assert "sys.ran" in text
    path.write_text(text)
    document = lg.load_document(path)
    assert "sys.ran" in document.functions["plain"]
    with pytest.raises(lg.UsageError, match=r"contains Python code.*trust=True"):
        document.engine()
    assert not hasattr(sys, "ran")


def test_functions_of_the_value_ir_need_no_trust(path):
    engine = lg.Engine()
    double = lg.ir.trace(lambda x: x + x, lg.f32, name="double")
    engine.set(engine.add(lg.block(double, inputs=("x",)))["x"], 4.0)
    engine.save(path)
    document = lg.load_document(path)
    assert document.functions == {}
    loaded = document.engine()
    assert loaded.step().ok
    assert float(loaded.read(loaded.graph.blocks["double"])) == 8.0


def test_an_integer_stays_an_integer_although_the_default_is_a_float(path):
    engine = lg.Engine()
    scale = engine.add(lg.block(lambda x, gain=2: x * gain, name="scale"))
    engine.set(scale["x"], np.arange(3))
    engine.set(scale["gain"], 3)
    lg.live.edit(engine, scale, lambda x, gain=2.5: x * gain)
    engine.save(path)
    loaded = lg.load_document(path).engine(trust=True)
    assert outputs(loaded) == outputs(engine)
    assert loaded.read(loaded.graph.blocks["scale"]).dtype == np.int64


def test_bound_memory_is_listed_and_can_be_bound_again(path):
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    engine.bind(double["x"], np.arange(3.0))
    engine.save(path)
    document = lg.load_document(path)
    assert document.bound == ("double.x",)
    loaded = document.engine(trust=True)
    assert [str(problem.pin) for problem in loaded.step().problems] == ["x"]
    loaded.bind(loaded.graph.blocks["double"]["x"], np.arange(3.0))
    assert loaded.step().ok


def test_a_graph_that_cannot_be_loaded_is_not_saved(path):
    path.write_text("before")
    engine = lg.Engine()
    body = engine.add(body_of("body", 2.0))
    body.graph.remove(body.graph.blocks["scale/d"])
    with pytest.raises(lg.UsageError, match="scale/d"):
        engine.save(path)
    assert path.read_text() == "before"
    assert os.listdir(path.parent) == [path.name]


DAMAGED = {
    "no TOML": "livegrad = ",
    "something else": 'title = "shopping"\n',
    "no blocks": 'livegrad = 1\nkind = "engine"\n',
    "a block without a body": 'livegrad = 1\nkind = "engine"\n[blocks.a]\noutputs = ["x"]\n',
    "a block that is a number": 'livegrad = 1\nkind = "engine"\n[blocks]\na = 3\n',
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_rejected_as_a_whole(path, name):
    path.write_text(DAMAGED[name])
    with pytest.raises(lg.live.DocumentError, match=r"scene\.lg") as caught:
        lg.load_document(path)
    assert "test_documents.py" in str(caught.value.where)


@pytest.mark.parametrize("line", ['function = "gone"', 'kind = "unheard of"', 'same = "nobody"'])
def test_a_dangling_reference_builds_no_engine(path, line):
    path.write_text(f'livegrad = 1\nkind = "engine"\n[blocks.a]\n{line}\noutputs = ["x"]\n')
    with pytest.raises(lg.live.DocumentError, match="damaged"):
        lg.load_document(path).engine(trust=True)


def test_a_newer_format_asks_for_an_update(path):
    path.write_text('livegrad = 2\nkind = "engine"\n[blocks]\n')
    with pytest.raises(lg.live.DocumentError, match=r"newer version of livegrad.*update livegrad"):
        lg.load_document(path)


def test_a_missing_file_is_also_a_file_not_found_error(path):
    with pytest.raises(FileNotFoundError, match="scene"):
        lg.load_document(path)


@pytest.mark.parametrize("value", ["a\nb'''\n", "\x7f\x00\n", 'é\\ "quoted"\n', "it's\n'"])
def test_arbitrary_text_round_trips(value):
    assert tomllib.loads(toml_text({"text": value, value: 1})) == {"text": value, value: 1}


@pytest.mark.parametrize("wrong", [3, None, {}, np.zeros(2)])
def test_an_invalid_path_is_rejected(wrong):
    with pytest.raises(lg.UsageError, match="not a path") as refused:
        lg.Engine().save(wrong)
    assert "test_documents.py" in str(refused.value)

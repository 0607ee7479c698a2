"""Controls of inputs: from annotations and assignments, kept in documents, and listed as plain data."""

import functools
import json
from typing import Annotated, Any

import numpy as np
import pytest

import livegrad as lg
from tests.live.string_annotations import tinted, unknown_names

WIDTH = lg.Control(0.0, 2.0, unit="mm", label="Width")


def amplify(
    x=1.0,
    gain: Annotated[float, lg.Control(0, 10, step=0.5, unit="dB", group="Sound")] = 2.0,
    mode: Annotated[int, lg.Control(choices=["left", "right"])] = 0,  # a comment that a document keeps
):
    return x * gain + mode


def widen(x: Annotated[float, WIDTH] = 1.0):
    return x + 1.0


@lg.function
def halve(x: Annotated[float, lg.Control(0, 1)] = 0.5) -> float:
    return x * 0.5


def reopened(engine, folder):
    engine.save(folder / "scene.lg")
    opened = lg.load_document(folder / "scene.lg").engine(trust=True)
    opened.save(folder / "again.lg")
    assert (folder / "again.lg").read_text() == (folder / "scene.lg").read_text()
    return opened


def shown(engine):
    return list(engine.parameters().values())


def test_annotations_of_functions_give_controls():
    block = lg.block(amplify)
    assert block["x"].control is None
    assert block["gain"].control == lg.Control(0, 10, step=0.5, unit="dB", group="Sound")
    assert block["mode"].control == lg.Control(choices={"left": 0, "right": 1})
    assert [lg.Control(0, 1).kind, lg.Control(choices=["a"]).kind] == ["slider", "choice"]
    assert lg.block(halve)["x"].control == lg.Control(0, 1)
    assert lg.block(functools.partial(amplify, gain=1.0), name="bound").inputs.keys() >= {"x"}
    assert block["result"].control is None


def test_annotations_may_be_strings_and_use_names_for_type_checkers_only():
    assert lg.block(tinted)["tint"].control == lg.Control(kind="colour", label="Tint")


def test_an_annotation_that_cannot_be_evaluated_names_the_line_of_the_function():
    with pytest.raises(lg.UsageError, match=r"annotation of `x` cannot be evaluated \(string_annotations.py:\d+"):
        lg.block(unknown_names)


def test_two_controls_or_one_without_arguments_name_the_line_of_the_function():
    def twice(x: Annotated[float, lg.Control(0, 1), lg.Control(0, 2)] = 1.0):
        return x

    def bare(x: Annotated[float, lg.Control] = 1.0):
        return x

    with pytest.raises(lg.UsageError, match=r"`x` has 2 controls \(test_controls.py:\d+"):
        lg.block(twice)
    with pytest.raises(lg.UsageError, match=r"control of `x` has no arguments \(test_controls.py:\d+"):
        lg.block(bare)


def test_an_annotation_decides_the_type_as_before():
    engine = lg.Engine()
    blocks = [engine.add(lg.block(function)) for function in (widen, halve)]
    engine.step()
    assert [engine.read(block).dtype for block in blocks] == [np.float64, np.float64]

    def scaled(x, by: Annotated[float, WIDTH]):
        return x * by

    assert lg.jit(scaled)(1.0, 2.0).dtype == lg.float64


def test_an_assigned_control_replaces_the_annotation():
    gain = lg.block(amplify)["gain"]
    gain.control = lg.Control(-1, 1)
    assert gain.control == lg.Control(-1, 1)
    gain.control = None
    assert gain.control == lg.block(amplify)["gain"].control


def test_another_body_brings_its_controls_and_keeps_assigned_ones():
    engine = lg.Engine()
    block = engine.add(lg.block(widen, name="work"))
    lg.live.edit(engine, block, lambda x=1.0: x)
    assert block["x"].control is None
    lg.live.edit(engine, block, widen)
    block["x"].control = lg.Control(0, 7)
    lg.live.edit(engine, block, lambda x=1.0: x)
    assert block["x"].control == lg.Control(0, 7)


def test_exposed_pins_have_the_controls_of_the_pins_inside():
    engine = lg.Engine()
    outer, inner = lg.Composite("outer"), lg.Composite("inner")
    block = inner.graph.add(lg.block(amplify))
    inner.expose(block["gain"], "volume")
    outer.graph.add(inner)
    outer.expose(inner["volume"])
    engine.add(outer)
    assert outer["volume"].control == block["gain"].control
    parameters = engine.parameters()
    assert [pin for pin in parameters if pin.name in ("gain", "volume")] == [outer["volume"]]
    assert parameters[outer["volume"]]["value"] == 2.0
    engine.set(outer["volume"], 3.0)
    assert engine.parameters()[outer["volume"]]["value"] == 3.0
    inner.graph.set(block["gain"], 4.0)  # takes precedence
    names = [entry["key"] for entry in shown(engine)]
    assert "outer/inner/amplify.gain" in names
    engine.step()
    assert engine.peek(block) == 4.0


def test_regions_show_control_pins_and_pins_of_their_bodies():
    body = lg.Composite("body")
    work = body.graph.add(lg.block(amplify))
    body.expose(work["gain"])
    body.expose(work["result"])
    engine = lg.Engine()
    maybe = engine.add(lg.If("maybe", body))
    engine.set(maybe["condition"], True)
    assert [entry["key"] for entry in shown(engine)] == [
        "maybe.condition", "maybe.gain", "maybe/amplify.x", "maybe/amplify.mode",
    ]  # fmt: skip
    assert maybe["gain"].control == work["gain"].control


def test_parameters_are_plain_data_without_connected_and_bound_inputs():
    engine = lg.Engine()
    first, second = engine.add(lg.block(widen, name="first")), engine.add(lg.block(amplify, name="second"))
    third = engine.add(lg.block(lambda x, y, z: lg.sum(x) + lg.sum(y) + z, name="third"))
    engine.connect(first, second["x"])
    engine.bind(third["x"], np.ones(3))
    engine.set(third["y"], np.arange(6.0).reshape(2, 3))
    engine.set(second["gain"], 7.0)
    entries = shown(engine)
    assert json.loads(json.dumps(entries)) == entries
    by_key = {entry["key"]: entry for entry in entries}
    assert list(by_key) == ["first.x", "second.gain", "second.mode", "third.y", "third.z"]
    assert (by_key["second.gain"]["value"], by_key["second.gain"]["default"]) == (7.0, 2.0)
    assert (by_key["third.y"]["shape"], by_key["third.y"]["kind"]) == ([2, 3], "array")
    assert by_key["third.y"]["value"] == [[0, 1, 2], [3, 4, 5]]
    assert by_key["third.z"]["value"] is by_key["third.z"]["shape"] is None
    assert (by_key["first.x"]["label"], by_key["first.x"]["group"]) == ("Width", "first")
    engine.set(third["y"], np.zeros(1000, np.float32))
    assert by_key["third.y"] | {"value": None, "shape": [1000], "type": "f32"} == shown(engine)[3]


def test_controls_are_kept_in_a_document(tmp_path):
    engine = lg.Engine()
    for function in (amplify, widen, halve):
        engine.add(lg.block(function))
    outer = lg.Composite("outer")
    inner = outer.graph.add(lg.block(lambda x=1.0: x, name="inner"))
    outer.expose(inner["x"])
    engine.add(outer)
    inner["x"].control = lg.Control(choices={"soft": 0.5, "hard": 2.0}, label='Edge "sharp"')
    outer["x"].control = lg.Control(kind="file", suffixes=(".png",))
    engine.graph.blocks["amplify"]["x"].control = lg.Control(-1, 1)
    engine.graph.blocks["amplify"].position = 3, 4
    opened = reopened(engine, tmp_path)
    assert shown(opened) == shown(engine)
    assert "# a comment that a document keeps" in (tmp_path / "scene.lg").read_text()
    again: Any = opened.graph.blocks["outer"]
    assert again["x"].control == outer["x"].control
    assert again.graph.blocks["inner"]["x"].control == inner["x"].control
    assert opened.graph.blocks["widen"]["x"].control == WIDTH
    assert opened.graph.blocks["widen"]["x"].own_control is None


def test_a_damaged_control_in_a_document_is_an_error(tmp_path):
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x=1.0: x, name="plain"))
    block["x"].control = lg.Control(0.0, 1.0)
    engine.save(tmp_path / "scene.lg")
    text = (tmp_path / "scene.lg").read_text()
    for damage in ("low = 2.0", "wide = 2.0", 'low = "a"'):
        (tmp_path / "damaged.lg").write_text(text.replace("low = 0.0", damage))
        with pytest.raises(lg.UsageError):
            lg.load_document(tmp_path / "damaged.lg").engine(trust=True)


def test_listeners_see_controls_and_positions_and_recordings_leave_them_out(tmp_path):
    engine, edits = lg.Engine(), []

    class Log:
        def edited(self, edit, arguments):
            edits.append((edit, *arguments))

        def frame_ended(self, frame):
            pass

    block = engine.add(lg.block(widen))
    engine.listen(Log())
    with lg.live.record(engine, tmp_path / "session.jsonl"):
        block.position = (1, 2.5)
        block["x"].control = WIDTH
        engine.step()
    assert edits == [("move", block, (1.0, 2.5)), ("control", block["x"], WIDTH)]
    assert not engine.step().changes
    assert lg.live.replay(tmp_path / "session.jsonl", trust=True).differences == ()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((1.0, 1.0), {}),
        ((2.0, 1.0), {}),
        ((0.0, float("inf")), {}),
        ((0.0, "1"), {}),
        ((0.0,), {}),
        ((0, 1), {"step": 0}),
        ((0, 1), {"step": True}),
        ((0, 1), {"unit": 3}),
        ((0, 1), {"kind": "knob"}),
        ((0, 1), {"choices": ["a"], "kind": "slider"}),
        ((), {"kind": "slider"}),
        ((), {"kind": "choice"}),
        ((), {"choices": "abc"}),
        ((), {"choices": ["a", "a"]}),
        ((), {"choices": [("a", "b")]}),
        ((), {"choices": 3}),
        ((), {"suffixes": (".png",)}),
        ((), {"kind": "file", "suffixes": 3}),
    ],
)
def test_an_invalid_control_is_rejected_at_its_line(arguments, named):
    with pytest.raises(lg.UsageError, match=r"test_controls\.py:\d+"):
        lg.Control(*arguments, **named)


def test_other_invalid_uses_are_rejected_at_their_line():
    block: Any = lg.block(widen)
    for control in (3, "slider", lg.Control):
        with pytest.raises(lg.UsageError, match=r"not a control \(test_controls\.py:\d+"):
            block["x"].control = control
    with pytest.raises(lg.UsageError, match=r"only inputs have controls"):
        block["result"].control = WIDTH
    for position in (3, (1, 2, 3), "ab", (1, float("nan"))):
        with pytest.raises(lg.UsageError, match=r"not a position \(test_controls\.py:\d+"):
            block.position = position
    assert block.position is None

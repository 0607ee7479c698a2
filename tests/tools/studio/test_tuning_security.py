"""What pages may do with slopes, pulls and fits, and wrong messages about them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import livegrad as lg
from livegrad.tools.studio.open_studio import Studio
from tests.tools.studio.client import TestPage


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


MESSAGES = [
    {"type": "target", "of": {"pin": ["double", "result"]}},
    {"type": "pin", "pin": ["double", "x"], "pinned": False},
    {"type": "pull", "do": "begin"},
    {"type": "pull", "do": "move", "to": 3.0},
    {"type": "pull", "do": "commit"},
    {"type": "fit", "do": "start"},
    {"type": "fit", "do": "pause"},
    {"type": "fit", "do": "continue"},
    {"type": "fit", "do": "stop"},
    {"type": "compare", "slot": "A"},
    {"type": "animate", "pin": ["double", "x"], "animation": None},
    {"type": "clock", "seek": 1.0},
]


def with_ids(page: TestPage, message: dict) -> dict:
    """A message with the id of its block."""
    if "pin" in message:
        return message | {"pin": [page.id(message["pin"][0]), message["pin"][1]]}
    if "of" in message:
        return message | {"of": with_ids(page, message["of"])}
    return message


@pytest.mark.parametrize("permission", ["view", "tune", "edit"])
def test_tuning_needs_the_permission_to_tune(engine, permission):
    with lg.studio(engine, open_browser=False, permission=permission) as studio, TestPage(studio) as page:
        for message in MESSAGES:
            answer = page.ask(with_ids(page, message))
            assert answer["type"] == ("rejected" if permission == "view" else "done"), message
            if permission == "view":
                assert answer["error"]["message"] == "this page may not tune"
    assert permission != "view" or engine.history.next_undo != "pull double.result"


def test_presets_need_the_permission_to_edit_and_their_values_that_to_tune(engine):
    engine.presets.save("start")
    for permission in ("view", "tune", "edit"):
        with lg.studio(engine, open_browser=False, permission=permission) as studio, TestPage(studio) as page:
            for do, is_allowed in (("apply", permission != "view"), ("save", permission == "edit")):
                answer = page.ask({"type": "preset", "do": do, "name": "start"})
                assert (answer["type"] == "done") is is_allowed
    assert list(engine.presets) == ["start"]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "target"} | {"of": of}
        for of in (5, [], {}, {"pin": 3}, {"pin": ["b1", "nothing"]}, {"point": [0, 0, 0]}, {"point": ["a"]})
    ]
    + [
        {"type": "target", "of": {"pin": ["double", "result"], **options}}
        for options in ({"index": "x"}, {"index": [-1]}, {"index": [0] * 20}, {"frames": 0}, {"frames": 10**9})
    ]
    + [
        {"type": "pin", "pin": ["double", "result"], "pinned": True},
        {"type": "pull"},
        {"type": "pull", "do": "begin"},
        {"type": "pull", "do": "move", "to": 1.0},
        {"type": "fit"},
        {"type": "fit", "do": "start"},
        {"type": "fit", "do": "continue"},
        {"type": "heat", "parameter": "radius"},
        {"type": "preset", "do": "save"},
        {"type": "preset", "do": "save", "name": ""},
        {"type": "preset", "do": "save", "name": "x" * 1000},
        {"type": "preset", "do": "explode", "name": "x"},
        {"type": "compare", "slot": []},
        {"type": "animate", "pin": ["double", "x"], "animation": {}},
        {"type": "animate", "pin": ["double", "x"], "animation": {"shape": "wave", "low": 0, "high": 1, "period": 0}},
        {"type": "animate", "pin": ["double", "x"], "animation": {"shape": [], "low": 0, "high": 1, "period": 1}},
    ],
)
def test_a_wrong_message_is_rejected(studio, engine, message):
    with TestPage(studio) as page:
        answer = page.ask(
            message if "b1" in str(message) else with_ids(page, message) if "double" in str(message) else message
        )
        assert answer["type"] == "rejected", answer
        assert engine.parameters()[engine.graph.blocks["double"]["x"]]["value"] == 4.0


@pytest.mark.parametrize("to", [None, "x", [], {}, [[1]], float("inf"), [True], 10**400, [0.0] * 65])
def test_a_pull_goes_to_finite_numbers(studio, to):
    with TestPage(studio) as page:
        page.ask({"type": "target", "of": {"pin": [page.id("double"), "result"]}})
        page.ask({"type": "pull", "do": "begin"})
        assert page.ask({"type": "pull", "do": "move", "to": to})["error"]["message"] == "not a value"


def test_an_element_outside_of_an_output_is_a_problem_and_no_crash(studio):
    with TestPage(studio) as page:
        page.ask({"type": "target", "of": {"pin": [page.id("double"), "result"], "index": [7]}})
        page.wait(lambda: page.tuning.get("problem"))
        assert page.tuning["problem"]["message"] == "there is no such element"
        assert page.ask({"type": "pull", "do": "begin"})["type"] == "done"
        assert page.ask({"type": "pull", "do": "move", "to": [1.0]})["type"] == "done"
        page.ask({"type": "pull", "do": "commit"})
        page.wait(lambda: not page.tuning["pulling"])
        assert page.input("double", "x")["value"] == 4.0


def test_another_page_cannot_move_a_pull(studio):
    with TestPage(studio) as page, TestPage(studio) as other:
        page.ask({"type": "target", "of": {"pin": [page.id("double"), "result"]}})
        page.ask({"type": "pull", "do": "begin"})
        assert other.ask({"type": "pull", "do": "move", "to": 1.0})["error"]["message"] == "nothing is pulled"
        assert other.ask({"type": "pull", "do": "cancel"})["error"]["message"] == "nothing is pulled"


def test_a_page_that_leaves_ends_its_pull(studio, engine):
    with TestPage(studio) as page:
        with TestPage(studio) as leaving:
            leaving.ask({"type": "target", "of": {"pin": [leaving.id("double"), "result"]}})
            leaving.ask({"type": "pull", "do": "begin"})
            leaving.ask({"type": "pull", "do": "move", "to": 10.0})
            leaving.wait(lambda: leaving.input("double", "x")["value"] == pytest.approx(5.0, abs=1e-5))
        page.wait(lambda: page.tuning.get("pulling") is False)
        assert page.ask({"type": "undo"})["label"] == "pull double.result"

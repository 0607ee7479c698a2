"""What pages see and do: values, edits, errors, pictures, the clock, and what programs do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import simplejpeg

import livegrad as lg
from livegrad.diagnostics import UsageError
from livegrad.tools.studio import session
from livegrad.tools.studio.gallery import EXAMPLES
from livegrad.tools.studio.open_studio import Studio
from livegrad.tools.studio.pictures import picture_bytes
from tests.tools.studio.client import TestPage


def shade(x: Any, gain: Any = 2.0) -> Any:
    scaled = x * gain
    return scaled + 1.0


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    source = engine.add(lg.block(lambda value=3.0: value, name="source"))
    shaded = engine.add(lg.block(shade))
    engine.connect(source, shaded["x"])
    engine.add(lg.block(lambda y=1.0: lg.asarray(y) - 1.0, name="other"))
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


@pytest.fixture
def page(studio: Studio) -> Iterator[TestPage]:
    with TestPage(studio) as opened:
        opened.subscribe("source", "shade", "other")
        opened.wait_for_value("shade", 7.0)
        yield opened


def set_number(page: TestPage, block: str, pin: str, value: Any) -> dict[str, Any]:
    return page.edit({"op": "set", "pin": [page.id(block), pin], "value": value})


def test_a_number_that_a_page_sets_changes_the_values_downstream(page, engine):
    set_number(page, "source", "value", 5)
    page.wait_for_value("shade", 11.0)
    assert float(engine.read(engine.graph.blocks["shade"])) == 11.0
    assert page.input("source", "value") == page.input("source", "value") | {"source": "value", "value": 5.0}
    level_of_shade = page.frame["ran"][page.id("shade")]
    assert (page.frame["level"], level_of_shade) == ("hot", 0)


def test_edits_of_the_program_appear_in_the_page(page, engine):
    blocks = engine.graph.blocks
    engine.set(blocks["source"]["value"], 4.0)
    page.wait_for_value("shade", 9.0)
    added = engine.add(lg.block(lambda q=1.0: q * 8.0, name="added"))
    page.wait(lambda: any(entry.get("name") == "added" for entry in page.entries.values()))
    engine.connect(added, blocks["shade"]["x"])
    page.wait_for_value("shade", 17.0)
    assert page.input("shade", "x")["from"] == [page.id("added"), "result"]
    engine.remove(added)
    page.wait(lambda: all(entry.get("name") != "added" for entry in page.entries.values()))
    assert page.input("shade", "x")["source"] == "open"
    engine.rename(blocks["other"], "renamed")
    page.wait(lambda: any(entry.get("name") == "renamed" for entry in page.entries.values()))


def test_a_pause_is_not_taken_back_by_a_frame_that_ran_before(studio):
    with TestPage(studio, acknowledges=False) as page:
        page.send({"type": "clock", "playing": True})
        page.wait(lambda: page.updates)  # the page has not acknowledged it, and frames go on
        studio_frame = page.frame["number"]
        engine = studio._engine_thread.session.engine
        while engine.frame.number < studio_frame + 3:
            page.ask({"type": "exports"})
        page.send({"type": "clock", "playing": False})
        page.wait(lambda: any(message.get("playing") is False for message in page.messages))
        page.acknowledges = True
        page.send({"type": "ack"})
        page.wait(lambda: len(page.updates) > 1)
        assert page.frame["playing"] is False


def test_two_pages_agree(studio, page):
    with TestPage(studio) as second:
        set_number(page, "source", "value", 6)
        second.edit({"op": "rename", "block": second.id("other"), "name": "another"})
        page.wait(lambda: any(entry.get("name") == "another" for entry in page.entries.values()))
        second.wait(lambda: second.input("source", "value")["value"] == 6.0)
        second.wait(lambda: page.entries == second.entries)


def test_a_page_connects_disconnects_adds_and_removes(page, engine):
    shaded, other = page.id("shade"), page.id("other")
    page.edit({"op": "connect", "from": [other, "result"], "to": [shaded, "x"]})
    page.wait_for_value("shade", 1.0)
    page.edit({"op": "disconnect", "to": [shaded, "x"]})
    page.wait(lambda: page.frame["problems"])
    assert page.frame["problems"][0]["block"] == shaded
    assert page.frame["problems"][0]["pin"] == "x"
    answer = page.edit({"op": "add", "entry": "multiply", "at": [10, 20], "to": [shaded, "x"]})
    added = answer["results"][0]["block"]
    page.wait(lambda: added in page.entries and not page.frame["problems"])
    assert page.entries[added]["at"] == [10.0, 20.0]
    assert engine.graph.blocks["multiply"].position == (10.0, 20.0)
    page.edit({"op": "remove", "block": added}, {"op": "remove", "block": other})
    page.wait(lambda: added not in page.entries and other not in page.entries)
    assert set(engine.graph.blocks) == {"source", "shade"}


def test_a_refused_connection_says_why(page):
    answer = page.edit({"op": "connect", "from": [page.id("other"), "result"], "to": [page.id("shade"), "nothing"]})
    assert answer["error"]["message"] == "`shade` has no input `nothing`"
    answer = page.edit({"op": "rename", "block": page.id("other"), "name": "shade"})
    assert answer["error"]["message"] == "block `shade` already exists"


def test_an_error_is_at_its_node_and_line_while_the_rest_runs(page, engine):
    block = page.id("shade")
    source = page.ask({"type": "source", "block": block})
    assert source["kind"] == "code"
    assert source["text"].splitlines()[2] == "    return scaled + 1.0"
    broken = source["text"].replace("scaled + 1.0", "scaled.wrong + 1.0")
    assert page.edit({"op": "code", "block": block, "text": broken})["type"] == "done"
    page.wait(lambda: page.frame["problems"])
    problem = page.frame["problems"][0]
    assert (problem["block"], problem["line"]) == (block, 3)
    assert "no attribute 'wrong'" in problem["message"]
    set_number(page, "other", "y", 9)
    page.wait_for_value("other", 8.0)
    set_number(page, "source", "value", 4)
    page.wait_for_value("shade", 9.0)  # the last good code runs on
    mended = broken.replace("scaled.wrong", "scaled * 10.0")
    page.edit({"op": "code", "block": block, "text": mended})
    page.wait_for_value("shade", 81.0)
    assert page.frame["problems"] == []


def test_code_that_defines_nothing_is_refused_with_its_line(page, engine):
    before = engine.graph.blocks["shade"].body
    for text, line, message in (
        ("def f(x):\n    return (", 2, "not Python"),
        ("x = 1\ny = 2", 2, "the text must end with a function"),
        ("import math\ny = 1 / 0\ndef f(x): return x", 2, "`shade` raised ZeroDivisionError"),
        ("", 1, "the text must end with a function"),
    ):
        error = page.edit({"op": "code", "block": page.id("shade"), "text": text})["error"]
        assert error["message"].startswith(message), error
        assert error["line"] == line
    assert engine.graph.blocks["shade"].body is before


def test_a_failing_step_is_a_problem_of_its_node(page, engine):
    picked = engine.add(lg.block(lambda i=1: lg.asarray([1.0, 2.0])[i], name="picked"))
    page.wait(lambda: any(entry.get("name") == "picked" for entry in page.entries.values()))
    engine.set(picked["i"], 7)
    page.wait(lambda: page.frame["problems"])
    assert page.frame["problems"][0]["block"] == page.id("picked")
    assert "index out of range" in page.frame["problems"][0]["message"]
    engine.set(picked["i"], 0)
    page.wait(lambda: not page.frame["problems"])


def test_an_expression_gets_inputs_for_its_names_and_keeps_their_values(page, engine):
    block = page.id("source")
    assert page.ask({"type": "source", "block": block})["text"] == "value"
    set_number(page, "source", "value", 5)
    page.edit({"op": "expression", "block": block, "text": "value * factor + offset"})
    page.wait(lambda: len(page.block("source")["inputs"]) == 3)
    assert [input["name"] for input in page.block("source")["inputs"]] == ["value", "factor", "offset"]
    assert page.input("source", "value")["value"] == 5.0
    set_number(page, "source", "factor", 2)
    set_number(page, "source", "offset", 1)
    page.wait_for_value("source", 11.0)
    page.edit({"op": "expression", "block": block, "text": "sin(pi * 0 * value) + 2"})
    page.wait_for_value("source", 2.0)


def test_reasons_say_why_a_block_ran_or_did_not(page):
    page.send({"type": "subscribe", "blocks": [], "inspect": page.id("shade")})
    set_number(page, "source", "value", 5)
    page.wait(lambda: any("ran in frame" in update.get("reason", "") for update in page.updates))
    set_number(page, "other", "y", 5)
    page.wait(lambda: "none of its inputs changed" in page.updates[-1].get("reason", ""))


def test_positions_are_edits_that_pages_see(page, studio, engine):
    with TestPage(studio) as second:
        page.edit({"op": "move", "block": page.id("other"), "at": [120, -40]})
        second.wait(lambda: second.block("other")["at"] == [120.0, -40.0])
    assert engine.graph.blocks["other"].position == (120.0, -40.0)


# --- states and the clock ---------------------------------------------------------------------------------------------


@pytest.fixture
def counter() -> lg.Engine:
    engine = lg.Engine()
    count = engine.add(lg.State("count", np.float32(0.0)))
    more = engine.add(lg.block(lambda x, step=1.0: x + step, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    return engine


def test_a_graph_with_states_plays_and_one_without_waits(counter, engine):
    with lg.studio(counter, open_browser=False) as studio, TestPage(studio) as page:
        assert page.frame["playing"]
        page.wait(lambda: page.frame["number"] > 5)
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        assert not page.frame["playing"]


def test_a_paused_graph_shows_edits_and_keeps_its_states(counter):
    with lg.studio(counter, open_browser=False) as studio, TestPage(studio) as page:
        page.ask({"type": "clock", "playing": False})
        page.ask({"type": "edit", "ops": [{"op": "rewind"}]})
        page.subscribe("more", "count")
        page.wait_for_value("more", 1.0)
        for step in (2, 3, 4):
            page.edit({"op": "set", "pin": [page.id("more"), "step"], "value": step})
            page.wait_for_value("more", step)  # from a state of 0 each time
        page.wait_for_value("count", 0.0, "value")
        page.ask({"type": "clock", "step": True})
        page.wait_for_value("count", 4.0, "value")
        page.ask({"type": "clock", "step": True})
        page.wait_for_value("more", 8.0)
        page.edit({"op": "rewind"})
        page.wait_for_value("more", 4.0)


def test_states_that_a_program_sets_while_the_clock_pauses_are_kept(counter):
    with lg.studio(counter, open_browser=False) as studio, TestPage(studio) as page:
        page.ask({"type": "clock", "playing": False})
        page.subscribe("more")
        counter.set(counter.graph.blocks["count"], 41.0)
        page.wait_for_value("more", 42.0)
        counter.set(counter.graph.blocks["more"]["step"], 2.0)
        page.wait_for_value("more", 43.0)


def test_a_program_that_drives_the_engine_decides_when_frames_run(counter):
    with lg.studio(counter, open_browser=False, drive=False) as studio, TestPage(studio) as page:
        page.subscribe("more")
        assert counter.frame.number == 0
        page.edit({"op": "set", "pin": [page.id("more"), "step"], "value": 10})
        assert counter.frame.number == 0
        counter.step()
        page.wait_for_value("more", 10.0)
        page.wait(lambda: page.frame["number"] == 1)  # a picture of the values may be taken within the frame


def test_values_of_frames_that_were_too_many_to_note_reach_pages(counter, monkeypatch):
    monkeypatch.setattr(session, "_MAX_FRAMES", 0)
    with lg.studio(counter, open_browser=False, drive=False) as studio, TestPage(studio) as page:
        page.subscribe("more")
        page.edit({"op": "set", "pin": [page.id("more"), "step"], "value": 10})
        counter.step()
        page.wait_for_value("more", 10.0)


def test_a_program_may_step_and_edit_while_pages_do(engine):
    stop = threading.Event()

    def work() -> None:
        value = 0.0
        while not stop.is_set():
            engine.set(engine.graph.blocks["other"]["y"], value)
            engine.step()
            value += 1.0
            stop.wait(0.001)  # a thread that never rests keeps the engine's lock from others

    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            page.subscribe("shade", "other")
            for value in range(30):
                assert set_number(page, "source", "value", value)["type"] == "done"
            page.wait_for_value("shade", 59.0)
        finally:
            stop.set()
            thread.join()


def test_the_time_of_the_clock_is_the_animation_time(engine):
    engine.add(lg.block(lambda x=1.0: lg.contexts.context_tensor("animation_time") * x, name="timed"))
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.subscribe("timed")
        page.ask({"type": "clock", "rate": 2.0})
        page.ask({"type": "clock", "step": True})
        page.wait_for_value("timed", 0.5)
        page.ask({"type": "clock", "step": True})
        page.wait_for_value("timed", 1.0)


# --- pictures and values ----------------------------------------------------------------------------------------------


def test_a_picture_is_exact_when_the_graph_rests_and_jpeg_while_it_changes():
    engine = lg.Engine()
    line = np.linspace(0.0, 1.0, 48, dtype=np.float32)
    engine.add(lg.block(lambda gain=0.5: lg.asarray(line)[:, None] * line[None, :] * gain, name="ramp"))
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.subscribe(v=("ramp", "result"))
        page.wait(lambda: any(header["format"] == "rgba" for header, _ in page.pictures))
        page.edit({"op": "set", "pin": [page.id("ramp"), "gain"], "value": 1})
        frame = engine.frame.number
        page.wait(lambda: page.pictures[-1][0]["format"] == "rgba" and page.pictures[-1][0]["frame"] >= frame)
        header, pixels = page.pictures[-1]
        expected = picture_bytes(engine.read(engine.graph.blocks["ramp"]))
        while not np.array_equal(np.frombuffer(page.pictures[-1][1], np.uint8), expected.reshape(-1)):
            page.receive()
        assert (header["width"], header["height"], header["view"]) == (48, 48, "v")
        moving = [data for header, data in page.pictures if header["format"] == "jpeg"]
        assert moving
        assert simplejpeg.decode_jpeg(moving[-1]).shape == (48, 48, 3)
        assert len(pixels) == 48 * 48 * 4


def test_a_view_has_one_picture_on_its_way():
    engine = lg.Engine()
    count = engine.add(lg.State("count", np.float32(0.0)))
    drawn = engine.add(lg.block(lambda x: (lg.sin(x + 0.1), lg.zeros((16, 16)) + lg.sin(x)), outputs=("next", "drawn")))
    engine.connect(count, drawn["x"])
    engine.connect(drawn["next"], count["next"])
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio, acknowledges=False) as page:
        page.send({"type": "subscribe", "blocks": [], "views": {"v": [page.id(drawn.name), "drawn"]}})
        page.wait(lambda: page.pictures)
        frame = engine.frame.number
        while engine.frame.number < frame + 20:
            page.ask({"type": "clock", "playing": True})
        assert len(page.pictures) == 1
        page.send({"type": "ack", "view": "v"})
        page.wait(lambda: len(page.pictures) == 2)


def test_values_are_summarised_with_special_numbers(engine):
    special = np.array([np.nan, np.inf, *range(30)], np.float32)
    engine.add(lg.block(lambda s=1.0: lg.asarray(special) * s, name="special"))
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.subscribe("special")
        page.wait(lambda: page.id("special") in page.values)
        summary = page.values[page.id("special")]["result"]
        assert (summary["nans"], summary["infinities"], summary["min"], summary["max"]) == (1, 1, 0.0, 29.0)
        page.edit({"op": "set", "pin": [page.id("special"), "s"], "value": "NaN"})
        page.wait(lambda: page.values[page.id("special")]["result"].get("nans") == 32)
        assert "min" not in page.values[page.id("special")]["result"]


def test_only_what_a_page_shows_is_summarised(page):
    page.subscribe("other")
    page.values.clear()
    set_number(page, "source", "value", 8)
    set_number(page, "other", "y", 3)
    page.wait_for_value("other", 2.0)
    assert set(page.values) == {page.id("other")}


def test_looking_does_not_make_blocks_run(engine):
    frames = []
    engine.step()
    plain = engine.step().ran
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        page.subscribe("source", "shade", "other")
        page.wait_for_value("shade", 7.0)
        frames.append(engine.step().ran)
    assert frames == [plain] == [()]


# --- nested graphs, and what can be opened ----------------------------------------------------------------------------


def test_composites_are_graphs_to_enter():
    engine = lg.Engine()
    both = lg.Composite("both")
    inner = both.graph.add(lg.block(lambda q=2.0: q * 3.0, name="inner"))
    both.expose(inner["q"])
    both.expose(inner["result"], "tripled")
    engine.add(both)
    with lg.studio(engine, open_browser=False) as studio, TestPage(studio) as page:
        graph = page.block("both")["inner"][0]["graph"]
        assert page.block("inner")["graph"] == graph
        assert page.entries[graph]["parent"] == page.id("both")
        assert page.input("inner", "q")["as"] == "q"
        assert page.input("both", "q")["value"] == 2.0
        page.subscribe("both", "inner")
        page.wait_for_value("both", 6.0, "tripled")
        page.edit({"op": "set", "pin": [page.id("both"), "q"], "value": 5})
        page.wait_for_value("both", 15.0, "tripled")
        page.wait_for_value("inner", 15.0)
        page.edit({"op": "add", "entry": "add", "at": [0, 0], "graph": graph})
        page.wait(lambda: any(entry.get("name") == "add" for entry in page.entries.values()))
        assert list(both.graph.blocks) == ["inner", "add"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_example_of_the_gallery_opens_and_runs(example):
    with lg.studio(open_browser=False) as studio, TestPage(studio) as page:
        assert example.name in [entry["name"] for entry in page.welcome["gallery"]]
        assert page.ask({"type": "open", "name": example.name})["type"] == "done"
        assert page.snapshot["title"] == example.title
        page.wait(lambda: page.frame["number"] > 0)
        assert page.frame["problems"] == []
        session = studio._engine_thread.session
        assert session is not None
        name = "picture" if "picture" in session.engine.graph.blocks else "screen"
        page.subscribe(v=(name, "result"))
        page.wait(lambda: page.pictures)
        before = page.pictures[-1][1]
        control = next(
            (block, input)
            for block in page.entries.values()
            for input in block.get("inputs", ())
            if (input.get("control") or {}).get("kind") == "colour" or input["name"] in ("exposure", "feed")
        )
        block, input = control
        id = next(id for id, entry in page.entries.items() if entry is block)
        value = [0.2, 0.9, 0.1] if isinstance(input["value"], list) else 0.5 * input["value"]
        page.edit({"op": "set", "pin": [id, input["name"]], "value": value})
        page.wait(lambda: page.pictures[-1][1] != before)
        page.send({"type": "leave"})
        page.wait(lambda: page.messages[-1]["type"] == "gallery")


def test_programs_documents_parts_and_functions_can_be_opened(tmp_path, engine):
    program = tmp_path / "scene.py"
    program.write_text(
        "import livegrad as lg\nengine = lg.Engine()\n"
        "double = engine.add(lg.block(lambda x=1.0: x * 2.0, name='double'))\n"
        "part = lg.shapes.sphere(1.0).part(((-1, -1, -1), (1, 1, 1)), 'ball')\n"
    )
    document, part = tmp_path / "scene.lg", tmp_path / "ball.3mf"
    engine.save(document)
    ball = lg.shapes.sphere(1.0).part(((-1, -1, -1), (1, 1, 1)), "ball")
    lg.save_3mf(lg.implicit.assembly_of_part(ball), part)
    for what, names in (
        (f"{program}:engine", {"double"}),
        (f"{program}:part", {"plane", "distance", "picture"}),
        (str(document), {"source", "shade", "other"}),
        (document, {"source", "shade", "other"}),
        (part, {"plane", "distance", "picture"}),
        (ball, {"plane", "distance", "picture"}),
        (lambda x=1.0: x, {"<lambda>"}),
        (lg.block(shade), {"shade"}),
    ):
        with lg.studio(what, open_browser=False, trust=True) as studio, TestPage(studio) as page:
            assert {entry["name"] for entry in page.entries.values() if "inputs" in entry} == names


def test_what_cannot_be_shown_is_an_error_at_once(tmp_path):
    damaged = tmp_path / "damaged.lg"
    damaged.write_text("livegrad = 1\nkind = 'engine'\n")
    for what, message in (
        (5, "the Studio cannot show this"),
        (str(damaged), "`damaged.lg` is damaged"),
        (str(tmp_path / "missing.lg"), "missing.lg"),
    ):
        with pytest.raises(Exception, match=message):
            lg.studio(what, open_browser=False)
    with pytest.raises(UsageError, match="unknown permission"):
        lg.studio(open_browser=False, permission="all")  # type: ignore[arg-type]


def test_closing_the_studio_leaves_the_engine_as_it_was(engine):
    studio = lg.studio(engine, open_browser=False)
    with TestPage(studio):
        pass
    studio.close()
    studio.close()
    assert engine.profiling == "off"
    assert engine._journal.listeners == ()
    assert engine.step().ok


def test_a_bug_in_a_handler_is_told_and_ends_nothing(page, studio, capsys):
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    studio._engine_thread.session.edits.__dict__["apply"] = fail
    assert set_number(page, "source", "value", 5)["error"]["message"] == "RuntimeError: a bug"
    del studio._engine_thread.session.edits.__dict__["apply"]
    assert set_number(page, "source", "value", 5)["type"] == "done"
    assert "a bug" in capsys.readouterr().err


def test_edits_of_a_paused_graph_arrive_though_they_are_compiled_beside_it():
    shown = lg.block(lambda x=3.0: x * 2.0, name="double")
    with lg.studio(shown, open_browser=False) as studio, TestPage(studio) as page:
        page.subscribe("double")
        page.wait_for_value("double", 6.0)
        session = studio._engine_thread.session
        assert session is not None
        waiting: list[bool] = []
        step = session.engine.step

        def note() -> Any:
            frame = step()
            waiting.append(frame.updating)
            return frame

        session.engine.step = note  # type: ignore[method-assign]
        for factor in (5.0, 7.0):
            text = f"x * {factor}"
            answer = page.edit({"op": "expression", "block": page.id("double"), "text": text})
            assert answer["type"] == "done", answer
            page.wait_for_value("double", 3.0 * factor)
        assert any(waiting)
        assert not waiting[-1]
        count = len(waiting)
        set_number(page, "double", "x", 4)
        page.wait_for_value("double", 28.0)
        assert len(waiting) == count + 1  # nothing runs while nothing changes

"""What pages receive of views: plots over time, tables and meshes; what they pick, record and download."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.formats.png import read_png
from livegrad.tools.studio.exports import PART_EXPORTS, file_name
from livegrad.tools.studio.open_studio import Studio
from livegrad.tools.studio.picking import pick_point
from livegrad.tools.studio.views import is_mesh, mesh_arrays
from tests.tools.studio.client import TestPage


def pyramid(height: Any = 1.0) -> tuple[Any, Any]:
    """Four triangles over a square."""
    zero = lg.asarray(height) * 0.0
    corners = [[-1.0, -1.0, zero], [1.0, -1.0, zero], [1.0, 1.0, zero], [-1.0, 1.0, zero], [0.0, 0.0, height]]
    vertices = lg.stack([lg.stack([lg.asarray(c) + zero for c in corner]) for corner in corners])
    triangles = lg.asarray(np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]], np.int32))
    return vertices, triangles


@pytest.fixture
def engine() -> lg.Engine:
    engine = lg.Engine()
    count = engine.add(lg.State("count", np.float32(0.0)))
    more = engine.add(lg.block(lambda x, step=1.0: x + step, name="more"))
    engine.connect(count, more["x"])
    engine.connect(more, count["next"])
    engine.add(lg.block(lambda size=2.0: lg.arange(300.0, dtype=lg.float32).reshape((100, 3)) * size, name="table"))
    engine.add(lg.block(lambda gray=0.5: lg.zeros((12, 16)) + gray, name="flat"))
    engine.add(lg.block(pyramid, outputs=("vertices", "triangles")))
    return engine


@pytest.fixture
def studio(engine: lg.Engine) -> Iterator[Studio]:
    with lg.studio(engine, open_browser=False) as opened:
        yield opened


@pytest.fixture
def page(studio: Studio) -> Iterator[TestPage]:
    with TestPage(studio) as opened:
        opened.send({"type": "clock", "playing": False})
        opened.wait(lambda: any(message.get("playing") is False for message in opened.messages))
        yield opened


def show(page: TestPage, block: str, output: str, kind: str, at: tuple[int, int] = (0, 0)) -> None:
    view = {"pin": [page.id(block), output], "kind": kind, "at": list(at)}
    page.send({"type": "subscribe", "views": {"view": view}})


def wait_for_view(page: TestPage, kind: str, condition: Any = lambda _: True) -> dict[str, Any]:
    """The first message of a view for which a condition holds."""
    start = len(page.messages)

    def find() -> Any:
        return next((m for m in page.messages[start:] if m["type"] == kind and condition(m)), None)

    while find() is None:
        message = page.receive()
        if message.get("type") == kind:
            page.send({"type": "ack", "view": message["view"]})
    return find()


def download(page: TestPage, **message: Any) -> tuple[dict[str, Any], bytes]:
    answer = page.ask({"type": "export", **message})
    assert answer["type"] == "done", answer
    page.wait(lambda: any(header["type"] == "file" for header, _ in page.pictures))
    header, content = next((header, content) for header, content in page.pictures if header["type"] == "file")
    page.pictures.clear()
    return header, content


# --- views ------------------------------------------------------------------------------------------------------------


def test_a_plot_has_every_frame_however_slowly_the_page_reads(page, engine):
    show(page, "more", "result", "plot")
    first = wait_for_view(page, "plot")
    start = first["frames"][-1]
    received = dict(zip(first["frames"], first["values"], strict=True))
    for _ in range(12):
        page.send({"type": "clock", "step": True})
    while max(received) < start + 12:
        message = page.receive()
        if message.get("type") == "plot":
            received |= dict(zip(message["frames"], message["values"], strict=True))
            page.send({"type": "ack", "view": "view"})
    frames = sorted(frame for frame in received if frame > start)
    assert frames == list(range(start + 1, start + 13))
    steps = np.diff([received[frame][0] for frame in frames])
    assert steps.tolist() == [1.0] * 11


def test_a_large_array_is_one_curve_and_infinite_numbers_are_gaps(page, engine):
    show(page, "table", "result", "plot")
    curve = wait_for_view(page, "plot")
    assert (len(curve["curve"]), curve["curve"][5], curve["step"]) == (300, 10.0, 1)
    engine.set(engine.graph.blocks["table"]["size"], float("inf"))
    gaps = wait_for_view(page, "plot", lambda message: message["curve"] != curve["curve"])
    assert gaps["curve"] == [None] * 300


def test_a_table_is_a_window_that_stays_inside(page):
    show(page, "table", "result", "table", at=(90, 1))
    table = wait_for_view(page, "table")
    assert (table["rows"], table["columns"], table["at"]) == (100, 3, [90, 1])
    assert table["cells"][0] == [542.0, 544.0]
    show(page, "table", "result", "table", at=(1000, 1000))
    table = wait_for_view(page, "table")
    assert (table["at"], table["cells"]) == ([99, 2], [[598.0]])


def test_a_mesh_comes_as_vertices_and_the_triangles_of_its_block(page, engine):
    engine.set(engine.graph.blocks["pyramid"]["height"], 3.0)
    show(page, "pyramid", "vertices", "mesh")
    page.wait(lambda: page.pictures and page.pictures[-1][1])
    header, payload = page.pictures[-1]
    assert (header["type"], header["vertices"], header["triangles"]) == ("mesh", 5, 4)
    vertices = np.frombuffer(payload, np.float32, 15).reshape(5, 3)
    triangles = np.frombuffer(payload, np.uint32, 12, 60).reshape(4, 3)
    assert vertices[4].tolist() == [0.0, 0.0, 3.0]
    assert triangles.tolist() == [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]]


def test_a_mesh_that_is_none_has_no_view_and_bad_triangles_are_left_out():
    assert not is_mesh(np.zeros((4, 4, 3)))
    assert mesh_arrays(np.zeros((4, 2)), {}) is None
    arrays = mesh_arrays(np.zeros((3, 3)), {"triangles": np.array([[0, 1, 2], [0, 1, 3], [-1, 0, 1]])})
    assert arrays is not None
    assert arrays[1].tolist() == [[0, 1, 2]]
    points = mesh_arrays(np.zeros((4, 3)), {"other": None})
    assert points is not None
    assert (len(points[0]), len(points[1])) == (4, 0)


@pytest.mark.parametrize(
    "described",
    [
        {"kind": "plot"},
        {"pin": ["b1"], "kind": "plot"},
        {"pin": [1, 2], "kind": "plot"},
        {"pin": [], "kind": {}},
        5,
        None,
    ],
)
def test_views_that_are_none_are_ignored(page, described):
    page.send({"type": "subscribe", "views": {"view": described}})
    show(page, "table", "result", "table", at=(-5, 0))
    assert wait_for_view(page, "table")["at"] == [0, 0]


# --- picking ----------------------------------------------------------------------------------------------------------


def test_a_picked_pixel_has_its_exact_value_and_its_block(page, engine):
    both = lg.Composite("both")
    inner = both.graph.add(lg.block(lambda: lg.arange(48.0, dtype=lg.float32).reshape((6, 8)) / 64.0, name="inner"))
    both.expose(inner["result"], "picture")
    engine.add(both)
    page.wait(lambda: any(entry.get("name") == "both" for entry in page.entries.values()))
    page.subscribe("both")
    page.wait(lambda: (page.values.get(page.id("both")) or {}).get("picture"))
    answer = page.ask({"type": "pick", "pin": [page.id("both"), "picture"], "at": [2, 3]})
    assert (answer["value"], answer["block"]) == (19.0 / 64.0, page.id("inner"))
    for at in ([6, 0], [-1, 0], [0], [0.5, 0], "x", None, [True, 0]):
        answer = page.ask({"type": "pick", "pin": [page.id("both"), "picture"], "at": at})
        assert answer["type"] == ("done" if at == [0] else "rejected")


def drilled() -> lg.Part:
    radius = lg.shapes.Parameter("radius", 0.25, lg.Control(0.1, 0.5))
    shape = lg.shapes.box((2.0, 1.0, 1.0)) - lg.shapes.cylinder(radius)
    return (shape | lg.shapes.sphere(0.3).translate((2.0, 0.0, 0.0))).part(((-1.5, -1, -1), (2.5, 1, 1)), "drilled")


def test_a_picked_point_says_which_shape_made_it_and_what_moves_it():
    part = drilled()
    wall = pick_point(part, [0.25, 0.0, 0.0])
    assert wall["maker"]["text"].endswith("- radius")
    assert wall["moves"]["radius"] == pytest.approx(-1.0)  # the hole grows, and the part has less
    assert wall["normal"] == pytest.approx([-1.0, 0.0, 0.0])
    ball = pick_point(part, [2.3, 0.0, 0.0])
    assert ball["maker"]["text"] == "length(p - make(2, 0, 0)) - 0.3"
    assert ball["moves"]["radius"] == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_moves_are_how_far_the_surface_goes(seed):
    random = np.random.default_rng(seed)
    a, b = (lg.shapes.Parameter(name, float(random.uniform(0.4, 0.8))) for name in "ab")
    part = (lg.shapes.sphere(a) | lg.shapes.box((b, b, b)).translate((0.5, 0.2, 0.1))).part(((-2,) * 3, (2,) * 3))
    direction = random.normal(size=3)
    direction /= np.linalg.norm(direction)
    from_inside, from_outside = 0.0, 1.9
    for _ in range(40):
        middle = 0.5 * (from_inside + from_outside)
        inside = float(part([middle * direction])[0]) < 0.0
        from_inside, from_outside = (middle, from_outside) if inside else (from_inside, middle)
    point = from_inside * direction
    found = pick_point(part, point.tolist())
    for name in "ab":
        step = 1e-2
        changed = part.with_parameters(**{name: part.parameters[name] + step})
        moved = -float(changed([point])[0] - part([point])[0]) / (step * found["gradient"])
        assert found["moves"][name] == pytest.approx(moved, abs=0.02)


# --- recordings -------------------------------------------------------------------------------------------------------


def test_a_recording_has_every_frame_and_becomes_files(page, engine):
    pin = [page.id("flat"), "result"]
    assert page.ask({"type": "record", "pin": pin, "do": "show", "index": 0})["type"] == "rejected"
    page.subscribe("flat")
    page.ask({"type": "record", "pin": pin, "do": "start"})
    for gray in (0.0, 0.25, 1.0):
        page.edit({"op": "set", "pin": [page.id("flat"), "gray"], "value": gray})
        page.wait(lambda gray=gray: page.input("flat", "gray")["value"] == gray)
        page.wait(lambda gray=gray: (page.values.get(page.id("flat")) or {"result": {}})["result"].get("max") == gray)
    frames = page.ask({"type": "record", "pin": pin, "do": "stop"})["frames"]
    assert frames == sorted(set(frames))
    assert len(frames) >= 4
    page.pictures.clear()
    page.ask({"type": "record", "pin": pin, "do": "show", "index": len(frames) - 1, "view": "last"})
    header, pixels = page.pictures[-1]
    assert (header["view"], header["frame"], pixels[:4]) == ("last", frames[-1], b"\xff\xff\xff\xff")
    page.pictures.clear()
    header, content = download(page, what="apng", pin=pin)
    assert (header["name"], content.count(b"fcTL")) == ("flat.png", len(frames))
    header, content = download(page, what="frames", pin=pin)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        last, _ = read_png(archive.read(names[-1]))
    assert len(names) == len(frames)
    assert last.shape == (12, 16, 3)
    assert (last == 255).all()
    page.ask({"type": "record", "pin": pin, "do": "forget"})
    assert page.ask({"type": "record", "pin": pin, "do": "stop"})["type"] == "rejected"


def test_films_say_that_they_need_a_program(page, engine, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    pin = [page.id("flat"), "result"]
    page.ask({"type": "record", "pin": pin, "do": "start"})
    answer = page.ask({"type": "exports"})
    assert [kind["what"] for kind in answer["animations"]] == ["apng", "frames"]
    page.ask({"type": "export", "what": "mp4", "pin": pin})
    page.wait(lambda: any(m["type"] == "rejected" and "ffmpeg" in m["error"]["message"] for m in page.messages))


# --- files ------------------------------------------------------------------------------------------------------------


def test_values_functions_and_graphs_are_downloaded(page, engine, tmp_path):
    header, content = download(page, what="npy", pin=[page.id("table"), "result"])
    assert np.load(io.BytesIO(content))[1].tolist() == [6.0, 8.0, 10.0]
    header, content = download(page, what="csv", pin=[page.id("table"), "result"])
    assert (header["name"], content.splitlines()[1]) == ("table.csv", b"6.0,8.0,10.0")
    header, content = download(page, what="code", block=page.id("pyramid"))
    assert content.startswith(b"def pyramid(height")
    header, content = download(page, what="document")
    (tmp_path / header["name"]).write_bytes(content)
    document = lg.load_document(tmp_path / header["name"])
    assert "pyramid" in document.functions


def test_a_part_is_downloaded_in_every_format_with_the_values_of_its_sliders():
    with lg.studio(drilled(), open_browser=False) as studio, TestPage(studio) as page:
        page.edit({"op": "set", "pin": [page.id("distance"), "radius"], "value": 0.5})
        offered = {entry["what"] for entry in page.ask({"type": "exports"})["exports"]}
        assert set(PART_EXPORTS) <= offered
        contents = {}
        for what in PART_EXPORTS:
            header, contents[what] = download(page, what=what)
            assert header["name"].startswith("drilled.")
        (count,) = struct.unpack_from("<I", contents["stl"], 80)
        assert len(contents["stl"]) == 84 + 50 * count
        assert contents["3mf"][:2] == b"PK"
        assert b"<svg" in contents["svg"]
        for what, word in {"glsl": b"uniform", "wgsl": b"fn ", "opencl": b"float3", "cuda": b"float3"}.items():
            assert word in contents[what], what
        # The hole of radius 0.5 touches the sides: the section is two pieces and the ball.
        header, svg = download(page, what="svg", height=0.0)
        assert header["media"] == "image/svg+xml"
        assert svg == contents["svg"]


@pytest.mark.parametrize("title", ["../../etc/passwd", "/etc/passwd", "..", "a/b\\c", "x\0y", "<img src=x>", ""])
def test_names_of_files_are_no_paths(title):
    name = file_name(title, ".stl")
    assert Path(name).name == name
    assert not any(character in name for character in '/\\<>:"|?*\0')
    assert not name.startswith(".")


@pytest.mark.parametrize(
    "message",
    [
        {"what": "/etc/passwd"},
        {"what": "npy", "pin": ["../b1", "result"]},
        {"what": ["stl"]},
        {"what": "stl"},
        {"what": "code", "block": "nothing"},
        {"what": "npy", "pin": None},
        {"what": None},
    ],
)
def test_what_cannot_be_downloaded_is_refused(page, message):
    answer = page.ask({"type": "export", **message})
    assert answer["type"] == "rejected"
    assert json.dumps(answer["error"])


def test_a_page_that_only_looks_downloads_but_does_not_record(engine):
    with lg.studio(engine, open_browser=False, permission="view") as studio, TestPage(studio) as page:
        pin = [page.id("flat"), "result"]
        assert page.ask({"type": "record", "pin": pin, "do": "start"})["type"] == "rejected"
        page.wait(lambda: page.frame.get("number", 0) > 0)
        header, _ = download(page, what="npy", pin=pin)
        assert header["name"] == "flat.npy"

"""The command line: each command on a small part, its output and files, and its error messages."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from livegrad.implicit.formats import load_3mf, load_stl, read_png, save_3mf
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.resources import LevelSet, TriangleMesh
from livegrad.tools import cli
from livegrad.tools.progress import ProgressLine

BOX = "q = abs(pos) - vector(2, 1, 0); max(q.z - 0.5, max(q.x, q.y))"


def assembly(number: int = 1) -> Assembly:
    """An assembly with one or several boxes of 4 × 2 × 1, clipped by their domain at x = 1."""
    made = add_expression(Assembly(), "slab", BOX, {"pos": "vector"})
    made = made.add_resource(TriangleMesh.box((-3, -3, -3), (1, 3, 3)), id=10)
    for index in range(number):
        made = made.add_resource(LevelSet(1, "shape", 10, name=f"slab{index + 1}"), id=20 + index).build(20 + index)
    return made


@pytest.fixture
def part(tmp_path: Path) -> Path:
    save_3mf(assembly(), tmp_path / "slab.3mf")
    return tmp_path / "slab.3mf"


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "ball.vm"
    path.write_text(
        "# a ball\nx var-x\ny var-y\nz var-z\na square x\nb square y\nc square z\n"
        "d add a b\ne add d c\nf sqrt e\nr const 0.5\ng sub f r\n"
    )
    return path


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    out, error = capsys.readouterr()
    return code, out, error


def facts(capsys: pytest.CaptureFixture[str], *words: Any) -> Any:
    code, out, error = run(capsys, *words, "--json")
    assert (code, error) == (0, "")
    return json.loads(out)


# --- info -------------------------------------------------------------------------------------------------------------


def test_info_lists_functions_resources_and_parts(part, capsys):
    code, out, _ = run(capsys, "info", part)
    assert code == 0
    assert "slab.3mf: 1 functions" in out
    assert "function 1 slab: (pos: vector) → (shape: scalar)" in out
    assert "resource 10: TriangleMesh" in out
    assert "part 1 slab1: [" in out


def test_info_as_json_has_the_bounds_of_the_part(part, capsys):
    found = facts(capsys, "info", part)
    (only,) = found["parts"]
    np.testing.assert_allclose(only["low"], [-2, -1, -0.5], atol=0.1)
    np.testing.assert_allclose(only["high"], [1, 1, 0.5], atol=0.1)
    assert found["functions"][0]["nodes"] == len(assembly().graph("slab").nodes)
    assert found["problems"] == []


def test_info_reads_tapes(tape, capsys):
    assert facts(capsys, "info", tape)["kind"] == "vm"
    assert "a tape of" in run(capsys, "info", tape)[1]


def test_info_lists_problems_and_fails_with_check(tmp_path, capsys):
    unfinished = assembly().unlink("slab", "outputs.shape")
    save_3mf(unfinished, tmp_path / "unfinished.3mf")
    code, out, _ = run(capsys, "info", tmp_path / "unfinished.3mf")
    assert code == 0
    assert "problem: function `slab`" in out
    assert run(capsys, "info", tmp_path / "unfinished.3mf", "--check")[0] == 1
    assert "outputs.shape = nothing" in run(capsys, "graph", tmp_path / "unfinished.3mf")[1]
    code, _, error = run(capsys, "eval", tmp_path / "unfinished.3mf", "0,0,0")
    assert code == 1
    assert "has functions that cannot run: function `slab`: output `shape` is not connected" in error


# --- render, slice, mesh ----------------------------------------------------------------------------------------------


def test_render_writes_a_picture_of_the_requested_size(part, tmp_path, capsys):
    output = tmp_path / "slab.png"
    assert facts(capsys, "render", part, "-o", output, "--size", "40x30")["width"] == 40
    pixels, _ = read_png(output.read_bytes())
    assert pixels.shape == (30, 40, 3)
    assert 0.1 < (pixels != pixels[0, 0]).any(-1).mean() < 0.9


def test_render_uses_the_view_direction(part, tmp_path, capsys):
    """From the side the slab is three wide and one high; from above three wide and two high."""
    shares = []
    for direction in ("0,1,0", "-0,0,-1"):
        output = tmp_path / "view.png"
        assert run(capsys, "render", part, "-o", output, "--size", "60x60", "--direction", direction)[0] == 0
        pixels, _ = read_png(output.read_bytes())
        shares.append((pixels != pixels[0, 0]).any(-1).mean())
    assert shares[1] == pytest.approx(2 * shares[0], rel=0.1)


def test_slice_writes_closed_contours(part, tmp_path, capsys):
    output = tmp_path / "cut.svg"
    found = facts(capsys, "slice", part, "-z", "-0.25", "-o", output, "--feature-size", "0.05")
    assert found["contours"] == 1
    assert found["height"] == -0.25
    assert found["area"] == pytest.approx(6.0, rel=0.01)
    (path,) = ElementTree.parse(output).getroot()
    assert path.attrib["d"].endswith("Z")


def test_the_default_slice_is_in_the_middle(part, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = facts(capsys, "slice", part)
    assert found["height"] == pytest.approx(0.0, abs=0.05)
    assert (tmp_path / "slab.svg").exists()


@pytest.mark.parametrize("suffix", ["stl", "3mf"])
def test_mesh_writes_the_format_of_the_suffix(part, tmp_path, capsys, suffix):
    output = tmp_path / f"surface.{suffix}"
    found = facts(capsys, "mesh", part, "-o", output, "--feature-size", "0.25")
    assert found["closed"] is True
    assert found["volume"] == pytest.approx(6.0, rel=1e-3)
    written = load_stl(output) if suffix == "stl" else load_3mf(output).resources[1]
    assert isinstance(written, TriangleMesh)
    assert len(written.triangles) == found["triangles"]
    assert written.is_closed()


def test_mesh_without_sharp_edges_has_blunt_edges(part, tmp_path, capsys):
    words = ["mesh", part, "-o", tmp_path / "s.stl", "--feature-size", "0.25"]
    assert facts(capsys, *words, "--no-sharp")["volume"] < facts(capsys, *words)["volume"]


def test_the_input_file_is_never_overwritten(part, capsys):
    before = part.read_bytes()
    code, _, error = run(capsys, "mesh", part, "-o", part)
    assert code == 1
    assert "is the input file" in error
    assert part.read_bytes() == before


def test_progress_is_shown_only_on_request(part, tmp_path, capsys):
    words = ["mesh", part, "-o", tmp_path / "s.stl", "--feature-size", "0.5"]
    assert run(capsys, *words)[2] == ""
    shown = run(capsys, *words, "--progress")[2]
    assert "100 % done" in shown
    assert "looking for the surface" in shown


def test_tapes_are_meshed_within_their_bounds(tape, tmp_path, capsys):
    words = ["mesh", tape, "-o", tmp_path / "b.stl", "--feature-size", "0.05"]
    assert facts(capsys, *words)["volume"] == pytest.approx(4 / 3 * np.pi * 0.125, rel=0.02)
    half = facts(capsys, *words, "--bounds", "-1,-1,-1,1,1,1")
    assert half["closed"]


# --- eval and graph ---------------------------------------------------------------------------------------------------


def test_eval_prints_values_and_exact_gradients(part, capsys):
    code, out, _ = run(capsys, "eval", part, "0,0,0", "-2.5,0,0", "--gradient")
    assert code == 0
    first, second = ([float(word) for word in line.split()] for line in out.splitlines())
    np.testing.assert_allclose(second, [0.5, -1, 0, 0], atol=1e-6)
    assert first[0] == pytest.approx(-0.5)


def test_eval_reads_points_from_a_file_and_from_the_input(part, tmp_path, capsys, monkeypatch):
    (tmp_path / "points.csv").write_text("0, 0, 0  # inside\n\n0 0 2\n")
    from_file = facts(capsys, "eval", part, "--points-file", tmp_path / "points.csv")
    assert from_file["values"] == pytest.approx([-0.5, 1.5])
    monkeypatch.setattr(sys, "stdin", io.StringIO("0 0 2\n"))
    assert facts(capsys, "eval", part, "--points-file", "-")["values"] == pytest.approx([1.5])


def test_eval_evaluates_a_function_in_double_precision(part, capsys):
    bounds = ["--function", "slab", "--bounds", "-3,-3,-3,3,3,3"]
    assert facts(capsys, "eval", part, "2.1,0,0", *bounds, "--precision", "64")["values"] == [0.10000000000000009]
    assert facts(capsys, "eval", part, "2.1,0,0", *bounds)["values"] != [0.10000000000000009]


def test_constants_change_by_name(part, capsys):
    (constant,) = [n.identifier for n in assembly().graph("slab").nodes.values() if n.value == 0.5]
    found = facts(capsys, "eval", part, "0,0,0", "--set", f"slab.{constant}=0.25")
    assert found["values"] == pytest.approx([-0.25])
    (vector,) = [n.identifier for n in assembly().graph("slab").nodes.values() if n.value == (2.0, 1.0, 0.0)]
    found = facts(capsys, "eval", part, "0,0,0", "--set", f"slab.{vector}=0.125,1,0")
    assert found["values"] == pytest.approx([-0.125])


def test_graph_prints_every_node_with_its_connections(part, capsys):
    code, out, _ = run(capsys, "graph", part)
    assert code == 0
    for identifier in assembly().graph("slab").nodes:
        assert f"  {identifier} = " in out
    assert "outputs.shape = " in out


def test_graph_writes_dot_with_an_edge_for_each_link(part, tmp_path, capsys):
    output = tmp_path / "slab.dot"
    assert run(capsys, "graph", part, "--format", "dot", "--function", "1", "-o", output)[0] == 0
    text = output.read_text()
    nodes = assembly().graph("slab").nodes.values()
    links = sum(len(node.inputs) for node in nodes) + 1
    assert text.count(" -> ") == links
    assert text.count("[label=") == len(nodes) + 2
    assert text.startswith("digraph")
    assert text.count("{") == text.count("}")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["info", "missing.3mf"], "there is no file `missing.3mf`"),
        (["mesh", "{part}", "-o", "nowhere/out.stl"], "there is no folder `nowhere` to write to"),
        (["eval", "{part}", "0,0,0", "--part", "lid"], "no part is called `lid`: expected one of 1 (slab1)"),
        (["eval", "{part}", "0,0,0", "--set", "slab.nothing=1"], "function `slab` has no node `nothing`"),
        (["graph", "{tape}"], "is a tape, which has no functions of nodes"),
        (["info", "."], "`.` is a folder, not a file; name a 3MF file"),
        (["slice", "{part}", "-o", "folder.svg"], "`folder.svg` is a folder, not a file"),
        (["eval", "{part}", "--points-file", "{part}"], "slab.3mf` is not text: expected three numbers per line"),
        (["info", "{tape}.txt"], "there is no file"),
    ],
)
def test_errors_have_advice(words, said, part, tape, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    code, out, error = run(capsys, *[word.format(part=part, tape=tape) for word in words])
    assert (code, out) == (1, "")
    assert error.startswith("livegrad: ")
    assert said in error
    assert "Traceback" not in error
    assert "cli.py" not in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["render", "{part}", "-o", "view.jpg"], "expected the suffix .png"),
        (["eval", "{part}", "0,0,0", "--function", "slab"], "--bounds X0,Y0,Z0,X1,Y1,Z1"),
        (["eval", "{part}"], "no points are given"),
        (["eval", "{part}", "0,0,0", "--bounds", "0,0,0,1,1,1"], "a level set has its own domain"),
        (["eval", "{tape}", "0,0,0", "--part", "1"], "is a tape with one shape"),
        (["graph", "{part}", "-o", "graph.bmp"], "a graph cannot be written as `.bmp`"),
        (["passes", "{part}", "--only", "magic"], "there is no pass `magic`: expected one of input, "),
        (["run", "--out", "{part}"], "is a file, not a folder; choose another --out"),
    ],
)
def test_invalid_options_exit_with_two(words, said, part, tape, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, error = run(capsys, *[word.format(part=part, tape=tape) for word in words])
    assert (code, out) == (2, "")
    assert said in error


@pytest.mark.parametrize(
    "words",
    [
        ["render", "a.3mf", "--size", "0x5"],
        ["render", "a.3mf", "--color", "2,0,0"],
        ["render", "a.3mf", "--direction", "0,0,0"],
        ["run", "--backend", "abacus"],
        ["eval", "a.3mf", "1,2"],
        ["mesh", "a.3mf", "--feature-size", "-1"],
        ["slice", "a.3mf", "-z", "nan"],
        ["eval", "a.3mf", "1,2,3", "--bounds", "1,1,1,0,0,0"],
        ["eval", "a.3mf", "1,2,3", "--set", "value"],
        ["paint", "a.3mf"],
    ],
)
def test_invalid_command_lines_exit_with_two(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert "usage: livegrad" in capsys.readouterr().err


def test_commands_are_listed_if_none_is_given(capsys):
    code, out, error = run(capsys)
    assert (code, out) == (2, "")
    assert all(f"    {name} " in error for name in cli.COMMANDS)


def test_a_terminal_without_arrows_shows_question_marks(part, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert cli.main(["info", str(part)]) == 0
    assert b"(pos: vector) ? (shape: scalar)" in output.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_written_is_named(part, capsys):
    code, _, error = run(capsys, "render", part, "--size", "4x4", "-o", "/proc/view.png")
    assert (code, error.split(":")[:2]) == (1, ["livegrad", " cannot open `/proc/view.png`"])


def test_progress_stays_on_one_line_of_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    with ProgressLine(stream, shown=True) as progress:
        progress("the fit, while the camera turns", 0.5)
    assert max(map(len, stream.getvalue().split("\r"))) == 29


def test_infinities_are_null_in_json(tmp_path, capsys):
    (tmp_path / "nothing.vm").write_text("a const 0\nb div a a\n")
    assert facts(capsys, "eval", tmp_path / "nothing.vm", "0,0,0")["values"] == [None]


def test_an_invalid_point_names_its_line(part, tmp_path, capsys):
    (tmp_path / "points.csv").write_text("0 0 0\n1 2\n")
    code, _, error = run(capsys, "eval", part, "--points-file", tmp_path / "points.csv")
    assert code == 1
    assert "line 2 of points.csv is not a point" in error


def test_one_of_several_parts_must_be_chosen(tmp_path, capsys):
    save_3mf(assembly(2), tmp_path / "two.3mf")
    code, _, error = run(capsys, "eval", tmp_path / "two.3mf", "0,0,0")
    assert code == 1
    assert "choose one with --part: 1 (slab1), 2 (slab2)" in error
    assert run(capsys, "eval", tmp_path / "two.3mf", "0,0,0", "--part", "2")[0] == 0


def test_a_file_without_level_sets_lists_its_contents(tmp_path, capsys):
    save_3mf(add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"}), tmp_path / "ball.3mf")
    code, _, error = run(capsys, "render", tmp_path / "ball.3mf", "-o", tmp_path / "b.png")
    assert code == 1
    assert "found 1 functions and 0 meshes" in error
    assert "--function NAME --bounds" in error


def test_a_damaged_file_writes_no_output(part, tmp_path, capsys):
    broken = tmp_path / "broken.3mf"
    broken.write_bytes(part.read_bytes()[:200])
    code, _, error = run(capsys, "mesh", broken, "-o", tmp_path / "broken.stl")
    assert code == 1
    assert "broken.3mf" in error
    assert not (tmp_path / "broken.stl").exists()


def test_an_interrupt_exits_with_130(part, capsys, monkeypatch):
    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("livegrad.tools.part_commands.open_part", interrupted)
    assert run(capsys, "eval", part, "0,0,0")[0] == 130


def test_help_names_every_command():
    command = [sys.executable, "-m", "livegrad", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in cli.COMMANDS:
        assert f"    {name} " in shown


def test_the_package_installs_the_command():
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"]["livegrad"] == f"{cli.__name__}:{cli.main.__name__}"

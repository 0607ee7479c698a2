"""The commands `graph`, `passes` and `explain` on objects in programs, and `doctor`, `bench` and `run`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from livegrad.implicit.bodies import shapes
from livegrad.implicit.bodies.part_assembly import assembly_of_part
from livegrad.implicit.formats import save_3mf
from livegrad.tools import cli, doctor, run_command
from livegrad.tools.tour import Tour
from livegrad.tools.tour.page import Outcome
from livegrad.tools.tour.script import Entry

PROGRAM = """
import numpy as np
import livegrad as lg
from livegrad import ops

@lg.differentiable
def energy(x: lg.f32, stiffness: lg.f32) -> lg.f32:
    return stiffness * lg.sin(x) * x

slope = lg.bwd_diff(energy)
traced = lg.ir.trace(lambda x: ops.bwd_diff(x, x, function=lg.ir.trace(lambda x: x * x, lg.f32)), lg.f32, name="traced")
rows = lg.ir.map_over(lg.ir.trace(lambda x: ops.exp(x) + 1.0, lg.f32))
tensor = lg.sum(lg.asarray([1.0, 2.0]) * 3.0)
idle, step = lg.jit(lambda x: x), lg.jit(lambda x: lg.sum(x * 2.0))
step(lg.ones(4))
shapes = lg.implicit.add_expression(lg.Assembly(), "ball", "length(pos) - 2", {"pos": "vector"})

def plain(x):
    return ops.sin(x) * 2.0

def make_engine():
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x=4.0: x * 2.0, name="double"))
    show = engine.add(lg.block(lambda x, gain=1.0: x * gain, name="show"))
    engine.connect(double, show["x"])
    return engine

graph = lg.ContextGraph()
graph.node("clock", lambda ctx: int(ctx.real_time), extract="real_time")
graph.node("page", lambda ctx, clock: clock, plain=["clock"])
program = graph.compile("page", root=["real_time", "footprint"])

class Holder:
    energy = energy

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scene.py"
    path.write_text(PROGRAM)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    out, error = capsys.readouterr()
    return code, out, error


# --- graph ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("energy", "function @energy(%p0: f32, %p1: f32) -> f32"),
        ("Holder.energy", "function @energy("),
        ("slope", "function @energy.bwd(%p0: f32, %p1: f32, %p2: f32) -> (f32, f32)"),
        ("rows", "map"),
        ("shapes", "function 1 `ball` (pos: vector)"),
        ("make_engine()", "double.result → show.x"),
        ("program", "clock: needs real_time"),
        ("tensor", "reduce"),
    ],
)
def test_every_kind_of_graph_is_shown_as_text_dot_and_svg(name, said, file, tmp_path, capsys):
    code, out, error = run(capsys, "graph", f"{file}:{name}")
    assert (code, error) == (0, "")
    assert said in out
    dot = run(capsys, "graph", f"{file}:{name}", "--format", "dot")[1]
    assert dot.startswith("digraph")
    assert dot.count("{") == dot.count("}")
    output = tmp_path / "graph.svg"
    assert run(capsys, "graph", f"{file}:{name}", "-o", output)[0] == 0
    drawn = ElementTree.fromstring(output.read_text(encoding="utf-8"))
    assert drawn.tag.endswith("svg")
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}rect")) >= 2


def test_objects_of_modules_are_found_too(file, capsys, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert "function @traced" in run(capsys, "graph", "scene:traced")[1]


def test_a_python_function_is_traced_with_the_given_types(file, capsys):
    assert "sin" in run(capsys, "graph", f"{file}:plain", "--types", "f32")[1]
    code, _, error = run(capsys, "graph", f"{file}:plain")
    assert code == 1
    assert "needs the types of its parameters: --types" in error


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "scene.py:NAME with one of energy, idle, program, rows, shapes, step, tensor, traced"),
        ("energy.missing", "without `missing`"),
        ("number", "there is no function of the value IR in an object of type `int`"),
        ("number()", "cannot be called"),
    ],
)
def test_a_missing_object_is_named(name, said, file, capsys):
    code, out, error = run(capsys, "graph", f"{file}:{name}")
    assert (code, out) == (1, "")
    assert said in error
    assert "Traceback" not in error


def test_a_file_without_a_name_lists_its_objects(file, capsys):
    code, _, error = run(capsys, "explain", file)
    assert code == 1
    assert f"`{file}` does not name an object: expected {file}:NAME with one of energy, idle, program" in error


def test_a_program_that_fails_says_why(tmp_path, capsys):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    code, _, error = run(capsys, "graph", f"{tmp_path / 'broken.py'}:x")
    assert code == 1
    assert "broken.py` cannot be loaded: ZeroDivisionError: division by zero (broken.py:1:1)" in error
    assert "there is no module `nowhere`" in run(capsys, "graph", "nowhere:x")[2]
    assert "there is no file" in run(capsys, "graph", "nowhere.py:x")[2]


def test_a_function_that_fails_when_it_is_called_says_why(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(
        "def fails():\n    1 / 0\n\ndef takes(x):\n    return x\n\ndef leaves():\n    raise SystemExit(3)\n"
    )
    for name, said in (
        ("fails()", "cannot be called: ZeroDivisionError: division by zero (program.py:2:5)"),
        ("takes()", "takes arguments; omit () to inspect the function itself"),
        ("leaves()", "cannot be called: it exited the program (program.py:8:5)"),
    ):
        code, out, error = run(capsys, "graph", f"{program}:{name}")
        assert (code, out) == (1, "")
        assert said in error
        assert "Traceback" not in error
    (tmp_path / "syntax.py").write_text("def f(:\n")
    error = run(capsys, "graph", f"{tmp_path / 'syntax.py'}:f")[2]
    assert "SyntaxError: invalid syntax" in error
    assert "frozen" not in error


# --- passes and explain -----------------------------------------------------------------------------------------------


def test_passes_show_the_text_after_each(file, capsys):
    code, out, _ = run(capsys, "passes", f"{file}:traced")
    assert code == 0
    before, _, after = out.partition("# after differentiate")
    assert "bwd_diff" in before
    assert "bwd_diff" not in after
    facts = json.loads(run(capsys, "passes", f"{file}:traced", "--json")[1])
    assert facts["stages"][0]["name"] == "input"
    only = run(capsys, "passes", f"{file}:traced", "--only", "simplify")[1]
    assert only.startswith("# after simplify")
    code, _, error = run(capsys, "passes", f"{file}:traced", "--only", "magic")
    assert code == 2
    assert "expected one of input, differentiate" in error


def test_passes_show_the_program_of_a_tensor(file, capsys):
    code, out, _ = run(capsys, "passes", f"{file}:tensor", "--only", "simplify")
    assert code == 0
    assert "= reduce(" in out


def test_a_function_with_parameters_is_not_called(file, capsys):
    code, _, error = run(capsys, "graph", f"{file}:energy()")
    assert (code, error.partition("` of `")[0]) == (1, "livegrad: `energy()")
    assert error.endswith("takes arguments; omit () to inspect the function itself\n")


def test_the_page_of_passes_marks_added_and_removed_lines(file, tmp_path, capsys):
    output = tmp_path / "passes.html"
    assert run(capsys, "passes", f"{file}:traced", "-o", output)[0] == 0
    page = output.read_text(encoding="utf-8")
    assert 'id="differentiate"' in page
    assert 'class="removed"' in page
    assert 'class="added"' in page
    assert "no changes" in page


def test_explain_shows_the_plan_of_a_function(file, capsys):
    code, out, _ = run(capsys, "explain", f"{file}:energy")
    assert code == 0
    assert "ops: " in out
    assert "plan energy: " in out
    assert "the gradient of `energy` stores" in out
    facts = json.loads(run(capsys, "explain", f"{file}:rows", "--size", "n=1000", "--json")[1])
    assert facts["kernels"] == 1
    assert facts["bytes_moved"] == 8000


LOOPS = """
import livegrad as lg

def sweep(x):
    def body(i, y):
        y[i] = y[i - 1] * 0.5 + y[i]
        return y
    return lg.fori_loop(1, 100, body, x)

@lg.jit
def both(x):
    y = lg.cumulative_sum(x)
    return y, y.at[lg.asarray([1, 2])].add(1.0)

def rotate(x):
    return lg.fori_loop(0, 10, lambda i, y: lg.linalg.qr(y)[0], x)
"""


def test_explain_shows_which_updates_are_in_place_and_how_loops_run(tmp_path, capsys):
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    out = run(capsys, "explain", f"{path}:sweep", "--types", "f64[100]")[1]
    assert "-> b1:result0  # copied, because the caller keeps it" in out
    assert "-> b1:result0  # native loop, in place" in out
    out = run(capsys, "explain", f"{path}:both", "--types", "f64[100]")[1]
    assert "# copied, because its old value is used again" in out
    assert "kernel scatter_add [1 over 2](b1:argument1) -> b3:result1  # in place" in out
    assert "each iteration runs" in (out := run(capsys, "explain", f"{path}:rotate", "--types", "f64[4, 4]")[1])
    assert "calls qr" in out


def test_explain_runs_a_frame_of_an_engine(file, capsys):
    facts = json.loads(run(capsys, "explain", f"{file}:make_engine()", "--json")[1])
    assert facts == {"level": "cold", "ran": ["double", "show"], "problems": []}
    assert "double: cold, ran: added" in run(capsys, "explain", f"{file}:make_engine()")[1]


def test_explain_shows_the_needs_of_context_nodes(file, capsys):
    assert json.loads(run(capsys, "explain", f"{file}:program", "--json")[1])["needs"]["page"] == ["real_time"]


def test_passes_and_explain_take_part_files(tmp_path, capsys):
    ball = shapes.sphere(shapes.Parameter("radius", 2.0)).part(((-3, -3, -3), (3, 3, 3)), "ball")
    path = tmp_path / "ball.3mf"
    save_3mf(assembly_of_part(ball), path)
    assert "# after simplify" in run(capsys, "passes", path)[1]
    assert "plan ball: " in run(capsys, "explain", path)[1]
    code, _, error = run(capsys, "graph", path, "--format", "svg")
    assert code == 1
    assert "choose it with --function: ball_shape, ball" in error
    assert run(capsys, "graph", path, "--format", "svg", "--function", "ball")[1].startswith("<svg")


# --- doctor, bench, run -----------------------------------------------------------------------------------------------


def test_doctor_reports_the_machine_and_that_native_code_is_correct(capsys):
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    for name in ("livegrad", "system", "cpu", "blas", "cuda", "opencl", "cache", "packages", "native code"):
        assert any(line.startswith(name) for line in out.splitlines()), name
    facts = json.loads(run(capsys, "doctor", "--json")[1])
    assert facts["native_code"]["right"] is True
    assert facts["cpu"]["vector_bits"] in (128, 256, 512)
    assert facts["cuda"]["available"] or facts["cuda"]["why"]


def test_doctor_fails_if_native_code_is_wrong(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "evaluate", lambda function, points: points)
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "WRONG" in out


@pytest.mark.parametrize(
    ("system", "machine", "said"), [("darwin", "arm64", "do not run them"), ("sunos", "sparc", "not tested")]
)
def test_doctor_reports_untested_systems(system, machine, said, capsys, monkeypatch):
    monkeypatch.setattr(doctor.sys, "platform", system)
    monkeypatch.setattr(doctor.platform, "machine", lambda: machine)
    facts = doctor._system()
    assert facts["tested"] != "yes"
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "_system", lambda: facts)
    assert said in run(capsys, "doctor")[1]


def test_bench_outside_the_repository_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_command, "__file__", str(tmp_path / "a" / "b" / "c" / "run_command.py"))
    code, _, error = run(capsys, "bench", "context")
    assert code == 1
    assert "the benchmarks are part of the repository" in error


def test_bench_passes_its_arguments_on(capsys, monkeypatch):
    called: list[Any] = []

    def record(command: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
        called.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(run_command.subprocess, "run", record)
    assert run(capsys, "bench", "context", "--quick")[0] == 1
    assert called == [[sys.executable, "-m", "benchmarks", "context", "--quick"]]


def test_run_prints_the_ledger_as_text_and_json(tmp_path, capsys, monkeypatch):
    """tests/test_tour.py tests the tour itself."""
    outcome = Outcome({"rim": (0.5, 1.0)}, np.array([1.0, 0.1]), 0.999, 0.0, 12, True)
    entry = Entry("turn shade.warmth", "hot", 0, 0.0015, ("shade",), ("fit", "march"), ("camera",), "")

    def tour(folder: Path, backend: str, progress: Any) -> Tour:
        progress("done", 1.0)
        return Tour(folder / "index.html", outcome, [entry], 7, 0.5)

    monkeypatch.setattr(run_command, "run_tour", tour)
    code, out, error = run(capsys, "run", "--out", tmp_path)
    assert (code, error) == (0, "100 % done\n")
    assert "turn shade.warmth  hot           0  1.5  shade  fit march  camera" in out
    assert f"7 frames, 12 triangles, 0 s; open {tmp_path / 'index.html'}" in out
    code, out, error = run(capsys, "run", "--out", tmp_path, "--json", "--quiet")
    assert (code, error) == (0, "")
    assert json.loads(out)["edits"][0]["kept"] == ["fit", "march"]


# --- all commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_examples(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert f"  livegrad {name}" in shown
    module, _, function = cli.COMMANDS[name].run.partition(":")
    assert callable(getattr(sys.modules.get(module) or __import__(module, fromlist=[function]), function))


# --- parts in programs ------------------------------------------------------------------------------------------------

PARTS = """
import livegrad as lg
ball = lg.shapes.sphere(0.5)
part = ball.part(((-1, -1, -1), (1, 1, 1)), "ball")
assembly = lg.implicit.assembly_of_part(part)
def make(): return part
number = 3
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    (tmp_path / "parts.py").write_text(PARTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", [["part"], ["make()"], ["assembly"], ["ball", "--bounds", "-1,-1,-1,1,1,1"]])
def test_commands_take_parts_in_programs(words, parts, capsys):
    name, *options = words
    assert cli.main(["eval", f"parts.py:{name}", "0,0,0", "1,0,0", *options]) == 0
    assert capsys.readouterr().out == "-0.5\n0.5\n"


def test_output_files_have_the_name_of_the_object(parts, tmp_path, capsys):
    assert cli.main(["render", "parts.py:make()", "--size", "8x8"]) == 0
    assert cli.main(["info", "parts.py:part"]) == 0
    assert (tmp_path / "make.png").exists()
    assert "part 1 ball" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["parts.py:number"], 1, "`parts.py:number` is not a part: expected a Part, a Shape or an Assembly, found int"),
        (["parts.py:ball"], 2, "a shape has no bounds of its own"),
        (["parts.py:part", "--exact"], 2, "omit --part, --function, --set, --exact and --precision"),
        (
            ["parts.py"],
            1,
            "`parts.py` does not name an object: expected parts.py:NAME with one of assembly, ball, part",
        ),
    ],
)
def test_an_object_that_is_not_a_part_is_an_error(words, code, said, parts, capsys):
    assert cli.main(["eval", words[0], "0,0,0", *words[1:]]) == code
    assert said in capsys.readouterr().err


def test_explain_shows_the_kernels_of_a_tensor_and_of_a_jitted_function(file, capsys):
    for name in ("tensor", "step"):
        code, out, _ = run(capsys, "explain", f"{file}:{name}")
        assert code == 0
        assert "1 step, 1 kernel, " in out
    assert json.loads(run(capsys, "explain", f"{file}:tensor", "--json")[1])["kernels"] == 1


def test_a_jitted_function_that_was_never_called_is_an_error(file, capsys):
    code, _, error = run(capsys, "passes", f"{file}:idle")
    assert code == 1
    assert "expected one signature, found 0; pass the types of its parameters" in error

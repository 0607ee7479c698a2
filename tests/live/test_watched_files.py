"""Watched files: the engine keeps running after any save, and reports what is wrong with the file."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import livegrad as lg
from livegrad.live.engine import Engine

GOOD = "def shade(x=2.0):\n    return x + 1.0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose modules are unloaded afterwards."""
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


def watched(folder: Path, text: str = GOOD) -> tuple[Engine, lg.Block, Path]:
    file = folder / "shade.py"
    file.write_text(text)
    engine = Engine()
    return engine, lg.live.watch(engine, file, "shade"), file


BAD = {
    "not_utf8": (b"def shade(x=2.0):\n    return x # \xff\n", "is not valid Python"),
    "null": (b"def shade(x=2.0):\n    return x\0\n", "is not valid Python"),
    "unknown_coding": (b"# coding: no-such-coding\n", "is not valid Python"),
    "exit": (b"import sys\nsys.exit(3)\n", "raised SystemExit: 3"),
    "raises": (b"1 / 0\n", "raised ZeroDivisionError"),
    "syntax": (b"def shade(x=2.0)\n", "is not valid Python"),
    "exit_in_body": (b"import sys\ndef shade(x=2.0):\n    sys.exit(3)\n", "raised SystemExit: 3"),
    "other": (b"def other(x=2.0):\n    return x\n", "has no function `shade`"),
    "deep": (b"(" * 5_000 + b")" * 5_000, "is not valid Python"),
    "directory": (None, "cannot read"),
}


@pytest.mark.parametrize("frames_before", [0, 1, 2])
@pytest.mark.parametrize("name", BAD)
def test_an_invalid_file_is_a_problem_of_every_frame_while_the_last_code_keeps_running(
    name: str, frames_before: int, folder: Path
) -> None:
    text, message = BAD[name]
    engine, shade, file = watched(folder)
    for _ in range(max(frames_before, name == "exit_in_body")):  # a frame calls the body
        engine.step()
    file.unlink()
    file.mkdir() if text is None else file.write_bytes(text)
    for _ in range(3):
        frame = engine.step()
        assert not frame.ok
        assert [(problem.node, message in str(problem.error)) for problem in frame.problems] == [("shade", True)]
        assert message in engine.explain()
        assert len(shade.debug.errors) == 1
        assert float(engine.read(shade, running=name == "exit_in_body")) == 3.0
    if text is None:
        file.rmdir()
    file.write_text("def shade(x=2.0):\n    return x * 4.0\n")
    assert engine.step().ok
    assert shade.debug.errors == []
    assert float(engine.read(shade)) == 8.0


def test_the_errors_of_a_frame_are_those_of_the_current_file(folder: Path) -> None:
    """One invalid file after another, in every order: no error of the previous file remains."""
    files = {name: file for name, file in BAD.items() if file[0] is not None and name != "deep"}
    engine, shade, file = watched(folder)
    engine.step()
    for first in files:
        for second in files:
            for name in (first, second):
                text, message = files[name]
                assert text is not None
                file.unlink()
                file.write_bytes(text + b"#" * (name == first))  # of another size, because the clock may be too coarse
                frame = engine.step()
                assert [message in str(problem.error) for problem in frame.problems] == [True], (first, second)
                assert [message in str(error) for error in shade.debug.errors] == [True], (first, second)
    file.write_text("def shade(x=2.0):\n    return x * 4.0\n")
    assert engine.step().ok
    assert shade.debug.errors == []


@pytest.mark.parametrize(
    ("path", "function", "said"),
    [
        ("missing.py", "shade", "cannot read `missing.py`"),
        ("", "shade", "cannot read"),
        ("shade.py", "shadow", "`shade.py` has no function `shadow`"),
        ("shade.py", 3, "takes an engine, a file and the name of a function"),
        (None, "shade", "takes an engine, a file and the name of a function"),
    ],
)
def test_an_invalid_watch_is_rejected_at_its_line(path, function, said, folder) -> None:
    (folder / "shade.py").write_text(GOOD)
    engine = Engine()
    with pytest.raises(lg.LivegradError) as caught:
        lg.live.watch(engine, path if path is None else folder / path, function)  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert "test_watched_files.py" in str(caught.value.where)
    assert "runs on" not in str(caught.value)  # nothing runs yet
    assert not engine.graph.blocks


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"# coding: latin-1\n# \xe9\n", b"\r\n"])
def test_a_file_is_decoded_as_python_decodes_it(start: bytes, folder: Path) -> None:
    engine, shade, file = watched(folder)
    engine.step()
    file.write_bytes(start + b"def shade(x=2.0):\n    return x * 5.0\n")
    assert engine.step().ok, engine.frame.problems
    assert float(engine.read(shade)) == 10.0


def test_imported_modules_are_followed_directly_and_indirectly(folder: Path) -> None:
    (folder / "lg_watch_inner.py").write_text("BASE = 1.0\n")
    (folder / "lg_watch_outer.py").write_text("from lg_watch_inner import BASE\ndef gain():\n    return BASE * 10.0\n")
    text = "from lg_watch_outer import gain\ndef shade(x=2.0):\n    return x * gain()\n"
    engine, shade, _ = watched(folder, text)
    assert engine.step().ok
    assert float(engine.read(shade)) == 20.0
    assert engine.step().ran == ()
    (folder / "lg_watch_inner.py").write_text("BASE = 2.0\n")  # of the same size: bytecode files must be ignored
    assert engine.step().ran == ("shade",)
    assert float(engine.read(shade)) == 40.0
    (folder / "lg_watch_inner.py").write_text("BASE = \n")
    assert "lg_watch_inner.py:1" in str(engine.step().problems[0])
    assert float(engine.read(shade)) == 40.0
    assert sys.modules["lg_watch_inner"].BASE == 2.0
    (folder / "lg_watch_inner.py").write_text("BASE = 3.0\n")
    assert engine.step().ok
    assert float(engine.read(shade)) == 60.0


def test_a_newly_imported_module_is_followed(folder: Path) -> None:
    engine, shade, file = watched(folder)
    engine.step()
    (folder / "lg_watch_late.py").write_text("GAIN = 5.0\n")
    file.write_text("import lg_watch_late\ndef shade(x=2.0):\n    return x * lg_watch_late.GAIN\n")
    engine.step()
    (folder / "lg_watch_late.py").write_text("GAIN = 6.0\n")
    engine.step()
    assert float(engine.read(shade)) == 12.0


def test_a_removed_block_is_not_followed_until_it_is_added_again(folder: Path) -> None:
    engine, shade, file = watched(folder)
    engine.step()
    engine.remove(shade)
    engine.step()
    assert engine._journal.watches == []
    file.write_text("no Python at all")
    assert engine.step().ok
    engine.add(shade)
    assert not engine.step().ok
    file.write_text("def shade(x=2.0):\n    return x * 4.0\n")
    assert engine.step().ok
    assert float(engine.read(shade)) == 8.0


@pytest.mark.parametrize("seed", range(20))
def test_after_random_saves_the_last_valid_version_runs(seed: int, folder: Path) -> None:
    """The model: a file that fails changes nothing; a file that runs determines the value."""
    choose = random.Random(seed)
    helper = folder / f"lg_watch_random_{seed}.py"
    helper.write_text("GAIN = 1\n")
    text = f"from {helper.stem} import GAIN\ndef shade(x=2.0):\n    return x * GAIN + {{}}\n"
    engine, shade, file = watched(folder, text.format("0.0"))
    gain, offset = 1, 0
    good_gain, good_offset = 1, 0
    for _ in range(12):
        kind = choose.choice(["file", "helper", "break file", "break helper", "nothing"])
        if kind == "file":
            offset = choose.randrange(9)
            file.write_text(text.format(f"{offset}.0"))
        elif kind == "helper":
            gain = choose.randrange(9)
            helper.write_text(f"GAIN = {gain}\n")
        elif kind == "break file":
            offset = None
            file.write_bytes(choose.choice([b"\xff", b"def", b"raise SystemExit", b"import no_such_module_at_all"]))
        elif kind == "break helper":
            gain = None
            helper.write_bytes(choose.choice([b"GAIN = ", b"\0", b"1/0"]))
        if gain is not None and offset is not None:
            good_gain, good_offset = gain, offset
        frame = engine.step()
        assert frame.ok == (gain is not None and offset is not None), frame.problems
        assert float(engine.read(shade)) == 2.0 * good_gain + good_offset


def test_a_module_saved_while_it_was_not_imported_is_reloaded(folder: Path) -> None:
    helper = folder / "helper_that_comes_back.py"
    helper.write_text("OFFSET = 1.0\n")
    text = "from helper_that_comes_back import OFFSET\ndef shade(x=2.0):\n    return x + OFFSET\n"
    engine, shade, file = watched(folder, text)
    engine.step()
    file.write_text("def other(x=2.0):\n    return x\n")
    assert not engine.step().ok
    helper.write_text("OFFSET = 1 / 0\n")
    file.write_text(text + "#\n")
    (problem,) = engine.step().problems
    assert "raised ZeroDivisionError" in str(problem)
    helper.write_text("OFFSET = 10.0  # again\n")
    assert engine.step().ok
    assert float(engine.read(shade)) == 12.0


def test_a_module_saved_before_a_second_watch_is_reloaded_for_both_files(folder: Path) -> None:
    helper, second = folder / "lg_watch_shared.py", folder / "second.py"
    helper.write_text("OFFSET = 1.0\n")
    (folder / "lg_watch_between.py").write_text("from lg_watch_shared import OFFSET\n")
    engine, first, _ = watched(
        folder, "from lg_watch_between import OFFSET\ndef shade(x=2.0):\n    return x + OFFSET\n"
    )
    engine.step()
    helper.write_text("OFFSET = 10.0\n")
    second.write_text("from lg_watch_shared import OFFSET\ndef light(x=5.0):\n    return x + OFFSET\n")
    light = lg.live.watch(engine, second, "light")
    assert engine.step().ok
    assert float(engine.read(light)) == 15.0
    assert float(engine.read(first)) == 12.0  # through a module that the second file does not import


def test_a_file_saved_while_it_is_loaded_is_reloaded(folder: Path) -> None:
    helper = folder / "lg_watch_meanwhile.py"
    helper.write_text("OFFSET = 1.0\n")
    text = """
from pathlib import Path
from lg_watch_meanwhile import OFFSET

FACTOR = 1.0
folder = Path(__file__).parent
if OFFSET == 1.0:
    (folder / "lg_watch_meanwhile.py").write_text("OFFSET = 20.0\\n")
    own = folder / "shade.py"
    own.write_text(own.read_text().replace("FACTOR = 1.0", "FACTOR = 100.0"))

def shade(x=2.0):
    return x * FACTOR + OFFSET
"""
    engine, shade, _ = watched(folder, text)
    assert engine.step().ok
    assert float(engine.read(shade)) == 220.0
    assert engine.step().ran == ()


def test_a_module_that_only_the_function_imports_is_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    helper = folder / "lg_watch_inside.py"
    helper.write_text("OFFSET = 1.0\n")
    text = "def shade(x=2.0):\n    from lg_watch_inside import OFFSET\n    return x + OFFSET\n"
    engine, shade, _ = watched(folder, text)
    engine.step()
    for offset in (10.0, 20.0):
        helper.write_text(f"OFFSET = {offset}\n")
        assert engine.step().ok
        assert float(engine.read(shade)) == 2.0 + offset


def test_a_module_that_fails_at_its_first_import_is_followed(folder: Path) -> None:
    engine, shade, file = watched(folder)
    engine.step()
    helper = folder / "lg_watch_wrong.py"
    helper.write_text("OFFSET =\n")
    file.write_text("from lg_watch_wrong import OFFSET\ndef shade(x=2.0):\n    return x + OFFSET\n")
    assert not engine.step().ok
    helper.write_text("OFFSET = 10.0\n")
    assert engine.step().ok
    assert float(engine.read(shade)) == 12.0


@pytest.mark.parametrize("line", ["sys.path.pop(0)", "sys.path = sys.path[1:]", "sys.meta_path.pop(0)"])
def test_a_file_can_edit_sys_path(line: str, folder: Path) -> None:
    before = list(sys.path), list(sys.meta_path)
    engine, shade, file = watched(folder)
    file.write_text(f"import sys\n{line}\ndef shade(x=2.0):\n    return x * 5.0\n")
    try:
        assert engine.step().ok
    finally:
        assert (sys.path, sys.meta_path) == before
    assert float(engine.read(shade)) == 10.0


@pytest.mark.parametrize("frame_between", [False, True])
@pytest.mark.parametrize("place", ["composite", "composite in the engine", "other engine", "composite that left"])
def test_a_watched_block_is_followed_wherever_it_is_put(place: str, frame_between: bool, folder: Path) -> None:
    engine, shade, file = watched(folder)
    engine.step()
    engine.remove(shade)
    if frame_between:
        engine.step()
    composite = lg.Composite("around")
    if place == "other engine":
        engine = Engine()
        engine.add(shade)
    else:
        if place == "composite in the engine":
            engine.add(composite)
        composite.graph.add(shade)
        if composite.home is None:
            engine.add(composite)
    if place == "composite that left":
        engine.remove(composite)
        engine.step()
        assert engine._journal.watches == []
        engine.add(composite)
    engine.step()
    file.write_text("def shade(x=2.0):\n    return x * 7.0\n")
    assert engine.step().ok
    assert float(engine.read(shade)) == 14.0
    file.write_text("no Python at all")
    assert not engine.step().ok


def test_an_unsuitable_function_is_reported_at_its_line(folder: Path) -> None:
    engine, _, file = watched(folder)
    engine.step()
    file.write_text("\n\ndef shade(*x):\n    return x\n")
    (problem,) = engine.step().problems
    assert "must name its parameters (shade.py:3)" in str(problem)

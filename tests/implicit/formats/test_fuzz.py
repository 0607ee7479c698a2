"""Damaged files through the command line: an error message and a code, or a result; never a partial file."""

import random
import re
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegrad as lg
from livegrad.diagnostics import LivegradError
from livegrad.implicit.bodies.pruning import IntervalBounds, Lattice, find_blocks
from livegrad.implicit.formats.threemf.namespaces import BEAM_LATTICE
from livegrad.implicit.formats.vm import parse_vm
from livegrad.implicit.meshing.meshing import mesh
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.resources import BeamLattice, TriangleMesh
from livegrad.tools import cli
from tests.implicit.formats.test_threemf import model, package
from tests.implicit.test_images import painted
from tests.tools.test_cli import assembly

TAPE = """x var-x
y var-y
z var-z
a square x
b square y
c square z
d add a b
e add d c
f sqrt e
r const 0.5
g sub f r
"""
COMMANDS = {
    "info": [],
    "render": ["--size", "16x12", "-o", "{}.png"],
    "slice": ["-o", "{}.svg"],
    "mesh": ["-o", "{}.stl"],
    "eval": ["0.1,0.2,0.3", "--gradient"],
}
PIECES = ["", "0", "-1", "999999999999", "1e308", "nan", '"', "<", "</i:in>", "inputs.pos", "\x00", "vector", "result"]
NUMBERS = ["0", "-1", "1e30", "1e-30", "7", "99999", "1e308", "1e19", "4294967296", "inf"]
WORDS = ["", "x", "var-x", "const", "nan", "1e39", "sqrt", "div", "recip", "\n", "#", "add x x", "ln", "é"]


def replaced(generator: random.Random, text: str, pieces: list[str]) -> str:
    start = generator.randrange(len(text))
    return text[:start] + generator.choice(pieces) + text[start + generator.randrange(12) :]


def with_other_number(generator: random.Random, text: str) -> str:
    match = generator.choice(list(re.finditer(r'(?<=")-?[\d.]+(?=")', text)))
    return text[: match.start()] + generator.choice(NUMBERS) + text[match.end() :]


def damaged_package(generator: random.Random, source: Path, path: Path) -> None:
    """Changes the model of a package. Changed zip data would fail its checksum before it is read."""
    with zipfile.ZipFile(source) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = parts["3D/3dmodel.model"].decode()
    text = replaced(generator, text, PIECES) if generator.random() < 0.5 else with_other_number(generator, text)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**parts, "3D/3dmodel.model": text.encode()}.items():
            archive.writestr(name, data)


def run_all(capsys: pytest.CaptureFixture[str], path: Path, folder: Path) -> set[int]:
    codes = set()
    for command, options in COMMANDS.items():
        outputs = {folder / f"out{suffix}" for suffix in (".png", ".svg", ".stl")}
        words = [option.format(folder / "out") for option in options]
        code = cli.main([command, str(path), *words])
        _, error = capsys.readouterr()
        codes.add(code)
        assert code in (0, 1, 2)
        assert "Traceback" not in error
        written = [output for output in outputs if output.exists()]
        if code:
            assert error.strip(), command
            assert not written, f"{command} left a file behind"
        for output in written:
            output.unlink()
        assert not list(folder.glob("*.tmp*")), "a temporary file was left behind"
    return codes


@pytest.mark.parametrize("seed", range(4))
def test_commands_on_damaged_packages_fail_without_leftovers(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lg.save_3mf(painted(), tmp_path / "good.3mf")
    generator = random.Random(seed)
    for _ in range(3):
        damaged_package(generator, tmp_path / "good.3mf", tmp_path / "bad.3mf")
        run_all(capsys, tmp_path / "bad.3mf", tmp_path)


def test_commands_on_damaged_tapes_fail_without_leftovers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = random.Random(3)
    codes = set()
    for _ in range(8):
        (tmp_path / "bad.vm").write_text(replaced(generator, TAPE, WORDS), encoding="utf-8")
        codes |= run_all(capsys, tmp_path / "bad.vm", tmp_path)
    assert codes == {0, 1}


LINES = st.tuples(
    st.sampled_from("abcdxyz"),
    st.sampled_from(["const", "var-x", "add", "sub", "sqrt", "mod", "pow", "recip", "boom", ""]),
    st.lists(st.sampled_from(["a", "b", "c", "d", "x", "1", "-2.5e3", "nan", "q"]), max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(LINES, max_size=12).map(
    lambda lines: "\n".join(" ".join([name, op, *rest]) for name, op, rest in lines)
)))  # fmt: skip
def test_any_text_parses_or_is_an_error(text: str) -> None:
    try:
        function = parse_vm(text)
    except LivegradError:
        return
    assert len(function.results) == 1


# --- limits of small files --------------------------------------------------------------------------------------------


def steep() -> lg.Part:
    """A field whose surface is everywhere, so that no block can be pruned."""
    assembly = lg.implicit.add_expression(
        lg.Assembly(), "steep", "sin(pos.x * 1e5) * sin(pos.y * 1e5)", {"pos": "vector"}
    )
    return lg.implicit.part_of_function(assembly, "steep", ((-1, -1, -1), (1, 1, 1)))


def test_a_lattice_too_fine_for_memory_is_rejected() -> None:
    part = steep()
    limits = IntervalBounds(part.function, part.arguments, part.element.dtype)
    lattice = Lattice(part.low, (part.high - part.low) / 30000, (30000,) * 3, 8)
    with pytest.raises(AssemblyError, match=r"lattice is too fine.*expected at most 4,096 boxes"):
        find_blocks(limits, lattice, 1 << 12)
    with pytest.raises(AssemblyError, match="lattice is too fine for a part of this size"):
        lg.slice(part, 0.0, feature_size=2 / 30000)


def test_a_mesh_with_too_many_triangles_is_rejected() -> None:
    with pytest.raises(AssemblyError, match="more than 1,000 triangles"):
        mesh(steep(), feature_size=0.1, most_triangles=1000)


def test_numbers_beyond_the_precision_are_rejected(tmp_path: Path) -> None:
    distant_box = TriangleMesh.box((-1e30, -1, -1), (1, 1, 1))
    base = assembly()
    with pytest.raises(AssemblyError, match="is too large for the precision of f32"):
        lg.parts(lg.Assembly(base.functions, {**base.resources, 10: distant_box}, base.items))
    with pytest.raises(AssemblyError, match="not a valid index"):
        BeamLattice([[0, 0, 0], [1, 0, 0]], [[0, 10**30]], [[1, 1]])  # type: ignore[arg-type]
    lattice = f'<b:beamlattice xmlns:b="{BEAM_LATTICE}" minlength="0" radius="1">'
    beams = f'{lattice}<b:beams><b:beam v1="0" v2="1e30"/></b:beams></b:beamlattice>'
    vertices = '<vertices><vertex x="0" y="0" z="0"/><vertex x="1" y="0" z="0"/></vertices>'
    broken = model(f'<object id="1"><mesh>{vertices}<triangles/>{beams}</mesh></object>')
    with pytest.raises(LivegradError, match="attribute `v2` is not a valid index"):
        lg.load_3mf(package(tmp_path, broken))
    with pytest.raises(LivegradError, match="not a valid index"):
        lg.load_3mf(package(tmp_path, broken), check=False)

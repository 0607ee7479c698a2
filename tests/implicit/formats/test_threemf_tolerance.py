"""Real-world files: unused unfinished content and wrong declarations do not prevent loading."""

import re
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.formats.errors import FormatError, FormatWarning
from livegrad.implicit.formats.png import write_png
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.implicit.nodes.expression import add_expression
from livegrad.implicit.nodes.ports import PortType
from livegrad.implicit.nodes.resources import ImageStack, LevelSet, TriangleMesh
from livegrad.tools import cli
from tests.implicit.formats.synthetic_part import synthetic_part

SCALAR, VECTOR = PortType.SCALAR, PortType.VECTOR


def rewritten(path: Path, changes: dict[str, bytes], old: str = "", new: str = "") -> Path:
    """Copies a package with some parts changed, and a text in its model replaced."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    model = parts["3D/3dmodel.model"].decode()
    assert old in model
    parts["3D/3dmodel.model"] = model.replace(old, new).encode()
    out = path.with_name("changed.3mf")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**parts, **changes}.items():
            archive.writestr(name, data)
    return out


def ball() -> Assembly:
    assembly = add_expression(Assembly(), "ball", "length(pos) - 1", {"pos": "vector"})
    assembly = assembly.add_resource(TriangleMesh.box((-2, -2, -2), (2, 2, 2)), id=5)
    return assembly.add_resource(LevelSet(1, "shape", 5, name="ball"), id=6).build(6)


def with_unfinished(base: Assembly) -> Assembly:
    extended = base.add_function("draft", {"pos": VECTOR}, {"shape": SCALAR}, id=9)
    extended = extended.add_node("draft", "Sin", "open")
    extended = extended.add_node("draft", "FunctionGradient", "slope")
    return extended.add_node("draft", "FunctionCall", "call")


def test_an_unused_unfinished_function_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "draft.3mf"
    save_3mf(with_unfinished(ball()), path)
    read = load_3mf(path)
    assert [problem.function for problem in read.problems()] == ["draft"] * len(read.problems())
    (part,) = lg.parts(read)
    assert part([0, 0, 0]) == -1
    assert lg.implicit.part_of_function(read, "ball", ((-1,) * 3, (1,) * 3))([0, 0, 0]) == -1
    assert cli.main(["render", str(path), "-o", str(tmp_path / "a.png"), "--size", "16x16"]) == 0
    assert cli.main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "part 1 ball" in out
    assert "problem: function `draft`" in out


def test_a_used_unfinished_function_is_rejected(tmp_path: Path) -> None:
    assembly = with_unfinished(ball())
    assembly = assembly.add_node("ball", "FunctionCall", "needs", functionID=9, pos="inputs.pos")
    assembly = assembly.link("ball", "needs.shape", "outputs.shape").link("draft", "open.result", "outputs.shape")
    save_3mf(assembly, tmp_path / "draft.3mf")
    with pytest.raises(FormatError, match="function `draft`, node `open`: input `A` is not connected"):
        load_3mf(tmp_path / "draft.3mf")
    with pytest.raises(AssemblyError):
        lg.parts(load_3mf(tmp_path / "draft.3mf", check=False))


def with_open_nodes(base: Assembly) -> Assembly:
    """Adds nodes with unconnected inputs, calls of a draft, and an unconnected output, all unused."""
    extended = with_unfinished(base).add_node("ball", "Sin", "open")
    extended = extended.add_node("ball", "FunctionCall", "draft", functionID=9, pos="inputs.pos")
    extended = extended.add_node("ball", "FunctionGradient", "slope", functionID=9)
    return extended.add_output("ball", "color", VECTOR)


def test_unused_unfinished_nodes_and_outputs_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "draft.3mf"
    save_3mf(with_open_nodes(ball()), path)
    read = load_3mf(path)
    assert {problem.function for problem in read.problems()} == {"ball", "draft"}
    box = ((-1,) * 3, (1,) * 3)
    for exact in (False, True):
        (part,) = lg.parts(read, exact=exact)
        assert part([0, 0, 0]) == -1
        assert lg.implicit.part_of_function(read, "ball", box, exact=exact)([0, 0, 0]) == -1
    assert cli.main(["render", str(path), "-o", str(tmp_path / "a.png"), "--size", "16x16"]) == 0
    command = ["eval", str(path), "0,0,0", "--function", "ball", "--bounds=-1,-1,-1,1,1,1"]
    assert cli.main(command) == 0


def test_finished_outputs_of_an_unfinished_function_can_be_used(tmp_path: Path) -> None:
    assembly = with_open_nodes(ball()).add_function("twice", {"pos": VECTOR}, {"shape": SCALAR}, id=2)
    assembly = assembly.add_node("twice", "FunctionCall", "call", functionID=1, pos="inputs.pos")
    assembly = assembly.add_node(
        "twice", "FunctionGradient", "slope", functionID=1, pos="inputs.pos", scalar_output="shape", vector_input="pos"
    )
    assembly = assembly.add_node("twice", "Addition", "sum", A="call.shape", B="slope.magnitude")
    assembly = assembly.link("twice", "sum.result", "outputs.shape")
    for exact in (False, True):
        part = lg.implicit.part_of_function(assembly, "twice", ((-1,) * 3, (1,) * 3), exact=exact)
        assert part([0, 0, 3]) == pytest.approx(3, abs=1e-3)  # a distance of 2, a slope of 1
        assert "twice" in lg.implicit.to_opencl(assembly, "twice", exact=exact)
    with pytest.raises(AssemblyError, match="output `color` is not connected"):
        lg.implicit.to_function(assembly, "ball")  # all of its outputs


def test_a_missing_channel_is_an_error_that_lists_the_outputs() -> None:
    with pytest.raises(AssemblyError, match=r"function `ball` has no output `colour`.*: expected one of shape, color"):
        lg.implicit.part_of_function(with_open_nodes(ball()), "ball", ((-1,) * 3, (1,) * 3), channel="colour")


def with_step(step: float | None) -> Assembly:
    assembly = ball().add_function("even", {"pos": VECTOR}, {"shape": SCALAR}, id=2)
    inputs = {} if step is None else {"step": step}
    assembly = assembly.add_node(
        "even", "NormalizeDistance", "n", {"functionID": 1, "pos": "inputs.pos", **inputs},
        scalar_output="shape", vector_input="pos",
    )  # fmt: skip
    assembly = assembly.link("even", "n.result", "outputs.shape")
    return assembly.add_resource(LevelSet(2, "shape", 5), id=8).build(8)


@pytest.mark.parametrize("exact", [False, True])
def test_a_gradient_without_a_step_uses_the_default(tmp_path: Path, exact: bool) -> None:
    assembly = with_step(None)
    assert not assembly.problems()
    save_3mf(assembly, tmp_path / "a.3mf")
    read = load_3mf(tmp_path / "a.3mf")
    assert "step" not in read.node("even", "n").inputs
    points = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    for variant in (assembly, read):
        actual = lg.parts(variant, exact=exact)[1](points)
        np.testing.assert_array_equal(actual, lg.parts(with_step(1e-3), exact=exact)[1](points))


def images(folder: Path, sheets: list[bytes], columns: int, rows: int) -> Path:
    """A part that reads an image with these sheets; the file declares the given size."""
    samples = np.ones((len(sheets), 2, 3, 4), np.float32)
    assembly = Assembly().add_resource(ImageStack(samples), id=10).add_image_function("picture", 10, id=4)
    save_3mf(assembly, folder / "a.3mf")
    parts = {f"3D/volumetric/image10/sheet{index:04}.png": data for index, data in enumerate(sheets)}
    return rewritten(
        folder / "a.3mf", parts, 'rowcount="2" columncount="3"', f'rowcount="{rows}" columncount="{columns}"'
    )


def test_a_wrong_image_size_causes_a_warning(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 4)).astype(np.uint16)
    path = images(tmp_path, [write_png(pixels, 8)] * 2, 100, 200)
    message = r"declares 100 × 200 pixels, but its sheets have 5 × 4 \(changed.3mf:\d+\)"
    with pytest.warns(FormatWarning, match=message) as caught:
        read = load_3mf(path)
    assert caught[0].filename == __file__
    stack = read.resources[10]
    assert isinstance(stack, ImageStack)
    np.testing.assert_allclose(stack.samples[1], pixels / 255, atol=1e-7)


def test_sheets_of_different_depths_cause_a_warning(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (2, 3, 4)).astype(np.uint16)
    flat = np.random.default_rng(1).integers(0, 256, (2, 3, 1)).astype(np.uint16)
    with pytest.warns(FormatWarning, match="different depths or channels"):
        read = load_3mf(images(tmp_path, [write_png(deep, 16), write_png(flat, 8)], 3, 2))
    stack = read.resources[10]
    assert isinstance(stack, ImageStack)
    assert (stack.depth, stack.channels) == (16, 4)
    np.testing.assert_allclose(stack.samples[0], deep / 65535, atol=1e-7)
    np.testing.assert_allclose(stack.samples[1, ..., :3], np.repeat(flat / 255, 3, -1), atol=1e-7)
    save_3mf(read, tmp_path / "again.3mf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load_3mf(tmp_path / "again.3mf").resources[10]
    assert isinstance(again, ImageStack)
    np.testing.assert_allclose(again.samples, stack.samples, atol=1e-5)


def test_sheets_of_different_sizes_are_rejected(tmp_path: Path) -> None:
    sheets = [write_png(np.zeros((2, columns, 4), np.uint16), 8) for columns in (3, 4)]
    with pytest.raises(FormatError, match=r"sheets of different sizes.*3 × 2, 4 × 2"):
        load_3mf(images(tmp_path, sheets, 3, 2))


def test_undecodable_part_names_are_rejected(tmp_path: Path) -> None:
    """Damages the names in the zip directory and before the data."""
    save_3mf(synthetic_part(), tmp_path / "good.3mf")
    original = (tmp_path / "good.3mf").read_bytes()
    offsets = [m.start() for m in re.finditer(b"3D/3dmodel.model", original)]
    flagged = bytearray(original)
    for header, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # declares names as UTF-8
        for match in re.finditer(re.escape(header), original):
            flagged[match.start() + offset + 1] |= 0x08
    for package in [original, bytes(flagged)]:
        for name_offset in offsets:
            data = bytearray(package)
            data[name_offset + 3] = 0xFF
            (tmp_path / "bad.3mf").write_bytes(data)
            with pytest.raises(FormatError):
                load_3mf(tmp_path / "bad.3mf")


def test_the_help_of_an_error_uses_public_names() -> None:
    with pytest.raises(AssemblyError, match="reads meshes or images") as caught:
        lg.implicit.to_function(synthetic_part(), "density")
    names = re.findall(r"lg\.(\w+)", str(caught.value))
    assert names
    assert all(hasattr(lg, name) for name in names)

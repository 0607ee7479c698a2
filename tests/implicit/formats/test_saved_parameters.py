"""The parameters of a part survive a 3MF file by name."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import livegrad as lg
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.threemf.livegrad_metadata import read_controls, read_parameters
from livegrad.implicit.nodes.assembly import Assembly

CORNERS = ((-4, -4, -4), (4, 4, 4))
POINTS = np.random.default_rng(0).uniform(-3, 3, (50, 3))


def plate() -> lg.Part:
    radius, width = lg.shapes.Parameter("radius", 0.5), lg.shapes.Parameter("width", 3.0)
    return (lg.shapes.box((4, width, 1)) - lg.shapes.cylinder(radius).translate((1, 0, 0))).part(CORNERS, "plate")


def saved_and_loaded(assembly: Assembly, folder: Path) -> Assembly:
    lg.save_3mf(assembly, folder / "part.3mf")
    return lg.load_3mf(folder / "part.3mf")


def test_saved_parameters_are_restored(tmp_path: Path) -> None:
    part = plate().with_parameters(radius=0.75)
    assembly = saved_and_loaded(lg.implicit.assembly_of_part(part), tmp_path)
    (loaded,) = lg.parts(assembly)
    assert loaded.parameters.keys() == {"radius", "width"}
    assert [float(loaded.parameters[name]) for name in ("radius", "width")] == [0.75, 3.0]

    changes = {"radius": 1.0, "width": 2.0}
    changed, expected = loaded.with_parameters(**changes), part.with_parameters(**changes)
    np.testing.assert_allclose(changed(POINTS), expected(POINTS), rtol=1e-5, atol=1e-6)
    gradient, expected_gradient = changed.parameter_gradient(POINTS), expected.parameter_gradient(POINTS)
    for name in changes:
        np.testing.assert_allclose(gradient[name], expected_gradient[name], rtol=1e-4, atol=1e-5)
    assert saved_and_loaded(lg.implicit.assembly_of_part(plate()), tmp_path) == lg.implicit.assembly_of_part(plate())


def test_vector_parameters_are_restored(tmp_path: Path) -> None:
    balls = lg.implicit.add_expression(Assembly(), "ball", "length(pos - c) - 1", {"pos": "vector", "c": "vector"})
    part = lg.implicit.part_of_function(balls, "ball", CORNERS).with_parameters(c=(0.5, 2.0, 0.0))
    (loaded,) = lg.parts(saved_and_loaded(lg.implicit.assembly_of_part(part), tmp_path))
    assert loaded.parameters["c"].tolist() == [0.5, 2.0, 0.0]
    np.testing.assert_allclose(loaded.with_parameters(c=(1, 1, 1))([1.0, 1.0, 2.5]), 0.5)


def test_explicit_parameters_replace_saved_parameters() -> None:
    assembly = lg.implicit.assembly_of_part(plate())
    hole = assembly.function("plate").id, "radius"
    (part,) = lg.parts(assembly, parameters={"hole": hole})
    assert list(part.parameters) == ["hole"]
    (fixed,) = lg.parts(assembly, parameters={})
    assert not fixed.parameters


def test_parameters_without_constants_are_omitted() -> None:
    assembly = lg.implicit.assembly_of_part(plate())
    identifier = assembly.function("plate").id
    extra = (("gone", identifier, "no such node"), ("elsewhere", 99, "radius"))
    document = replace(assembly.document, parameters=(*assembly.document.parameters, *extra))
    (part,) = lg.parts(replace(assembly, document=document))
    assert part.parameters.keys() == {"radius", "width"}


def test_other_readers_see_metadata_with_a_declared_prefix(tmp_path: Path) -> None:
    lg.save_3mf(lg.implicit.assembly_of_part(plate()), tmp_path / "part.3mf")
    with zipfile.ZipFile(tmp_path / "part.3mf") as package:
        model = package.read("3D/3dmodel.model").decode()
    assert 'xmlns:livegrad="urn:livegrad:assembly"' in model
    assert '<metadata name="livegrad:parameters">' in model


@pytest.mark.parametrize("text", ["{", "3", '[["radius"]]', '[["radius", "a", "b"]]', json.dumps([1, 2])])
def test_invalid_parameters_are_rejected(text: str) -> None:
    with pytest.raises(FormatError, match=r"`part.3mf` has invalid parameter names"):
        read_parameters(text, "part.3mf")


def test_controls_of_parameters_are_restored(tmp_path: Path) -> None:
    controls = {"radius": lg.Control(0.0, 2.0, step=0.1, unit="mm", group="Hole"), "width": lg.Control(label="W")}
    sizes = [lg.shapes.Parameter(name, 1.0, control) for name, control in controls.items()]
    shape = lg.shapes.box((4, sizes[1], 1)) - lg.shapes.cylinder(sizes[0])
    part = shape.part(CORNERS, "plate")
    assembly = lg.implicit.assembly_of_part(part)
    loaded = saved_and_loaded(assembly, tmp_path)
    assert loaded == assembly
    assert lg.parts(loaded)[0].controls == controls
    assert lg.parts(loaded, parameters={})[0].controls == {}


@pytest.mark.parametrize("text", ["[]", "3", "{", '{"a": 3}', '{"a": {"low": 1}}', '{"a": {"wide": 1}}'])
def test_invalid_controls_are_an_error(text: str) -> None:
    with pytest.raises(FormatError, match="invalid controls"):
        read_controls(text, "part.3mf")

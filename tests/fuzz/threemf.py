"""Random 3MF documents, written by us and read by lib3mf, and the other way round; and broken ones, which both refuse.

A document has meshes, components, functions of nodes, level sets, lattices, images, volume data, metadata and
thumbnails. What lib3mf read and wrote again must mean the same. A broken one must be read or refused in words by us,
and must be refused where lib3mf refuses it.
"""

from __future__ import annotations

import re
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import livegrad as lg
from livegrad.diagnostics import LivegradError
from livegrad.implicit.formats.png import write_png
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.formats.threemf.namespaces import UNITS, WELL_KNOWN_METADATA
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.constants import literals_to_constants
from livegrad.implicit.nodes.node_graph import GraphFunction
from livegrad.implicit.nodes.resources import (
    OBJECT_TYPES,
    BeamLattice,
    Components,
    Document,
    ImageStack,
    LevelSet,
    Thumbnail,
    TriangleMesh,
    VolumeChannel,
    VolumeData,
)
from livegrad.implicit.nodes.to_ir import to_function
from livegrad.runtime.reference import evaluate

NEEDS = ("lib3mf",)
SHORT = 12
Rng = np.random.Generator
_EXPRESSIONS = (
    "length(pos) - {0}", "max(abs(pos.x) - {0}, pos.y)", "sin(pos.x * {0}) + cos(pos.y) * pos.z",
    "dot(pos, vector(1, {0}, 2)) - 1", "clamp(pos.x, {0}, 1) - pos.z", "select(pos.x, {0}, pos.y, pos.z)",
)  # fmt: skip


def run_one(seed: int) -> Mapping[str, int]:
    rng = np.random.default_rng(seed)
    covered: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = Path(name)
        made = _document(rng, covered)
        save_3mf(made, folder / "ours.3mf")
        read = load_3mf(folder / "ours.3mf")
        assert _shown(read) == _shown(made), f"seed {seed}: what was saved is read differently"
        _compare_with_lib3mf(seed, made, folder, covered)
        _break(seed, rng, folder, covered)
    return covered


# --- random documents -------------------------------------------------------------------------------------------------


def _numbers(rng: Rng, shape: Any, low: int = -40, high: int = 40) -> Any:
    """Numbers that 32 bits, and six decimals, hold exactly."""
    return rng.integers(low, high, shape) / 8


def _transform(rng: Rng) -> tuple[float, ...]:
    if rng.random() < 0.4:
        return (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    while True:
        matrix = _numbers(rng, (3, 3), -16, 16)
        if abs(np.linalg.det(matrix)) > 0.1:
            return tuple(map(float, (*matrix.reshape(-1), *_numbers(rng, 3))))


def _mesh(rng: Rng, name: str) -> TriangleMesh:
    """A closed mesh: a box, or a tetrahedron, right side out."""
    if rng.random() < 0.5:
        low = _numbers(rng, 3)
        return TriangleMesh.box(low, low + _numbers(rng, 3, 1, 40), name)
    while True:
        corners = _numbers(rng, (4, 3))
        volume = np.linalg.det(corners[1:] - corners[0])
        if abs(volume) > 0.05:
            faces = np.array([(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)])
            return TriangleMesh(corners, faces if volume > 0 else faces[:, ::-1], name)


def _lattice(rng: Rng, clip: int) -> BeamLattice:
    count = int(rng.integers(2, 7))
    nodes = np.unique(_numbers(rng, (count * 2, 3)), axis=0)[: count + 1]
    beams = np.array([(i, i + 1) for i in range(len(nodes) - 1)])
    radii = _numbers(rng, beams.shape, 1, 12)
    balls = np.flatnonzero(rng.random(len(nodes)) < 0.4)
    clipping = str(rng.choice(["none", "inside", "outside"]))
    return BeamLattice(
        nodes, beams, radii, "lattice", rng.choice(["sphere", "hemisphere", "butt"], beams.shape), balls,
        _numbers(rng, len(balls), 1, 12), (), 0.001, clipping, clip if clipping != "none" else None,
    )  # fmt: skip


def _document(rng: Rng, covered: Counter[str]) -> Assembly:
    made = Assembly()
    for index in range(int(rng.integers(1, 4))):
        made = made.add_resource(_mesh(rng, f"mesh {index} <&>"))
        covered["meshes"] += 1
    first = next(iter(made.resources))
    buildable = list(made.resources)
    if rng.random() < 0.6:
        made, bodies = _with_functions(rng, made, first, covered)
        buildable += bodies
    if rng.random() < 0.4:
        made = made.add_resource(_lattice(rng, first))
        buildable.append(max(made.resources))
        covered["lattices"] += 1
    for _ in range(int(rng.integers(0, 3))):
        members = tuple((int(rng.choice(buildable)), _transform(rng)) for _ in range(int(rng.integers(1, 4))))
        made = made.add_resource(Components(members, "group"))
        buildable.append(max(made.resources))
        covered["components"] += 1
    for number in rng.choice(buildable, min(3, len(buildable)), replace=False):
        made = made.build(int(number), transform=_transform(rng), part_number=str(rng.choice(["", "a-1", "ü"])))
    return _described(rng, made, covered)


def _with_functions(rng: Rng, made: Assembly, mesh: int, covered: Counter[str]) -> tuple[Assembly, list[int]]:
    fields: list[int] = []
    for index in range(int(rng.integers(1, 4))):
        text = str(rng.choice(_EXPRESSIONS)).format(float(_numbers(rng, (), 1, 20)))
        made = lg.implicit.add_expression(made, f"field_{index}", text, {"pos": "vector"})
        fields.append(max(made.functions))
        covered["functions"] += 1
    made = made.add_function("moved", {"pos": "vector"}, {"shape": "scalar"})
    number = max(made.functions)
    matrix = np.eye(4)
    matrix[:, :3] = np.array(_transform(rng)).reshape(4, 3)
    made = made.add_node(number, "ConstMat", "matrix", value=matrix.reshape(-1))
    made = made.add_node(number, "MatVecMultiplication", "point", A="matrix.matrix", B="inputs.pos")
    made = made.add_node(number, "FunctionCall", "call", functionID=int(rng.choice(fields)), pos="point.result")
    made = made.link(number, "call.shape", "outputs.shape")
    volume = None
    if rng.random() < 0.5:
        made, volume = _with_image(rng, made, covered)
    bodies = []
    for _ in range(int(rng.integers(1, 3))):
        chosen = int(rng.choice([*fields, number]))
        box_only = bool(rng.random() < 0.5)
        body = LevelSet(chosen, "shape", mesh, box_only, _transform(rng), 0.25, 1.5, volume, "body")
        made = made.add_resource(body)
        bodies.append(max(made.resources))
        covered["level sets"] += 1
    return made, bodies


def _with_image(rng: Rng, made: Assembly, covered: Counter[str]) -> tuple[Assembly, int]:
    depth = int(rng.choice([8, 16]))
    samples = rng.integers(0, 1 << depth, (2, 3, 4, 4)) / ((1 << depth) - 1)
    made = made.add_resource(ImageStack(samples.astype(np.float32), depth, name="picture"))
    made = made.add_image_function("sample", max(made.resources), filter=str(rng.choice(["linear", "nearest"])))
    channels = (VolumeChannel("color", max(made.functions), "color"),)
    made = made.add_resource(VolumeData(channels))
    covered["images"] += 1
    return made, max(made.resources)


def _described(rng: Rng, made: Assembly, covered: Counter[str]) -> Assembly:
    names = [str(name) for name in rng.choice(WELL_KNOWN_METADATA, int(rng.integers(0, 3)), replace=False)]
    metadata = tuple((name, f"text <{index}> & more") for index, name in enumerate(names))
    picture = Thumbnail(write_png(rng.integers(0, 256, (4, 4, 3)).astype(np.uint16), 8))
    thumbnail = picture if rng.random() < 0.4 else None
    covered["thumbnails"] += thumbnail is not None
    covered["metadata"] += len(metadata)
    resources = dict(made.resources)
    for number, resource in made.resources.items():
        built = any(item.object == number for item in made.items)
        if isinstance(resource, TriangleMesh) and rng.random() < 0.2:
            allowed = OBJECT_TYPES[:4] if built or len(made.items) else OBJECT_TYPES
            used = any(isinstance(r, BeamLattice) and r.clipping_mesh == number for r in made.resources.values())
            resources[number] = replace(resource, object_type="model" if used else str(rng.choice(allowed)))
    unit = str(rng.choice(UNITS))
    return replace(made, resources=resources, document=Document(unit, metadata, thumbnail))


# --- what lib3mf makes of it ------------------------------------------------------------------------------------------


def _wrapper() -> Any:
    # Here: the other fuzzers run where it is not installed, too.
    return import_module("lib3mf").get_wrapper()


def _read_by_lib3mf(path: Path) -> tuple[Any, str | None]:
    """The model, or what lib3mf says against it."""
    model = _wrapper().CreateModel()
    try:
        model.QueryReader("3mf").ReadFromFile(str(path))
    except Exception as error:  # lib3mf has one class for everything
        return model, str(error)
    return model, None


def _listed(iterator: Any, get: str) -> list[Any]:
    found = []
    while iterator.MoveNext():
        found.append(getattr(iterator, get)())
    return found


def _compare_with_lib3mf(seed: int, made: Assembly, folder: Path, covered: Counter[str]) -> None:
    model, refusal = _read_by_lib3mf(folder / "ours.3mf")
    assert refusal is None, f"seed {seed}: lib3mf refuses what we wrote: {refusal}"
    meshes = _listed(model.GetMeshObjects(), "GetCurrentMeshObject")
    expected = [r for r in made.resources.values() if isinstance(r, TriangleMesh | BeamLattice)]
    assert sorted((m.GetVertexCount(), m.GetTriangleCount(), m.BeamLattice().GetBeamCount()) for m in meshes) == sorted(
        (len(r.vertices), len(r.triangles), len(r.beams) if isinstance(r, BeamLattice) else 0) for r in expected
    ), f"seed {seed}: lib3mf sees other meshes"
    sizes = {f.GetDisplayName(): len(_listed(f.GetNodes(), "GetCurrent")) for f in _functions(model)}
    written = literals_to_constants(made).functions.values()
    own = {f.name: len(f.nodes) for f in written if isinstance(f, GraphFunction)}
    assert {name: count for name, count in sizes.items() if name in own} == own, f"seed {seed}: other functions"
    items = _listed(model.GetBuildItems(), "GetCurrent")
    assert len(items) == len(made.items), f"seed {seed}: other items"
    for item, ours in zip(items, made.items, strict=True):
        theirs = np.array([list(row) for row in item.GetObjectTransform().Fields]).reshape(-1)
        np.testing.assert_allclose(theirs, ours.transform, atol=1e-5, err_msg=f"seed {seed}: an item elsewhere")
    writer = model.QueryWriter("3mf")
    writer.SetDecimalPrecision(9)
    writer.WriteToFile(str(folder / "theirs.3mf"))
    covered["documents"] += 1
    again = load_3mf(folder / "theirs.3mf")
    _compare_meaning(seed, made, again, covered)


def _functions(model: Any) -> list[Any]:
    return [f for f in _listed(model.GetFunctions(), "GetCurrentFunction") if hasattr(f, "GetNodes")]


def _compare_meaning(seed: int, made: Assembly, again: Assembly, covered: Counter[str]) -> None:
    """What lib3mf wrote means what we wrote: bodies, placements, fields, beams, pictures."""
    assert again.document.unit == made.document.unit, f"seed {seed}: another unit"
    assert dict(again.document.metadata) == dict(made.document.metadata), f"seed {seed}: other metadata"
    for kind in (TriangleMesh, BeamLattice, LevelSet, Components, ImageStack, VolumeData):
        before, after = ([r for r in a.resources.values() if isinstance(r, kind)] for a in (made, again))
        assert len(before) == len(after), f"seed {seed}: {len(before)} {kind.__name__}s became {len(after)}"
        covered["resources compared"] += len(before)
        for one in before:
            same = any(_alike(one, other) for other in after)
            assert same, f"seed {seed}: {str(one)[:200]} became another {kind.__name__}"
    points = np.random.default_rng(seed).uniform(-2, 2, (4, 3))
    for function in made.functions.values():
        if isinstance(function, GraphFunction):
            pair = [to_function(a, function.name, element=lg.f64) for a in (made, again)]
            for point in points:
                values = [evaluate(f, point) for f in pair]
                np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-5, err_msg=f"seed {seed}: {function.name}")
            covered["functions compared"] += 1


def _alike(one: Any, other: Any) -> bool:
    """Whether a resource is another one but for ids, rounding, and what lib3mf does not keep."""
    match one:
        case TriangleMesh():
            return (
                (one.name, one.object_type, len(one.triangles)) == (other.name, other.object_type, len(other.triangles))
                and np.array_equal(one.triangles, other.triangles)
                and np.allclose(one.vertices, other.vertices, atol=1e-5)
            )
        case BeamLattice():
            arrays = ("vertices", "radii", "ball_radii")
            return (
                one.clipping == other.clipping
                and np.array_equal(one.caps, other.caps)
                and np.array_equal(one.beams, other.beams)
                and np.array_equal(np.sort(one.balls), np.sort(other.balls))
                and all(np.allclose(np.sort(getattr(one, n), None), np.sort(getattr(other, n), None)) for n in arrays)
            )
        case LevelSet():
            same = ("channel", "box_only", "min_feature_size", "fallback", "name")
            return np.allclose(one.transform, other.transform, atol=1e-5) and all(
                getattr(one, n) == getattr(other, n) for n in same
            )
        case Components():
            return len(one.members) == len(other.members) and all(
                np.allclose(a, b, atol=1e-5) for (_, a), (_, b) in zip(one.members, other.members, strict=True)
            )
        case ImageStack():
            return one.depth == other.depth and np.array_equal(one.samples, other.samples)
        case VolumeData():
            return [c.kind for c in one.channels] == [c.kind for c in other.channels]
    return False


def _shown(assembly: Assembly) -> Any:
    """An assembly as values: functions with constants where literals were, in order of their ids."""
    plain = literals_to_constants(assembly)
    functions = [plain.functions[number] for number in sorted(plain.functions)]
    resources = [plain.resources[number] for number in sorted(plain.resources)]
    return functions, resources, plain.items, plain.document


# --- broken documents -------------------------------------------------------------------------------------------------

# What lib3mf refuses by a habit of its own: coordinates and radii beyond a billion.
_LARGE = "999999999999"
_WORDS = ["", "0", "-1", "7", _LARGE, "1e400", "nan", "inf", "x", "1,5", "1_0", "other", "model", "/no.png"]


def _break(seed: int, rng: Rng, folder: Path, covered: Counter[str]) -> None:
    with zipfile.ZipFile(folder / "ours.3mf") as archive:
        good = {name: archive.read(name) for name in archive.namelist()}
    for attempt in range(4):
        parts, how = _mutated(rng, good)
        path = folder / f"broken{attempt}.3mf"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in parts.items():
                archive.writestr(name, data)
        ours = _refusal(seed, path, how)
        _, theirs = _read_by_lib3mf(path)
        covered[f"broken, {'refused' if ours else 'read'} by us, {'refused' if theirs else 'read'} by lib3mf"] += 1
        if _LARGE in how and theirs is not None:
            continue
        assert ours is not None or theirs is None, f"seed {seed}: lib3mf refuses and we do not, {how}: {theirs}"


def _refusal(seed: int, path: Path, how: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            load_3mf(path)
        except LivegradError as error:
            return str(error)
        except Exception as error:
            what = f"{type(error).__name__} and no error in words"
            raise AssertionError(f"seed {seed}: {what}, {how}: {error}") from error
    return None


def _mutated(rng: Rng, good: dict[str, bytes]) -> tuple[dict[str, bytes], str]:
    """A package with one thing wrong, perhaps, and what that is."""
    parts = dict(good)
    kind = rng.random()
    if kind < 0.1:
        name = str(rng.choice(list(parts)))
        del parts[name]
        return parts, f"without {name}"
    texts = [name for name in parts if name.endswith((".model", ".rels", ".xml"))]
    name = "3D/3dmodel.model" if kind < 0.8 else str(rng.choice(texts))
    text = parts[name].decode()
    attributes = list(re.finditer(r'([\w:]+)="([^"]*)"', text))
    chosen = attributes[int(rng.integers(len(attributes)))]
    if kind < 0.35:
        word = str(rng.choice(_WORDS))
        changed = text[: chosen.start(2)] + word + text[chosen.end(2) :]
        how = f"{chosen.group(0)} is {word!r}"
    elif kind < 0.5:
        changed = text[: chosen.start()] + text[chosen.end() :]
        how = f"without {chosen.group(0)}"
    elif kind < 0.6:
        changed = text[: chosen.start()] + chosen.group(1) + "s" + text[chosen.end(1) :]
        how = f"{chosen.group(0)} is called otherwise"
    else:
        elements = list(re.finditer(r"<(?![?!/])[^>]*/>", text))
        element = elements[int(rng.integers(len(elements)))]
        twice = rng.random() < 0.5
        changed = text[: element.start()] + element.group(0) * (2 if twice else 0) + text[element.end() :]
        how = f"{element.group(0)} {'twice' if twice else 'left out'}"
    parts[name] = changed.encode()
    return parts, f"in {name}, {how}"

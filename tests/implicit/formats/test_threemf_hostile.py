"""Untrusted files: clear errors, bounded time and memory, and no partial results."""

import random
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from livegrad.diagnostics import LivegradError
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.mesh_files import load_stl
from livegrad.implicit.formats.package import Limits
from livegrad.implicit.formats.png import read_png
from livegrad.implicit.formats.threemf import load_3mf, save_3mf
from livegrad.implicit.formats.vm import load_vm, parse_vm
from livegrad.implicit.formats.xml_tree import parse_xml
from tests.implicit.formats.test_threemf import CORE, everything, model, package


def refused(path: Path, message: str, limits: Limits | None = None) -> None:
    with pytest.raises(FormatError, match=message):
        load_3mf(path, limits=limits)


def node(identifier: str, source: str) -> str:
    return (
        f'<i:sin identifier="{identifier}"><i:in><i:scalarref identifier="A" ref="{source}"/></i:in>'
        '<i:out><i:scalar identifier="result"/></i:out></i:sin>'
    )


def function(body: str, number: int = 3) -> str:
    attributes = f'id="{number}" displayname="f{number}"'
    return f"<i:implicitfunction {attributes}><i:in/>{body}<i:out></i:out></i:implicitfunction>"


def calling(number: int, callee: int) -> str:
    port = '<i:out><i:resourceid identifier="value"/></i:out>'
    callee_node = f'<i:constresourceid identifier="r" value="{callee}">{port}</i:constresourceid>'
    inputs = '<i:in><i:resourceref identifier="functionID" ref="r.value"/></i:in>'
    return function(f'{callee_node}<i:functioncall identifier="c">{inputs}</i:functioncall>', number)


IMAGE = '<v:image3d id="1"><v:imagestack rowcount="{}" columncount="{}" sheetcount="{}">{}</v:imagestack></v:image3d>'

SHEET = '<v:imagesheet path="/nothing.png"/>'
BAD_MODELS = {
    "not well-formed": "<model",
    "not a 3MF model": "<html/>",
    "unknown unit": f'<model xmlns="{CORE}" unit="parsec"/>',
    "resource id 3 is not unique": model(function("") + function("")),
    "is not a resource id": model('<i:implicitfunction id="-1"/>'),
    "attribute `id` is missing": model("<i:implicitfunction/>"),
    "unknown node type": model(function('<i:bomb identifier="b"/>')),
    "node `a` is not unique": model(function(node("a", "") + node("a", ""))),
    "form a cycle": model(function(node("a", "b.result") + node("b", "a.result"))),
    "calls itself": model(calling(3, 4) + calling(4, 3)),
    "function 99 does not exist": model(calling(3, 99)),
    "invalid reference": model(function(node("a", "no-dot"))),
    "is not a number": model(function('<i:constant identifier="c" value="one"/>')),
    "is not finite": model(function('<i:constant identifier="c" value="1e999"/>')),
    "expected 16 numbers": model(function('<i:constmat identifier="c" matrix="1 2 3"/>')),
    "cannot determine whether": model(function('<i:sin identifier="s"/>')),
    "which does not exist": model('<object id="1"><v:levelset functionid="7" channel="s" meshid="8"/></object>'),
    "object 1 does not exist, or is defined later": model(
        '<object id="1"><components><component objectid="1"/></components></object>'
    ),
    "the object has no mesh": model('<object id="1"/>'),
    "refers to a vertex that does not exist": model(
        '<object id="1"><mesh><vertices><vertex x="0" y="0" z="0"/></vertices>'
        '<triangles><triangle v1="0" v2="1" v3="2"/></triangles></mesh></object>'
    ),
    "does not contain numbers": model(
        '<object id="1"><mesh><vertices><vertex x="a" y="0" z="0"/></vertices></mesh></object>'
    ),
    "attribute 'z' is missing": model(
        '<object id="1"><mesh><vertices><vertex x="0" y="0"/></vertices></mesh></object>'
    ),
    "document types are not allowed": '<!DOCTYPE model [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>'
    f'<model xmlns="{CORE}">&b;</model>',
    "nested too deeply": f'<model xmlns="{CORE}">' + "<a>" * 100 + "</a>" * 100 + "</model>",
}


BAD_IMAGES = {
    "impossible size": model(IMAGE.format(1 << 30, 1 << 30, 1, SHEET)),
    "the number of sheets is wrong": model(IMAGE.format(2, 2, 3, SHEET)),
    "has no part": model(IMAGE.format(2, 2, 1, '<v:imagesheet path="/nothing.png"/>')),
}


@pytest.mark.parametrize("message", BAD_IMAGES)
def test_invalid_images_are_rejected_even_without_checks(tmp_path: Path, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_3mf(package(tmp_path, BAD_IMAGES[message]), check=False)
    refused(package(tmp_path, BAD_IMAGES[message]), "no relationship to")


@pytest.mark.parametrize("message", BAD_MODELS)
def test_invalid_models_are_rejected(tmp_path: Path, message: str) -> None:
    refused(package(tmp_path, BAD_MODELS[message]), message)


def test_an_error_names_the_file_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        load_3mf(package(tmp_path, model("\n\n" + function('<i:bomb identifier="b"/>'))))
    assert "(hand.3mf:3)" in str(caught.value)


def test_files_that_are_not_packages_are_rejected(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.3mf", "there is no file")
    (tmp_path / "text.3mf").write_text("not a zip file")
    refused(tmp_path / "text.3mf", "`text.3mf` is not a 3MF file: expected a complete zip package")
    with zipfile.ZipFile(tmp_path / "empty.3mf", "w"):
        pass
    refused(tmp_path / "empty.3mf", "has no content types")


def test_a_zip_bomb_is_rejected_before_it_is_unpacked(tmp_path: Path) -> None:
    path = package(tmp_path, "")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**parts, "3D/3dmodel.model": b" " * (1 << 24)}.items():
            archive.writestr(name, data)
    assert path.stat().st_size < 1 << 16
    refused(path, "is too large", Limits(part_bytes=1 << 20))


def test_counts_are_limited(tmp_path: Path) -> None:
    path = package(tmp_path, model(function("".join(node(f"n{i}", "") for i in range(100)))))
    refused(path, "too many elements", Limits(elements=50))
    save_3mf(everything(), tmp_path / "mesh.3mf")
    refused(tmp_path / "mesh.3mf", "too many rows of <vertex>", Limits(rows=4))
    with zipfile.ZipFile(path, "a") as archive:
        for index in range(20):
            archive.writestr(f"part{index}", "")
    refused(path, "too many parts", Limits(parts=10))


def test_memory_per_element_is_bounded(tmp_path: Path) -> None:
    """A document of a few packed kilobytes may have two million elements, so each must be small."""
    many = 20_000
    tracemalloc.start()
    try:
        root = parse_xml(b"<a>" + b'<b x="1"/>' * many + b"</a>", "a.xml", Limits())
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(root.children) == many
    assert size / many < 700
    assert Limits().elements * 700 < 2 << 30


@pytest.mark.parametrize("namespace", ["", "urn:other", CORE.replace("2015", "2099")])
def test_a_model_in_another_namespace_is_rejected(tmp_path: Path, namespace: str) -> None:
    path = package(tmp_path, model("").replace(CORE, namespace))
    refused(path, f"not a 3MF model .*: expected <model> of the namespace {CORE}")


@pytest.mark.parametrize("part", ["_rels/.rels", "[Content_Types].xml"])
def test_relationships_and_content_types_in_another_namespace_are_rejected(tmp_path: Path, part: str) -> None:
    path = package(tmp_path, model(""))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**parts, part: parts[part].replace(b"package/2006/", b"package/1999/", 1)}.items():
            archive.writestr(name, data)
    refused(path, "wrong namespace .*: expected http://schemas.openxmlformats.org/package/2006/")


def test_an_encrypted_part_is_rejected(tmp_path: Path) -> None:
    path = package(tmp_path, model(""))
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.find(mark)
        while start >= 0:
            data[start + flags] |= 1
            start = data.find(mark, start + 4)
    path.write_bytes(data)
    refused(path, "is encrypted, which 3MF does not allow")


def test_a_long_chain_of_calls_loads(tmp_path: Path) -> None:
    count = 2000
    chain = "".join(calling(number, number + 1) for number in range(1, count)) + function("", count)
    assert len(load_3mf(package(tmp_path, model(chain))).functions) == count


def test_damaged_bytes_never_load_partially(tmp_path: Path) -> None:
    """Every change causes an error of livegrad or loads a complete, valid assembly."""
    save_3mf(everything(), tmp_path / "good.3mf")
    original = (tmp_path / "good.3mf").read_bytes()
    generator = random.Random(5)
    outcomes = {"refused": 0, "read": 0}
    for _ in range(300):
        data = bytearray(original)
        kind = generator.randrange(3)
        if kind == 0:
            data = data[: generator.randrange(len(data))]
        else:
            for _ in range(generator.randrange(1, 6)):
                data[generator.randrange(len(data))] = generator.randrange(256)
        (tmp_path / "bad.3mf").write_bytes(data)
        outcomes[outcome(tmp_path / "bad.3mf")] += 1
    assert outcomes["refused"] > 200


def test_damaged_markup_is_rejected_or_loads(tmp_path: Path) -> None:
    """Damages the text of the model. Damaged zip data would fail its checksum before it is parsed."""
    save_3mf(everything(), tmp_path / "good.3mf")
    with zipfile.ZipFile(tmp_path / "good.3mf") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = parts["3D/3dmodel.model"].decode()
    generator = random.Random(6)
    outcomes = set()
    for _ in range(200):
        start = generator.randrange(len(text))
        length = generator.randrange(1, 12)
        replacement = generator.choice(["", "0", "-1", "999999999999", "nan", '"', "<", "</i:in>", "inputs.pos"])
        damaged = text[:start] + replacement + text[start + length :]
        with zipfile.ZipFile(tmp_path / "bad.3mf", "w") as archive:
            for name, data in {**parts, "3D/3dmodel.model": damaged.encode()}.items():
                archive.writestr(name, data)
        outcomes.add(outcome(tmp_path / "bad.3mf"))
    assert outcomes == {"refused", "read"}


def outcome(path: Path) -> str:
    """Loads a file: `read`, or `refused` for an error of livegrad; other errors propagate."""
    try:
        load_3mf(path)
    except LivegradError:
        return "refused"
    return "read"


def test_damaged_images_are_rejected() -> None:
    header = struct.pack(">IIBBBBB", 1 << 31, 1 << 31, 8, 6, 0, 0, 0)
    for data in (b"", b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header):
        with pytest.raises(FormatError):
            read_png(data)


BAD_TAPES = {
    "is empty": "# nothing\n",
    "invalid line": "x",
    "no operation `explode`": "a explode",
    "takes 2 operands": "x var-x\ny add x",
    "is used before it is defined": "y sqrt x",
    "invalid constant": "c const one",
    "invalid constant ": "c const 1e999",
}


@pytest.mark.parametrize("message", BAD_TAPES)
def test_invalid_tapes_are_rejected(message: str) -> None:
    with pytest.raises(FormatError, match=message.strip()):
        parse_vm(BAD_TAPES[message])


def test_a_repeated_name_is_rejected_with_its_line() -> None:
    with pytest.raises(FormatError) as caught:
        parse_vm("x var-x\nx var-y", "twice.vm")
    assert "(twice.vm:2)" in str(caught.value)


def test_binary_and_missing_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(FormatError, match="is not UTF-8 text"):
        load_vm(tmp_path / "binary")
    with pytest.raises(FormatError, match="is not a binary STL"):
        load_stl(tmp_path / "binary")
    for load in (load_vm, load_stl):
        with pytest.raises(FormatError, match="there is no file"):
            load(tmp_path / "nothing")

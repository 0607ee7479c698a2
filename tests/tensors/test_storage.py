"""Files of tensors: pytrees round-trip, an interrupted save leaves the old file, a bad file raises."""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import zipfile
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from livegrad.tensors import storage

TREE: dict[str, Any] = {
    "layers": [{"weight": lg.asarray([[1.0, 2.0]]), "bias": lg.asarray([1, 2])}, (lg.asarray(True), None)],
    "rate": 0.1,
    "name": "müller / ..",
    "inf": float("inf"),
    "root": 1 + 2j,
    "": [],
    "flag": True,
}


def same(first: Any, second: Any) -> bool:
    if isinstance(first, lg.Tensor):
        return first.dtype is second.dtype and np.array_equal(first.numpy(), second.numpy())
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return type(first) is type(second) and len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


def test_a_pytree_round_trips(path):
    lg.save(path, TREE)
    assert same(lg.load(path), TREE)
    assert os.listdir(path.parent) == ["model.npz"]


@pytest.mark.parametrize("name", ["bool", "int8", "uint64", "float16", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_dtype_and_shape_comes_back(path, name, shape):
    x = lg.asarray(np.ones(shape, name))
    lg.save(path, x)
    found = lg.load(path)
    assert (found.dtype, found.shape) == (x.dtype, shape)
    assert same(found, x)


def test_names_that_look_alike_stay_apart(path):
    tree = {"a": {"b": lg.asarray(1.0)}, "a.b": lg.asarray(2.0), "a/b": lg.asarray(3.0), "file": lg.asarray(4.0)}
    lg.save(path, tree)
    assert same(lg.load(path), tree)


def test_numpy_reads_our_files_and_we_read_numpys(path):
    lg.save(path, {"x": lg.asarray([1.0, 2.0])})
    with np.load(path) as file:
        assert file["x"].tolist() == [1.0, 2.0]
    array = np.arange(6.0).reshape(2, 3)
    np.savez_compressed(path, rows=array, columns=np.asfortranarray(array), swapped=array.astype(">f8"))
    for tensor in lg.load(path).values():
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_a_saved_tensor_is_computed_and_comes_back_without_its_history(path):
    x = lg.asarray([1.0, 2.0])
    lg.save(path, lg.exp(x) + 1.0)
    assert len(lg.load(path).graph) == 1


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({1: 2}, "string keys"),
        ({"x": object()}, "cannot save this value"),
        ([np.ones(3)], "use lg.asarray"),
        ({"x": {1, 2}}, "found set"),
    ],
)
def test_values_that_cannot_be_saved_raise_with_the_line_and_leave_no_file(path, tree, message):
    with pytest.raises(lg.UsageError, match=message) as caught:
        lg.save(path, tree)
    assert "test_storage.py" in str(caught.value)
    assert not os.listdir(path.parent)


def test_a_pytree_that_contains_itself_raises(path):
    nest: list[Any] = []
    nest.append(nest)
    with pytest.raises(lg.UsageError, match="too deep"):
        lg.save(path, nest)


def test_an_interrupted_save_leaves_the_old_file(path, monkeypatch):
    lg.save(path, {"x": lg.asarray([1.0])})

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for step in ("writestr", "open"):
        monkeypatch.setattr(zipfile.ZipFile, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            lg.save(path, {"x": lg.asarray([2.0])})
        monkeypatch.undo()
        assert os.listdir(path.parent) == ["model.npz"]
        assert same(lg.load(path), {"x": lg.asarray([1.0])})


def test_a_save_keeps_links_and_ordinary_permissions(path):
    real = path.with_name("real.npz")
    path.symlink_to(real)
    lg.save(path, 1)
    assert path.is_symlink()
    assert lg.load(real) == 1
    plain = path.with_name("plain")
    plain.write_bytes(b"")
    assert stat.S_IMODE(real.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


FILES = {
    "load": lambda folder: lg.load(folder / "x.npz"),
    "save": lambda folder: lg.save(folder / "nowhere" / "x.npz", 1),
    "replay": lambda folder: lg.live.replay(folder / "x.jsonl", trust=True),
    "record": lambda folder: lg.live.record(lg.Engine(), folder / "nowhere" / "x.jsonl"),
    "load_3mf": lambda folder: lg.load_3mf(folder / "x.3mf"),
    "load_stl": lambda folder: lg.load_stl(folder / "x.stl"),
    "load_vm": lambda folder: lg.load_vm(folder / "x.vm"),
    "save_png": lambda folder: lg.save_png(np.zeros((2, 2)), folder / "nowhere" / "x.png"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_or_folder_raises_with_advice_and_as_a_python_error(path, name):
    with pytest.raises(FileNotFoundError) as caught:
        FILES[name](path.parent)
    error = caught.value
    assert isinstance(error, lg.MissingFileError)
    assert error.filename in str(error)
    assert str(path.parent) in str(error)
    assert error.help
    assert "test_storage.py" in str(error.where)


@pytest.mark.parametrize("name", ["load", "replay", "record"])
def test_a_folder_in_the_place_of_a_file_is_an_error_of_ours(path, name):
    open_one = {
        "load": lg.load,
        "replay": lambda place: lg.live.replay(place, trust=True),
        "record": lambda place: lg.live.record(lg.Engine(), place),
    }
    with pytest.raises(lg.FileError, match="cannot open") as caught:
        open_one[name](path.parent)
    assert isinstance(caught.value, OSError)
    assert str(path.parent) in str(caught.value)


# --- bad files -------------------------------------------------------------------------------------------------------


def npy(descr: str, shape: Any, content: bytes = b"") -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name.replace("__", "."), content)
    return file.getvalue()


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def layout(value: Any) -> bytes:
    return archive(x__npy=npy("<f4", (1,), bytes(4)), layout__json=json.dumps(value).encode())


BAD = {
    "empty": b"",
    "text": b"not a file of tensors",
    "pickle": pickle.dumps({"x": 1}),
    "an array that is a pickle": archive(x__npy=npy("|O", (1,), pickle.dumps(Bomb()))),
    "a huge shape": archive(x__npy=npy("<f8", (1 << 60,))),
    "a shape that overflows": archive(x__npy=npy("<f8", (1 << 40, 1 << 40))),
    "a negative shape": archive(x__npy=npy("<f8", (-1, -1), bytes(8))),
    "a shape that is not a shape": archive(x__npy=npy("<f8", "ab", bytes(16))),
    "too few bytes": archive(x__npy=npy("<f8", (3,), bytes(8))),
    "too many bytes": archive(x__npy=npy("<f8", (1,), bytes(80))),
    "strings": archive(x__npy=npy("<U4", (1,), bytes(16))),
    "no header": archive(x__npy=b"\x93NUMPY\x01\x00\xff\xff"),
    "a future version": archive(x__npy=b"\x93NUMPY\x09\x00" + bytes(64)),
    "a layout that is not json": archive(layout__json=b"{"),
    "a layout that is not a pytree": layout([1, 2]),
    "an unknown kind": layout({"code": "os.abort()"}),
    "two kinds": layout({"plain": 1, "list": []}),
    "a plain value that is none": layout({"plain": {"a": 1}}),
    "a tensor that does not exist": layout({"tensor": "y"}),
    "a tensor by a list": layout({"tensor": ["x"]}),
    "keys that are no text": layout({"dict": [[1, {"plain": 1}]]}),
    "a layout too deep": archive(layout__json=b'{"list":[' * 100_000 + b"]}" * 100_000),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_bad_file_raises_with_the_line(path, content):
    path.write_bytes(content)
    with pytest.raises(lg.UsageError, match=r"is not an npz file of tensors \(test_storage\.py"):
        lg.load(path)


def test_a_damaged_file_raises_our_error_or_is_read_completely(path):
    lg.save(path, TREE)
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for place in generator.integers(len(whole), size=3):
            damaged[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(bytes(damaged[: generator.integers(len(whole) // 2, len(whole) + 1)]))
        try:
            lg.load(path)
        except lg.UsageError:
            refused += 1
    assert refused > 100


def test_sizes_in_a_file_are_checked_before_memory_is_allocated(path, monkeypatch):
    """The size in a header is compared with the bytes in the file before memory is allocated."""
    taken: list[int] = []
    monkeypatch.setattr(storage.np, "frombuffer", lambda content, *_: taken.append(len(content)))
    path.write_bytes(BAD["a huge shape"])
    with pytest.raises(lg.UsageError):
        lg.load(path)
    assert not taken

"""`lg.save` and `lg.load`: pytrees of tensors in NumPy's npz format, with the tree structure next to the data.

Writes are atomic, and files are validated before their contents are used.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin, file_error
from livegrad.ir.types import scalar_of_dtype
from livegrad.runtime.atomic_files import AtomicFile
from livegrad.tensors.array_handles import wrap_array
from livegrad.tensors.handle import Tensor
from livegrad.tensors.pytrees import data_children, flatten, is_leaf, paths, show_path, unflatten

_LAYOUT = "layout.json"
_PLAIN = (bool, int, float, str, type(None))
_Layout = dict[str, Any]

# Exceptions that reading a damaged or malicious file may raise.
_DAMAGE = (
    UsageError,  # an unsupported element type
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,  # also for invalid JSON and UTF-8
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    RecursionError,
    SyntaxError,  # array headers are Python literals
    NotImplementedError,  # unsupported compression
    RuntimeError,  # encryption
    MemoryError,
)


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Writes a pytree of tensors, numbers and strings to an npz file. Existing files are replaced atomically.

    Values are written, not graphs: a loaded tensor is plain data. Data classes, named tuples and registered classes are
    written without their class and their static fields; `load(path, like=...)` returns such objects.

    >>> import livegrad as lg, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> lg.save(path, {"weights": [lg.ones(2)], "steps": 3})
    >>> lg.load(path)
    {'weights': [Tensor([1., 1.], dtype=float32)], 'steps': 3}
    """
    arrays: dict[str, Any] = {}
    try:
        layout = _describe(tree, "", arrays)
    except RecursionError:
        raise UsageError(
            "this pytree is too deep to save", where=caller_origin(), help="it may contain itself"
        ) from None
    with AtomicFile(path) as file, zipfile.ZipFile(file, "w") as archive:
        for label, array in arrays.items():
            with archive.open(f"{label}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.writestr(_LAYOUT, json.dumps(layout))


def load(path: str | os.PathLike[str], like: Any = None) -> Any:
    """Loads a file written by `save`; any other npz file becomes a dict of tensors. No code in the file is executed.

    The result consists of dicts, lists and tuples, or has the structure of the pytree `like`. The leaves of `like` must
    have the same paths, shapes and types as those in the file.

    >>> import livegrad as lg, numpy as np, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "data.npz")
    >>> np.savez(path, x=np.arange(3))
    >>> lg.load(path)
    {'x': Tensor([0, 1, 2], dtype=int64)}
    >>> from typing import NamedTuple
    >>> class Layer(NamedTuple):
    ...     w: lg.Tensor
    ...     b: lg.Tensor
    >>> lg.save(path, Layer(lg.ones(2), lg.zeros(1)))
    >>> lg.load(path, like=Layer(lg.zeros(2), lg.zeros(1)))
    Layer(w=Tensor([1., 1.], dtype=float32), b=Tensor([0.], dtype=float32))
    """
    try:
        opened = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise file_error(error, os.fspath(path), "lg.save(path, tree) writes one") from None
    with opened as file:
        try:
            with zipfile.ZipFile(file) as archive:
                names = archive.namelist()
                tensors = {name.removesuffix(".npy"): _read(archive, name) for name in names if name != _LAYOUT}
                layout = json.loads(archive.read(_LAYOUT)) if _LAYOUT in names else None
            tree = tensors if layout is None else _rebuild(layout, tensors)
        except _DAMAGE as error:
            raise UsageError(
                f"{os.fspath(path)} is not an npz file of tensors",
                where=caller_origin(),
                found=f"{type(error).__name__}: {error}",
            ) from None
    return tree if like is None else _fill(like, tree, os.fspath(path))


# --- writing ---------------------------------------------------------------------------------------------------------


def _describe(tree: Any, name: str, arrays: dict[str, Any]) -> _Layout:
    kind = type(tree)
    if isinstance(tree, Tensor):
        label = _free_label(name or "value", arrays)
        arrays[label] = tree._value()
        return {"tensor": label}
    if kind is dict:
        if not all(isinstance(key, str) for key in tree):
            raise UsageError("`save` takes dicts with string keys", where=caller_origin(), found=repr(list(tree)))
        return {"dict": [[key, _describe(value, _join_name(name, key), arrays)] for key, value in tree.items()]}
    if kind is list or kind is tuple:
        return {kind.__name__: [_describe(value, _join_name(name, str(i)), arrays) for i, value in enumerate(tree)]}
    if kind is complex:
        return {"complex": [tree.real, tree.imag]}
    if kind in _PLAIN:
        return {"plain": tree}
    if not is_leaf(tree):
        names, children = data_children(tree)
        parts = [
            _describe(child, _join_name(name, str(part)), arrays) for part, child in zip(names, children, strict=True)
        ]
        return {"dict": list(zip(names, parts, strict=True))} if isinstance(names, tuple) else {"list": parts}
    raise UsageError(
        "cannot save this value",
        where=caller_origin(),
        expected="tensors, numbers, strings, or dicts, lists and tuples of them",
        found=kind.__name__,
        help="use lg.asarray for data, and a dict for a class of your own",
    )


def _join_name(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _free_label(name: str, arrays: dict[str, Any]) -> str:
    """Returns a unique archive name for an array; `a.b` may be one key, or `b` inside `a`."""
    label = base = name.replace("\\", "_").replace("/", "_").replace("\0", "_")
    suffix = 2
    while label in arrays:
        label, suffix = f"{base}~{suffix}", suffix + 1
    return label


# --- the structure of another pytree ---------------------------------------------------------------------------------


def _fill(like: Any, tree: Any, path: str) -> Any:
    """Returns a pytree with the structure of `like` and the values of a loaded pytree."""
    leaves, structure = flatten(like)
    loaded_leaves, loaded_structure = flatten(tree)
    values = dict(zip(paths(loaded_structure), loaded_leaves, strict=True))
    wanted = dict(zip(paths(structure), leaves, strict=True))
    for name in (*wanted, *values):
        if name not in values or name not in wanted:
            where = "the file" if name in wanted else "`like`"
            raise UsageError(f"{path}: {where} has no {show_path(name)}", where=caller_origin())
        if _kind_of(values[name]) != _kind_of(wanted[name]):
            raise UsageError(
                f"{path}: {show_path(name)} differs from `like`",
                where=caller_origin(),
                expected=_kind_of(wanted[name]),
                found=_kind_of(values[name]),
            )
    return unflatten(structure, [values[name] for name in wanted])


def _kind_of(leaf: Any) -> str:
    return f"{leaf.dtype} of shape {leaf.shape}" if isinstance(leaf, Tensor) else type(leaf).__name__


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(archive: zipfile.ZipFile, name: str) -> Tensor:
    """Reads one array. Its header is compared with the available bytes before memory is allocated."""
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if header is None:
            raise ValueError(f"unsupported version {version} of the npy format")
        shape, in_columns, dtype = header(member)
        scalar_of_dtype(dtype.newbyteorder("="))
        size = math.prod(shape) * dtype.itemsize
        if any(extent < 0 for extent in shape) or archive.getinfo(name).file_size - member.tell() != size:
            raise ValueError(f"{name} claims to be {dtype} of shape {shape}")
        content = member.read(size)
    if len(content) != size:
        raise EOFError(f"{name} ends early")
    array = np.frombuffer(content, dtype).reshape(shape, order="F" if in_columns else "C")
    return wrap_array(np.array(array, dtype.newbyteorder("="), order="C"))


def _rebuild(layout: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(layout, dict) or len(layout) != 1:
        raise ValueError(f"{_LAYOUT} does not describe a pytree")
    ((kind, content),) = layout.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "dict":
            return {_text(key): _rebuild(value, tensors) for key, value in content}
        case "list":
            return [_rebuild(value, tensors) for value in content]
        case "tuple":
            return tuple(_rebuild(value, tensors) for value in content)
        case "complex":
            real, imaginary = content
            return complex(real, imaginary)
        case "plain" if isinstance(content, _PLAIN):
            return content
    raise ValueError(f"an unknown kind {kind!r} in {_LAYOUT}")


def _text(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key is not a string: {key!r}")
    return key

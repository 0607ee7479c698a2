"""Nests of tensors in files: NumPy's npz, readable by anything that reads it."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from livegrad.authoring.tensor.handle import Tensor, wrap_array
from livegrad.diagnostics import UsageError, caller_origin

_LAYOUT = "layout.json"


def save(path: str | Path, tree: Any) -> None:
    """Writes a nest of dicts, lists, tuples, tensors and numbers to an npz file; an older file is replaced as a whole.

    >>> import livegrad as lg, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> lg.save(path, {"weights": [lg.ones(2)], "steps": 3})
    >>> lg.load(path)
    {'weights': [Tensor([1., 1.], dtype=float32)], 'steps': 3}
    """
    arrays: dict[str, Any] = {}
    layout = _describe(tree, "", arrays)
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.writestr(_LAYOUT, json.dumps(layout))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: str | Path) -> Any:
    """Reads what `save` wrote; any other npz file becomes a dict of tensors."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != _LAYOUT}
        with zipfile.ZipFile(path) as archive:
            layout = json.loads(archive.read(_LAYOUT)) if _LAYOUT in archive.namelist() else None
    except (zipfile.BadZipFile, ValueError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} is no npz file of tensors", where=caller_origin(), help=str(error)) from None
    if layout is None:
        return {name: wrap_array(np.ascontiguousarray(array)) for name, array in arrays.items()}
    return _rebuild(layout, arrays)


def _describe(tree: Any, name: str, arrays: dict[str, Any]) -> Any:
    if isinstance(tree, Tensor):
        label = name or "value"
        arrays[label] = tree.numpy()
        return {"tensor": label}
    if isinstance(tree, dict):
        if not all(isinstance(key, str) for key in tree):
            raise UsageError("keys must be strings to be saved", where=caller_origin(), found=repr(list(tree)))
        return {"dict": {key: _describe(value, f"{name}.{key}".lstrip("."), arrays) for key, value in tree.items()}}
    if isinstance(tree, list | tuple):
        parts = [_describe(value, f"{name}.{index}".lstrip("."), arrays) for index, value in enumerate(tree)]
        return {"tuple" if isinstance(tree, tuple) else "list": parts}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"plain": tree}
    raise UsageError(
        "cannot be saved",
        where=caller_origin(),
        expected="tensors, numbers, strings, or nests of them",
        found=type(tree).__name__,
    )


def _rebuild(layout: Any, arrays: dict[str, Any]) -> Any:
    ((kind, content),) = layout.items()
    if kind == "tensor":
        return wrap_array(np.ascontiguousarray(arrays[content]).reshape(arrays[content].shape))
    if kind == "dict":
        return {key: _rebuild(value, arrays) for key, value in content.items()}
    if kind in ("list", "tuple"):
        parts = [_rebuild(value, arrays) for value in content]
        return tuple(parts) if kind == "tuple" else parts
    return content

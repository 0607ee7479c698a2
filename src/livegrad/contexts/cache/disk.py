"""The disk cache: files under deterministic keys, in a directory of bounded size.

A key is a digest of a node's content (versions, features, inputs) and of the exact values that it needs. Files contain
plain data (numbers, strings, arrays, and containers of those), never code. `evaluate.py` calls `load` and `store`.
"""

from __future__ import annotations

import hashlib
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np

from livegrad.diagnostics import UsageError
from livegrad.runtime.object_cache import CacheSettings, CacheStats, ObjectCache

_FORMAT = b"context result 1"
_LENGTH = struct.Struct("<q")


class NotPlainData(TypeError):
    """Raised for a value that cannot be serialised exactly."""


class DiskCache:
    """A directory of results of at most `max_bytes`, with LRU eviction.

    >>> import tempfile
    >>> cache = DiskCache(tempfile.mkdtemp())
    >>> cache.store(digest(b"key"), {"size": (2, 3.5)})
    True
    >>> cache.load(digest(b"key"))
    ({'size': (2, 3.5)},)
    """

    def __init__(self, directory: str | Path, max_bytes: int = 1 << 30) -> None:
        if max_bytes <= 0:
            raise UsageError("a disk cache needs a positive size", found=f"max_bytes={max_bytes}")
        self._files = ObjectCache(CacheSettings(Path(directory), max_bytes))
        self._description = f"<disk cache at {directory}, at most {max_bytes:,} bytes>"

    def __repr__(self) -> str:
        return self._description

    def load(self, key: bytes) -> tuple[Any] | None:
        """Returns the value for a key in a one-element tuple, or None if there is no readable value."""
        data = self._files.load(key)
        if data is None:
            return None
        try:
            return (decode(data),)
        except (ValueError, struct.error):
            self._files.reject(key)
            return None

    def store(self, key: bytes, value: Any) -> bool:
        """Stores a value; returns False if it is not plain data."""
        try:
            data = encode(value)
        except NotPlainData:
            return False
        self._files.store(key, data)
        return True

    @property
    def stats(self) -> CacheStats:
        """Counts of loaded, missed, stored and evicted results."""
        return self._files.stats()


def digest(*parts: bytes) -> bytes:
    """A key from length-prefixed parts."""
    whole = hashlib.sha256(_FORMAT)
    for part in parts:
        whole.update(_LENGTH.pack(len(part)))
        whole.update(part)
    return whole.digest()


# --- plain data as bytes: a tag, then the content --------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Serialises a value exactly. Equal values give equal bytes in every process.

    >>> decode(encode([1, -0.0, "a", None, np.float32(2.5)]))
    [1, -0.0, 'a', None, np.float32(2.5)]
    """
    out = io.BytesIO()
    _write(value, out)
    return out.getvalue()


def _write(value: Any, out: io.BytesIO) -> None:
    kind = value.__class__
    if value is None or kind is bool:
        out.write({None: b"N", False: b"F", True: b"T"}[value])
    elif kind is int:
        _write_bytes(b"i", str(value).encode(), out)
    elif kind is float:
        out.write(b"d" + struct.pack("<d", value))
    elif kind is complex:
        out.write(b"c" + struct.pack("<dd", value.real, value.imag))
    elif kind is str:
        _write_bytes(b"s", value.encode("utf-8", "surrogatepass"), out)
    elif kind is bytes:
        _write_bytes(b"b", value, out)
    elif kind in (tuple, list):
        out.write((b"t" if kind is tuple else b"l") + _LENGTH.pack(len(value)))
        for item in value:
            _write(item, out)
    elif kind is dict:
        out.write(b"m" + _LENGTH.pack(len(value)))
        for key, item in value.items():
            _write(key, out)
            _write(item, out)
    elif kind is np.ndarray or isinstance(value, np.generic):
        _write_array(value, out)
    else:
        raise NotPlainData(f"{kind.__name__} is not plain data")


def _write_bytes(tag: bytes, data: bytes, out: io.BytesIO) -> None:
    out.write(tag + _LENGTH.pack(len(data)))
    out.write(data)


def _write_array(value: Any, out: io.BytesIO) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise NotPlainData(f"elements of type {array.dtype} are not plain data")
    out.write(b"a" if isinstance(value, np.ndarray) else b"g")
    _write_bytes(b"", array.dtype.str.encode(), out)
    out.write(_LENGTH.pack(array.ndim) + b"".join(_LENGTH.pack(size) for size in array.shape))
    out.write(array.tobytes())


def decode(data: bytes) -> Any:
    """The value that `encode` wrote. Raises ValueError for other bytes."""
    source = io.BytesIO(data)
    value = _read(source)
    if source.read(1):
        raise ValueError("more than one value")
    return value


_SINGLE = {b"N": None, b"F": False, b"T": True}


def _read(source: io.BytesIO) -> Any:
    tag = source.read(1)
    if tag in _SINGLE:
        return _SINGLE[tag]
    if tag == b"i":
        return int(_read_bytes(source))
    if tag == b"d":
        return struct.unpack("<d", source.read(8))[0]
    if tag == b"c":
        return complex(*struct.unpack("<dd", source.read(16)))
    if tag == b"s":
        return _read_bytes(source).decode("utf-8", "surrogatepass")
    if tag == b"b":
        return _read_bytes(source)
    if tag in (b"t", b"l"):
        items = [_read(source) for _ in range(_read_length(source))]
        return tuple(items) if tag == b"t" else items
    if tag == b"m":
        return {_read(source): _read(source) for _ in range(_read_length(source))}
    if tag in (b"a", b"g"):
        return _read_array(source, tag == b"g")
    raise ValueError("unknown tag")


def _read_length(source: io.BytesIO) -> int:
    length = _LENGTH.unpack(source.read(8))[0]
    if not 0 <= length <= len(source.getbuffer()):
        raise ValueError("wrong length")
    return length


def _read_bytes(source: io.BytesIO) -> bytes:
    length = _read_length(source)
    data = source.read(length)
    if len(data) != length:
        raise ValueError("cut off")
    return data


def _read_array(source: io.BytesIO, single: bool) -> Any:
    try:
        dtype = np.dtype(_read_bytes(source).decode())
    except TypeError:
        raise ValueError("no such element type") from None
    shape = tuple(_read_length(source) for _ in range(_read_length(source)))
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    array = np.frombuffer(source.read(size), dtype).reshape(shape)
    return array[()] if single else array

"""Interned values: equal values are one `Interned`, so that keys made of them compare by identity.

Values come from contexts and node functions; memo tables use interned values as keys. Equality is by content: floats by
bits, with types distinguished, and arrays byte by byte if their hashes agree.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import struct
import weakref
from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

import numpy as np

from livegrad.contexts.cache.describe import short_text, size_of
from livegrad.ir.interning import InternTable
from livegrad.state import Owned
from livegrad.tensors.handle import Tensor, wrap

_ATOMS = frozenset({int, bool, str, bytes, type(None), type(...), range})
_pack_double = struct.Struct("<d").pack
_serials = count()


class NoExactKey(TypeError):
    """Raised for a value that could change after it becomes a key; `what` names the mutable part."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Interned:
    """One interned value. Values with equal keys are one object; a value with key None equals no other.

    `size` is in bytes.
    """

    __slots__ = ("__weakref__", "key", "serial", "size", "value")

    def __init__(self, value: Any, key: Any) -> None:
        self.value, self.key = value, key
        self.serial = next(_serials)
        self.size = size_of(value)

    def __repr__(self) -> str:
        return f"<interned {short_text(self.value)}>"


class _CopyOnRead(Interned):
    """An interned mutable value: it stores a private copy, and every reader gets a new copy of that."""

    __slots__ = ("_copy", "_private_copy")

    def __init__(self, value: Any, key: Any) -> None:
        self._copy = _COPIERS.get(value.__class__, _copy_containers)
        self._private_copy = self._copy(value)
        self.key, self.serial = key, next(_serials)
        self.size = _SIZES.get(value.__class__, size_of)(value)

    @property
    def value(self) -> Any:  # type: ignore[override]
        return self._copy(self._private_copy)


ABSENT = Interned(None, None)
ABSENT.size = 0


class _InternedValues:
    """The interned values of a session by key, held weakly."""

    def __init__(self) -> None:
        self.by_key: InternTable[Interned] = InternTable()
        # Read-only arrays that have been hashed, by identity; entries are removed when the array dies.
        self.of_arrays: dict[int, tuple[weakref.ref[Any], weakref.ref[Interned]]] = {}


_table = Owned(_InternedValues)


def _bytes_of(tensor: Tensor) -> int:
    return math.prod([tensor.dtype.dtype.itemsize, *[size for size in tensor.shape if isinstance(size, int)]])


# Tensors are equal if they have the same node. A handle can be rebound (`x[0] = 1`), so each reader gets a new handle.
_RULES: Mapping[type, Callable[[Any], Any]] = MappingProxyType({Tensor: lambda tensor: tensor.node})
_COPIERS: Mapping[type, Callable[[Any], Any]] = MappingProxyType({Tensor: lambda tensor: wrap(tensor.node)})
_SIZES: Mapping[type, Callable[[Any], int]] = MappingProxyType({Tensor: _bytes_of})


def intern_value(value: Any) -> Interned:
    """Interns a value of a context. Arrays are copied unless they are immutable.

    >>> nan = float("nan")
    >>> [intern_value(a) is intern_value(b) for a, b in ((0.0, -0.0), (nan, nan), (1, True))]
    [False, True, False]
    """
    if isinstance(value, np.ndarray):
        return _intern_array(value)
    return _intern(_exact_key(value, None), value)


def intern_result(value: Any) -> Interned:
    """Interns the result of a node function. Its arrays become read-only; a value without an exact key is unique.

    >>> intern_result([1, 2]) is intern_result([1, 2])
    True
    """
    return _intern_frozen(_freeze_arrays(value, _make_read_only))


def intern_argument(value: Any) -> Interned:
    """Interns a value from the user. Writable arrays are copied, so that the user's arrays stay writable.

    >>> mine = np.zeros(2)
    >>> intern_argument(mine).value is mine, mine.flags.writeable
    (False, True)
    """
    return _intern_frozen(_freeze_arrays(value, _copy_unless_frozen))


def _intern_frozen(value: Any) -> Interned:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _intern_array(value)
    try:
        return _intern(_exact_key(value, _MUTABLE_RULES), value)
    except NoExactKey:
        return Interned(value, None)


def _intern(key: Any, value: Any) -> Interned:
    by_key = _table.current.by_key
    entry = by_key.get(key)
    interned = entry() if entry is not None else None
    if interned is not None:
        return interned
    with by_key.lock:  # re-entrant: `__eq__` of a user's value may itself intern values
        by_key.clear_up()
        entry = by_key.get(key)
        interned = entry() if entry is not None else None
        if interned is not None:
            return interned
        return by_key.enter(key, (_CopyOnRead if _is_mutable(value) else Interned)(value, key))


def clear_up() -> None:
    """Drops the keys of dead entries, which may hold large arrays. Stores call it after an eviction."""
    _table.current.by_key.clear_up()


# --- keys ------------------------------------------------------------------------------------------------------------


def _exact_key(value: Any, containers: dict[type, Callable[[Any], Any]] | None) -> Any:
    """A key that is equal only for values of the same type and content.

    `containers` has the rules of mutable containers, if they are accepted.
    """
    kind = value.__class__
    if kind is float:
        # Zeros and NaN compare by bits, because -0.0 == 0.0 and NaN != NaN. Any other float equals only itself.
        return (kind, value) if value and value == value else (kind, _pack_double(value))
    if kind in _ATOMS:
        return kind, value
    rule = _RULES.get(kind)
    if rule is not None:
        return kind, rule(value)
    if isinstance(value, tuple):
        return kind, tuple([_exact_key(item, containers) for item in value])
    if isinstance(value, complex) and kind is complex:
        return kind, _pack_double(value.real), _pack_double(value.imag)
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    if isinstance(value, np.ndarray):
        return _intern_array(value).key
    if containers is not None and kind in containers:
        return kind, containers[kind](value)
    if isinstance(value, frozenset):
        return kind, frozenset(_exact_key(item, containers) for item in value)
    if dataclasses.is_dataclass(value) and kind.__dataclass_params__.frozen and kind.__dataclass_params__.eq:  # type: ignore[attr-defined]
        names = [field.name for field in dataclasses.fields(value) if field.compare]
        return kind, tuple([_exact_key(getattr(value, name), containers) for name in names])
    try:
        hash(value)
    except TypeError:
        raise NoExactKey(f"a {kind.__name__}, {short_text(value)}") from None
    return kind, value


_MUTABLE_RULES: dict[type, Callable[[Any], Any]] = {
    list: lambda value: tuple([_exact_key(item, _MUTABLE_RULES) for item in value]),
    set: lambda value: frozenset(_exact_key(item, _MUTABLE_RULES) for item in value),
    dict: lambda value: tuple(
        [(_exact_key(k, _MUTABLE_RULES), _exact_key(v, _MUTABLE_RULES)) for k, v in value.items()]
    ),
    bytearray: bytes,
}


# --- arrays ----------------------------------------------------------------------------------------------------------

_CHUNK = 1 << 20  # bytes


class ArrayKey:
    """An array's content as a key: hashed once, and compared byte by byte if the hashes agree."""

    __slots__ = ("_hash", "array")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self._hash = _hash_array(array)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ArrayKey) or self._hash != other._hash:
            return False
        left, right = self.array, other.array
        return left.dtype == right.dtype and left.shape == right.shape and _have_same_bytes(left, right)


def _hash_array(array: np.ndarray[Any, Any]) -> int:
    content = array.reshape(-1).view(np.uint8)
    starts = range(0, content.size, _CHUNK)
    return hash((array.dtype.str, array.shape, *[hash(content[start : start + _CHUNK].tobytes()) for start in starts]))


def _have_same_bytes(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    left_bytes, right_bytes = left.reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8)
    return all(
        np.array_equal(left_bytes[start : start + _CHUNK], right_bytes[start : start + _CHUNK])
        for start in range(0, left_bytes.size, _CHUNK)
    )


def _intern_array(array: np.ndarray[Any, Any]) -> Interned:
    cached = _table.current.of_arrays.get(id(array))
    if cached is not None and cached[0]() is array:
        interned = cached[1]()
        if interned is not None:
            return interned
    if array.dtype.hasobject:
        raise NoExactKey("an array of Python objects")
    frozen = array if _is_frozen(array) and array.flags.c_contiguous else _frozen_copy(array)
    interned = _intern(ArrayKey(frozen), frozen)
    if frozen is array:
        _remember_array(array, interned)
    _remember_array(interned.value, interned)
    return interned


def _remember_array(array: np.ndarray[Any, Any], interned: Interned) -> None:
    array_id, by_array = id(array), _table.current.of_arrays
    by_array[array_id] = weakref.ref(array, lambda _: by_array.pop(array_id, None)), weakref.ref(interned)


def _is_frozen(array: np.ndarray[Any, Any]) -> bool:
    """Whether no array can write to this array's memory."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    # The memory belongs to NumPy, to immutable bytes, or to a block that only this array uses.
    return owner is None or isinstance(owner, bytes) or hasattr(owner, "__array_interface__")


def _frozen_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    frozen = np.array(array, order="C", copy=True, subok=False)
    frozen.setflags(write=False)
    return frozen


_Freeze = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


def _make_read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.base is None or not isinstance(array.base, np.ndarray | memoryview | bytearray):
        array.setflags(write=False)
    return _copy_unless_frozen(array)


def _copy_unless_frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if _is_frozen(array) else _frozen_copy(array)


def _freeze_arrays(value: Any, freeze: _Freeze) -> Any:
    """The value with read-only arrays, because a cache returns it more than once."""
    if isinstance(value, np.ndarray):
        return freeze(value)
    kind = value.__class__
    if kind in _ATOMS or kind is float:
        return value
    if kind is tuple or kind is list:
        return kind([_freeze_arrays(item, freeze) for item in value])
    if kind is dict:
        return {key: _freeze_arrays(item, freeze) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(kind, "_make"):
        return kind._make([_freeze_arrays(item, freeze) for item in value])  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _freeze_members(value, freeze)
    return value


def _freeze_members(value: Any, freeze: _Freeze) -> Any:
    """Freezes the arrays of a dataclass instance in place, or in a copy if the instance is the user's."""
    target = value
    for field in dataclasses.fields(value):
        member = getattr(value, field.name)
        frozen = _freeze_arrays(member, freeze)
        if frozen is not member:
            if target is value and freeze is _copy_unless_frozen:
                target = copy.copy(value)
            object.__setattr__(target, field.name, frozen)
    return target


# --- containers ------------------------------------------------------------------------------------------------------


def _is_mutable(value: Any) -> bool:
    """Whether a reader could modify the value: a list or a dict, or a tuple that contains one."""
    kind = value.__class__
    if kind is tuple:
        return any(map(_is_mutable, value))
    return kind in _MUTABLE_RULES or kind in _COPIERS


def _copy_containers(value: Any) -> Any:
    """Copies the containers of a value recursively; their elements are shared."""
    kind = value.__class__
    if kind in _COPIERS:
        return _COPIERS[kind](value)
    if kind is list or kind is tuple:
        return kind([_copy_containers(item) for item in value])
    if kind is dict:
        return {key: _copy_containers(item) for key, item in value.items()}
    return kind(value) if kind in _MUTABLE_RULES else value

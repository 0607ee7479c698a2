"""Interned values: equal values are one `Fact`, so that keys made of facts compare by identity.

Values come from contexts and node functions; memo tables use facts as keys. Equality is by content: floats by bits,
with types distinguished, and arrays byte by byte behind their hash.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

import numpy as np

from livegrad.contexts.cache.describe import short_text, size_of
from livegrad.state import Owned, renew_lock_after_fork
from livegrad.tensors.handle import Tensor, wrap

_ATOMS = frozenset({int, bool, str, bytes, type(None), type(...), range})
_pack_double = struct.Struct("<d").pack
_serials = count()


class NoExactKey(TypeError):
    """A value that could change under its key: `what` says which part of it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Fact:
    """One exact value. `key` is what makes it equal to another, None when nothing can be; `size` is in bytes."""

    __slots__ = ("__weakref__", "key", "serial", "size", "value")

    def __init__(self, value: Any, key: Any) -> None:
        self.value, self.key = value, key
        self.serial = next(_serials)
        self.size = size_of(value)

    def __repr__(self) -> str:
        return f"<fact {short_text(self.value)}>"


class _RenewedFact(Fact):
    """A fact whose value can be changed by its holder: it keeps one, and gives others away."""

    __slots__ = ("_own", "_renew")

    def __init__(self, value: Any, key: Any) -> None:
        self._renew = _RENEWALS.get(value.__class__, _copied)
        self._own = self._renew(value)
        self.key, self.serial = key, next(_serials)
        self.size = _SIZES.get(value.__class__, size_of)(value)

    @property
    def value(self) -> Any:  # type: ignore[override]
        return self._renew(self._own)


ABSENT = Fact(None, None)
ABSENT.size = 0


class _Entry(weakref.ref[Fact]):
    __slots__ = ("key",)
    key: Any


class _Facts:
    """The facts of a session by key, for as long as somebody holds them."""

    def __init__(self) -> None:
        self.by_key: dict[Any, _Entry] = {}
        self.lock = threading.RLock()  # equality of users' values may itself make facts
        renew_lock_after_fork(self, "lock", threading.RLock)
        self.dead: deque[_Entry] = deque()  # callbacks run at any moment: they only append here
        # Read-only arrays that have been hashed: by identity, for as long as they live.
        self.of_arrays: dict[int, tuple[weakref.ref[Any], weakref.ref[Fact]]] = {}


_facts = Owned(_Facts)


def _bytes_of(tensor: Tensor) -> int:
    return math.prod([tensor.dtype.dtype.itemsize, *[size for size in tensor.shape if isinstance(size, int)]])


# Tensors are equal if they are the same expression. A handle can be rebound (`x[0] = 1`): each reader gets a new one.
_RULES: Mapping[type, Callable[[Any], Any]] = MappingProxyType({Tensor: lambda tensor: tensor.node})
_RENEWALS: Mapping[type, Callable[[Any], Any]] = MappingProxyType({Tensor: lambda tensor: wrap(tensor.node)})
_SIZES: Mapping[type, Callable[[Any], int]] = MappingProxyType({Tensor: _bytes_of})


def fact_of(value: Any) -> Fact:
    """The fact of a value that a context carries. Arrays are copied unless nobody can write to them.

    >>> fact_of(0.0) is fact_of(-0.0), fact_of(float("nan")) is fact_of(float("nan")), fact_of(1) is fact_of(True)
    (False, True, False)
    """
    if isinstance(value, np.ndarray):
        return _array_fact(value)
    return _intern(_exact_key(value, None), value)


def fact_of_result(value: Any) -> Fact:
    """The fact of what a node function returned. Arrays in it become read-only; what cannot be compared is unique.

    >>> fact_of_result([1, 2]) is fact_of_result([1, 2])
    True
    """
    return _fact_of_frozen(_freeze_arrays(value, _made_read_only))


def fact_of_given(value: Any) -> Fact:
    """The fact of a value that somebody gave: arrays that they can write to are copied, and stay theirs.

    >>> mine = np.zeros(2)
    >>> fact_of_given(mine).value is mine, mine.flags.writeable
    (False, True)
    """
    return _fact_of_frozen(_freeze_arrays(value, _copied_unless_frozen))


def _fact_of_frozen(value: Any) -> Fact:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _array_fact(value)
    try:
        return _intern(_exact_key(value, _MUTABLE_RULES), value)
    except NoExactKey:
        return Fact(value, None)


def _intern(key: Any, value: Any) -> Fact:
    facts = _facts.current
    entry = facts.by_key.get(key)
    fact = entry() if entry is not None else None
    if fact is not None:
        return fact
    with facts.lock:
        clear_up()
        entry = facts.by_key.get(key)
        fact = entry() if entry is not None else None
        if fact is None:
            fact = (_RenewedFact if _can_be_changed(value) else Fact)(value, key)
            entry = facts.by_key[key] = _Entry(fact, facts.dead.append)
            entry.key = key
        return fact


def clear_up() -> None:
    """Forgets the keys of facts that are gone, which may hold large arrays. Stores call it after they dropped some."""
    facts = _facts.current
    with facts.lock:
        while facts.dead:
            gone = facts.dead.popleft()
            if facts.by_key.get(gone.key) is gone:
                del facts.by_key[gone.key]


# --- keys ------------------------------------------------------------------------------------------------------------


def _exact_key(value: Any, containers: dict[type, Callable[[Any], Any]] | None) -> Any:
    """What is equal only for values of the same type and content; `containers` says which mutable ones are taken."""
    kind = value.__class__
    if kind is float:
        # Zeros are equal and NaN is not: those by bits. Any other float is equal to itself only.
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
        return _array_fact(value).key
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

_AT_ONCE = 1 << 20  # bytes


class ArrayKey:
    """An array's content as a key: hashed once, and compared byte by byte behind the hash."""

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
        mine, theirs = self.array, other.array
        return mine.dtype == theirs.dtype and mine.shape == theirs.shape and _same_bytes(mine, theirs)


def _hash_array(array: np.ndarray[Any, Any]) -> int:
    content = array.reshape(-1).view(np.uint8)
    pieces = range(0, content.size, _AT_ONCE)
    return hash((array.dtype.str, array.shape, *[hash(content[i : i + _AT_ONCE].tobytes()) for i in pieces]))


def _same_bytes(mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> bool:
    left, right = mine.reshape(-1).view(np.uint8), theirs.reshape(-1).view(np.uint8)
    return all(
        np.array_equal(left[start : start + _AT_ONCE], right[start : start + _AT_ONCE])
        for start in range(0, left.size, _AT_ONCE)
    )


def _array_fact(array: np.ndarray[Any, Any]) -> Fact:
    known = _facts.current.of_arrays.get(id(array))
    if known is not None and known[0]() is array:
        fact = known[1]()
        if fact is not None:
            return fact
    if array.dtype.hasobject:
        raise NoExactKey("an array of Python objects")
    frozen = array if _is_frozen(array) and array.flags.c_contiguous else _frozen_copy(array)
    fact = _intern(ArrayKey(frozen), frozen)
    if frozen is array:
        _remember_array(array, fact)
    _remember_array(fact.value, fact)
    return fact


def _remember_array(array: np.ndarray[Any, Any], fact: Fact) -> None:
    number, known = id(array), _facts.current.of_arrays
    known[number] = weakref.ref(array, lambda _: known.pop(number, None)), weakref.ref(fact)


def _is_frozen(array: np.ndarray[Any, Any]) -> bool:
    """Whether no array leads to this memory that could write to it."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    # Memory of NumPy's own, of immutable bytes, or of a block that belongs to the array alone.
    return owner is None or isinstance(owner, bytes) or hasattr(owner, "__array_interface__")


def _frozen_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = np.array(array, order="C", copy=True, subok=False)
    made.setflags(write=False)
    return made


_Freeze = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


def _made_read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.base is None or not isinstance(array.base, np.ndarray | memoryview | bytearray):
        array.setflags(write=False)
    return _copied_unless_frozen(array)


def _copied_unless_frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array if _is_frozen(array) else _frozen_copy(array)


def _freeze_arrays(value: Any, freeze: _Freeze) -> Any:
    """The value with its arrays read-only: what a cache hands out twice must not be written to."""
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
    """The same for an object of a data class: the object itself, unless that is somebody else's and must change."""
    made = value
    for field in dataclasses.fields(value):
        member = getattr(value, field.name)
        frozen = _freeze_arrays(member, freeze)
        if frozen is not member:
            if made is value and freeze is _copied_unless_frozen:
                made = copy.copy(value)
            object.__setattr__(made, field.name, frozen)
    return made


# --- containers ------------------------------------------------------------------------------------------------------


def _can_be_changed(value: Any) -> bool:
    """Whether a reader could change the value for the next one: a list, or a tuple with one inside."""
    kind = value.__class__
    if kind is tuple:
        return any(map(_can_be_changed, value))
    return kind in _MUTABLE_RULES or kind in _RENEWALS


def _copied(value: Any) -> Any:
    """The value with containers of its own, all the way down; what they hold is shared."""
    kind = value.__class__
    if kind in _RENEWALS:
        return _RENEWALS[kind](value)
    if kind is list or kind is tuple:
        return kind([_copied(item) for item in value])
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    return kind(value) if kind in _MUTABLE_RULES else value

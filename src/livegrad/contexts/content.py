"""The identity of nodes: of functions within a process, and of versioned functions across processes.

`link.py` uses both: the first selects the memo table, the second is part of the keys of results on disk.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any

from livegrad.contexts.cache.disk import NotPlainData, digest, encode
from livegrad.contexts.cache.interned_values import Interned, intern_argument
from livegrad.contexts.declare import NodeDeclaration
from livegrad.contexts.function_nodes import Kernel, Modifier
from livegrad.ir.digest import function_digest
from livegrad.ops.context import FeatureLevel


class Constant:
    """The function of a node that is a plain value; constants with equal values are equal."""

    __slots__ = ("interned",)

    def __init__(self, interned: Interned) -> None:
        self.interned = interned

    def __call__(self, ctx: Any) -> Any:
        return self.interned.value

    def __reduce__(self) -> tuple[Any, ...]:
        return _constant, (self.interned.value,)


def _constant(value: Any) -> Constant:
    """A constant whose value another process has pickled."""
    return Constant(intern_argument(value))


class _ByIdentity:
    """Wraps an object as a key that compares by identity and keeps the object alive."""

    __slots__ = ("_object",)

    def __init__(self, object: object) -> None:
        self._object = object

    def __hash__(self) -> int:
        return object.__hash__(self._object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self._object is other._object


def function_identity(declaration: NodeDeclaration) -> Hashable:
    """The identity of a function: its code if it is a livegrad function, its version if it has one, or the object."""
    function = declaration.function
    if isinstance(function, Constant):
        return "constant", function.interned
    if isinstance(function, Kernel | Modifier):
        return "code", function
    if declaration.version is not None:
        return "version", _qualified_name(function), declaration.version
    if isinstance(function, MethodType):
        return "method", _ByIdentity(function.__self__), function.__func__
    return "object", _ByIdentity(function)


def _qualified_name(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}.{name}"


def disk_identity(
    declaration: NodeDeclaration, need: Sequence[FeatureLevel], inputs: Sequence[bytes | None]
) -> bytes | None:
    """A digest of a node and all of its inputs that is stable across processes; None if a function has no version."""
    function_key = _disk_identity_of_function(declaration)
    if function_key is None or any(digest is None for digest in inputs):
        return None
    edges = [(e.scoped, tuple(sorted(e.injects)), tuple(sorted(e.modifies))) for e in declaration.inputs]
    features = [tuple(sorted(map(str, group))) for group in (declaration.extracts, declaration.optional, need)]
    return digest(function_key, encode([edges, features]), *[part for part in inputs if part is not None])


def _disk_identity_of_function(declaration: NodeDeclaration) -> bytes | None:
    function = declaration.function
    if isinstance(function, Kernel):
        code = function_digest(function.function)
        return None if code is None else digest(b"kernel", code, encode([str(f) for f in function.features]))
    if isinstance(function, Modifier):
        parts = [_disk_identity_of_function(replace(declaration, function=change)) for _, change in function.changes]
        names = encode([name for name, _ in function.changes])
        digests = [part for part in parts if part is not None]
        return digest(b"modifier", names, *digests) if len(digests) == len(parts) else None
    if isinstance(function, Constant):
        try:
            return digest(b"constant", encode(function.interned.value))
        except NotPlainData:
            return None
    if declaration.version is None:
        return None
    return digest(b"version", _qualified_name(function).encode(), declaration.version.encode())

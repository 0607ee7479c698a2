"""Hashes functions structurally, for the keys of the disk cache.

Functions with equal digests compute the same values; the source lines of their checks may differ.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from livegrad.ir.dimension import Dimension
from livegrad.ir.line_sites import mark_locations
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Type
from livegrad.ir.walk import nodes_of, reachable_functions


def function_digest(function: Function) -> bytes | None:
    """The digest of a function, or None if it has keyed inputs: keys have no meaning in other processes."""
    digest = function.__dict__.get("_digest")
    if digest is None:
        digests: dict[Function, bytes | None] = {}
        marked, _ = mark_locations(function)
        for inner in reachable_functions([marked]):
            # Marks depend on the outer function; without marks, the cached digest of an inner function is valid.
            inner_digest = inner.__dict__.get("_digest") if marked is function else None
            digests[inner] = _compute_digest(inner, digests) if inner_digest is None else inner_digest[0]
            if marked is function:
                inner.__dict__["_digest"] = (digests[inner],)
        digest = function.__dict__["_digest"] = (digests[marked],)
    return digest[0]


def _compute_digest(function: Function, inner: dict[Function, bytes | None]) -> bytes | None:
    indices: dict[Node, int] = {}
    parts: list[str] = [function.name]
    for index, node in enumerate(nodes_of(function)):
        indices[node] = index
        text = [node.op.name, *[str(indices[operand]) for operand in node.operands]]
        if node.attributes:
            if node.functions and None in [inner[function] for function in node.functions]:
                return None
            encoded = _encode_attribute(node.attributes, inner)
            if encoded is None:
                return None
            text.append(encoded)
        if node.op.checked and node.may_fail and node.origin is not None:
            text.append(str(node.origin))  # the mark that a failing check reports
        parts.append(" ".join(text))
    parts.append(" ".join(map(_type_text, function.parameter_types)))
    parts.append(" ".join(str(indices[result]) for result in function.results))
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _encode_attribute(value: Any, inner: dict[Function, bytes | None]) -> str | None:
    """Encodes an attribute by exact type and value. None for a key."""
    kind = value.__class__
    if kind is str or kind is int:
        return repr(value)
    if kind is tuple:
        items = [_encode_attribute(item, inner) for item in value]
        return None if None in items else f"({','.join(items)})"  # type: ignore[arg-type]
    if isinstance(value, Type):
        return _type_text(value)
    if isinstance(value, Key):
        return None
    if isinstance(value, Function):
        digest = inner[value]
        return None if digest is None else digest.hex()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, complex):
        return f"{value.real.hex()}j{value.imag.hex()}"
    if isinstance(value, Dimension):
        return str(value)
    return repr(value)


@lru_cache(maxsize=1024)
def _type_text(type: Type) -> str:
    return str(type)

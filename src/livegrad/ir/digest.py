"""A digest of the meaning of a function, the key of compiled code in the disk cache.

Functions with the same digest compute the same values; the source lines of their checks may differ.
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
    """The digest, or None for a function that no other process can have: one with keyed inputs."""
    digest = function.__dict__.get("_digest")
    if digest is None:
        digests: dict[Function, bytes | None] = {}
        marked, _ = mark_locations(function)
        for inner in reachable_functions([marked]):
            # Without marks a function inside is by itself what it is here.
            inner_digest = inner.__dict__.get("_digest") if marked is function else None
            digests[inner] = _digest(inner, digests) if inner_digest is None else inner_digest[0]
            if marked is function:
                inner.__dict__["_digest"] = (digests[inner],)
        digest = function.__dict__["_digest"] = (digests[marked],)
    return digest[0]


def _digest(function: Function, inner: dict[Function, bytes | None]) -> bytes | None:
    numbers: dict[Node, int] = {}
    parts: list[str] = [function.name]
    for number, node in enumerate(nodes_of(function)):
        numbers[node] = number
        text = [node.op.name, *[str(numbers[operand]) for operand in node.operands]]
        if node.attributes:
            if node.functions and None in [inner[function] for function in node.functions]:
                return None
            encoded = _encoded(node.attributes, inner)
            if encoded is None:
                return None
            text.append(encoded)
        if node.op.checked and node.may_fail and node.origin is not None:
            text.append(str(node.origin))  # its number: what a failing check reports
        parts.append(" ".join(text))
    parts.append(" ".join(map(_text_of, function.parameter_types)))
    parts.append(" ".join(str(numbers[result]) for result in function.results))
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _encoded(value: Any, inner: dict[Function, bytes | None]) -> str | None:
    """An attribute encoded by its exact type and value; None for a key, which has no meaning in other processes."""
    kind = value.__class__
    if kind is str or kind is int:
        return repr(value)
    if kind is tuple:
        items = [_encoded(item, inner) for item in value]
        return None if None in items else f"({','.join(items)})"  # type: ignore[arg-type]
    if isinstance(value, Type):
        return _text_of(value)
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
def _text_of(type: Type) -> str:
    return str(type)

"""Checks in kernels, for every backend: what each says when it fails, where the user wrote it, and both as JSON.

Emitters number their sites; a kernel reports a number, and recipes keep sites beside the code on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import Place, TextOrigin


@dataclass(frozen=True)
class Site:
    """A check in a kernel: what to say when it fails, and where the user wrote it.

    >>> Site("index out of range", None).message
    'index out of range'
    """

    message: str
    origin: Place | None


def encode_sites(sites: Iterable[Site]) -> list[list[Any]]:
    """Sites as JSON has them.

    >>> encode_sites([Site("no such element", TextOrigin("part.py", 3, 5, "shade"))])
    [['no such element', ['part.py', 3, 5, 'shade']]]
    """
    places = [(site.message, site.origin) for site in sites]
    return [[text, None if at is None else [at.file, at.line, at.column, at.function]] for text, at in places]


def decode_sites(data: Iterable[Any]) -> tuple[Site, ...]:
    """The sites that `encode_sites` wrote.

    >>> decode_sites([["no such element", None]])
    (Site(message='no such element', origin=None),)
    """
    return tuple(Site(message, None if place is None else TextOrigin(*place)) for message, place in data)

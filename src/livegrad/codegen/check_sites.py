"""Check sites of kernels, for every backend: the message and source line of each check, also as JSON.

Emitters number the check sites of a kernel. If a check fails, the kernel writes the element and the index of the site
to its status word. Serialised executables store the sites with the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import KernelCheckError, Mark, NodeOrigin, SourceLocation, TextOrigin

CLEAN = -1  # the status word of a kernel whose checks passed


@dataclass(frozen=True)
class Site:
    """A check in a kernel: its message, and the user's line.

    >>> Site("index out of range", None).message
    'index out of range'
    """

    message: str
    origin: SourceLocation | None


def check_failure(status: int, sites: Sequence[Site]) -> KernelCheckError:
    """The error that a status word encodes: the site in its low 16 bits, the element above them.

    >>> check_failure(0x50000, [Site("index out of range", None)]).what
    'index out of range, at element 5'
    """
    site = sites[status & 0xFFFF]
    return KernelCheckError(f"{site.message}, at element {status >> 16}", where=site.origin)


def resolve_sites(sites: Iterable[Site], locations: Sequence[SourceLocation | None]) -> tuple[Site, ...]:
    """Resolves the marks in the sites of shared code to source locations of one of its functions.

    Nodes that cannot fail are shared by all functions, so their sites may have marks of another function, which have
    no location here.

    >>> sites = resolve_sites([Site("no such element", Mark(0)), Site("never", Mark(7))], [TextOrigin("part.py", 3)])
    >>> sites[0].origin.line, sites[1].origin
    (3, None)
    """
    return tuple(Site(site.message, _resolve(site.origin, locations)) for site in sites)


def _resolve(origin: SourceLocation | None, locations: Sequence[SourceLocation | None]) -> SourceLocation | None:
    if not isinstance(origin, Mark):
        return origin
    return locations[origin.number] if origin.number < len(locations) else None


def encode_sites(sites: Iterable[Site]) -> list[list[Any]]:
    """Converts sites to lists for JSON.

    >>> encode_sites([Site("no such element", TextOrigin("part.py", 3, 5, "shade"))])
    [['no such element', ['part.py', 3, 5, 'shade']]]
    """
    return [[site.message, _encode_location(site.origin)] for site in sites]


def _encode_location(location: SourceLocation | None) -> Any:
    if location is None:
        return None
    if isinstance(location, Mark):
        return location.number
    if isinstance(location, NodeOrigin):
        return [location.node, location.function]
    return [location.file, location.line, location.column, location.function]


def decode_sites(data: Iterable[Any]) -> tuple[Site, ...]:
    """Converts the result of `encode_sites` back to sites.

    >>> decode_sites([["no such element", None]])
    (Site(message='no such element', origin=None),)
    """
    return tuple(Site(message, _decode_location(location)) for message, location in data)


def _decode_location(location: Any) -> SourceLocation | None:
    if location is None:
        return None
    if isinstance(location, int):
        return Mark(location)
    return NodeOrigin(*location) if len(location) == 2 else TextOrigin(*location)

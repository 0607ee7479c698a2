"""Serialised executables: everything needed to run a plan, as plain data that can be loaded from a file.

The argument slots of every kernel are listed: numbers, and memory locations that are resolved later.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from livegrad.codegen.check_sites import Site, decode_sites, encode_sites
from livegrad.ir.types import SCALARS, Scalar
from livegrad.runtime.cpu.native.llvm_jit import host_target

# code and block: of a chain's member; private: memory of a chain, before the chain itself is put together.
WordKind = Literal["external", "cell", "arena", "scratch", "status", "interrupt", "code", "block", "private"]


class Word(NamedTuple):
    """A word of an argument block that is an offset into something that has an address at run time.

    Words that are numbers are just that, and most are.
    """

    kind: WordKind
    slot: int
    value: int


@dataclass(frozen=True)
class SerialisedKernel:
    """One launch: which object code, its words, how its work is cut, and what its checks say.

    The code is an object of its own, named by its key, or a function of a library that stays in memory.
    """

    object_key: bytes
    words: tuple[int | Word, ...]
    total: int
    grain: int
    interruptible: bool
    sites: tuple[Site, ...]
    library: str = ""  # "chain", or the element of the products that the function is for
    symbol: str = "kernel"
    members: tuple[SerialisedKernel, ...] = ()  # of a chain


@dataclass(frozen=True)
class SerialisedArray:
    """An argument or a result: its number among the plan's buffers, element and shape."""

    number: int
    element: Scalar
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        size = self.element.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class SerialisedPlan:
    """A whole plan of kernels. None stands for an argument or a result that is no array, which kernels do not touch."""

    kernels: tuple[SerialisedKernel, ...]
    arguments: tuple[SerialisedArray | None, ...]
    results: tuple[SerialisedArray | None, ...]
    arena_bytes: int
    scratch: tuple[int, ...]  # bytes for each thread, by scratch buffer


# --- on disk ---------------------------------------------------------------------------------------------------------


def serialised_plan_key(digest: bytes, sizes: Mapping[str, int]) -> bytes:
    """What names a serialised plan in the cache: the function, its sizes, this machine and this very compiler."""
    target = host_target()
    parts = [digest.hex(), json.dumps(sorted(sizes.items())), target.cpu, target.features, compiler_stamp()]
    return hashlib.sha256("\n".join(parts).encode()).digest()


@lru_cache(maxsize=1)
def compiler_stamp() -> str:
    """Changes with every change of livegrad's own source: a serialised plan of another compiler is never used."""
    return _stamp(Path(__file__).parents[2])


@lru_cache(maxsize=1)
def emitter_stamp() -> str:
    """Changes with every change of what writes kernels: it decides which optimised module belongs to a baseline one."""
    package = Path(__file__).parents[2]
    return _stamp(package / "codegen" / "llvm") + _stamp(package / "schedule" / "loops")


def _stamp(root: Path) -> str:
    # Read, not imported: the package's front imports all layers, this one among them.
    seen = [(root / "__init__.py").read_text(encoding="utf-8")]
    for folder, _, files in sorted(os.walk(root)):
        for name in sorted(files):
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                seen.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()


def encode(serialised: SerialisedPlan) -> bytes:
    """The serialised plan as JSON."""
    kernels = [_encode_kernel(kernel) for kernel in serialised.kernels]
    arrays = [
        [None if a is None else [a.number, a.element.name, a.shape] for a in side]
        for side in (serialised.arguments, serialised.results)
    ]
    return json.dumps([kernels, *arrays, serialised.arena_bytes, serialised.scratch]).encode()


def _encode_kernel(kernel: SerialisedKernel) -> dict[str, Any]:
    return {
        "object": kernel.object_key.hex(),
        "words": kernel.words,
        "work": [kernel.total, kernel.grain, kernel.interruptible],
        "sites": encode_sites(kernel.sites),
        "code": [kernel.library, kernel.symbol],
        "members": [_encode_kernel(member) for member in kernel.members],
    }


def decode(data: bytes) -> SerialisedPlan | None:
    """The serialised plan from JSON; None when this is none."""
    try:
        kernels, arguments, results, arena_bytes, scratch = json.loads(data)
        return SerialisedPlan(
            tuple(_decode_kernel(kernel) for kernel in kernels),
            _decode_arrays(arguments),
            _decode_arrays(results),
            arena_bytes,
            tuple(scratch),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _decode_kernel(kernel: Mapping[str, Any]) -> SerialisedKernel:
    total, grain, interruptible = kernel["work"]
    sites = decode_sites(kernel["sites"])
    words = tuple(word if isinstance(word, int) else Word(*word) for word in kernel["words"])
    key, (library, symbol) = bytes.fromhex(kernel["object"]), kernel["code"]
    members = tuple(map(_decode_kernel, kernel["members"]))
    return SerialisedKernel(key, words, total, grain, interruptible, sites, library, symbol, members)


def _decode_arrays(arrays: list[Any]) -> tuple[SerialisedArray | None, ...]:
    return tuple(None if a is None else SerialisedArray(a[0], SCALARS[a[1]], tuple(a[2])) for a in arrays)

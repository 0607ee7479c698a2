"""Serialised executables: everything needed to run a plan, as plain data for the disk cache. The part for all targets.

Each target adds its kernel launches (`cpu/serialised_plan.py`, `cuda/serialised_launches.py`). The disk cache detects
damaged files; decoding rejects data of another format.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from livegrad.ir.types import Scalar
from livegrad.ir.types.scalars import SCALARS
from livegrad.schedule.plan import Buffer, Plan, Slot


@dataclass(frozen=True)
class SerialisedArray:
    """An argument or a result: the number of its buffer in the plan, its element type and shape."""

    number: int
    element: Scalar
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        size = self.element.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return size


SerialisedArrays = tuple[SerialisedArray | None, ...]  # None: an object of the host, which kernels do not use


@dataclass(frozen=True)
class SerialisedExecutable:
    """The arguments and results of a plan, and the bytes of its arena."""

    arguments: SerialisedArrays
    results: SerialisedArrays
    arena_bytes: int


ExecutableT = TypeVar("ExecutableT", bound=SerialisedExecutable)


def serialise_signature(plan: Plan) -> tuple[SerialisedArrays, SerialisedArrays]:
    """The arguments and the results of a plan."""
    return _serialise_arrays(plan.arguments), _serialise_arrays(plan.results)


def _serialise_arrays(slots: Iterable[Slot]) -> SerialisedArrays:
    return tuple(SerialisedArray(s.number, s.element, s.shape) if isinstance(s, Buffer) else None for s in slots)


# --- JSON ------------------------------------------------------------------------------------------------------------


def encode_executable(executable: SerialisedExecutable, code: Any) -> bytes:
    """An executable as JSON; `code` is the target's part."""
    arrays = [
        [None if array is None else [array.number, array.element.name, array.shape] for array in side]
        for side in (executable.arguments, executable.results)
    ]
    return json.dumps([*arrays, executable.arena_bytes, code]).encode()


def decode_executable(
    data: bytes, decode: Callable[[SerialisedArrays, SerialisedArrays, int, Any], ExecutableT]
) -> ExecutableT | None:
    """Decodes an executable; None if the data is invalid. `decode` takes the signature, arena bytes and code."""
    try:
        arguments, results, arena_bytes, code = json.loads(data)
        return decode(_decode_arrays(arguments), _decode_arrays(results), arena_bytes, code)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _decode_arrays(arrays: Iterable[Any]) -> SerialisedArrays:
    return tuple(None if array is None else _decode_array(*array) for array in arrays)


def _decode_array(number: int, element: str, shape: Iterable[int]) -> SerialisedArray:
    return SerialisedArray(number, SCALARS[element], tuple(shape))


# --- keys ------------------------------------------------------------------------------------------------------------


def executable_key(digest: bytes, sizes: Mapping[str, int], *target: str) -> bytes:
    """The key of an executable in the disk cache: a hash of the function, its sizes, the target, and this compiler."""
    parts = [digest.hex(), json.dumps(sorted(sizes.items())), *target, compiler_stamp()]
    return hashlib.sha256("\n".join(parts).encode()).digest()


@lru_cache(maxsize=1)
def compiler_stamp() -> str:
    """A hash of livegrad's source files, so that executables of other versions are not used."""
    return _stamp(Path(__file__).parents[1])


@lru_cache(maxsize=1)
def emitter_stamp() -> str:
    """A hash of the source files that emit kernels, which determine the optimised module for a baseline module."""
    package = Path(__file__).parents[1]
    return _stamp(package / "codegen" / "llvm") + _stamp(package / "schedule" / "loops")


def _stamp(root: Path) -> str:
    # Reads `__init__.py` instead of importing it, because it imports all layers, including this one.
    parts = [(root / "__init__.py").read_text(encoding="utf-8")]
    for folder, _, files in sorted(os.walk(root)):
        for name in sorted(files):
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()

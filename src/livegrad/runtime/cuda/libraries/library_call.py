"""The interface of library calls, and helpers for them: locating shared libraries and launching kernels."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from livegrad.ir.leaves import parameter_op
from livegrad.ir.types import i64
from livegrad.ops.movement import broadcast, permute
from livegrad.runtime.cuda.driver import check, driver
from livegrad.schedule.plan import Buffer, HostStep

THREADS, MAX_BLOCKS = 256, 4096  # of a grid-stride kernel


class LibraryCall(Protocol):
    """A library call with fixed sizes and scale factors. Each capture passes the addresses.

    A call that has messages in an attribute `failures` takes the address of a status word as its last operand.
    """

    @property
    def name(self) -> str: ...

    def prepare(self) -> None:
        """Creates what cannot be created during capture: handles, plans and memory."""
        ...

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues the work on a stream, which may be under capture."""
        ...


def operand_buffers(step: HostStep) -> list[Buffer]:
    """The buffer of each operand of a step. Operands may share a buffer, or be views of one: transposed or repeated.
    An operand that the step generates has no buffer.
    """
    operands = step.function.results[0].operands
    nodes = [node.operands[0] if node.op in (permute, broadcast) else node for node in operands]
    slots = [step.operands[node.attribute("index")] for node in nodes if node.op is parameter_op]
    return [slot for slot in slots if isinstance(slot, Buffer)]


def _folders(package: str) -> list[Path]:
    """The folders of shared libraries in NVIDIA's wheels: `nvidia/cu13/lib`, or one for each package before CUDA 13."""
    folders: list[Path] = []
    for name in ("nvidia.cu13", f"nvidia.{package}"):
        try:
            specification = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        locations = specification.submodule_search_locations if specification is not None else None
        folders += [Path(location) / "lib" for location in locations or ()]
    return folders


@cache
def shared_library(package: str, names: tuple[str, ...]) -> ctypes.CDLL | None:
    """Loads a CUDA library by one of its file names, from NVIDIA's wheels or the system's search path; None if missing.

    >>> shared_library("no_such_package", ("libnothing.so.1",)) is None
    True
    """
    for name in names:
        for path in (*[folder / name for folder in _folders(package)], name):
            if isinstance(path, Path) and not path.exists():
                continue
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    return None


def launch_kernel(function: Any, stream: Any, count: int, slots: Sequence[int]) -> None:
    """Launches a grid-stride kernel over `count` elements. Its only argument is a struct of 8-byte slots."""
    launch_blocks(function, stream, min(MAX_BLOCKS, -(-count // THREADS)), THREADS, slots)


def launch_blocks(function: Any, stream: Any, blocks: int, threads: int, slots: Sequence[int]) -> None:
    """Launches `blocks` blocks of a kernel, whose only argument is a struct of 8-byte slots."""
    packed = np.array(slots, i64.dtype)
    pointers = np.array([packed.ctypes.data], np.uint64)
    shape = (blocks, 1, 1, threads, 1, 1, 0)
    check(driver.cuLaunchKernel(function, *shape, stream, pointers.ctypes.data, 0))

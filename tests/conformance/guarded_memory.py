"""Memory that ends where nothing is mapped: a kernel that reads or writes beyond a buffer ends the process at once.

`guarding_buffers` gives every buffer of the CPU backend such memory: results, loop variables, scratch memory, and each
buffer of a plan's arena, which then share no pages. `run_guarded` also moves the arguments there. Buffers of an arena
are padded to whole cache lines, which kernels may touch; everything else ends at its last byte.
"""

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from livegrad.ir.node import Function
from livegrad.ir.types import Scalar
from livegrad.runtime.cpu import compiled_plan, cpu_function, kernel_memory, loop_body, tape_rows
from livegrad.runtime.object_cache import CacheSettings, ObjectCache, set_default_cache
from livegrad.schedule import plan_passes
from livegrad.schedule.allocate import BufferUser, live_ranges
from livegrad.schedule.plan import ALIGNMENT, Buffer
from livegrad.state import fresh_session

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_guards_of: dict[int, list[int]] = {}  # by the size of an arena, which is made unique: where its guard pages are


def _forbid(address: int) -> None:
    if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def guarded_bytes(size: int) -> np.ndarray[Any, Any]:
    """Bytes that end at an unmapped page."""
    room = _whole_pages(max(size, 1))
    memory = np.frombuffer(mmap.mmap(-1, room + PAGE), np.uint8)
    _forbid(memory.ctypes.data + room)
    return memory[room - size : room]


def guarded_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array that ends at an unmapped page, not initialised."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return guarded_bytes(size).view(dtype).reshape(shape)


def guarded_copy(value: Any) -> Any:
    """The same values, arrays inside of tuples and structs included."""
    if isinstance(value, np.ndarray) and value.ndim and value.dtype != object:
        copy = guarded_array(value.shape, value.dtype)
        copy[...] = value
        return copy
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(map(guarded_copy, value))
    return value


def _allocate(steps: Sequence[BufferUser], buffers: Sequence[Buffer]) -> tuple[dict[Buffer, int], int]:
    """Every buffer has pages of its own, and ends at a guard page."""
    offsets: dict[Buffer, int] = {}
    guards: list[int] = []
    end = 0
    for buffer in live_ranges(steps, buffers):
        last = end + _whole_pages(buffer.reserved_bytes)
        offsets[buffer] = last - buffer.reserved_bytes
        guards.append(last)
        end = last + PAGE
    while end in _guards_of:
        end += PAGE
    if guards:
        _guards_of[end] = guards
    return offsets, end if guards else 0


def _plan_memory(size: int) -> np.ndarray[Any, Any]:
    """An arena with its guard pages, or other memory of a plan, which begins at a cache line."""
    guards = _guards_of.get(size)
    if guards is None:
        return guarded_bytes(-(-size // ALIGNMENT) * ALIGNMENT)[:size]
    memory = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    for guard in guards:
        _forbid(memory.ctypes.data + guard)
    return memory


def _result_maker(element: Scalar, shape: tuple[int, ...], size: int) -> Any:
    return lambda: guarded_array(shape, element.dtype)


def run_guarded(compiled: Function, *arguments: Any) -> Any:
    """The function's value by native code, with arguments that end at unmapped pages."""
    return cpu_function.run_function(compiled, *map(guarded_copy, arguments))


@contextmanager
def guarding_buffers() -> Iterator[None]:
    """Everything that is compiled meanwhile has guarded memory; nothing compiled before or after is mixed with it."""
    with fresh_session(), pytest.MonkeyPatch.context() as patch:
        set_default_cache(ObjectCache(CacheSettings(None)))
        patch.setattr(plan_passes, "allocate_arena", _allocate)
        patch.setattr(kernel_memory, "plan_memory", _plan_memory)
        for module in (compiled_plan, tape_rows):
            patch.setattr(module, "result_maker", _result_maker)
        patch.setattr(loop_body, "aligned_memory", _plan_memory)
        try:
            yield
        finally:
            _guards_of.clear()

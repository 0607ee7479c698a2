"""Creates the Python built-in of a plan. In: the plan's arguments, results and kernels. Out: a callable.

`plan_entry.py` calls this. The built-in maps arguments to the only result or a list of results. It returns None,
without side effects, for calls that it declines. `plan_call_ir.py` has its code.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.runtime.cpu.native.invoke import make_builtin
from livegrad.runtime.cpu.native.pool import runtime

ANY, ARRAYS, HANDLES, NUMBERS = range(4)  # accepted kinds of an argument
_NUMBER_CODES = {np.dtype(np.float64): 1, np.dtype(np.float32): 2, np.dtype(np.int64): 3}
Patch = tuple[int, int]  # the address of an argument slot, and the offset that is added to the array's address


@dataclass(frozen=True)
class Argument:
    """An array or number that a plan takes. `cell` is the address to which a scalar is copied, or 0."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    patches: Sequence[Patch]
    cell: int = 0
    source: int = ANY


@dataclass(frozen=True)
class Result:
    """An array that a plan returns. `maker` allocates it if its memory comes from the pool."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    patches: Sequence[Patch]
    maker: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Segment:
    """Kernels that run in sequence. `status` is the address of the status word of their checks, or 0."""

    records: Sequence[tuple[int, int, int, int]]
    interruptible: bool
    status: int = 0

    @property
    def releases_gil(self) -> bool:
        """Whether the GIL is released during the run."""
        return self.interruptible or any(total > grain for _, total, grain, _ in self.records)


class _Table:
    """Builds tables of 64-bit words, and keeps alive the objects and memory that they point to."""

    def __init__(self) -> None:
        self.references: list[Any] = []

    def address_of(self, words: Sequence[int]) -> int:
        memory = array("q", words or (0,))
        self.references.append(memory)
        return memory.buffer_info()[0]

    def object(self, value: Any) -> int:
        self.references.append(value)
        return id(value)

    def patches(self, patches: Sequence[Patch]) -> tuple[int, int]:
        return self.address_of([word for patch in patches for word in patch]), len(patches)

    def argument(self, argument: Argument) -> tuple[int, ...]:
        code = 0 if argument.shape else _NUMBER_CODES.get(argument.dtype, 0)
        item = (argument.cell, argument.dtype.itemsize, 0)
        return (argument.source, code, *self.array(argument), *self.patches(argument.patches), *item)

    def result(self, result: Result) -> tuple[int, ...]:
        maker = 0 if result.maker is None else self.object(result.maker)
        return (maker, *self.array(result), *self.patches(result.patches))

    def array(self, form: Argument | Result) -> tuple[int, int, int]:
        return self.object(form.dtype), len(form.shape), self.address_of(form.shape)

    def segment(self, segment: Segment) -> tuple[int, ...]:
        records = self.address_of([word for record in segment.records for word in record])
        return records, len(segment.records), int(segment.interruptible), segment.status


def make_plan_call(
    arguments: Sequence[Argument],
    results: Sequence[Result],
    segments: Sequence[Segment],
    lock: threading.Lock,
    keep: Any,
    *,
    handles: array[int] | None = None,
    frozen: bool = False,
) -> Callable[..., Any] | None:
    """The built-in that runs a plan; None if this interpreter does not support it.

    `lock` is held during each run of the plan. `keep` stays alive with the built-in, for memory that addresses point
    to. `handles` is the layout of tensor handles (see `array_of_handle` in `plan_arguments_ir.py`). `frozen` results
    are read-only.
    """
    address = runtime().code.addresses.get("py_run_plan")
    if address is None:
        return None
    table = _Table()
    table.references += (keep, handles)
    # If no kernel releases the GIL, no other run can start during this one, so testing the lock is enough.
    release = table.object(lock.release) if any(segment.releases_gil for segment in segments) else 0
    acquire = table.object(lock.acquire if release else lock.locked)
    words = (
        len(arguments),
        len(results),
        len(segments),
        acquire,
        release,
        0 if handles is None else handles.buffer_info()[0],
        int(frozen),
        table.address_of([word for argument in arguments for word in table.argument(argument)]),
        table.address_of([word for result in results for word in table.result(result)]),
        table.address_of([word for segment in segments for word in table.segment(segment)]),
        ctypes.c_int64(threading.main_thread().ident or 0).value,
    )
    return make_builtin("run_plan", address, (struct.pack(f"<{len(words)}q", *words), table))

"""Finds the memory layout of Python and NumPy objects, for built-ins that read members directly.

Out: byte offsets, verified on sample objects; None if an object has another layout, in which case Python code replaces
the built-ins.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from functools import lru_cache
from typing import Any

import numpy as np

from livegrad.runtime.cpu.native.plan_call_ir import ObjectLayout

_WORD = 8
# Indices in NumPy's C API table, which are stable across versions.
_NUMPY_FUNCTIONS = {"PyArray_NewFromDescr": 94}


def _words(value: object, size: int) -> tuple[int, ...]:
    """The memory of an object as 64-bit words."""
    return tuple((ctypes.c_int64 * (size // _WORD)).from_address(id(value)))


def slot_offset(sample: object, name: str) -> int | None:
    """The offset of a member in `__slots__`, found by setting it in a sample; None if it is ambiguous."""
    marker = object()
    setattr(sample, name, marker)
    words = _words(sample, type(sample).__basicsize__)
    return words.index(id(marker)) * _WORD if words.count(id(marker)) == 1 else None


@lru_cache(maxsize=1)
def find_layout() -> ObjectLayout | None:
    """The layout of Python and NumPy objects; None if it differs from what is expected, or without a GIL."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or sys.maxsize < 2**62:
        return None
    header = object.__basicsize__
    layout = ObjectLayout(
        type=header - 8,
        tuple_items=tuple.__basicsize__,
        bytes_data=bytes.__basicsize__ - 1,
        array_data=header,
        array_rank=header + 8,
        array_shape=header + 16,
        array_dtype=header + 40,
        array_flags=header + 48,
    )
    return layout if _matches_samples(layout) else None


def _matches_samples(layout: ObjectLayout) -> bool:
    first, second, data = object(), object(), b"livegrad"
    pair = (first, second)
    if _words(pair, layout.tuple_items + 16)[layout.tuple_items // _WORD :] != (id(first), id(second)):
        return False
    if ctypes.string_at(id(data) + layout.bytes_data, 8) != data:
        return False
    samples = (np.zeros((3, 5)), np.zeros((4, 6, 2), np.float32)[1:, ::2], np.zeros((), np.int8), np.zeros(0, bool))
    if not all(_matches_array(layout, sample) for sample in samples):
        return False
    read_only = np.zeros(2)
    read_only.setflags(write=False)
    return _matches_array(layout, read_only) and bool(numpy_function("PyArray_NewFromDescr"))


def _matches_array(layout: ObjectLayout, array: np.ndarray[Any, Any]) -> bool:
    at = id(array)
    if ctypes.c_int64.from_address(at + layout.type).value != id(np.ndarray):
        return False
    if ctypes.c_int32.from_address(at + layout.array_rank).value != array.ndim:
        return False
    if ctypes.c_int64.from_address(at + layout.array_data).value != array.ctypes.data:
        return False
    if ctypes.c_int64.from_address(at + layout.array_dtype).value != id(array.dtype):
        return False
    if ctypes.c_int32.from_address(at + layout.array_flags).value != array.flags.num:
        return False
    sizes = ctypes.c_int64.from_address(at + layout.array_shape).value
    return tuple((ctypes.c_int64 * array.ndim).from_address(sizes)) == array.shape if array.ndim else True


@lru_cache(maxsize=8)
def numpy_function(name: str) -> int:
    """The address of a function in NumPy's C API; 0 if it is not found."""
    capsule = getattr(np._core._multiarray_umath, "_ARRAY_API", None)  # type: ignore[attr-defined]
    if capsule is None:
        return 0
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = pointer(capsule, None)
    return ctypes.c_void_p.from_address(table + _NUMPY_FUNCTIONS[name] * _WORD).value or 0

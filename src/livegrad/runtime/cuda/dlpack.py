"""Exports device arrays as DLPack capsules, for libraries without `__cuda_array_interface__`.

Called by `DeviceArray.__dlpack__` and `live.cuda.captured_graphs`. A capsule keeps the memory of the array alive until
its consumer releases it.
"""

from __future__ import annotations

import ctypes
from itertools import count
from typing import Any, Protocol

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.runtime.cuda.driver import check, device, driver

DEVICE = (2, 0)  # the first CUDA device
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("export_id", ctypes.c_void_p), ("deleter", _Deleter))


_exports: dict[int, Any] = {}  # arrays that a consumer may still read, kept alive
_export_ids = count(1)


@_Deleter
def _release_export(address: int) -> None:
    _exports.pop(_Managed.from_address(address).export_id, None)


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop_capsule(capsule: int) -> None:
    if _is_valid(capsule, _NAME):  # no consumer has taken it: that renames the capsule
        _release_export(_pointer(capsule, _NAME))


class Exportable(Protocol):
    """An array that can be exported: a `DeviceArray`, or a view of a buffer of the live engine."""

    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


def capsule_of(array: Exportable, stream: int | None) -> Any:
    """A capsule of an array's memory, which the consumer's stream may read (-1: the consumer synchronises itself)."""
    kind = array.dtype.kind
    if kind not in _CODES:
        raise UsageError("DLPack does not support this element type", where=caller_origin(), found=str(array.dtype))
    if stream != -1:
        _wait_on(stream)
    shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
    tensor = _Tensor(array.address, *DEVICE, len(array.shape), _CODES[kind], 8 * array.dtype.itemsize, 1, shape)
    managed = _Managed(tensor, next(_export_ids), _release_export)
    _exports[managed.export_id] = (array, managed, shape)
    return _new(ctypes.addressof(managed), _NAME, ctypes.cast(_drop_capsule, ctypes.c_void_p))


def _wait_on(stream: int | None) -> None:
    """Makes the consumer's stream (None: the default stream) wait for the work on our stream."""
    event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    check(driver.cuEventRecord(event, device().stream))
    check(driver.cuStreamWaitEvent(driver.CUstream(1 if stream is None else stream), event, 0))
    check(driver.cuEventDestroy(event))

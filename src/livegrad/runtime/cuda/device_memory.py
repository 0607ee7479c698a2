"""Device memory from the driver's pool, freed when nothing refers to it, and device arrays.

Everything is ordered by one stream, so memory that is freed while a kernel still uses it is not reused before that
kernel has ended.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from livegrad.runtime.cuda.dlpack import DEVICE, capsule_of
from livegrad.runtime.cuda.driver import DeviceError, checked, device, driver, is_current

# Freed memory up to this much stays with the process, because to get it from the driver again takes longer than most
# kernels do.
_KEPT_BYTES = 1 << 32
LEAST_BYTES = 16

# Asked for room when there is none left; each says whether it gave any memory up.
make_room: list[Callable[[], bool]] = []
_pools: dict[int, Any] = {}  # by context
_lock = threading.Lock()


def _pool() -> Any:
    """The device's pool of memory, told to keep what is freed."""
    found = device()
    with _lock:
        if found.context_number not in _pools:
            pool = checked(driver.cuDeviceGetDefaultMemPool(checked(driver.cuCtxGetDevice())))
            attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            checked(driver.cuMemPoolSetAttribute(pool, attribute, driver.cuuint64_t(_KEPT_BYTES)))
            _pools[found.context_number] = pool
        return _pools[found.context_number]


def take(size: int) -> int:
    """The address of so many bytes; an error that says how many there are when there are not enough."""
    _pool()
    stream = device().stream
    for attempt in _attempts:
        if not attempt():
            continue
        status, address = driver.cuMemAllocAsync(size, stream)
        if int(status) == 0:
            return int(address)
        if status != driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            checked((status,))
    free, total = checked(driver.cuMemGetInfo())
    raise DeviceError(
        f"the device has no room for {size:,} bytes",
        found=f"{free:,} of {total:,} bytes free",
        help="drop tensors that are no longer needed, or work on less at a time",
    )


def _collect() -> bool:
    gc.collect()
    return True


def _evict() -> bool:
    gave_up = [give_up() for give_up in make_room]
    return any(gave_up)


def _trim() -> bool:
    """Memory that was freed goes back to the driver, which may put it together in larger pieces."""
    checked(driver.cuStreamSynchronize(device().stream))
    checked(driver.cuMemPoolTrimTo(_pool(), 0))
    return True


_attempts: tuple[Callable[[], bool], ...] = (lambda: True, _collect, _trim, _evict)


def _free(address: int, context_number: int, lent: list[bool]) -> None:
    # A fault takes a context with all of its memory.
    if is_current(context_number):
        if lent[0]:
            driver.cuCtxSynchronize()
        driver.cuMemFreeAsync(address, device().stream)


class DeviceMemory:
    """So many bytes on the device, freed when nothing refers to them."""

    def __init__(self, size: int) -> None:
        self.size = max(size, LEAST_BYTES)
        self.address = take(self.size)
        self._lent = [False]
        self._finalizer = weakref.finalize(self, _free, self.address, device().context_number, self._lent)
        self._finalizer.atexit = False  # the process takes its memory along

    def upload(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Copies a dense array to the device. The array may be changed when this returns."""
        upload(self.address + offset, array)

    def download(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Fills a dense array from the device, after all work that was launched."""
        download(self.address + offset, array)

    def lend(self) -> None:
        """Notes that another library has the address: what it does on streams of its own ends before this is freed."""
        self._lent[0] = True

    def clear(self) -> None:
        """Sets all bytes to zero, in order with all other work."""
        checked(driver.cuMemsetD8Async(self.address, 0, self.size, device().stream))


def upload(address: int, array: np.ndarray[Any, Any]) -> None:
    """Copies a dense array to an address on the device, in order with all other work."""
    if array.nbytes:
        stream = device().stream
        checked(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, stream))
        checked(driver.cuStreamSynchronize(stream))


def download(address: int, array: np.ndarray[Any, Any]) -> None:
    """Fills a dense array from an address on the device, after all work that was launched."""
    if array.nbytes:
        stream = device().stream
        checked(driver.cuMemcpyDtoHAsync(array.ctypes.data, address, array.nbytes, stream))
        checked(driver.cuStreamSynchronize(stream))


def memory_in_use() -> tuple[int, int]:
    """Bytes of the device that arrays and plans hold, and bytes that the process has taken from the driver for them."""
    used, held = (
        driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        (driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
    )
    return tuple(int(checked(driver.cuMemPoolGetAttribute(_pool(), name))) for name in (used, held))  # type: ignore[return-value]


class DeviceArray:
    """A dense array on the device, which nobody writes to once it is made. Other libraries take it by
    `__cuda_array_interface__` or DLPack."""

    device = "cuda"

    def __init__(self, dtype: Any, shape: tuple[int, ...], memory: DeviceMemory | None = None, offset: int = 0) -> None:
        self.dtype, self.shape = np.dtype(dtype), tuple(shape)
        self.memory, self._offset = memory or DeviceMemory(self.nbytes), offset

    @staticmethod
    def from_host(array: Any) -> DeviceArray:
        """A copy of a NumPy array on the device."""
        dense = np.asarray(array, order="C")
        made = DeviceArray(dense.dtype, dense.shape)
        made.memory.upload(dense)
        return made

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def address(self) -> int:
        return self.memory.address + self._offset

    def rows(self, start: int, count: int) -> DeviceArray:
        """So many rows from one on, in the same memory."""
        offset = start * prod(self.shape[1:]) * self.dtype.itemsize
        return DeviceArray(self.dtype, (count, *self.shape[1:]), self.memory, self._offset + offset)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, after all work that was launched."""
        array = np.empty(self.shape, self.dtype)
        self.memory.download(array, self._offset)
        return array

    @cached_property
    def on_host(self) -> np.ndarray[Any, Any]:
        """The copy on the host that all who read it share: made once, and not to be written to."""
        array = self.numpy()
        array.flags.writeable = False
        return array

    @property
    def is_on_host(self) -> bool:
        """Whether there is such a copy already."""
        return "on_host" in self.__dict__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For NumPy: a copy on the host."""
        array = self.on_host
        return array if dtype is None and not copy else np.array(array, dtype)

    def __dlpack__(self, *, stream: Any = None, **wishes: Any) -> Any:
        """The array as a DLPack capsule; it must not be written to."""
        self.memory.lend()
        return capsule_of(self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.memory.lend()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": int(device().stream),
        }

"""Device memory from the driver's pool, and device arrays. Memory is freed when nothing refers to it.

One stream orders all work, so memory that is freed while a kernel still uses it is not reused before that kernel ends.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from livegrad.runtime.cuda.dlpack import DEVICE, capsule_of
from livegrad.runtime.cuda.driver import DeviceError, PerContext, check, device, driver, is_current

# The process keeps freed memory up to this size, because allocating it again takes longer than most kernels.
_KEPT_BYTES = 1 << 32
MIN_BYTES = 16

# Called when the device is out of memory; each returns whether it freed any.
make_room: list[Callable[[], bool]] = []


def _make_pool() -> Any:
    """The memory pool of the device, configured to keep freed memory."""
    pool = check(driver.cuDeviceGetDefaultMemPool(check(driver.cuCtxGetDevice())))
    attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    check(driver.cuMemPoolSetAttribute(pool, attribute, driver.cuuint64_t(_KEPT_BYTES)))
    return pool


memory_pool = PerContext(_make_pool)


def allocate(size: int) -> int:
    """Allocates bytes on the device and returns their address. An error reports how many bytes are free."""
    _ = memory_pool.current  # configures the pool before its first allocation
    stream = device().stream
    for attempt in _attempts:
        if not attempt():
            continue
        status, address = driver.cuMemAllocAsync(size, stream)
        if int(status) == 0:
            return int(address)
        if status != driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            check((status,))
    free, total = check(driver.cuMemGetInfo())
    raise DeviceError(
        f"the device is out of memory: {size:,} bytes cannot be allocated",
        found=f"{free:,} of {total:,} bytes free",
        help="drop tensors that are no longer needed, or work on smaller pieces",
    )


def _collect() -> bool:
    gc.collect()
    return True


def _evict() -> bool:
    freed = [evict() for evict in make_room]
    return any(freed)


def _trim() -> bool:
    """Returns freed memory to the driver, which may merge it into larger blocks."""
    check(driver.cuStreamSynchronize(device().stream))
    check(driver.cuMemPoolTrimTo(memory_pool.current, 0))
    return True


_attempts: tuple[Callable[[], bool], ...] = (lambda: True, _collect, _trim, _evict)


def _free(address: int, context_number: int, lent: list[bool]) -> None:
    # After a fault, the context and all its memory are gone.
    if is_current(context_number):
        if lent[0]:
            driver.cuCtxSynchronize()
        driver.cuMemFreeAsync(address, device().stream)


class DeviceMemory:
    """An allocation on the device, freed when nothing refers to it."""

    def __init__(self, size: int) -> None:
        self.size = max(size, MIN_BYTES)
        self.address = allocate(self.size)
        self._lent = [False]
        self._finalizer = weakref.finalize(self, _free, self.address, device().context_number, self._lent)
        self._finalizer.atexit = False  # the memory is freed with the process

    def upload(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Copies a dense array to the device. The array may be modified when this returns."""
        upload(self.address + offset, array)

    def download(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Fills a dense array from the device, after all work that was launched."""
        download(self.address + offset, array)

    def lend(self) -> None:
        """Marks the memory as shared with another library. Freeing it then waits for all streams."""
        self._lent[0] = True

    def clear(self) -> None:
        """Sets all bytes to zero, in order with all other work."""
        check(driver.cuMemsetD8Async(self.address, 0, self.size, device().stream))


def upload(address: int, array: np.ndarray[Any, Any]) -> None:
    """Copies a dense array to an address on the device, in order with all other work."""
    if array.nbytes:
        stream = device().stream
        check(driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, stream))
        check(driver.cuStreamSynchronize(stream))


def download(address: int, array: np.ndarray[Any, Any]) -> None:
    """Fills a dense array from an address on the device, after all work that was launched."""
    if array.nbytes:
        stream = device().stream
        check(driver.cuMemcpyDtoHAsync(array.ctypes.data, address, array.nbytes, stream))
        check(driver.cuStreamSynchronize(stream))


class DeviceArray:
    """A dense, immutable array on the device. Other libraries read it through `__cuda_array_interface__` or DLPack."""

    device = "cuda"
    checks: tuple[Any, ...] = ()  # of the runs that computed it, unless they have passed; see `run_checks.py`

    def __init__(self, dtype: Any, shape: tuple[int, ...], memory: DeviceMemory | None = None, offset: int = 0) -> None:
        self.dtype, self.shape = np.dtype(dtype), tuple(shape)
        self.memory, self._offset = memory or DeviceMemory(self.nbytes), offset

    @staticmethod
    def from_host(array: Any) -> DeviceArray:
        """A copy of a NumPy array on the device."""
        dense = np.asarray(array, order="C")
        copy = DeviceArray(dense.dtype, dense.shape)
        copy.memory.upload(dense)
        return copy

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def address(self) -> int:
        return self.memory.address + self._offset

    def rows(self, start: int, count: int) -> DeviceArray:
        """A view of `count` rows from `start` on."""
        offset = start * prod(self.shape[1:]) * self.dtype.itemsize
        part = DeviceArray(self.dtype, (count, *self.shape[1:]), self.memory, self._offset + offset)
        part.checks = self.checks
        return part

    def require_checks(self) -> None:
        """Waits for the runs that computed the array, and raises if one failed."""
        for run_check in self.checks:
            run_check.require()
        self.checks = ()

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, after all launched work."""
        self.require_checks()
        array = np.empty(self.shape, self.dtype)
        self.memory.download(array, self._offset)
        return array

    @cached_property
    def on_host(self) -> np.ndarray[Any, Any]:
        """A read-only copy on the host, created once and shared by all readers."""
        array = self.numpy()
        array.flags.writeable = False
        return array

    @property
    def is_on_host(self) -> bool:
        """Whether the copy of `on_host` exists already."""
        return "on_host" in self.__dict__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """For NumPy: a copy on the host."""
        array = self.on_host
        return array if dtype is None and not copy else np.array(array, dtype)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """A DLPack capsule of the array. The consumer must not write to it."""
        self.require_checks()
        self.memory.lend()
        return capsule_of(self, stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.require_checks()
        self.memory.lend()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": int(device().stream),
        }

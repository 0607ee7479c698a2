"""Memory on the device: allocations that free themselves, and arrays that stay there between calls."""

from __future__ import annotations

import weakref
from math import prod
from typing import Any

import numpy as np

from livegrad.backends.cuda.driver import checked, device, driver


class DeviceMemory:
    """So many bytes on the device, freed when nothing refers to them."""

    def __init__(self, size: int) -> None:
        device()
        self.size = max(size, 16)
        self.address = int(checked(driver.cuMemAlloc(self.size)))
        self._finalizer = weakref.finalize(self, _free, self.address)
        self._finalizer.atexit = False  # the process takes its memory along

    def upload(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Copies a dense array to the device. The array may be changed when this returns."""
        upload(self.address + offset, array)

    def download(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Fills a dense array from the device, after all work that was launched."""
        download(self.address + offset, array)


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


def _free(address: int) -> None:
    device()
    # Whatever still runs may use it.
    driver.cuStreamSynchronize(device().stream)
    driver.cuMemFree(address)


class DeviceArray:
    """A dense array on the device. Other libraries take it by `__cuda_array_interface__`."""

    def __init__(self, dtype: Any, shape: tuple[int, ...], memory: DeviceMemory | None = None) -> None:
        self.dtype, self.shape = np.dtype(dtype), tuple(shape)
        self.memory = memory or DeviceMemory(prod(self.shape) * self.dtype.itemsize)

    @staticmethod
    def from_host(array: Any) -> DeviceArray:
        """A copy of a NumPy array on the device."""
        dense = np.asarray(array, order="C")
        made = DeviceArray(dense.dtype, dense.shape)
        made.memory.upload(dense)
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, after all work that was launched."""
        array = np.empty(self.shape, self.dtype)
        self.memory.download(array)
        return array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.memory.address, False),
            "strides": None,
            "version": 3,
        }

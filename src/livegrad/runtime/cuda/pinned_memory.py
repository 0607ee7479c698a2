"""Pinned host memory, which asynchronous copies from the device write to. Freed memory is kept for reuse."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from livegrad.runtime.cuda.driver import PerContext, check, device, driver

_LEAST = 64
_LARGEST_KEPT, _MAX_KEPT = 1 << 26, 1 << 24  # bytes: of one allocation, and of all allocations of one size


def _make_free_lists() -> defaultdict[int, list[int]]:
    return defaultdict(list)


# Addresses by size. No lock: `append` and `pop` are atomic, and finalizers free memory at any moment, even in a thread
# that is allocating.
_free_lists = PerContext(_make_free_lists)


class PinnedMemory:
    """Pinned bytes, until `free`. Reuses freed memory, because an allocation takes longer than most frames."""

    def __init__(self, size: int) -> None:
        self.size = max(_LEAST, 1 << max(0, size - 1).bit_length())
        self._free_list = _free_lists.current[self.size]
        try:
            self.address = self._free_list.pop()
        except IndexError:
            self.address = int(check(driver.cuMemHostAlloc(self.size, 0)))

    def array(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The memory as an array; valid until it is freed."""
        kind = np.dtype(dtype)
        interface = {"data": (self.address, False), "typestr": kind.str, "shape": shape, "version": 3}
        return np.asarray(type("Pinned", (), {"__array_interface__": interface})())

    def free(self) -> None:
        """Frees the memory. A copy into it may still be running; the stream orders the next copy after it."""
        if self.size <= _LARGEST_KEPT and len(self._free_list) < max(1, _MAX_KEPT // self.size):
            self._free_list.append(self.address)
        else:
            driver.cuStreamSynchronize(device().stream)  # a later copy would not wait for the running copy
            driver.cuMemFreeHost(self.address)

"""Pinned host memory for asynchronous copies. Freed memory is kept for reuse."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from livegrad.runtime.cuda.driver import checked, device, driver

_LEAST = 64
_LARGEST_KEPT, _MOST_KEPT = 1 << 26, 1 << 24  # bytes: of one piece, and of all of a size where that is more than one
# Addresses by context and size. Without a lock: `append` and `pop` are atomic, and finalizers, which may run at any
# moment, also in a thread that is in here, give memory back.
_free: defaultdict[tuple[int, int], list[int]] = defaultdict(list)


class PinnedMemory:
    """So many bytes, to be given back with `free`. Taking them from the driver takes longer than most frames do."""

    def __init__(self, size: int) -> None:
        self.size = max(_LEAST, 1 << max(0, size - 1).bit_length())
        self._kept = _free[device().context_number, self.size]
        try:
            self.address = self._kept.pop()
        except IndexError:
            self.address = int(checked(driver.cuMemHostAlloc(self.size, 0)))

    def array(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The memory as an array; valid until it is freed."""
        kind = np.dtype(dtype)
        interface = {"data": (self.address, False), "typestr": kind.str, "shape": shape, "version": 3}
        return np.asarray(type("Pinned", (), {"__array_interface__": interface})())

    def free(self) -> None:
        """Gives it back. A copy into it may still be under way: the next one comes after that."""
        if self.size <= _LARGEST_KEPT and len(self._kept) < max(1, _MOST_KEPT // self.size):
            self._kept.append(self.address)
        else:
            driver.cuStreamSynchronize(device().stream)  # there may be no next one
            driver.cuMemFreeHost(self.address)

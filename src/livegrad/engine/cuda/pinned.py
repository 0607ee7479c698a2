"""Memory of the host that the device copies into while the host does something else. What is given back is kept."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from livegrad.backends.cuda.driver import checked, device, driver

_LEAST, _MOST_KEPT = 64, 1 << 26
_lock = threading.Lock()
_free: dict[tuple[int, int], list[int]] = {}  # addresses by context and size
_kept_bytes = 0


class PinnedMemory:
    """So many bytes, to be given back with `free`. Taking them from the driver takes longer than most frames do."""

    def __init__(self, size: int) -> None:
        global _kept_bytes
        self.size = max(_LEAST, 1 << max(0, size - 1).bit_length())
        self._context_number = device().context_number
        with _lock:
            known = _free.get((self._context_number, self.size))
            found = known.pop() if known else None
            if found is not None:
                _kept_bytes -= self.size
        self.address = int(checked(driver.cuMemHostAlloc(self.size, 0))) if found is None else found

    def array(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The memory as an array; valid until it is freed."""
        kind = np.dtype(dtype)
        interface = {"data": (self.address, False), "typestr": kind.str, "shape": shape, "version": 3}
        return np.asarray(type("Pinned", (), {"__array_interface__": interface})())

    def free(self) -> None:
        """Gives it back. A copy into it may still be under way: the next one comes after that."""
        global _kept_bytes
        with _lock:
            keep = _kept_bytes + self.size <= _MOST_KEPT
            if keep:
                _kept_bytes += self.size
                _free.setdefault((self._context_number, self.size), []).append(self.address)
        if not keep:
            driver.cuStreamSynchronize(device().stream)  # there may be no next one
            driver.cuMemFreeHost(self.address)

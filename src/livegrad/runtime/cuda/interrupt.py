"""Interrupts endless kernels: a word that the host sets on Ctrl-C and loops on the device poll.

`plan.py` waits here for plans whose kernels have unbounded loops.
"""

from __future__ import annotations

import ctypes
import time
from functools import cache
from typing import Any

from livegrad.runtime.cuda.driver import checked, device, driver

_NOT_READY = 600
_QUICK_LOOKS = 200  # before the host sleeps between looks
_LEAST_SLEEP, _MOST_SLEEP = 20e-6, 1e-3


@cache
def _flag(context_number: int) -> tuple[Any, int]:
    """The word as the host sees it, and its address on the device."""
    flags = driver.CU_MEMHOSTALLOC_DEVICEMAP | driver.CU_MEMHOSTALLOC_PORTABLE
    address = int(checked(driver.cuMemHostAlloc(64, flags)))
    word = ctypes.c_int.from_address(address)
    word.value = 0
    return word, int(checked(driver.cuMemHostGetDevicePointer(address, 0)))


def interrupt_address() -> int:
    """Where kernels look whether they should stop."""
    return _flag(device().context_number)[1]


def wait_interruptibly() -> None:
    """Waits until the device has done all its work; on Ctrl-C tells loops to stop, waits for them and raises it."""
    stream = device().stream
    looks, pause = 0, _LEAST_SLEEP
    try:
        while (status := int(driver.cuStreamQuery(stream)[0])) == _NOT_READY:
            looks += 1
            if looks > _QUICK_LOOKS:
                time.sleep(pause)  # Python's handler of the signal runs between two looks
                pause = min(2 * pause, _MOST_SLEEP)
    except BaseException:
        word, _ = _flag(device().context_number)
        word.value = 1
        try:
            checked(driver.cuStreamSynchronize(stream))
        finally:
            word.value = 0
        raise
    if status:
        checked(driver.cuStreamSynchronize(stream))

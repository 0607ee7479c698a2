"""Interrupts kernels with unbounded loops: on Ctrl-C, the host sets a flag in mapped memory, which the loops poll.

`device_plan.py` waits here for plans whose kernels have unbounded loops.
"""

from __future__ import annotations

import ctypes
import time

from livegrad.runtime.cuda.driver import PerContext, check, device, driver

_NOT_READY = 600
_QUICK_POLLS = 200  # before the host begins to sleep between polls
_MIN_SLEEP, _MAX_SLEEP = 20e-6, 1e-3


def _make_flag() -> tuple[ctypes.c_int, int]:
    """The flag in host memory, and its address on the device."""
    flags = driver.CU_MEMHOSTALLOC_DEVICEMAP | driver.CU_MEMHOSTALLOC_PORTABLE
    address = int(check(driver.cuMemHostAlloc(64, flags)))
    flag = ctypes.c_int.from_address(address)
    flag.value = 0
    return flag, int(check(driver.cuMemHostGetDevicePointer(address, 0)))


_flag = PerContext(_make_flag)


def interrupt_address() -> int:
    """The device address of the flag that tells kernels to stop."""
    return _flag.current[1]


def wait_interruptibly() -> None:
    """Waits until the device is idle. On Ctrl-C, stops the loops on the device, waits for them and raises."""
    stream = device().stream
    polls, pause = 0, _MIN_SLEEP
    try:
        while (status := int(driver.cuStreamQuery(stream)[0])) == _NOT_READY:
            polls += 1
            if polls > _QUICK_POLLS:
                time.sleep(pause)  # Python runs signal handlers between polls
                pause = min(2 * pause, _MAX_SLEEP)
    except BaseException:
        flag, _ = _flag.current
        flag.value = 1
        try:
            check(driver.cuStreamSynchronize(stream))
        finally:
            flag.value = 0
        raise
    if status:
        check(driver.cuStreamSynchronize(stream))

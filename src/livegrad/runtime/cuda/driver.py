"""The CUDA driver: one context and one stream on the first device, created on first use."""

from __future__ import annotations

import importlib
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

from livegrad.diagnostics import LivegradError

_T = TypeVar("_T")

try:
    driver: Any = importlib.import_module("cuda.bindings.driver")
except ImportError:
    driver = None

_thread = threading.local()
_context_numbers = itertools.count()
# After a kernel has faulted or the device was lost, every driver call returns one of these.
_FAULTS = frozenset([214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721])


class DeviceError(LivegradError):
    """A CUDA call failed: out of memory, a kernel that faulted, a lost device, a missing library."""


@dataclass(frozen=True)
class Device:
    """The device in use: its context, the stream of all work, and the architecture that code is compiled for."""

    context: Any
    stream: Any
    architecture: str
    name: str
    driver_version: int
    context_number: int  # objects of one context are not valid in another
    objects: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # see `PerContext`


@cache
def reason_for_no_cuda() -> str | None:
    """Why CUDA cannot be used here, or None if it can. Starts the driver, so nothing calls it at import.

    >>> reason_for_no_cuda() is None or isinstance(reason_for_no_cuda(), str)
    True
    """
    if driver is None:
        return "cuda-bindings is not installed"
    try:
        (status,) = driver.cuInit(0)
        if int(status) != 0:
            return f"the CUDA driver does not start ({status.name})"
        _, count = driver.cuDeviceGetCount()
    except (RuntimeError, OSError) as error:
        return f"no CUDA driver here ({error})"
    return None if count else "the CUDA driver finds no device"


def check(answer: tuple[Any, ...]) -> Any:
    """The results of a driver call; raises an error with the driver's message if the call failed."""
    status = answer[0]
    if int(status) != 0:
        assert driver is not None
        _, text = driver.cuGetErrorString(status)
        message = text.decode() if isinstance(text, bytes) else str(status)
        restart = "a kernel has faulted: close what uses the device, and restart the process"
        help = restart if int(status) in _FAULTS else None
        raise DeviceError(f"the CUDA driver returned {status.name}: {message}", help=help)
    return answer[1] if len(answer) == 2 else answer[1:]


@cache
def _start() -> Device:
    if (reason := reason_for_no_cuda()) is not None or driver is None:
        raise DeviceError(f"CUDA cannot be used: {reason}", help="install livegrad[cuda] where there is an NVIDIA GPU")
    first = check(driver.cuDeviceGet(0))
    context = check(driver.cuDevicePrimaryCtxRetain(first))
    check(driver.cuCtxSetCurrent(context))
    attribute = driver.CUdevice_attribute
    major = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, first))
    minor = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, first))
    stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    name = check(driver.cuDeviceGetName(128, first)).split(b"\0")[0].decode()
    version = check(driver.cuDriverGetVersion())
    return Device(context, stream, f"sm_{major}{minor}", name, version, next(_context_numbers))


def device() -> Device:
    """The device, with its context current in this thread."""
    started = _start()
    if getattr(_thread, "ready", None) is not started:
        assert driver is not None
        check(driver.cuCtxSetCurrent(started.context))
        _thread.ready = started
    return started


def is_current(context_number: int) -> bool:
    """Whether a context is still that of the device. If so, makes it current in this thread.

    For finalizers, which may run after a fault destroyed the context, and must not start the driver.
    """
    return bool(_start.cache_info().currsize) and device().context_number == context_number


class PerContext(Generic[_T]):
    """One object for each driver context. `current` is the object of the device's context, created on first use.

    For library handles, loaded modules and pooled memory. They belong to a context, which outlives sessions, so no
    session owns them.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make

    @property
    def current(self) -> _T:
        objects = device().objects
        current = objects.get(self)
        return objects.setdefault(self, self._make()) if current is None else current

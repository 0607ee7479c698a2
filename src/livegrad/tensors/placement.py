"""Devices by name, and placement of tensors on a device."""

from __future__ import annotations

from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.lazy.devices import DEFAULT_DEVICE, RUNNERS
from livegrad.tensors.handle import Tensor

DEVICES = tuple(name for name in RUNNERS if name != "cuda")  # those that every machine has


def require_device(device: Any) -> str:
    """A device's name, checked; None stands for the default.

    >>> require_device(None)
    'cpu'
    """
    if device is None:
        return DEFAULT_DEVICE
    if not isinstance(device, str) or device not in RUNNERS:
        raise UsageError(f"no device {device!r}", where=caller_origin(), expected=" or ".join(RUNNERS))
    return device


def place_on(tensor: Tensor, device: Any) -> Tensor:
    """The tensor on a device; None leaves it where it is."""
    return tensor if device is None or require_device(device) == tensor.device else tensor.to(device)

"""Validates device names and places tensors on devices."""

from __future__ import annotations

from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.lazy.devices import DEFAULT_DEVICE, RUNNERS
from livegrad.tensors.handle import Tensor

DEVICES = tuple(name for name in RUNNERS if name != "cuda")  # the devices that every machine has


def require_device(device: Any) -> str:
    """Returns the name of a device; None stands for the default. Raises for unknown devices.

    >>> require_device(None)
    'cpu'
    """
    if device is None:
        return DEFAULT_DEVICE
    if not isinstance(device, str) or device not in RUNNERS:
        raise UsageError(f"no device {device!r}", where=caller_origin(), expected=" or ".join(RUNNERS))
    return device


def place_on(tensor: Tensor, device: Any) -> Tensor:
    """Returns the tensor on a device; None leaves it where it is."""
    return tensor if device is None or require_device(device) == tensor.device else tensor.to(device)

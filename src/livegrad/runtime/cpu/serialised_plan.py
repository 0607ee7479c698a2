"""Serialised executables of the CPU: the kernels of a plan with their argument slots, as data.

Made by `plan_serialiser.py`, stored in the disk cache as JSON, and run by `compiled_plan.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livegrad.codegen.argument_slots import Slots, decode_slots
from livegrad.codegen.check_sites import Site, decode_sites, encode_sites
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.serialised import (
    SerialisedArrays,
    SerialisedExecutable,
    decode_executable,
    encode_executable,
    executable_key,
)


@dataclass(frozen=True)
class SerialisedKernel:
    """One launch: its object code, argument slots, partition into work items, and check sites.

    The code is an object with a key, or a function of a library that stays in memory.
    """

    object_key: bytes
    slots: Slots
    total: int
    grain: int
    interruptible: bool
    sites: tuple[Site, ...]
    library: str = ""  # "chain", the element of products, or a prefix with the element ("fourier_float32")
    symbol: str = "kernel"
    members: tuple[SerialisedKernel, ...] = ()  # of a chain


@dataclass(frozen=True)
class SerialisedPlan(SerialisedExecutable):
    """The kernels of a plan."""

    kernels: tuple[SerialisedKernel, ...]
    scratch: tuple[int, ...]  # bytes for each thread, by scratch buffer


def serialised_plan_key(digest: bytes, sizes: Mapping[str, int]) -> bytes:
    """The key of a serialised plan in the disk cache: a digest of the function, sizes, machine and compiler."""
    target = host_target()
    return executable_key(digest, sizes, target.cpu, target.features)


def encode(serialised: SerialisedPlan) -> bytes:
    """The serialised plan as JSON."""
    return encode_executable(serialised, [list(map(_encode_kernel, serialised.kernels)), serialised.scratch])


def decode(data: bytes) -> SerialisedPlan | None:
    """The serialised plan from JSON; None if the data is invalid."""
    return decode_executable(data, _decode_plan)


def _decode_plan(arguments: SerialisedArrays, results: SerialisedArrays, arena_bytes: int, code: Any) -> SerialisedPlan:
    kernels, scratch = code
    return SerialisedPlan(arguments, results, arena_bytes, tuple(map(_decode_kernel, kernels)), tuple(scratch))


def _encode_kernel(kernel: SerialisedKernel) -> dict[str, Any]:
    return vars(kernel) | {
        "object_key": kernel.object_key.hex(),
        "sites": encode_sites(kernel.sites),
        "members": list(map(_encode_kernel, kernel.members)),
    }


def _decode_kernel(fields: dict[str, Any]) -> SerialisedKernel:
    decoded = {
        "object_key": bytes.fromhex(fields["object_key"]),
        "slots": decode_slots(fields["slots"]),
        "sites": decode_sites(fields["sites"]),
        "members": tuple(map(_decode_kernel, fields["members"])),
    }
    return SerialisedKernel(**(fields | decoded))

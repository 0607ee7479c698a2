"""The processor that native code is compiled for: the host's, or a lower x86-64 level that LIVEGRAD_CPU selects.

Code for a lower level runs on every processor of that level, for example on all machines of a cluster that share a
cache. The tests use it to run without AVX-512 and without AVX2.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import lru_cache

import llvmlite.binding as llvm

from livegrad.diagnostics import UsageError

_AVX512 = ("avx512f", "avx512vl", "avx512bw", "avx512dq")
# The levels of the x86-64 psABI, and the features that each level adds to the previous one.
_LEVELS = {
    "x86-64": (),
    "x86-64-v2": ("cx16", "popcnt", "ssse3", "sse4.2"),
    "x86-64-v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    "x86-64-v4": (*_AVX512, "avx512cd"),
}


@dataclass(frozen=True)
class HostTarget:
    """A processor in LLVM's terms, and the features that emitters depend on."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int  # of the widest vector register worth using
    has_fma: bool
    has_avx512: bool  # the subsets in `_AVX512`
    has_half: bool = True  # instructions that convert between half and single precision


@lru_cache(maxsize=1)
def host_target() -> HostTarget:
    """The processor to compile for."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # without it, LLVM aborts the process on inline assembly
    features = llvm.get_host_cpu_features()
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    level = os.environ.get("LIVEGRAD_CPU") or "native"
    if level != "native":
        return _target_of_level(level, {name for name, present in features.items() if present} if is_x86 else None)
    avx512 = all(features.get(name) for name in _AVX512)
    return HostTarget(
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bytes=64 if avx512 else 32 if features.get("avx2") else 16,
        has_fma=bool(features.get("fma")) if is_x86 else True,
        has_avx512=avx512,
        has_half=bool(features.get("f16c")) if is_x86 else True,
    )


def _target_of_level(level: str, present: set[str] | None) -> HostTarget:
    """The target of a named level. `present` has the features of this processor; None if it is not x86-64."""
    levels = list(_LEVELS)
    names = ["native", *(levels if present is not None else ())]
    if level not in names:
        raise UsageError(
            "invalid value for LIVEGRAD_CPU, which selects the processor to compile for",
            expected=", ".join(names),
            found=level,
        )
    included = levels[: levels.index(level) + 1]
    missing = [name for part in included for name in _LEVELS[part] if name not in (present or ())]
    if missing:
        raise UsageError(f"this processor does not support {level}: it lacks {', '.join(missing)}; unset LIVEGRAD_CPU")
    avx2, avx512 = "x86-64-v3" in included, "x86-64-v4" in included
    return HostTarget(
        triple=llvm.get_process_triple(),
        cpu=level,
        features="",
        vector_bytes=64 if avx512 else 32 if avx2 else 16,
        has_fma=avx2,
        has_avx512=avx512,
        has_half=avx2,
    )

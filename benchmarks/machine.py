"""Describes the machine for the record: processor, memory, system and versions; no names of hosts or users."""

import os
import platform
import re
from importlib import metadata
from typing import Any

import llvmlite.binding as llvm

from livegrad.runtime.cuda import reason_for_no_cuda
from livegrad.runtime.cuda.driver import device

FEATURES = ("avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl", "neon", "sve")


def read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def field(path: str, key: str) -> str | None:
    """The first `key: value` of a file under /proc."""
    for line in read_lines(path):
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def memory_gib() -> float | None:
    total = field("/proc/meminfo", "MemTotal")
    return round(int(total.split()[0]) / 2**20, 1) if total else None


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def graphics() -> dict[str, Any] | None:
    """The GPU that CUDA runs on, and the version of its driver; None where there is none."""
    if reason_for_no_cuda() is not None:
        return None
    gpu = device()
    told = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", " ".join(read_lines("/proc/driver/nvidia/version")[:1]))
    return {
        "name": gpu.name,
        "architecture": gpu.architecture,
        "driver": told[0] if told else None,
        "cuda_of_driver": f"{gpu.driver_version // 1000}.{gpu.driver_version % 1000 // 10}",
        "packages": {
            name: version(name) for name in ("cuda-bindings", "nvidia-cuda-nvrtc", "jax", "torch", "cupy-cuda13x")
        },
    }


def describe(peer_versions: dict[str, str], threads: int = 2) -> dict[str, Any]:
    available = llvm.get_host_cpu_features()
    packages = {name: version(name) for name in ("livegrad", "numpy", "llvmlite")}
    gpu = graphics()
    return ({} if gpu is None else {"gpu": gpu}) | {
        "processor": field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "architecture": llvm.get_host_cpu_name(),
        "features": [name for name in FEATURES if available.get(name)],
        "processors": os.cpu_count(),
        "threads": threads,
        "memory_gib": memory_gib(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "packages": packages,
        "peers": peer_versions,
    }

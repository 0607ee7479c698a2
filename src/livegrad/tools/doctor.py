"""The command `doctor`: reports the hardware, libraries and caches of this machine, and tests native code.

The test compiles and runs a small kernel, and compares its result with the reference interpreter.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from livegrad import __version__, ops
from livegrad.ir.dimension import round_up
from livegrad.ir.function import trace
from livegrad.ir.types import f32
from livegrad.ops.maps import map_over
from livegrad.runtime import opencl as opencl
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.pool import default_threads
from livegrad.runtime.cuda.driver import device, reason_for_no_cuda
from livegrad.runtime.object_cache import default_cache
from livegrad.runtime.reference import evaluate
from livegrad.tools.report import Report

_REPORTED_FEATURES = ("avx512f", "avx2", "fma", "f16c", "neon", "sve")
_PACKAGES = ("numpy", "llvmlite", "cuda-bindings", "nvidia-cuda-nvrtc", "pyopencl")
# Machines on which tests run, and machines for which tests only compile kernels.
_RUN, _COMPILED = {("linux", "x86_64")}, {("darwin", "arm64"), ("linux", "aarch64"), ("win32", "amd64")}

_BLOCK = 4096  # files occupy whole blocks; the cache limits disk space


def doctor(arguments: argparse.Namespace) -> Report:
    """Collects the environment that a bug report should start with."""
    facts: dict[str, Any] = {
        "livegrad": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": _system(),
        "cpu": _cpu(),
        "blas": _blas(),
        "cuda": _cuda(),
        "opencl": _opencl(),
        "cache": _cache(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "native_code": _native_code(),
    }
    return Report(facts, _lines(facts), failed=not facts["native_code"]["right"])


def _system() -> dict[str, Any]:
    machine = (sys.platform, platform.machine().lower())
    tested = "yes" if machine in _RUN else "compiled for, not run" if machine in _COMPILED else "no"
    return {"name": f"{platform.system()} {platform.release()}", "machine": platform.machine(), "tested": tested}


def _cpu() -> dict[str, Any]:
    target = host_target()
    features = target.features.split(",")
    return {
        "name": _processor_name() or target.cpu,
        "llvm_name": target.cpu,
        "triple": target.triple,
        "vector_bits": target.vector_bytes * 8,
        "fused_multiply_add": target.has_fma,
        "features": [name for name in _REPORTED_FEATURES if f"+{name}" in features],
        "threads": 1 if sys.platform == "win32" else default_threads(),  # there is no thread pool on Windows
    }


def _processor_name() -> str:
    """The processor's name, from /proc/cpuinfo on Linux, and from `platform` elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _blas() -> dict[str, Any]:
    return {"used": "livegrad's own for float32 and float64", "other_types": "NumPy's"}


def _cuda() -> dict[str, Any]:
    reason = reason_for_no_cuda()
    if reason is not None:
        return {"available": False, "why": reason}
    gpu = device()
    version = f"{gpu.driver_version // 1000}.{gpu.driver_version % 1000 // 10}"
    return {"available": True, "device": gpu.name, "architecture": gpu.architecture, "driver_api": version}


def _opencl() -> dict[str, Any]:
    reason = opencl.reason_for_no_opencl()
    if reason is not None or opencl.pyopencl is None:
        return {"available": False, "why": reason}
    platforms = opencl.pyopencl.get_platforms()
    return {"available": True, "devices": [gpu.name for vendor in platforms for gpu in vendor.get_devices()]}


def _cache() -> dict[str, Any]:
    settings = default_cache().settings
    if settings.directory is None:
        return {"folder": None, "why": "switched off by LIVEGRAD_CACHE_DIR"}
    files, size = 0, 0
    for folder, _, names in os.walk(settings.directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process may be evicting files
                file_size = (Path(folder) / name).stat().st_size
                files, size = files + 1, size + round_up(file_size, _BLOCK)
    return {"folder": str(settings.directory), "files": files, "bytes": size, "most_bytes": settings.max_bytes}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _native_code() -> dict[str, Any]:
    """Compares a compiled kernel with the reference interpreter."""
    function = trace(lambda x: ops.sin(x) * ops.exp(-x) + ops.sqrt(x), f32, name="doctor")
    points = np.linspace(0.1, 4.0, 1003, dtype=np.float32)
    started = time.perf_counter()
    compiled = compile_function(map_over(function))
    result = compiled(points)
    seconds = time.perf_counter() - started
    difference = float(np.abs(result - evaluate(map_over(function), points)).max())
    return {"right": difference < 1e-5, "largest_difference": difference, "milliseconds": round(seconds * 1e3, 1)}


def _lines(facts: dict[str, Any]) -> list[str]:
    system, cpu, native = facts["system"], facts["cpu"], facts["native_code"]
    tested = {"yes": "", "no": "; not tested on this kind of machine"}.get(
        system["tested"], "; tests compile kernels for this kind of machine but do not run them"
    )
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if version)
    missing = [name for name, version in facts["packages"].items() if not version]
    rows = {
        "livegrad": f"{facts['livegrad']}, Python {facts['python']}",
        "system": f"{system['name']} on {system['machine']}{tested}",
        "cpu": f"{cpu['name']}: {cpu['threads']} threads, vectors of {cpu['vector_bits']} bits, "
        f"{' '.join(cpu['features'])}",
        "blas": facts["blas"]["used"],
        "cuda": _device_line(facts["cuda"], "device", "architecture", "driver_api"),
        "opencl": _device_line(facts["opencl"], "devices"),
        "cache": _cache_line(facts["cache"]),
        "packages": packages + (f"; not installed: {', '.join(missing)}" if missing else ""),
        "native code": f"{'correct' if native['right'] else 'WRONG'}: differs from the reference by "
        f"{native['largest_difference']:.1g}, in {native['milliseconds']} ms",
    }
    return [f"{name:12s} {text}" for name, text in rows.items()]


def _cache_line(cache: dict[str, Any]) -> str:
    if cache["folder"] is None:
        return f"none: {cache['why']}"
    size, limit = (cache[key] / 2**20 for key in ("bytes", "most_bytes"))
    return f"{cache['folder']}: {cache['files']} files, {size:.1f} of {limit:.0f} MiB"


def _device_line(report: dict[str, Any], *keys: str) -> str:
    if not report["available"]:
        return f"no: {report['why']}"
    return ", ".join(", ".join(report[key]) if isinstance(report[key], list) else str(report[key]) for key in keys)

"""Compiles CUDA C to cubins with NVRTC and caches them on disk. Called by `serialised_device_plan.py`.

NVRTC needs no GPU. It compiles for one architecture and not to PTX, because a driver older than NVRTC rejects its PTX.
"""

from __future__ import annotations

import hashlib
import importlib
import threading
from functools import cache
from typing import Any

from livegrad.diagnostics import CompileError
from livegrad.ir.lru import LruCache
from livegrad.runtime.object_cache import default_cache
from livegrad.state import Owned, renew_lock_after_fork

try:
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
except ImportError:
    nvrtc = None

# Without NVRTC's own cache, which would store everything a second time.
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--no-cache")
_MAX_CUBINS = 2048


class _Cubins:
    """The cubins of a session by key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")
        self.by_key: LruCache[bytes, bytes] = LruCache(_MAX_CUBINS)


_cubins = Owned(_Cubins)


@cache
def reason_for_no_compiler() -> str | None:
    """Why CUDA C cannot be compiled here, or None if it can.

    >>> reason_for_no_compiler() is None or isinstance(reason_for_no_compiler(), str)
    True
    """
    if nvrtc is None:
        return "cuda-bindings is not installed"
    try:
        _check(nvrtc.nvrtcVersion())
    except (RuntimeError, CompileError, OSError) as error:
        return f"NVRTC does not start: {error}"
    return None


def _check(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status) != 0:
        raise CompileError(f"NVRTC returned {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def compile_source(source: str, architecture: str, name: str = "kernel") -> bytes:
    """The cubin of CUDA C for an architecture such as `sm_90`: from memory, from the disk cache, or compiled now."""
    key = _key_of(source, architecture)
    return load_compiled(key) or _compile_and_keep(key, source, architecture, name)


def compile_with_key(source: str, architecture: str, name: str = "kernel") -> bytes:
    """Like `compile_source`, but returns the key of the cubin for `load_compiled`."""
    key = _key_of(source, architecture)
    if load_compiled(key) is None:
        _compile_and_keep(key, source, architecture, name)
    return key


def load_compiled(key: bytes) -> bytes | None:
    """A cubin by its key, from memory or from the disk cache; None if it is in neither."""
    cubins = _cubins.current
    with cubins.lock:
        cached = cubins.by_key.use(key)
    if cached is not None:
        return cached
    cubin = default_cache().load(key)
    if cubin is not None:
        _keep(key, cubin)
    return cubin


def forget_cubins() -> None:
    """Drops all cubins from memory, not from disk."""
    cubins = _cubins.current
    with cubins.lock:
        cubins.by_key.clear()


def _options(architecture: str) -> tuple[str, ...]:
    return (f"--gpu-architecture={architecture}", *OPTIONS)


def _key_of(source: str, architecture: str) -> bytes:
    if (reason := reason_for_no_compiler()) is not None:
        raise CompileError(f"CUDA C cannot be compiled: {reason}", help="install livegrad[cuda]")
    version = _check(nvrtc.nvrtcVersion())
    return hashlib.sha256("\n".join(["cubin", str(version), *_options(architecture), source]).encode()).digest()


def _compile_and_keep(key: bytes, source: str, architecture: str, name: str) -> bytes:
    cubin = _compile(source, _options(architecture), name)
    default_cache().store(key, cubin)
    _keep(key, cubin)
    return cubin


def _keep(key: bytes, cubin: bytes) -> None:
    cubins = _cubins.current
    with cubins.lock:
        cubins.by_key.keep(key, cubin)


def _compile(source: str, options: tuple[str, ...], name: str) -> bytes:
    """Calls NVRTC, which is thread-safe."""
    program = _check(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        status, *_ = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if int(status) != 0:
            log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program))
            _check(nvrtc.nvrtcGetProgramLog(program, log))
            text = log.decode(errors="replace").strip("\0 \n")
            raise CompileError(f"NVRTC rejects `{name}`: {text}")
        cubin = b" " * _check(nvrtc.nvrtcGetCUBINSize(program))
        _check(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)

"""CUDA C comes in, machine code (cubin) goes out: NVRTC, with what it made kept on disk. `plan.py` calls it.

NVRTC needs no GPU. Code is made for one architecture, never as PTX: a driver older than NVRTC refuses its PTX.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
from functools import cache
from typing import Any

from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cpu.native.object_cache import default_cache
from livegrad.diagnostics import CompileError

try:
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
except ImportError:
    nvrtc = None

OPTIONS = ("--std=c++17", "--device-as-default-execution-space")
_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_lock")


@cache
def reason_for_no_compiler() -> str | None:
    """Why CUDA C cannot be compiled here, or None when it can.

    >>> reason_for_no_compiler() is None or isinstance(reason_for_no_compiler(), str)
    True
    """
    if nvrtc is None:
        return "cuda-bindings is not installed"
    try:
        _checked(nvrtc.nvrtcVersion())
    except (RuntimeError, CompileError, OSError) as error:
        return f"NVRTC does not start: {error}"
    return None


def _checked(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status) != 0:
        raise CompileError(f"NVRTC answers {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def compile_source(source: str, architecture: str, name: str = "kernel") -> bytes:
    """The cubin of CUDA C for an architecture such as `sm_90`: from the disk cache, or compiled now."""
    if (reason := reason_for_no_compiler()) is not None or nvrtc is None:
        raise CompileError(f"CUDA C cannot be compiled: {reason}", help="install livegrad[cuda]")
    version = _checked(nvrtc.nvrtcVersion())
    options = (f"--gpu-architecture={architecture}", *OPTIONS)
    key = hashlib.sha256("\n".join(["cubin", str(version), *options, source]).encode()).digest()
    found = default_cache().load(key)
    if found is not None:
        return found
    made = _compile(source, options, name)
    default_cache().store(key, made)
    return made


def _compile(source: str, options: tuple[str, ...], name: str) -> bytes:
    assert nvrtc is not None
    with _lock:
        program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
        try:
            status, *_ = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
            if int(status) != 0:
                log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
                _checked(nvrtc.nvrtcGetProgramLog(program, log))
                text = log.decode(errors="replace").strip("\0 \n")
                raise CompileError(f"NVRTC refuses `{name}`: {text}")
            cubin = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
            _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
            return cubin
        finally:
            nvrtc.nvrtcDestroyProgram(program)

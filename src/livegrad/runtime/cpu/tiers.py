"""Tiered JIT: compile a kernel without optimisation now, recompile it in the background, retarget its trampoline.

The baseline tier takes a third of the optimised tier's compile time. Both compute the same bits, because the module
itself says what is fused and in which order sums are taken. `tier_up.py` recompiles. Called by `kernel_code.py`.

LIVEGRAD_CODE selects the tiers: `tiered` (both, the default), `optimised` (before the first run), or `baseline` alone.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from livegrad.codegen.llvm.kernel_module import KernelText, module_text
from livegrad.diagnostics import UsageError
from livegrad.ir.cached_property import cached_property
from livegrad.runtime.cpu.math_library import MathRequest, math_imports
from livegrad.runtime.cpu.native.compile_thread import PendingModule, is_idle
from livegrad.runtime.cpu.native.llvm_jit import (
    NativeFunction,
    compile_image,
    count,
    link_image,
    load_image,
)
from livegrad.runtime.cpu.native.trampolines import release_trampoline, take_trampoline
from livegrad.runtime.cpu.native.unlocked_compile import compile_unlocked
from livegrad.runtime.object_cache import ObjectCache
from livegrad.state import renew_lock_after_fork

CodeChoice = Literal["tiered", "optimised", "baseline"]
_SYMBOL = "kernel"
# Kernels share a module until it has this many lines. A module costs 0.3 ms and a line 10 to 20 µs; but modules compile
# in parallel, and kernels of one module do not.
_FULL_MODULE_LINES = 100
_MAX_STACK = 1 << 20  # bytes; baseline code spills every value
_LENGTHS = struct.Struct("<II")  # of the JSON header and of the object code, which the optimised module follows


def code_choice() -> CodeChoice:
    """The tiers that the environment variable LIVEGRAD_CODE selects."""
    setting = os.environ.get("LIVEGRAD_CODE") or "tiered"
    for choice in get_args(CodeChoice):
        if setting == choice:
            return choice
    raise UsageError(
        "invalid value for LIVEGRAD_CODE, which selects the tiers of compiled code",
        expected="tiered, optimised or baseline",
        found=setting,
    )


@dataclass(frozen=True)
class OptimizedModule:
    """The input of the optimised tier: an LLVM module with the function `kernel`, and the math functions it calls."""

    text: str
    math: tuple[MathRequest, ...]
    speed: int  # which passes to run (`llvm_passes.py`)


@dataclass(frozen=True)
class KernelSource:
    """A kernel to compile: its cache key, its baseline module, and how to emit the optimised one later."""

    key: bytes
    baseline: KernelText
    optimized: Callable[[], OptimizedModule]
    cache: ObjectCache
    vector_bytes: int  # of the widest values in the baseline module

    @cached_property
    def lines(self) -> int:
        return self.baseline.definition.count("\n")

    @property
    def fits_the_stack(self) -> bool:
        """Whether the baseline tier can compile it, whose code keeps every value on the stack."""
        return self.baseline.longest * self.vector_bytes <= _MAX_STACK


@dataclass(frozen=True)
class ObjectCode:
    """Object code of several kernels, and the symbol of one of them."""

    image: bytes
    symbol: str
    math: tuple[MathRequest, ...]


class TieredFunction:
    """A kernel whose address stays the same when its code is recompiled. It has the interface of a `NativeFunction`.

    Callers must `wait` for the baseline code before the first call.
    """

    __slots__ = (
        "__weakref__",
        "_baseline",
        "_cache",
        "_codes",
        "_compiler",
        "_key",
        "_optimized",
        "_trampoline",
        "address",
        "addresses",
    )

    def __init__(self, key: bytes, optimized: Callable[[], OptimizedModule], cache: ObjectCache) -> None:
        self._key, self._optimized, self._cache = key, optimized, cache
        self._baseline: ObjectCode | None = None
        self._compiler: BaselineCompiler | None = None
        self._codes: list[NativeFunction] = []
        self._trampoline = take_trampoline()
        self.address = self._trampoline.address
        self.addresses = {_SYMBOL: self.address}
        weakref.finalize(self, release_trampoline, self._trampoline).atexit = False

    @property
    def is_optimized(self) -> bool:
        return len(self._codes) > 1

    def wait_for(self, compiler: BaselineCompiler) -> None:
        """Sets the compiler of the baseline code."""
        self._compiler = compiler

    def set_baseline(self, baseline: ObjectCode, native: NativeFunction) -> None:
        """Sets the baseline code, after which the function can be called."""
        self._baseline, self._compiler = baseline, None
        self._codes.append(native)
        self._trampoline.point_to(native.addresses[baseline.symbol])

    def wait(self) -> None:
        """Returns when the baseline code is compiled."""
        compiler = self._compiler
        if compiler is not None:
            compiler.finish()

    def tier_up(self) -> None:
        """Compiles the optimised tier, stores it on disk and retargets the trampoline.

        The baseline code stays loaded, because threads may still run it.
        """
        self.wait()
        module = self._optimized()
        image = compile_unlocked(module.text, module.speed)
        native = link_image(image, (_SYMBOL,), math_imports(module.math), module.text)
        self._cache.store(self._key, _pack(ObjectCode(image, _SYMBOL, module.math), None))
        self._codes.append(native)
        self._trampoline.point_to(native.address)

    def store_baseline(self) -> None:
        """Stores the baseline code on disk with the optimised module, which the next process compiles."""
        if not self.is_optimized:
            self.wait()
            assert self._baseline is not None
            self._cache.store(self._key, _pack(self._baseline, self._optimized()))


Code = NativeFunction | TieredFunction


class BaselineCompiler:
    """Compiles the baseline tier of several kernels on the compile thread.

    A kernel is compiled at once if that thread is idle; otherwise, it shares a module with the next kernels. Verifying
    takes a twentieth of the compile time, so baseline modules are verified only on request; optimised modules come from
    the same emitter and are always verified.
    """

    def __init__(self, verified: bool) -> None:
        self._verified = verified
        self._open: list[KernelSource] = []  # for the next module
        self._modules: list[_Module] = []
        self._functions: list[TieredFunction] = []  # of all sources, in order
        self._is_open = True
        self._lock = threading.Lock()
        renew_lock_after_fork(self, "_lock")

    def add(self, source: KernelSource) -> TieredFunction:
        """Queues a kernel, and returns its code, which is not compiled yet."""
        if self._open and self._open[0].baseline.attributes != source.baseline.attributes:
            self._close_module()
        self._open.append(source)
        if is_idle() or sum(kernel.lines for kernel in self._open) >= _FULL_MODULE_LINES:
            self._close_module()
        function = TieredFunction(source.key, source.optimized, source.cache)
        function.wait_for(self)
        self._functions.append(function)
        return function

    def compile_if_idle(self) -> None:
        """Compiles the open module if the compile thread is idle."""
        if self._open and is_idle():
            self._close_module()

    def close(self) -> Sequence[TieredFunction]:
        """Returns all functions. No more may be added."""
        self._close_module()
        self._is_open = False
        return tuple(self._functions)

    def _close_module(self) -> None:
        if self._open:
            symbols = [f"{_SYMBOL}{number}" for number in range(len(self._open))]
            text = module_text([source.baseline for source in self._open], symbols)
            math = tuple(sorted({request for source in self._open for request in source.baseline.math}))
            code = PendingModule(text, symbols, math_imports(math), self._verified)
            self._modules.append(_Module(code, tuple(symbols), math))
            self._open = []

    def finish(self) -> None:
        """Waits until all functions can be called. The calling thread compiles modules too."""
        with self._lock:
            assert not self._is_open
            for module in reversed(self._modules):  # the compile thread starts with the first one
                module.code.compile_here()
            while self._modules:
                module, kernel_count = self._modules[0], len(self._modules[0].symbols)
                image, native = module.code.finish()
                for function, symbol in zip(self._functions, module.symbols, strict=False):
                    function.set_baseline(ObjectCode(image, symbol, module.math), native)
                count("compiled", kernel_count)
                del self._modules[0], self._functions[:kernel_count]


@dataclass(frozen=True)
class _Module:
    """Kernels that are compiled together, with their symbols and the math functions that they call."""

    code: PendingModule
    symbols: tuple[str, ...]
    math: tuple[MathRequest, ...]


def compile_optimized(source: KernelSource) -> NativeFunction:
    """Compiles the optimised tier of a kernel now."""
    module = source.optimized()
    image = compile_image(module.text, module.speed)
    native = link_image(image, (_SYMBOL,), math_imports(module.math), module.text)
    count("compiled")
    source.cache.store(source.key, _pack(ObjectCode(image, _SYMBOL, module.math), None))
    return native


def load_code(key: bytes, cache: ObjectCache) -> Code | None:
    """Loads code from disk: optimised, or baseline code that an earlier process stored with the optimised module."""
    stored = cache.load(key)
    if stored is None:
        return None
    code, module = _unpack(stored)
    try:
        native = load_image(code.image, (code.symbol,), math_imports(code.math))
    except RuntimeError:
        cache.reject(key)
        return None
    count("loaded_from_disk")
    if module is None:
        return native
    function = TieredFunction(key, lambda: module, cache)
    function.set_baseline(code, native)
    return function


def _pack(code: ObjectCode, module: OptimizedModule | None) -> bytes:
    optimized = None if module is None else (module.math, module.speed)
    description = json.dumps([code.symbol, code.math, optimized]).encode()
    text = b"" if module is None else module.text.encode()
    return b"".join([_LENGTHS.pack(len(description), len(code.image)), description, code.image, text])


def _unpack(stored: bytes) -> tuple[ObjectCode, OptimizedModule | None]:
    description_length, image_length = _LENGTHS.unpack_from(stored)
    description_end = _LENGTHS.size + description_length
    image_end = description_end + image_length
    symbol, math, optimized = json.loads(stored[_LENGTHS.size : description_end])
    code = ObjectCode(stored[description_end:image_end], symbol, _requests(math))
    if optimized is None:
        return code, None
    return code, OptimizedModule(stored[image_end:].decode(), _requests(optimized[0]), optimized[1])


def _requests(listed: list[list[str | int]]) -> tuple[MathRequest, ...]:
    return tuple((str(function), str(element), int(lanes)) for function, element, lanes in listed)

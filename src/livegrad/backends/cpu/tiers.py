"""Code at once, better code soon. Kernels' texts come in; functions that can be called now go out.

LLVM generates poor code in a third of the time that good code takes, and from a shorter text. Kernels say themselves
what is fused and in which order sums are taken, so the bits are the same. So a new kernel runs poor code first, and a
thread of its own makes better code while nobody waits (`improve.py`). Called by `kernels.py`.

LIVEGRAD_CODE says otherwise: `good` has every kernel compiled well before it runs, `quick` never; `both` is usual.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from livegrad.backends.cpu.emit.kernel import KernelText, module_text
from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cpu.math_library import MathRequest, math_imports
from livegrad.backends.cpu.native.compiler import (
    NativeFunction,
    compile_image,
    count,
    link_image,
    load_image,
    suitable_speed,
)
from livegrad.backends.cpu.native.free_compile import compile_freely
from livegrad.backends.cpu.native.object_cache import ObjectCache
from livegrad.backends.cpu.native.side_thread import Compilation, is_idle
from livegrad.backends.cpu.native.stubs import give_back, take_stub
from livegrad.diagnostics import UsageError

CodeChoice = Literal["both", "good", "quick"]
_SYMBOL = "kernel"
# Lines that are kept back at most: a module takes 0.3 ms to compile besides its kernels, and these 10 to 20 µs a line;
# but only whole modules are compiled at the same time.
_WORTH_A_MODULE = 100
_MOST_STACK = 1 << 20  # bytes: poor code keeps every value there
_LENGTHS = struct.Struct("<II")  # of the description and of the object code; the text of better code is the rest


def code_choice() -> CodeChoice:
    """Which code this process runs, as LIVEGRAD_CODE has it now."""
    found = os.environ.get("LIVEGRAD_CODE") or "both"
    for choice in get_args(CodeChoice):
        if found == choice:
            return choice
    raise UsageError("LIVEGRAD_CODE says which code kernels run", expected="both, good or quick", found=found)


@dataclass(frozen=True)
class BetterText:
    """What better code is made from: a module with the function `kernel`, and the math functions that it calls."""

    text: str
    math: tuple[MathRequest, ...]


@dataclass(frozen=True)
class Source:
    """A kernel to be compiled: its key in the cache, the text that is compiled at once, and how to get the better one.

    The better text is written when it is needed; by then, nobody waits for it.
    """

    key: bytes
    quick: KernelText
    better: Callable[[], BetterText]
    cache: ObjectCache
    vector_bytes: int  # of the widest values in the quick text

    @cached_property
    def lines(self) -> int:
        return self.quick.definition.count("\n")

    @property
    def fits_the_stack(self) -> bool:
        """Whether poor code will do: it needs memory for every value."""
        return self.quick.longest * self.vector_bytes <= _MOST_STACK


@dataclass(frozen=True)
class PoorCode:
    """Object code of several kernels, and which function in it is the one that is meant."""

    image: bytes
    symbol: str
    math: tuple[MathRequest, ...]


class TieredFunction:
    """A kernel at an address that stays while its code gets better. Callers hold it, as they do a `NativeFunction`.

    Before anything is called there, they `wait` for its first code.
    """

    __slots__ = (
        "__weakref__",
        "_better",
        "_cache",
        "_codes",
        "_coming",
        "_key",
        "_poor",
        "_stub",
        "address",
        "addresses",
    )

    def __init__(self, key: bytes, better: Callable[[], BetterText], cache: ObjectCache) -> None:
        self._key, self._better, self._cache = key, better, cache
        self._poor: PoorCode | None = None
        self._coming: QuickCode | None = None
        self._codes: list[NativeFunction] = []
        self._stub = take_stub()
        self.address = self._stub.address
        self.addresses = {_SYMBOL: self.address}
        weakref.finalize(self, give_back, self._stub).atexit = False

    @property
    def is_improved(self) -> bool:
        return len(self._codes) > 1

    def begin(self, coming: QuickCode) -> None:
        """Has its first code in there, soon."""
        self._coming = coming

    def start(self, poor: PoorCode, native: NativeFunction) -> None:
        """Gives it its first code."""
        self._poor, self._coming = poor, None
        self._codes.append(native)
        self._stub.point_to(native.addresses[poor.symbol])

    def wait(self) -> None:
        """Returns when there is code to call."""
        coming = self._coming
        if coming is not None:
            coming.finish()

    def improve(self) -> None:
        """Makes better code and has calls go there from now on; those under way end where they are.

        The code before stays as well: threads may be in it. Better code is kept on disk.
        """
        self.wait()
        better = self._better()
        image = compile_freely(better.text, suitable_speed(better.text))
        native = link_image(image, (_SYMBOL,), math_imports(better.math), better.text)
        self._cache.store(self._key, _packed(PoorCode(image, _SYMBOL, better.math), None))
        self._codes.append(native)
        self._stub.point_to(native.address)

    def leave_behind(self) -> None:
        """Keeps poor code on disk, with what better code is made from, for the next process to improve."""
        if not self.is_improved:
            self.wait()
            assert self._poor is not None
            self._cache.store(self._key, _packed(self._poor, self._better()))


Code = NativeFunction | TieredFunction


class QuickCode:
    """Poor code for several kernels. It is made while whoever adds them does something else.

    What comes is the next to be compiled, unless something waits for that: then it is kept back for more to come.
    LLVM verifies texts if it is asked to, which takes a twentieth of the time: better texts, of the same emitter,
    always are.
    """

    def __init__(self, verified: bool) -> None:
        self._verified = verified
        self._open: list[Source] = []  # for the next module
        self._modules: list[_Module] = []
        self._functions: list[TieredFunction] = []  # those of all sources, in order
        self._is_open = True
        self._lock = threading.Lock()
        renew_lock_after_fork(self, "_lock")

    def add(self, source: Source) -> TieredFunction:
        """The kernel's code, which is on its way."""
        if self._open and self._open[0].quick.attributes != source.quick.attributes:
            self._close_module()
        self._open.append(source)
        if is_idle() or sum(one.lines for one in self._open) >= _WORTH_A_MODULE:
            self._close_module()
        function = TieredFunction(source.key, source.better, source.cache)
        function.begin(self)
        self._functions.append(function)
        return function

    def go_on(self) -> None:
        """Has what is kept back compiled if nothing waits for that by now."""
        if self._open and is_idle():
            self._close_module()

    def close(self) -> Sequence[TieredFunction]:
        """All functions; no more are added."""
        self._close_module()
        self._is_open = False
        return tuple(self._functions)

    def _close_module(self) -> None:
        if self._open:
            symbols = [f"{_SYMBOL}{number}" for number in range(len(self._open))]
            text = module_text([source.quick for source in self._open], symbols)
            math = tuple(sorted({request for source in self._open for request in source.quick.math}))
            code = Compilation(text, symbols, math_imports(math), self._verified)
            self._modules.append(_Module(code, tuple(symbols), math))
            self._open = []

    def finish(self) -> None:
        """Returns when the functions can be called, having done what is left to do."""
        with self._lock:
            assert not self._is_open
            for module in reversed(self._modules):  # the others are done in order
                module.code.take_part()
            while self._modules:
                module, count_of_kernels = self._modules[0], len(self._modules[0].symbols)
                image, native = module.code.finish()
                for function, symbol in zip(self._functions, module.symbols, strict=False):
                    function.start(PoorCode(image, symbol, module.math), native)
                count("compiled", count_of_kernels)
                del self._modules[0], self._functions[:count_of_kernels]


@dataclass(frozen=True)
class _Module:
    """Some of the kernels, which are compiled together, with their names and the math functions that they call."""

    code: Compilation
    symbols: tuple[str, ...]
    math: tuple[MathRequest, ...]


def compile_well(source: Source) -> NativeFunction:
    """Good code for a kernel, however long that takes."""
    better = source.better()
    image = compile_image(better.text, suitable_speed(better.text))
    native = link_image(image, (_SYMBOL,), math_imports(better.math), better.text)
    count("compiled")
    source.cache.store(source.key, _packed(PoorCode(image, _SYMBOL, better.math), None))
    return native


def load_code(key: bytes, cache: ObjectCache) -> Code | None:
    """Code that is on disk: good, or what an earlier process has left for this one to improve."""
    stored = cache.load(key)
    if stored is None:
        return None
    code, better = _unpacked(stored)
    try:
        native = load_image(code.image, (code.symbol,), math_imports(code.math))
    except RuntimeError:
        cache.reject(key)
        return None
    count("loaded_from_disk")
    if better is None:
        return native
    function = TieredFunction(key, lambda: better, cache)
    function.start(code, native)
    return function


def _packed(code: PoorCode, better: BetterText | None) -> bytes:
    description = json.dumps([code.symbol, code.math, None if better is None else better.math]).encode()
    text = b"" if better is None else better.text.encode()
    return b"".join([_LENGTHS.pack(len(description), len(code.image)), description, code.image, text])


def _unpacked(stored: bytes) -> tuple[PoorCode, BetterText | None]:
    description_length, image_length = _LENGTHS.unpack_from(stored)
    description_end = _LENGTHS.size + description_length
    image_end = description_end + image_length
    symbol, math, better_math = json.loads(stored[_LENGTHS.size : description_end])
    code = PoorCode(stored[description_end:image_end], symbol, _requests(math))
    return code, None if better_math is None else BetterText(stored[image_end:].decode(), _requests(better_math))


def _requests(listed: list[list[str | int]]) -> tuple[MathRequest, ...]:
    return tuple((str(function), str(element), int(lanes)) for function, element, lanes in listed)

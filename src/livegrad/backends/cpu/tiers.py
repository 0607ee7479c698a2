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
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from livegrad.backends.cpu.emit.kernel import KernelText, module_text
from livegrad.backends.cpu.math_library import MathRequest, math_imports
from livegrad.backends.cpu.native.compiler import (
    NativeFunction,
    compile_image,
    count,
    link_image,
    load_image,
    suitable_speed,
)
from livegrad.backends.cpu.native.free_compile import compile_both, compile_freely
from livegrad.backends.cpu.native.object_cache import ObjectCache
from livegrad.backends.cpu.native.pool import default_threads
from livegrad.backends.cpu.native.stubs import give_back, take_stub
from livegrad.diagnostics import UsageError

CodeChoice = Literal["both", "good", "quick"]
_SYMBOL = "kernel"
_QUICK = 0  # the speed of code that is there at once
_WORTH_A_THREAD = 200  # lines
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

    @property
    def fits_the_stack(self) -> bool:
        """Whether poor code will do: it needs memory for every value."""
        return self.quick.definition.count("\n") * self.vector_bytes <= _MOST_STACK


@dataclass(frozen=True)
class PoorCode:
    """Object code of several kernels, and which function in it is the one that is meant."""

    image: bytes
    symbol: str
    math: tuple[MathRequest, ...]


class TieredFunction:
    """A kernel at an address that stays while its code gets better. Callers hold it, as they do a `NativeFunction`."""

    __slots__ = ("__weakref__", "_better", "_cache", "_codes", "_key", "_poor", "_stub", "address", "addresses")

    def __init__(
        self, key: bytes, poor: PoorCode, better: Callable[[], BetterText], cache: ObjectCache, native: NativeFunction
    ) -> None:
        self._key, self._poor, self._better, self._cache = key, poor, better, cache
        self._codes = [native]
        self._stub = take_stub(native.addresses[poor.symbol])
        self.address = self._stub.address
        self.addresses = {_SYMBOL: self.address}
        weakref.finalize(self, give_back, self._stub).atexit = False

    @property
    def is_improved(self) -> bool:
        return len(self._codes) > 1

    def improve(self) -> None:
        """Makes better code and has calls go there from now on; those under way end where they are.

        The code before stays as well: threads may be in it. Better code is kept on disk.
        """
        better = self._better()
        image = compile_freely(better.text, suitable_speed(better.text))
        native = link_image(image, (_SYMBOL,), math_imports(better.math), better.text)
        self._cache.store(self._key, _packed(PoorCode(image, _SYMBOL, better.math), None))
        self._codes.append(native)
        self._stub.point_to(native.address)

    def leave_behind(self) -> None:
        """Keeps poor code on disk, with what better code is made from, for the next process to improve."""
        if not self.is_improved:
            self._cache.store(self._key, _packed(self._poor, self._better()))


Code = NativeFunction | TieredFunction


def compile_quickly(sources: Sequence[Source]) -> list[TieredFunction]:
    """Poor code for several kernels of equal attributes, compiled as one module, or as two at the same time."""
    symbols = [f"{_SYMBOL}{number}" for number in range(len(sources))] if len(sources) > 1 else [_SYMBOL]
    halves = _halves([source.quick.definition.count("\n") for source in sources])
    texts = [module_text([sources[n].quick for n in half], [symbols[n] for n in half]) for half in halves]
    images = compile_both(texts, _QUICK)
    math = [tuple(sorted({request for n in half for request in sources[n].quick.math})) for half in halves]
    imports = math_imports({request for several in math for request in several})
    native = link_image(images[0], tuple(symbols), imports, "\n".join(texts), images[1:])
    count("compiled", len(sources))
    poor = {n: PoorCode(images[k], symbols[n], math[k]) for k, half in enumerate(halves) for n in half}
    return [
        TieredFunction(source.key, poor[number], source.better, source.cache, native)
        for number, source in enumerate(sources)
    ]


def _halves(lengths: Sequence[int]) -> list[list[int]]:
    """The numbers of all kernels, or those of two parts of about the same length, where a second thread is worth it."""
    if len(lengths) < 2 or sum(lengths) < _WORTH_A_THREAD or default_threads() < 2:
        return [[*range(len(lengths))]]
    halves: tuple[list[int], list[int]] = ([], [])
    filled = [0, 0]
    for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        smaller = filled.index(min(filled))
        halves[smaller].append(number)
        filled[smaller] += lengths[number]
    return [sorted(half) for half in halves]


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
    return native if better is None else TieredFunction(key, code, lambda: better, cache, native)


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

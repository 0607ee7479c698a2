"""Compiles LLVM IR to a `NativeFunction`: an address and the memory that it keeps alive.

Objects pass through the disk cache. Called by the CPU backend for kernels and by `pool.py` for the runtime itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import llvmlite
import llvmlite.binding as llvm

from livegrad.runtime.cpu.native import half_conversions_ir
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.runtime.cpu.native.linker import load
from livegrad.runtime.cpu.native.llvm_passes import (
    CODE_GENERATION_LEVEL,
    UNVECTORISED_LOOP_SPEED,
    is_mistrusted,
    optimize,
    suitable_speed,
)
from livegrad.runtime.object_cache import ObjectCache, default_cache
from livegrad.state import Owned, renew_lock_after_fork

# `small` with `pic`: every section of a kernel lies in one allocation, so constants are one instruction away, and calls
# and addresses of symbols outside (libc may be terabytes off) go through stubs and a table that the linker builds.
CODE_MODEL = "small"
RELOCATION = "pic"

_PARSE_ERROR = re.compile(r"<string>:(\d+):(\d+): error: (.*)")
_DECLARED = re.compile(r'^\s*declare\b[^@\n]*@(?:"([^"]+)"|([\w.$-]+))\(', re.MULTILINE)


class NativeCompileError(RuntimeError):
    """LLVM refused the text. `line_number` and `line` point into the IR where that is known."""

    def __init__(self, message: str, line_number: int | None = None, line: str | None = None) -> None:
        super().__init__(message)
        self.line_number = line_number
        self.line = line


@dataclass(frozen=True)
class CompileStats:
    compiled: int = 0
    loaded_from_disk: int = 0
    failed: int = 0
    alive: int = 0  # engines in memory now


class NativeFunction:
    """Machine code in memory, freed with this object: hold it for as long as anything may call `address`."""

    __slots__ = ("__weakref__", "_finalizer", "address", "addresses", "symbol")

    def __init__(self, symbol: str, addresses: Mapping[str, int], code: PlacedCode) -> None:
        self.symbol = symbol
        self.address = addresses[symbol]
        self.addresses = dict(addresses)
        alive = _counts.current.alive
        alive.add(id(code))
        self._finalizer = weakref.finalize(self, _dispose, code, alive)
        self._finalizer.atexit = False  # threads may still run the code then, and the process ends anyway

    def wait(self) -> None:
        """Return when there is code to call: at once."""

    def make_immortal(self) -> None:
        """Leave the code in memory until the process ends."""
        detached = self._finalizer.detach()
        if detached is not None:
            _immortal.append(detached)

    def __repr__(self) -> str:
        return f"NativeFunction({self.symbol!r}, address={self.address:#x})"


class PlacedCode(Protocol):
    """Memory with code in it."""

    def close(self) -> None:
        """Free it."""


class _Linked(NamedTuple):
    """A library and the engine that made it: the engine is closed last, also by a garbage collection."""

    library: Any
    engine: Any

    def close(self) -> None:
        self.library.close()
        self.engine.close()


def _dispose(code: PlacedCode, alive: set[int]) -> None:
    code.close()
    alive.discard(id(code))


class _Counts:
    """What a session has compiled, and which of its code is in memory."""

    def __init__(self) -> None:
        self.stats = CompileStats()
        self.alive: set[int] = set()
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")


_counts = Owned(_Counts)
_immortal: list[object] = []  # code that native threads or other code may run until the process ends


def stats() -> CompileStats:
    """Return how many kernels this session has compiled, loaded, failed to compile, and holds in memory."""
    counts = _counts.current
    return replace(counts.stats, alive=len(counts.alive))


def count(field: Literal["compiled", "loaded_from_disk", "failed"], number: int = 1) -> None:
    """Add to one of the numbers in `stats()`."""
    counts = _counts.current
    with counts.lock:
        counts.stats = replace(counts.stats, **{field: getattr(counts.stats, field) + number})


def compile_kernel(
    ir_text: str,
    symbol: str,
    *,
    speed: int | None = None,
    imports: Mapping[str, int] | None = None,
    also_export: tuple[str, ...] = (),
    cache: ObjectCache | None = None,
) -> NativeFunction:
    """Compile `ir_text`, or load its object from `cache`, and return the function `symbol` in it.

    `imports` gives addresses to names that the text declares and that are not symbols of this process. They are no part
    of the cache key: an object names what it needs, and the addresses are put in whenever it is loaded.
    Without `speed`, the length of the text decides.
    """
    speed = suitable_speed(ir_text) if speed is None else speed
    cache = default_cache() if cache is None else cache
    exports = (symbol, *also_export)
    key = object_key(ir_text, speed)
    cached = cache.load(key)
    if cached is not None:
        try:
            function = load_image(cached, exports, imports or {})
        except RuntimeError:
            cache.reject(key)
        else:
            count("loaded_from_disk")
            return function
    try:
        image = compile_image(ir_text, speed)
        function = link_image(image, exports, imports or {}, ir_text)
    except NativeCompileError:
        count("failed")
        raise
    count("compiled")
    cache.store(key, image)
    return function


def compile_library(
    ir_text: str,
    symbol: str,
    *,
    speed: int,
    imports: Mapping[str, int] | None = None,
    also_export: tuple[str, ...] = (),
) -> NativeFunction:
    """Like `compile_kernel`, but the code stays in memory until the process ends: other code keeps its addresses."""
    function = compile_kernel(ir_text, symbol, speed=speed, imports=imports, also_export=also_export)
    function.make_immortal()
    return function


def object_key(ir_text: str, speed: int | None = None) -> bytes:
    """Return the digest that names the object code of `ir_text` on this machine."""
    digest = hashlib.sha256(_key_prefix(suitable_speed(ir_text) if speed is None else speed))
    digest.update(ir_text.encode())
    return digest.digest()


def cross_compile(ir_text: str, triple: str, cpu: str = "", features: str = "", *, speed: int = 2) -> bytes:
    """Return object code for another machine; the llvmlite wheels hold every LLVM target."""
    return compile_image(ir_text, speed, _machine(triple, cpu, features, speed))


def cross_assemble(ir_text: str, triple: str, cpu: str = "", features: str = "", *, speed: int = 2) -> str:
    """Return assembly text for another machine, to look at and to test."""
    machine = _machine(triple, cpu, features, speed)
    with parsed_module(ir_text) as module:
        optimize(module, machine, speed)
        if not is_mistrusted(module, speed):
            return machine.emit_assembly(module)
    return cross_assemble(ir_text, triple, cpu, features, speed=UNVECTORISED_LOOP_SPEED)


@lru_cache(maxsize=8)
def _key_prefix(speed: int) -> bytes:
    host = host_target()
    settings = (CODE_MODEL, RELOCATION, speed, CODE_GENERATION_LEVEL[speed])
    return repr((llvmlite.__version__, llvm.llvm_version_info, host, settings)).encode() + b"\0"


@lru_cache(maxsize=32)
def _machine(triple: str, cpu: str, features: str, speed: int) -> Any:
    if triple != host_target().triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu,
        features=features,
        opt=CODE_GENERATION_LEVEL[speed],
        reloc=RELOCATION,
        codemodel=CODE_MODEL,
        jit=triple == host_target().triple,
    )


def host_machine(speed: int) -> Any:
    """Return a machine of its own for code of this processor."""
    host = host_target()
    return _machine.__wrapped__(host.triple, host.cpu, host.features, speed)


@lru_cache(maxsize=1)
def _linking_machine() -> Any:
    """Return the machine that engines are made for."""
    # To load an object, only the triple matters; without the list of features this costs 0.05 ms and not 0.4.
    return llvm.Target.from_triple(host_target().triple).create_target_machine(
        opt=0, reloc=RELOCATION, codemodel=CODE_MODEL, jit=True
    )


def compile_image(ir_text: str, speed: int, machine: Any = None) -> bytes:
    """Return the object code of `ir_text`."""
    if machine is None:
        host = host_target()
        machine = _machine(host.triple, host.cpu, host.features, speed)
    with parsed_module(ir_text) as module:
        optimize(module, machine, speed)
        if not is_mistrusted(module, speed):
            return machine.emit_object(module)
    return compile_image(ir_text, UNVECTORISED_LOOP_SPEED, machine)


@contextmanager
def parsed_module(ir_text: str) -> Iterator[Any]:
    """Give a verified module in a context of its own, so that its types and constants are freed with it.

    Both are closed here, in this order: a garbage collection after an exception would not mind the order.
    """
    context = llvm.create_context()
    try:
        try:
            module = llvm.parse_assembly(ir_text, context=context)
        except RuntimeError as error:
            raise _parse_failure(str(error), ir_text) from error
        with module:
            try:
                module.verify()
            except RuntimeError as error:
                raise _verify_failure(str(error), ir_text) from error
            yield module
    finally:
        context.close()


def load_image(image: bytes, exports: tuple[str, ...], imports: Mapping[str, int]) -> NativeFunction:
    """Place object code in memory.

    What our own linker does not know LLVM places, by one LLJIT with JITLink for each kernel. Measured for 310 / 3,000
    ops: 0.36 / 1.3 ms, and nothing left after freeing. MCJIT takes 0.45 / 2.9 ms and ends the process when a symbol is
    missing; one LLJIT for all keeps 9 KiB a kernel.
    """
    if not host_target().has_half:
        imports = {**_half_conversions().addresses, **imports}
    return _load_image(image, exports, imports)


@lru_cache(maxsize=1)
def _half_conversions() -> NativeFunction:
    image = compile_image(half_conversions_ir.TEXT, speed=1)
    return _load_image(image, half_conversions_ir.EXPORTS, {})


def _load_image(image: bytes, exports: tuple[str, ...], imports: Mapping[str, int]) -> NativeFunction:
    loaded = load(image, exports, imports)
    if loaded is not None:
        return NativeFunction(exports[0], loaded.addresses, loaded)
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    for name in exports:
        builder.export_symbol(name)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    engine = llvm.create_lljit_compiler(_linking_machine(), use_jit_link=True, suppress_errors=True)
    library = builder.link(engine, "kernel")
    return NativeFunction(exports[0], {name: library[name] for name in exports}, _Linked(library, engine))


def link_image(image: bytes, exports: tuple[str, ...], imports: Mapping[str, int], ir_text: str) -> NativeFunction:
    """Place object code that was just compiled in memory; say what is missing if that fails."""
    try:
        return load_image(image, exports, imports)
    except RuntimeError as error:
        declared = {quoted or plain for quoted, plain in _DECLARED.findall(ir_text)}
        missing = sorted(name for name in declared - set(imports) if not _is_resolvable(name))
        hint = (
            f"unknown symbols: {', '.join(missing)}"
            if missing
            else f"expected definitions of {', '.join(exports)}, and no operation that needs compiler-rt (128-bit"
            " division, conversions to types that this processor lacks)"
        )
        raise NativeCompileError(f"cannot link {exports[0]!r}: {error}; {hint}") from error


def _is_resolvable(name: str) -> bool:
    return name.startswith("llvm.") or llvm.address_of_symbol(name) is not None


def _parse_failure(message: str, ir_text: str) -> NativeCompileError:
    match = _PARSE_ERROR.search(message)
    if match is None:
        return NativeCompileError(message)
    number, column, reason = int(match[1]), int(match[2]), match[3]
    lines = ir_text.splitlines()
    line = lines[number - 1] if number <= len(lines) else ""
    return NativeCompileError(f"LLVM IR line {number}, column {column}: {reason}\n  {line}", number, line)


def _verify_failure(message: str, ir_text: str) -> NativeCompileError:
    # The verifier prints the instruction, but not its line number: look for a line with the same words.
    lines = {" ".join(line.split()): (number, line) for number, line in enumerate(ir_text.splitlines(), 1)}
    for printed in message.splitlines():
        numbered_line = lines.get(" ".join(printed.split()))
        if numbered_line is not None and printed.strip():
            return NativeCompileError(f"LLVM IR line {numbered_line[0]}: {message.strip()}", *numbered_line)
    return NativeCompileError(message.strip())


def _prepare_for_forks() -> None:
    """Let no thread be inside LLVM while the process forks: the child would wait for its lock for ever."""
    lock = getattr(llvm.ffi.lib, "_lock", None)
    if lock is None or not hasattr(os, "register_at_fork"):
        return

    def leave() -> None:
        lock.__exit__(None, None, None)

    os.register_at_fork(before=lock.__enter__, after_in_parent=leave, after_in_child=leave)


_prepare_for_forks()

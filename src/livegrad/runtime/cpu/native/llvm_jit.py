"""Compiles LLVM IR to native code. In: the text of a module. Out: a `NativeFunction`, which owns the code.

Object code is cached on disk. Called by the CPU backend for kernels, and by `pool.py` for the run time.
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
    has_unsafe_loads,
    optimize,
    suitable_speed,
)
from livegrad.runtime.object_cache import ObjectCache, default_cache
from livegrad.state import Owned, renew_lock_after_fork

# `small` with `pic`: all sections of a kernel are in one allocation, so constants are one instruction away. Calls and
# addresses of external symbols (libc may be terabytes away) go through stubs and a table that the linker builds.
CODE_MODEL = "small"
RELOCATION = "pic"

_PARSE_ERROR = re.compile(r"<string>:(\d+):(\d+): error: (.*)")
_DECLARED = re.compile(r'^\s*declare\b[^@\n]*@(?:"([^"]+)"|([\w.$-]+))\(', re.MULTILINE)


class NativeCompileError(RuntimeError):
    """LLVM rejected a module. `line_number` and `line` locate the error in the IR, if LLVM reports it."""

    def __init__(self, message: str, line_number: int | None = None, line: str | None = None) -> None:
        super().__init__(message)
        self.line_number = line_number
        self.line = line


@dataclass(frozen=True)
class CompileStats:
    """Counts of a session."""

    compiled: int = 0
    loaded_from_disk: int = 0
    failed: int = 0
    alive: int = 0  # functions in memory now


class NativeFunction:
    """Machine code in memory, which is freed with this object. Keep it while code may call `address`."""

    __slots__ = ("__weakref__", "_finalizer", "address", "addresses", "symbol")

    def __init__(self, symbol: str, addresses: Mapping[str, int], code: CodeMemory) -> None:
        self.symbol = symbol
        self.address = addresses[symbol]
        self.addresses = dict(addresses)
        alive = _counts.current.alive
        alive.add(id(code))
        self._finalizer = weakref.finalize(self, _dispose, code, alive)
        self._finalizer.atexit = False  # threads may still run the code at exit

    def wait(self) -> None:
        """Returns at once, because the code can be called. A `TieredFunction` may have to wait."""

    def make_immortal(self) -> None:
        """Keeps the code in memory until the process exits."""
        detached = self._finalizer.detach()
        if detached is not None:
            _immortal.append(detached)

    def __repr__(self) -> str:
        return f"NativeFunction({self.symbol!r}, address={self.address:#x})"


class CodeMemory(Protocol):
    """Memory with code in it."""

    def close(self) -> None:
        """Frees it."""


class _LibraryCode(NamedTuple):
    """An LLVM library and its engine, which must be closed after it."""

    library: Any
    engine: Any

    def close(self) -> None:
        self.library.close()
        self.engine.close()


def _dispose(code: CodeMemory, alive: set[int]) -> None:
    code.close()
    alive.discard(id(code))


class _Counts:
    """The counts of a session, and the identities of its code in memory."""

    def __init__(self) -> None:
        self.stats = CompileStats()
        self.alive: set[int] = set()
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")


_counts = Owned(_Counts)
_immortal: list[object] = []  # code that native threads or other code may call until the process exits


def stats() -> CompileStats:
    """How many functions this session has compiled, loaded, failed to compile, and has in memory."""
    counts = _counts.current
    return replace(counts.stats, alive=len(counts.alive))


def count(field: Literal["compiled", "loaded_from_disk", "failed"], number: int = 1) -> None:
    """Adds to one of the counts of `stats()`."""
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
    """Compiles `ir_text`, or loads its object from `cache`, and returns its function `symbol`.

    `imports` has the addresses of symbols that the text declares and that this process does not define. They are not
    part of the cache key, because objects refer to them by name and are relocated on loading. `speed` selects the
    passes (`llvm_passes.py`); by default, it depends on the length of the text.
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
    """Like `compile_kernel`, but the code is never freed, because other code has its addresses."""
    function = compile_kernel(ir_text, symbol, speed=speed, imports=imports, also_export=also_export)
    function.make_immortal()
    return function


def object_key(ir_text: str, speed: int | None = None) -> bytes:
    """The key of the object code of `ir_text` on this machine."""
    digest = hashlib.sha256(_key_prefix(suitable_speed(ir_text) if speed is None else speed))
    digest.update(ir_text.encode())
    return digest.digest()


def cross_compile(ir_text: str, triple: str, cpu: str = "", features: str = "", *, speed: int = 2) -> bytes:
    """Compiles to object code for another machine; llvmlite's wheels include all LLVM targets."""
    return compile_image(ir_text, speed, _machine(triple, cpu, features, speed))


def cross_assemble(ir_text: str, triple: str, cpu: str = "", features: str = "", *, speed: int = 2) -> str:
    """Compiles to assembly text for another machine, for reading and for tests."""
    machine = _machine(triple, cpu, features, speed)
    with parsed_module(ir_text) as module:
        optimize(module, machine, speed)
        if not has_unsafe_loads(module, speed):
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
    """A new target machine for this processor, not shared with any other caller."""
    host = host_target()
    return _machine.__wrapped__(host.triple, host.cpu, host.features, speed)


@lru_cache(maxsize=1)
def _linking_machine() -> Any:
    """The target machine of LLVM's linker."""
    # Only the triple matters for linking. Without the feature list, this takes 0.05 ms instead of 0.4.
    return llvm.Target.from_triple(host_target().triple).create_target_machine(
        opt=0, reloc=RELOCATION, codemodel=CODE_MODEL, jit=True
    )


def compile_image(ir_text: str, speed: int, machine: Any = None) -> bytes:
    """Compiles `ir_text` to object code for this processor, or for another target machine."""
    if machine is None:
        host = host_target()
        machine = _machine(host.triple, host.cpu, host.features, speed)
    with parsed_module(ir_text) as module:
        optimize(module, machine, speed)
        if not has_unsafe_loads(module, speed):
            return machine.emit_object(module)
    return compile_image(ir_text, UNVECTORISED_LOOP_SPEED, machine)


@contextmanager
def parsed_module(ir_text: str) -> Iterator[Any]:
    """Parses and verifies a module in a new context, so that its types and constants are freed with it.

    Closes the module and then the context; a garbage collection would not guarantee this order.
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
    """Loads object code into memory.

    LLVM loads objects that `linker.py` does not support, each with its own LLJIT with JITLink. For 310 and 3,000 ops,
    this takes 0.36 and 1.3 ms and leaks nothing. MCJIT takes 0.45 and 2.9 ms and aborts the process on a missing
    symbol; a single LLJIT for all kernels leaks 9 KiB for each.
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
    return NativeFunction(exports[0], {name: library[name] for name in exports}, _LibraryCode(library, engine))


def link_image(image: bytes, exports: tuple[str, ...], imports: Mapping[str, int], ir_text: str) -> NativeFunction:
    """Loads object code of `ir_text`; an error lists the missing symbols."""
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
    # The verifier prints the instruction but not its line number, so look for a line with the same text.
    lines = {" ".join(line.split()): (number, line) for number, line in enumerate(ir_text.splitlines(), 1)}
    for printed in message.splitlines():
        numbered_line = lines.get(" ".join(printed.split()))
        if numbered_line is not None and printed.strip():
            return NativeCompileError(f"LLVM IR line {numbered_line[0]}: {message.strip()}", *numbered_line)
    return NativeCompileError(message.strip())


def _prepare_for_forks() -> None:
    """Holds llvmlite's lock while the process forks: the child of a fork during a compilation would deadlock on it."""
    lock = getattr(llvm.ffi.lib, "_lock", None)
    if lock is None or not hasattr(os, "register_at_fork"):
        return

    def leave() -> None:
        lock.__exit__(None, None, None)

    os.register_at_fork(before=lock.__enter__, after_in_parent=leave, after_in_child=leave)


_prepare_for_forks()

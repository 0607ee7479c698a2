"""Links and loads the object code of kernels: ELF for x86-64. In: object code. Out: executable memory.

Called by `llvm_jit.py`, which falls back to LLVM's linker for anything else. LLVM takes 0.4 ms per object and this
linker 0.07 ms, which matters for first calls and for kernels loaded from disk.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from livegrad.ir.dimension import round_up

# The ELF format for x86-64, little endian, with the names of its specification.
_MAGIC, _X86_64 = b"\x7fELF\x02\x01", 62
_MACHINE, _SECTION_TABLE, _SECTION_COUNT = struct.Struct("<18xH"), struct.Struct("<40xQ"), struct.Struct("<60xH")
_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_UNWIND = 1, 2, 4, 8, 0x70000001
_SHF_WRITE, _SHF_ALLOC, _SHF_TLS = 1, 2, 0x400
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_PC64, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_GOT_RELOCATIONS = frozenset({_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX})  # code loads the address from a table
_FORMATS = {_R_64: "<q", _R_PC64: "<q", _R_PC32: "<i", _R_PLT32: "<i", **dict.fromkeys(_GOT_RELOCATIONS, "<i")}

# External symbols may be terabytes away, out of the range of a call. A stub serves as the entry of both the PLT and the
# GOT: `jmp *(%rip)`, followed by the address, which code may also read.
_STUB = struct.Struct("<6sQ2x")
_STUB_CODE, _ADDRESS_IN_STUB = b"\xff\x25\0\0\0\0", 6


class _CannotLoadError(Exception):
    """The object uses a construct that this linker does not support, or an undefined symbol."""


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Symbol(NamedTuple):
    name: str
    section: int  # 0: undefined here
    value: int  # its offset in the section


class _Relocation(NamedTuple):
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class LoadedCode:
    """Code in memory, and the addresses of its exported symbols."""

    __slots__ = ("_memory", "addresses")

    def __init__(self, memory: mmap.mmap, addresses: dict[str, int]) -> None:
        self._memory, self.addresses = memory, addresses

    def close(self) -> None:
        """Frees the memory. The code must not be called afterwards."""
        self._memory.close()


def load(image: bytes, exports: Sequence[str], imports: Mapping[str, int]) -> LoadedCode | None:
    """Loads an object into new memory; None if LLVM's linker has to load it, or to report the error.

    `imports` are the addresses of symbols that this process does not define.
    """
    if sys.platform != "linux" or not image.startswith(_MAGIC):
        return None
    try:
        return _Loader(image, imports).run(exports)
    except (_CannotLoadError, struct.error, IndexError, ValueError):  # all but the first mean a damaged object
        return None


class _Loader:
    """Loads one object: code, constants and stubs, and from the next page on, writable data."""

    def __init__(self, image: bytes, imports: Mapping[str, int]) -> None:
        if _MACHINE.unpack_from(image)[0] != _X86_64:
            raise _CannotLoadError("code for another machine")
        self.image, self.imports = image, imports
        start, count = _SECTION_TABLE.unpack_from(image)[0], _SECTION_COUNT.unpack_from(image)[0]
        table = memoryview(image)[start : start + count * _SECTION.size]
        self.sections = [_Section._make(words) for words in _SECTION.iter_unpack(table)]
        self.symbols = self._read_symbols()
        self.relocations: list[_Relocation] = []
        self.section_offsets: dict[int, int] = {}  # by section number
        self.stubs: dict[int, int] = {}  # offsets by symbol number
        self.read_only = self.end = 0  # bytes

    def run(self, exports: Sequence[str]) -> LoadedCode:
        self._assign_layout()
        memory = mmap.mmap(-1, self.end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            self._write_sections(memory, base)
            if _process().mprotect(base, self.read_only, mmap.PROT_READ | mmap.PROT_EXEC):
                raise _CannotLoadError("the system does not allow executable memory here")
            defined = {
                symbol.name: self._address(symbol, base)
                for symbol in self.symbols
                if symbol.section in self.section_offsets
            }
            if not defined.keys() >= set(exports):
                raise _CannotLoadError("an undefined symbol")
        except BaseException:
            memory.close()
            raise
        return LoadedCode(memory, {name: defined[name] for name in exports})

    def _read_symbols(self) -> list[_Symbol]:
        for table in self.sections:
            if table.type == _SHT_SYMTAB:
                names = self._content(self.sections[table.link])
                return [
                    _Symbol(names[name : names.index(b"\0", name)].decode(), section, value)
                    for name, _, _, section, value, _ in _SYMBOL.iter_unpack(self._content(table))
                ]
        return []

    def _content(self, section: _Section) -> bytes:
        return self.image[section.offset : section.offset + section.size]

    def _assign_layout(self) -> None:
        """Assigns offsets to stubs and to loaded sections, which are all but unwind tables."""
        loaded = {
            number: section
            for number, section in enumerate(self.sections)
            if section.flags & _SHF_ALLOC and section.size and section.type != _SHT_UNWIND
        }
        for section in loaded.values():
            if section.type not in (_SHT_PROGBITS, _SHT_NOBITS) or section.flags & _SHF_TLS:
                raise _CannotLoadError(f"a section of type {section.type}")
        self._read_relocations(loaded)
        self._assign_offsets({number: section for number, section in loaded.items() if not section.flags & _SHF_WRITE})
        for relocation in self.relocations:
            if relocation.symbol not in self.stubs and self._needs_stub(relocation):
                self.stubs[relocation.symbol] = offset = round_up(self.end, _STUB.size)
                self.end = offset + _STUB.size
        self.read_only = self.end = round_up(max(self.end, 1), mmap.PAGESIZE)
        self._assign_offsets({number: section for number, section in loaded.items() if section.flags & _SHF_WRITE})

    def _read_relocations(self, loaded: Mapping[int, _Section]) -> None:
        for table in self.sections:
            if table.type == _SHT_RELA and table.info in loaded:
                for offset, info, addend in _RELOCATION.iter_unpack(self._content(table)):
                    kind, symbol = info & 0xFFFFFFFF, info >> 32
                    self.relocations.append(_Relocation(table.info, offset, kind, symbol, addend))

    def _needs_stub(self, relocation: _Relocation) -> bool:
        """Whether code calls an external symbol, or loads an address from the GOT."""
        is_external = not self.symbols[relocation.symbol].section
        return relocation.kind in _GOT_RELOCATIONS or (is_external and relocation.kind == _R_PLT32)

    def _assign_offsets(self, sections: Mapping[int, _Section]) -> None:
        for number, section in sections.items():
            self.section_offsets[number] = offset = round_up(self.end, section.alignment or 1)
            self.end = offset + section.size

    def _write_sections(self, memory: mmap.mmap, base: int) -> None:
        for number, offset in self.section_offsets.items():
            section = self.sections[number]
            if section.type == _SHT_PROGBITS:
                memory[offset : offset + section.size] = self._content(section)
        for number, offset in self.stubs.items():
            _STUB.pack_into(memory, offset, _STUB_CODE, self._address(self.symbols[number], base))
        for relocation in self.relocations:
            value_format = _FORMATS.get(relocation.kind)
            if value_format is None:
                raise _CannotLoadError(f"a relocation of the kind {relocation.kind}")
            offset = self.section_offsets[relocation.section] + relocation.offset
            try:
                struct.pack_into(value_format, memory, offset, self._value(relocation, base, offset))
            except struct.error:
                raise _CannotLoadError("a symbol that is too far away") from None

    def _value(self, relocation: _Relocation, base: int, offset: int) -> int:
        if relocation.kind in _GOT_RELOCATIONS:
            target = base + self.stubs[relocation.symbol] + _ADDRESS_IN_STUB
        elif self._needs_stub(relocation):
            target = base + self.stubs[relocation.symbol]
        else:
            target = self._address(self.symbols[relocation.symbol], base)
        return target + relocation.addend - (0 if relocation.kind == _R_64 else base + offset)

    def _address(self, symbol: _Symbol, base: int) -> int:
        if symbol.section in self.section_offsets:
            return base + self.section_offsets[symbol.section] + symbol.value
        address = 0 if symbol.section else self.imports.get(symbol.name) or _address_in_process(symbol.name)
        if not address:
            raise _CannotLoadError(f"unknown symbol {symbol.name}")
        return address


def _address_in_process(name: str) -> int:
    """The address of a symbol of this process or its libraries; 0 if it is undefined."""
    try:
        return ctypes.cast(_process()[name], ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


@lru_cache(maxsize=1)
def _process() -> ctypes.CDLL:
    process = ctypes.CDLL(None)
    process.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return process

"""The programs of an executable, one for each set of steps that ran together, and the ones found by identity.

The engine passes the same tuple of steps again and again; a lookup by its identity avoids hashing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from livegrad.ir.lru import LruCache
from livegrad.live.cuda.program import Program
from livegrad.live.executor import Profile

ProgramKey = tuple[tuple[str, ...], Profile, frozenset[str]]  # steps, profiling, refused calls
_MAX_PROGRAMS = 64


class ProgramCache:
    """The most recently used programs. Evicted programs are closed."""

    def __init__(self) -> None:
        self._programs: LruCache[ProgramKey, Program] = LruCache(_MAX_PROGRAMS, Program.close)
        self._by_identity: dict[int, tuple[Sequence[str], Program]] = {}

    def __iter__(self) -> Iterator[Program]:
        return iter(self._programs.values())

    def of_same(self, steps: Sequence[str]) -> Program | None:
        """The program of this very object, if it was remembered."""
        cached = self._by_identity.get(id(steps))
        return cached[1] if cached is not None and cached[0] is steps else None

    def remember(self, steps: Sequence[str], program: Program) -> None:
        """Finds the program by the identity of `steps` from now on."""
        if len(self._by_identity) >= _MAX_PROGRAMS:
            self._by_identity.clear()
        self._by_identity[id(steps)] = steps, program

    def use(self, key: ProgramKey) -> Program | None:
        """The program of a key, which becomes the most recently used."""
        return self._programs.use(key)

    def keep(self, key: ProgramKey, program: Program) -> None:
        """Adds a program."""
        self._programs.keep(key, program)
        self._by_identity.clear()  # the cache may have evicted and closed another program

    def drop(self, members: set[str]) -> None:
        """Closes the programs with one of these steps."""
        if not members:
            return
        for key, program in list(self._programs.items()):
            if not members.isdisjoint(program.members):
                program.close()
                del self._programs[key]
        self._by_identity.clear()

    def close(self) -> None:
        """Closes all programs."""
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        self._by_identity.clear()

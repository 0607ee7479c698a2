"""Metadata of LLVM modules: alias scopes of accesses, branch weights, and hints for loops."""

from __future__ import annotations

from dataclasses import dataclass

STATUS = -1  # stands for the memory of the status word
UNLIKELY = ", !prof !2"  # for a branch whose condition rarely holds
# Metadata of every module: !0 marks loads from memory that nothing writes, !1 non-temporal stores.
COMMON = ("!0 = !{}", "!1 = !{i32 1}", '!2 = !{!"branch_weights", i32 1, i32 1048576}')
_DOMAIN, _ROLLED, _FIRST = 3, 4, 5  # from _FIRST, each memory has three: its scope, a list of it, a list of all others


@dataclass
class LoopMetadata:
    """Alias scopes and loop hints of a kernel whose scalar loops LLVM optimises.

    Its memories do not overlap: each access belongs to one of them (`!alias.scope`) and not to the others (`!noalias`).
    """

    memories: tuple[int, ...]
    rolled: int = 0  # loops that must not be unrolled, so far

    def flags(self, memory: int) -> str:
        """The alias metadata of a load or store; empty for a memory that is not listed."""
        if memory not in self.memories:
            return ""
        scope = _FIRST + 3 * self.memories.index(memory)
        return f", !alias.scope !{scope + 1}, !noalias !{scope + 2}"

    def keep_rolled(self) -> str:
        """Metadata of the latch of a loop that LLVM must not unroll."""
        if not self.memories:
            return ""
        self.rolled += 1
        return f", !llvm.loop !{self._first_rolled + self.rolled - 1}"

    @property
    def _first_rolled(self) -> int:
        return _FIRST + 3 * len(self.memories)

    def definitions(self) -> list[str]:
        if not self.memories:
            return []
        scopes = [_FIRST + 3 * number for number in range(len(self.memories))]
        lines = [f"!{_DOMAIN} = distinct !{{!{_DOMAIN}}}"]
        for scope in scopes:
            others = ", ".join(f"!{other}" for other in scopes if other != scope)
            lines.append(f"!{scope} = distinct !{{!{scope}, !{_DOMAIN}}}")
            lines.append(f"!{scope + 1} = !{{!{scope}}}")
            lines.append(f"!{scope + 2} = !{{{others}}}")
        lines.append(f'!{_ROLLED} = !{{!"llvm.loop.unroll.disable"}}')
        rolled = range(self._first_rolled, self._first_rolled + self.rolled)
        return [*lines, *[f"!{number} = distinct !{{!{number}, !{_ROLLED}}}" for number in rolled]]

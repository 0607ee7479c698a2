"""Metadata of LLVM modules: which memory an access touches, which branches are taken seldom, and hints for loops."""

from __future__ import annotations

from dataclasses import dataclass

STATUS = -1  # the memory of the status word
UNLIKELY = ", !prof !2"  # of a branch whose condition holds seldom
# What modules refer to by number: !0 marks loads of what nothing writes, !1 non-temporal stores.
COMMON = ("!0 = !{}", "!1 = !{i32 1}", '!2 = !{!"branch_weights", i32 1, i32 1048576}')
_DOMAIN, _ROLLED, _FIRST = 3, 4, 5  # then three numbers for each memory: its scope, a list of it, a list of all others


@dataclass
class LoopMetadata:
    """Metadata of a kernel whose scalar loops LLVM optimises.

    Its memories do not overlap: accesses say in which one they are (`!alias.scope`) and in which not (`!noalias`).
    """

    memories: tuple[int, ...]
    rolled: int = 0  # how many loops are not to be unrolled

    def flags(self, memory: int) -> str:
        """What a load or store of a memory says; nothing if there are no others."""
        if memory not in self.memories:
            return ""
        scope = _FIRST + 3 * self.memories.index(memory)
        return f", !alias.scope !{scope + 1}, !noalias !{scope + 2}"

    def keep_rolled(self) -> str:
        """What the last branch of a loop says that LLVM shall not unroll: its body is a long loop."""
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

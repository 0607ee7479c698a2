"""Trampolines: kernels that consist of one indirect jump. Retargeting one replaces the code behind a fixed address.

A trampoline has an address before its code is compiled. It is retargeted from the baseline to the optimised tier while
threads run either of them. Called by `tiers.py`.
"""

from __future__ import annotations

import ctypes

from livegrad.runtime.cpu.native.llvm_jit import compile_library

_BLOCK = 16  # trampolines that are compiled together, in half a millisecond
# Without a lock, because `append` and `pop` are atomic, and finalizers may release trampolines at any moment.
_free: list[Trampoline] = []


class Trampoline:
    """One trampoline. Its target is a word in memory that is written atomically."""

    __slots__ = ("_target", "address")

    def __init__(self, address: int, target_address: int) -> None:
        self.address = address
        self._target = ctypes.c_uint64.from_address(target_address)

    def point_to(self, address: int) -> None:
        self._target.value = address


def take_trampoline() -> Trampoline:
    """A trampoline without a target. The caller releases it when nothing can call it any more."""
    try:
        trampoline = _free.pop()
    except IndexError:
        trampoline, *others = _new_block()
        _free.extend(others)
    return trampoline


def release_trampoline(trampoline: Trampoline) -> None:
    _free.append(trampoline)


def _new_block() -> list[Trampoline]:
    names = [f"trampoline{number}" for number in range(_BLOCK)]
    # Compiled as a library, which is never freed, because trampolines are reused.
    block = compile_library(_text(names), "targets", speed=0, also_export=tuple(names))
    start = block.addresses["targets"]
    return [Trampoline(block.addresses[name], start + 8 * number) for number, name in enumerate(names)]


def _text(names: list[str]) -> str:
    lines = [f"@targets = global [{len(names)} x ptr] zeroinitializer, align 8"]
    for number, name in enumerate(names):
        lines += [
            f"define void @{name}(i64 %begin, i64 %end, ptr %args, i64 %worker) nounwind {{",
            f"  %place = getelementptr ptr, ptr @targets, i64 {number}",
            "  %code = load atomic ptr, ptr %place monotonic, align 8",
            "  musttail call void %code(i64 %begin, i64 %end, ptr %args, i64 %worker)",
            "  ret void",
            "}",
        ]
    return "\n".join(lines)

"""Addresses whose code can change: a stub is a kernel of one jump, to wherever its word says.

An address goes out before there is code, and stays when better code takes the place of what there is, also while
threads run it. Called by `tiers.py`.
"""

from __future__ import annotations

import ctypes

from livegrad.backends.cpu.native.compiler import compile_kernel

_IN_A_BLOCK = 16  # compiled in half a millisecond each
# Without a lock: `append` and `pop` are whole, and stubs come back from finalizers, which may run at any moment.
_free: list[Stub] = []


class Stub:
    """One stub: what it jumps to is a word in memory, written whole."""

    __slots__ = ("_target", "address")

    def __init__(self, address: int, target_address: int) -> None:
        self.address = address
        self._target = ctypes.c_uint64.from_address(target_address)

    def point_to(self, address: int) -> None:
        self._target.value = address


def take_stub() -> Stub:
    """A stub that jumps nowhere until it is pointed somewhere; `give_back` it when nobody can call it any more."""
    try:
        stub = _free.pop()
    except IndexError:
        stub, *others = _new_block()
        _free.extend(others)
    return stub


def give_back(stub: Stub) -> None:
    _free.append(stub)


def _new_block() -> list[Stub]:
    names = [f"stub{number}" for number in range(_IN_A_BLOCK)]
    made = compile_kernel(_text(names), "targets", speed=0, also_export=tuple(names))
    made.make_immortal()  # stubs are used again, for other kernels
    start = made.addresses["targets"]
    return [Stub(made.addresses[name], start + 8 * number) for number, name in enumerate(names)]


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

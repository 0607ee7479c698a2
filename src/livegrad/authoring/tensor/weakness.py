"""Python numbers inside a traced function: like the numbers themselves, they take the type of the tensor beside them.

`jit` says for how long; `handle` asks at every operation, so asking costs next to nothing when nobody traces.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node

# The numbers that functions being traced were called with, and what was computed from them and from constants alone.
_weak: WeakSet[Node] = WeakSet()
_lock = threading.Lock()
renew_lock_after_fork(sys.modules[__name__], "_lock")
traces = 0  # how many functions are being traced with such numbers now, on any thread


@contextmanager
def weak_numbers(nodes: Iterable[Node]) -> Iterator[None]:
    """Inside, these nodes are numbers without a type of their own."""
    global traces
    for node in nodes:
        _weak.add(node)
    with _lock:
        traces += 1
    try:
        yield
    finally:
        with _lock:
            traces -= 1


def is_weak(node: Node | None) -> bool:
    """Whether a node is a number without a type of its own."""
    return traces > 0 and node in _weak


def note_result(node: Node) -> None:
    """A node computed from weak numbers and constants alone is weak as well."""
    pending, seen = list(node.operands), set()
    while pending:
        below = pending.pop()
        if below in seen or below in _weak or below.op is constant_op:
            continue
        if not below.operands:
            return
        seen.add(below)
        pending += below.operands
    _weak.add(node)

"""The plan cache of a compiled function and of all equal functions, for every backend."""

from __future__ import annotations

import threading
from typing import Any, Generic, TypeVar

from livegrad.ir.lru import LruCache
from livegrad.runtime.fork import renew_lock_after_fork

_MOST_PLANS = 32  # of one function: each has memory of its own
_MOST_SHAPES = 512

PlanT = TypeVar("PlanT")


class PlanCache(Generic[PlanT]):
    """Plans by the sizes that they were made for. To make one, a thread holds the lock."""

    def __init__(self) -> None:
        self.by_sizes: LruCache[tuple[tuple[str, int], ...], PlanT] = LruCache(_MOST_PLANS)
        self.by_shapes: dict[tuple[Any, ...], PlanT] = {}  # those for arguments that are used as they are
        self.lock = threading.RLock()
        renew_lock_after_fork(self, "lock", threading.RLock)

    def remember(self, shapes: tuple[Any, ...], plan: PlanT) -> None:
        """Notes the plan for arguments of these shapes, which are used as they are."""
        if len(self.by_shapes) >= _MOST_SHAPES:
            self.by_shapes.clear()
        self.by_shapes[shapes] = plan

    def clear(self) -> None:
        """Drops all plans, with their code and memory."""
        with self.lock:
            self.by_sizes.clear()
            self.by_shapes.clear()

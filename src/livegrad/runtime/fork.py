"""Locks and forks: a lock that some other thread held in the parent is open in the child, where that thread is not.

Whoever keeps a lock in an attribute says so here; what it guards is whole, for a fork happens between two instructions.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_holders: weakref.WeakKeyDictionary[Any, tuple[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()


def renew_lock_after_fork(holder: Any, attribute: str, make: Callable[[], Any] = threading.Lock) -> None:
    """In every child of a fork, `holder` (an object or a module) gets a fresh lock."""
    _holders[holder] = (attribute, make)


def _renew() -> None:
    for holder, (attribute, make) in list(_holders.items()):
        setattr(holder, attribute, make())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

"""Fork safety: releases in the child process the locks that other threads held in the parent.

Objects that hold a lock in an attribute register it here. The data it guards is consistent, because a fork happens
between two instructions.
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

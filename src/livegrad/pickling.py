"""Pickles functions as Python does: by name where the receiver can import them, otherwise by value.

The classes that wrap a user's function call `reduce_function` in their `__reduce__`. By value, the wrapped function
goes through the pickler: plain pickle refuses functions without a global name, and cloudpickle accepts all. Compiled
code is never pickled: the receiver compiles again, or finds the code of the same functions in its cache on disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Reduced = str | tuple[Any, ...]


def reduce_function(
    wrapper: Any, rebuild: Callable[..., Any], arguments: tuple[Any, ...], state: Any = None
) -> Reduced:
    """What `__reduce__` of a function's wrapper returns: its global name, or how to rebuild it."""
    name = _global_name(wrapper)
    # The receiver of what cloudpickle writes has another `__main__`.
    if name is not None and not (wrapper.__module__ == "__main__" and _is_cloudpickle_writing()):
        return name
    return (rebuild, arguments, state)


def _global_name(wrapper: Any) -> str | None:
    """The name by which a module has this object: its own, or that of any global variable."""
    module = sys.modules.get(getattr(wrapper, "__module__", None) or "")
    found: Any = module
    for part in getattr(wrapper, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    if found is wrapper:
        return wrapper.__qualname__
    return next((name for name, value in list(vars(module).items()) if value is wrapper), None) if module else None


def _is_cloudpickle_writing() -> bool:
    """Whether the pickler that calls is cloudpickle's. A pickler does not pass itself to `__reduce__`."""
    cloudpickle = sys.modules.get("cloudpickle")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and cloudpickle is not None:
        if isinstance(frame.f_locals.get("self"), cloudpickle.CloudPickler):
            return True
        frame = frame.f_back
    return False

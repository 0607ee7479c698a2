"""Caches resolved calls by the kinds of their arguments, so that repeated calls skip overload resolution.

`dispatch`, `lazy_calls` and derivatives look a call up here before they examine its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from livegrad.frontend.function.function_types import FrontType, RecordType, from_result, to_argument
from livegrad.frontend.function.signature import Default
from livegrad.frontend.function.vectors import VectorValue
from livegrad.ir import types as ir
from livegrad.runtime.cpu.cpu_function import CpuFunction

_PLAIN = {kind: kind for kind in (float, int, bool, complex, type(None), np.float64, np.float32, np.int64, np.int32)}

# Functions from a value to its kind (None: not cacheable) for further classes; modules that define such classes add
# entries.
KINDS: dict[type, Callable[[Any], Any]] = {
    VectorValue: lambda value: (VectorValue, value.dtype, value.shape),
    np.ndarray: lambda value: (np.ndarray, value.dtype, value.shape),
    list: lambda value: _nested(list, value),
    tuple: lambda value: _nested(tuple, value),
}


def kind_of(value: Any) -> Any:
    """The part of a cache key that determines how a call treats an argument; None if the call cannot be cached.

    >>> kind_of(1.0), kind_of([1.0, 2]), kind_of(len)
    (<class 'float'>, (<class 'list'>, <class 'float'>, <class 'int'>), None)
    """
    cls = value.__class__
    kind = _PLAIN.get(cls)
    if kind is not None:
        return kind
    rule = KINDS.get(cls)
    if rule is not None:
        return rule(value)
    record = cls.__dict__.get("__livegrad_type__")
    if isinstance(record, RecordType):
        return _nested(cls, [getattr(value, field.name, None) for field in record.fields])
    return None


def _nested(first: Any, parts: Sequence[Any]) -> tuple[Any, ...] | None:
    kinds = [kind_of(part) for part in parts]
    return None if None in kinds else (first, *kinds)


@dataclass(slots=True)
class CachedCall:
    """A resolved call for arguments of certain kinds: the native function and the source of each of its arguments."""

    run: CpuFunction
    sources: Sequence[int | Default]
    types: Sequence[FrontType]
    result: FrontType
    is_current: Callable[[], bool]
    direct_call_tried: bool = False

    def __call__(self, values: Sequence[Any]) -> Any:
        converted = []
        for source, type in zip(self.sources, self.types, strict=True):
            value = values[source] if isinstance(source, int) else source.value
            if isinstance(type, ir.Scalar):
                converted.append(value)
            elif value.__class__ is VectorValue and isinstance(type, ir.Vector | ir.Matrix):
                converted.append(value.view(np.ndarray))
            else:
                converted.append(to_argument(type, value))
        return from_result(self.result, self.run(*converted))


class DirectCall:
    """A cached call whose arguments need no conversion. `run` is a native built-in that checks them itself.

    It returns None for arguments of other types or shapes, so no Python code inspects them.
    """

    __slots__ = ("call", "is_current", "overloads", "plan", "run")

    def __init__(self, call: CachedCall, overloads: int, plan: Any, run: Callable[..., Any]) -> None:
        self.call, self.is_current, self.run = call, call.is_current, run
        self.overloads = overloads  # the number of overloads at the time of resolution
        self.plan = plan  # kept alive: the built-in holds addresses of its code

    def convert_result(self, results: Any) -> Any:
        """Converts native results to the Python result of the call."""
        return from_result(self.call.result, tuple(results) if results.__class__ is list else results)


def make_direct_call(call: CachedCall, overloads: int, values: Sequence[Any]) -> DirectCall | None:
    """A direct call for arguments like these; None if one needs a conversion or is neither an array nor a number."""
    if list(call.sources) != list(range(len(values))):
        return None
    if any(to_argument(type, value) is not value for type, value in zip(call.types, values, strict=True)):
        return None
    native_entry = call.run.native_entry(values)
    return None if native_entry is None else DirectCall(call, overloads, *native_entry)


def call_key(overloads: int, positional: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, ...] | None:
    """The cache key of a call; None if the call cannot be cached."""
    kinds = [kind_of(value) for value in positional]
    if keywords:
        kinds += keywords
        kinds += [kind_of(value) for value in keywords.values()]
    return None if None in kinds else (overloads, *kinds)

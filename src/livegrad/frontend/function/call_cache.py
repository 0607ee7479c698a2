"""A cache of resolved calls by the classes of their arguments.

`dispatch` and derivatives use it before they examine the arguments in detail.
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

# How values of further classes are told apart (None: they must be looked at); added by the modules that define them.
KINDS: dict[type, Callable[[Any], Any]] = {
    VectorValue: lambda value: (VectorValue, value.dtype, value.shape),
    np.ndarray: lambda value: (np.ndarray, value.dtype, value.shape),
    list: lambda value: _nested(list, value),
    tuple: lambda value: _nested(tuple, value),
}


def kind_of(value: Any) -> Any:
    """What decides how a call treats an argument, as a key; None for one that must be looked at.

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
    """A prepared call for arguments of certain classes: the function that runs, and the source of each of its
    arguments.
    """

    run: CpuFunction
    sources: Sequence[int | Default]
    types: Sequence[FrontType]
    result: FrontType
    is_current: Callable[[], bool]
    direct_call_tried: bool = False  # or was found to have none

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
    """A known call that takes its arguments as they are: `run` is a built-in, which declines all others.

    It looks at the arguments itself: nothing has to be asked of them in Python.
    """

    __slots__ = ("call", "is_current", "overloads", "plan", "run")

    def __init__(self, call: CachedCall, overloads: int, plan: Any, run: Callable[..., Any]) -> None:
        self.call, self.is_current, self.run = call, call.is_current, run
        self.overloads = overloads  # that there were when this one was chosen
        self.plan = plan  # kept alive: the built-in has the addresses of its code

    def convert_result(self, results: Any) -> Any:
        """What the call returns."""
        return from_result(self.call.result, tuple(results) if results.__class__ is list else results)


def make_direct_call(call: CachedCall, overloads: int, values: Sequence[Any]) -> DirectCall | None:
    """A quick call for arguments like these; None if one of them is converted, or is no array and no number."""
    if list(call.sources) != list(range(len(values))):
        return None
    if any(to_argument(type, value) is not value for type, value in zip(call.types, values, strict=True)):
        return None
    found = call.run.native_entry(values)
    return None if found is None else DirectCall(call, overloads, *found)


def call_key(overloads: int, positional: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, ...] | None:
    """What a call is known by; None if one of its arguments must be looked at."""
    kinds = [kind_of(value) for value in positional]
    if keywords:
        kinds += keywords
        kinds += [kind_of(value) for value in keywords.values()]
    return None if None in kinds else (overloads, *kinds)

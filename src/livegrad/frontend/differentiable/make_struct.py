"""Turns classes into structs, and makes the instances of generic ones. `struct.py` has the type of a struct."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FrameType
from typing import Any, TypeVar

from livegrad.frontend.differentiable import instances
from livegrad.frontend.differentiable.members import FieldReference
from livegrad.frontend.differentiable.protocol import ProtocolCall
from livegrad.frontend.differentiable.struct import Bindings, StructType
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import (
    FrontType,
    describe,
)
from livegrad.frontend.function.type_reading import plain_type
from livegrad.frontend.function.type_rules import rules


class _DifferentialAttribute:
    """`Material.Differential`, created on first use, because fields may name classes that are defined later."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        record: StructType = owner.__dict__["__livegrad_type__"]
        return record.differential


def make_struct(cls: type, frame: FrameType | None, bindings: Bindings | None = None) -> type:
    """Turns a class into a struct: adds `__init__` and other methods, a Differential and the protocol's operations."""
    custom = cls.__dict__.get("Differential")
    if custom is not None:
        cls.__livegrad_differential__ = custom  # type: ignore[attr-defined]
    for name in inspect.get_annotations(cls):
        if name not in cls.__dict__:
            setattr(cls, name, FieldReference(cls.__name__, name))
    record = StructType(cls, frame, bindings)
    cls.__livegrad_type__ = record  # type: ignore[attr-defined]
    if "__init__" not in cls.__dict__:
        cls.__init__ = instances.initialize  # type: ignore[misc]
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = instances.represent  # type: ignore[assignment]
    if "__eq__" not in cls.__dict__:
        cls.__eq__ = instances.equal  # type: ignore[assignment]
        cls.__hash__ = None  # type: ignore[assignment]
    cls.__livegrad_parts__ = instances.parts  # type: ignore[attr-defined]
    cls.copy = cls.__dict__.get("copy", instances.copy)  # type: ignore[attr-defined]
    if custom is None or isinstance(custom, str):
        cls.Differential = _DifferentialAttribute()  # type: ignore[attr-defined]
    for name in ("dzero", "dadd", "dmul"):
        if name not in cls.__dict__:
            setattr(cls, name, ProtocolCall(name, record))
    parameters = getattr(cls, "__parameters__", ())
    if parameters:
        cls.__class_getitem__ = classmethod(_GenericInstances(cls, parameters, frame))  # type: ignore[attr-defined]
        return cls
    for register in rules.struct:
        register(record)
    return cls


class _GenericInstances:
    """`Dual[float]`: creates the instances of a generic struct, once for each list of type arguments."""

    def __init__(self, cls: type, parameters: Sequence[TypeVar], frame: FrameType | None) -> None:
        self._cls, self._parameters, self._frame = cls, parameters, frame
        self._instantiated: dict[tuple[Any, ...], type] = {}

    def __call__(self, owner: type, arguments: Any) -> Any:
        types = arguments if isinstance(arguments, tuple) else (arguments,)
        if len(types) != len(self._parameters):
            raise TypeError(f"{self._cls.__name__} takes {len(self._parameters)} types, found {len(types)}")
        if types not in self._instantiated:
            names = ", ".join(type if isinstance(type, str) else describe(plain_type(type)) for type in types)
            for variable, type in zip(self._parameters, types, strict=True):
                _require_bound(variable, plain_type(type))
            generic = self._cls.__class__(
                f"{self._cls.__name__}[{names}]", (self._cls,), {"__module__": owner.__module__}
            )
            bindings = dict(zip(self._parameters, types, strict=True))
            self._instantiated[types] = make_struct(generic, self._frame, bindings)
        return self._instantiated[types]


def _require_bound(variable: TypeVar, type: FrontType) -> None:
    for rule in rules.bound:
        problem = rule(variable, type)
        if problem is not None:
            raise FunctionError("LG402", f"`{variable.__name__}` {problem}")

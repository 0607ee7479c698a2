"""livegrad's names for CPython: the programs of the derivative fuzzer run as they stand, with nothing of livegrad."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, TypeVar

Differentiable = object


@dataclass(frozen=True)
class dvec2:
    x: float
    y: float

    def __getitem__(self, index: int) -> float:
        return (self.x, self.y)[index]

    def __add__(self, other: Any) -> dvec2:
        return dvec2(self.x + other.x, self.y + other.y)

    def __sub__(self, other: Any) -> dvec2:
        return dvec2(self.x - other.x, self.y - other.y)

    def __mul__(self, other: Any) -> dvec2:
        if isinstance(other, dvec2):
            return dvec2(self.x * other.x, self.y * other.y)
        return dvec2(self.x * other, self.y * other)

    __rmul__ = __mul__


class _Marker:
    def __getitem__(self, annotation: Any) -> Any:
        return annotation[0] if isinstance(annotation, tuple) else annotation

    def __call__(self, value: Any) -> Any:
        return value


no_diff = array = Pair = _Marker()


def derivative_member(name: str) -> str:
    return name


def interface(cls: type) -> type:
    return cls


class _Function:
    """A function, with overloads that are told apart by the class of their first argument."""

    def __init__(self, function: Any) -> None:
        self.overloads = [function]

    def overload(self, other: _Function) -> _Function:
        self.overloads += other.overloads
        return self

    def forward_derivative(self, rule: Any) -> Any:
        return rule

    backward_derivative = primal_substitute = forward_derivative

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else lambda *given: self(instance, *given)

    def __call__(self, *given: Any) -> Any:
        if len(self.overloads) == 1:
            return self.overloads[0](*given)
        kinds = {float: "float", int: "float", list: "list", dvec2: "lg.dvec2"}
        wanted = kinds.get(type(given[0]), type(given[0]).__name__)
        for function in self.overloads:
            annotation = next(iter(function.__annotations__.values()))
            if annotation.split("[")[0] == wanted:
                return function(*given)
        raise AssertionError(f"no overload for {wanted}")


def differentiable(target: Any) -> Any:
    if not isinstance(target, type):
        return _Function(target)

    names = [name for base in reversed(target.__mro__) for name in inspect.get_annotations(base)]

    def initialize(self: Any, *values: Any) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)

    target.__init__ = initialize  # type: ignore[misc]
    return target


def detach(value: Any) -> Any:
    return value


T = TypeVar("T")

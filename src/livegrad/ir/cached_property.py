"""`cached_property` without the lock that functools' has before Python 3.12, which takes longer than most properties.

Two threads may compute a value at the same time; both results are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """A property that is computed once for each object, which needs a `__dict__`.

    >>> class Box:
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("computed")
    ...         return 6
    >>> box = Box()
    >>> box.area + box.area
    computed
    12
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object, owner: type) -> Self | T:
        if instance is None:
            return self
        # Found before this descriptor from now on.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value

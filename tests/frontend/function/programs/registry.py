"""The registry of programs, with the arguments to run them with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Program:
    """A plain Python function with arguments; tests also differentiate it at the first arguments."""

    function: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], ...]
    order: int

    def __repr__(self) -> str:
        return self.function.__name__


PROGRAMS: list[Program] = []


def program(*arguments: tuple[Any, ...], order: int = 2) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a program."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert function.__name__ not in {known.function.__name__ for known in PROGRAMS}, "a name is used twice"
        PROGRAMS.append(Program(function, arguments, order))
        return function

    return register

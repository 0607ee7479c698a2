"""Defects by name: each is a small patch of the engine. `engine_mutants` puts them back one at a time."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

Mutant = Callable[[], Iterator[Any]]
MUTANTS: dict[str, tuple[Mutant, dict[str, Any]]] = {}


def mutant(name: str, **options: Any) -> Callable[[Mutant], Mutant]:
    """Gives a defect a name, and `run_one` the options that it needs to show."""

    def note(patch: Mutant) -> Mutant:
        MUTANTS[name] = patch, options
        return patch

    return note


def rewritten(function: Any, *changes: tuple[str, str]) -> Any:
    """A function with other words in its source, at the place where it stood: `engine_faults` counts its lines."""
    source = textwrap.dedent(inspect.getsource(function))
    for before, after in changes:
        assert source.count(before) == 1, f"{function.__qualname__} has no longer one `{before}`"
        source = source.replace(before, after)
    names: dict[str, Any] = {}
    lines = "\n" * (function.__code__.co_firstlineno - 1)
    exec(compile(lines + source, function.__code__.co_filename, "exec"), function.__globals__, names)
    return names[function.__name__]

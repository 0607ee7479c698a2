"""The backends under test: each runs a function on values as the reference holds them, and gives such values back.

To plug one in, append a `Backend` to `BACKENDS`; the whole suite then compares it with the reference.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, inner_types
from livegrad.ir.walk import reachable_functions, toposort
from livegrad.runtime.cuda import reason_for_no_cuda
from livegrad.runtime.reference import evaluate


@dataclass(frozen=True)
class Backend:
    """`run(function, *arguments)` gives the function's value, a tuple when it has several results.

    `refuses` names ops and scalar types that a backend is known not to take, with the reason: those cases are skipped.
    """

    name: str
    run: Callable[..., Any]
    refuses: Mapping[str, str] = field(default_factory=dict)

    def reason_to_skip(self, function: Function) -> str | None:
        return next((self.refuses[word] for word in sorted(_words(function)) if word in self.refuses), None)

    def __str__(self) -> str:
        return self.name


def _words(function: Function) -> set[str]:
    """The names of all ops and scalar types in a function."""
    words: set[str] = set()
    for inner in reachable_functions([function]):
        for node in (*toposort(inner.results), *inner.parameters):
            words.add(node.op.name)
            words.update(str(type) for type in inner_types(node.type) if isinstance(type, Scalar))
    return words


REFERENCE = Backend("reference", evaluate)


def _found(name: str, module: str, attribute: str, **options: Any) -> list[Backend]:
    """The backend, when its module has the function that runs it; a module that fails to import is an error."""
    run = getattr(importlib.import_module(module), attribute, None)
    return [] if run is None else [Backend(name, run, **options)]


BACKENDS: list[Backend] = [
    REFERENCE,
    *_found("cpu", "tests.conformance.guarded_memory", "run_guarded"),
    *(_found("cuda", "livegrad.runtime.cuda", "run_ieee") if reason_for_no_cuda() is None else []),
]
OTHERS = BACKENDS[1:]  # those that are compared with the reference

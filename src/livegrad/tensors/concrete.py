"""Binds placeholders to argument values while a function is differentiated, so that Python control flow works.

Transforms bind placeholders while they call the function; a tensor handle substitutes them when its value is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.node import Node
from livegrad.ir.types import scalar_of
from livegrad.ir.walk import substitute
from livegrad.ops.elementwise import detach


class _Arguments(threading.local):
    """The placeholders of the active calls on this thread, and their arguments."""

    values: Mapping[Node, Node] = {}  # replaced, never mutated


bound_arguments = _Arguments()


@contextmanager
def bind_placeholders(placeholders: Sequence[Node], arguments_outside: Sequence[Node]) -> Iterator[None]:
    """Inside the context, these placeholders have the values of these arguments."""
    before = bound_arguments.values
    outside = substitute(arguments_outside, dict(before)) if before else arguments_outside
    bound_arguments.values = {**before, **dict(zip(placeholders, outside, strict=True))}
    try:
        yield
    finally:
        bound_arguments.values = before


def at_arguments(node: Node) -> Node:
    """Substitutes the arguments of the enclosing calls into a node; raises if reading it would lose a derivative."""
    if not bound_arguments.values:
        return node
    (argument,) = substitute([node], dict(bound_arguments.values))
    scalar = scalar_of(node.type)
    if argument is node or node.op is detach or (scalar is not None and scalar.kind in ("bool", "signed", "unsigned")):
        return argument
    raise UsageError(
        "a value leaves the function being differentiated, and its derivative would be lost",
        where=caller_origin(),
        help="call livegrad functions instead of NumPy or `math` (lg.sin(x), not np.sin(x)); branch on a comparison, "
        "as in `if x > 0`; or drop the derivative with lg.stop_gradient(x)",
    )

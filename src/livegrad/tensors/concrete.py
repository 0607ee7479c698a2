"""Concrete values inside a function that is being differentiated, so that Python control flow works.

Transforms register the values of placeholders while they call the function; a tensor handle looks them up when its
value is read.
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
    """The placeholders of the calls that this thread is in, and the arguments that they stand for."""

    values: Mapping[Node, Node] = {}  # replaced as a whole, never changed


bound_arguments = _Arguments()


@contextmanager
def bind_placeholders(placeholders: Sequence[Node], arguments_outside: Sequence[Node]) -> Iterator[None]:
    """Inside, these placeholders have the values of these arguments."""
    before = bound_arguments.values
    outside = substitute(arguments_outside, dict(before)) if before else arguments_outside
    bound_arguments.values = {**before, **dict(zip(placeholders, outside, strict=True))}
    try:
        yield
    finally:
        bound_arguments.values = before


def at_arguments(node: Node) -> Node:
    """The node at the arguments of the calls around it. What a derivative would be lost of is refused."""
    if not bound_arguments.values:
        return node
    (argument,) = substitute([node], dict(bound_arguments.values))
    scalar = scalar_of(node.type)
    if argument is node or node.op is detach or (scalar is not None and scalar.kind in ("bool", "signed", "unsigned")):
        return argument
    raise UsageError(
        "a value leaves the function being differentiated, and its derivative would be lost",
        where=caller_origin(),
        help="call livegrad's functions, not those of NumPy or `math`: lg.sin(x), not np.sin(x); decide by a "
        "comparison, as in `if x > 0`; or say that the derivative is not wanted: lg.stop_gradient(x)",
    )

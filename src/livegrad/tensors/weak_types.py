"""Weak types: Python numbers inside a traced function take the type of the tensor they are combined with.

`jit` activates this; `handle` checks it at every operation, so the check is cheap when no function is traced.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, bool_, c128, f64, i64, scalar_of, shape_of
from livegrad.ops.comparison import bit_and, greater_equal, less_equal
from livegrad.ops.control import check
from livegrad.ops.conversion import cast
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import lookup
from livegrad.ops.rules import filled
from livegrad.runtime.arguments import scalar_range
from livegrad.state import Owned, renew_lock_after_fork
from livegrad.tensors.dtypes import DEFAULT_COMPLEX, DEFAULT_FLOAT

# What Python computes with, and what its numbers become where they stand alone.
_DEFAULT_TYPES: dict[Scalar, Scalar] = {bool_: bool_, i64: i64, f64: DEFAULT_FLOAT, c128: DEFAULT_COMPLEX}

# What can be added to any number without changing a bit of it.
_IDENTITY: dict[str, int | float | complex] = {"signed": 0, "float": -0.0, "complex": complex(-0.0, -0.0)}


class _Numbers:
    """Which nodes stand for Python numbers in the functions that are being traced, on any thread."""

    def __init__(self) -> None:
        # What functions being traced were called with, and what was computed from that and from constants alone.
        self.weak: WeakSet[Node] = WeakSet()
        # What a loop began with, inside its body: it has a type, and like all numbers cannot be changed.
        self.in_loops: WeakSet[Node] = WeakSet()
        self.strong: WeakSet[Node] = WeakSet()  # in a type that the program asked for
        self.traces = 0  # how many functions are being traced with such numbers now
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")


python_numbers = Owned(_Numbers)


@contextmanager
def weak_numbers(nodes: Iterable[Node]) -> Iterator[None]:
    """Inside, these nodes are numbers without a type of their own."""
    current = python_numbers.current
    for node in nodes:
        current.weak.add(node)
    with current.lock:
        current.traces += 1
    try:
        yield
    finally:
        with current.lock:
            current.traces -= 1


def is_weak(node: Node | None) -> bool:
    """Whether a node is a number without a type of its own."""
    current = python_numbers.current
    return current.traces > 0 and node in current.weak


def mark_loop_numbers(nodes: Iterable[Node]) -> None:
    """These nodes stand for Python numbers inside a loop's body."""
    for node in nodes:
        python_numbers.current.in_loops.add(node)


def is_python_number(node: Node | None) -> bool:
    """Whether a node stands for a Python number: `+=` then gives its name to the result, and changes nothing."""
    if is_weak(node):
        return True
    in_loops = python_numbers.current.in_loops
    return bool(in_loops) and node is not None and shape_of(node.type) == () and _is_from_numbers(node, in_loops)


def give_default_type(node: Node) -> Node:
    """The node; a number without a type of its own gets the one of a Python number that stands alone."""
    if not is_weak(node):
        return node
    element = scalar_of(node.type)
    assert element is not None
    return node if _DEFAULT_TYPES[element] is element else cast(node, type=_DEFAULT_TYPES[element])


def cast_number(node: Node, element: Scalar) -> Node:
    """A number of a traced call in a type that it takes; an integer that the type cannot hold ends the run."""
    element_of_node = scalar_of(node.type)
    assert element_of_node is not None
    if element_of_node is element:
        return node
    if element_of_node is i64 and element.kind in ("signed", "unsigned"):
        low, high = scalar_range(element)
        fits = bit_and(greater_equal(node, low), less_equal(node, min(high, scalar_range(i64)[1])))
        node = check(node, lookup(fits), message=f"a number out of the range of {element.long_name}")
    return cast(node, type=element)


def make_strong(node: Node) -> Node:
    """A number whose type the program asked for, or that a transform gives: it has this type from then on."""
    element = scalar_of(node.type)
    if (
        element is None
        or not python_numbers.current.traces
        or shape_of(node.type)
        or element not in _DEFAULT_TYPES
        or element is bool_
    ):
        return node
    # As wide as Python's own numbers: adding nothing makes it another node, of which the compiler leaves no trace.
    strong = add(node, filled(_IDENTITY[element.kind], node.type))
    python_numbers.current.strong.add(strong)
    return strong


def mark_weak_result(node: Node) -> None:
    """A node computed as Python computes, from weak numbers and constants alone, is weak as well."""
    weak = python_numbers.current.weak
    if _is_from_numbers(node, weak, _DEFAULT_TYPES):
        weak.add(node)


def _is_from_numbers(node: Node, weak: WeakSet[Node], types: Container[Any] | None = None) -> bool:
    """Whether a node is one of the numbers, or computed only from them and constants, in the given types if any."""
    pending, seen, has_number = [node], set(), False
    make_strong = python_numbers.current.strong
    while pending:
        below = pending.pop()
        if below in make_strong:
            return False
        if below in weak:
            has_number = True
        elif below in seen or below.op is constant_op:
            continue  # numbers that the program wrote; tensors that it made of them are `typed`, or have a shape
        elif not below.operands or (types is not None and scalar_of(below.type) not in types) or shape_of(below.type):
            return False
        else:
            seen.add(below)
            pending += below.operands
    return has_number  # constants alone have the type that they were written in

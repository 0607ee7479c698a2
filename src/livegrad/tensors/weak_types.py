"""Tracks weak types: Python numbers inside a traced function take the type of the tensor they are combined with.

`jit` activates the tracking. `handle` checks it in every operation, so the check is cheap when no function is traced.
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

# The types that Python computes with, and the types of such numbers when they are not combined with a tensor.
_DEFAULT_TYPES: dict[Scalar, Scalar] = {bool_: bool_, i64: i64, f64: DEFAULT_FLOAT, c128: DEFAULT_COMPLEX}

# Numbers that can be added to any number without changing its bits.
_IDENTITY: dict[str, int | float | complex] = {"signed": 0, "float": -0.0, "complex": complex(-0.0, -0.0)}


class _Numbers:
    """The nodes that represent Python numbers in the functions that are being traced, on any thread."""

    def __init__(self) -> None:
        # Python numbers passed to traced functions, and results computed only from these and from constants.
        self.weak: WeakSet[Node] = WeakSet()
        # Loop states that began as Python numbers, inside the body: strongly typed, but immutable like numbers.
        self.in_loops: WeakSet[Node] = WeakSet()
        self.strong: WeakSet[Node] = WeakSet()  # results of a cast that the program requested
        self.traces = 0  # the number of active traces with such numbers
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")


python_numbers = Owned(_Numbers)


@contextmanager
def weak_numbers(nodes: Iterable[Node]) -> Iterator[None]:
    """Inside the context, these nodes are weakly typed numbers."""
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
    """Whether a node is a weakly typed number."""
    current = python_numbers.current
    return current.traces > 0 and node in current.weak


def mark_loop_numbers(nodes: Iterable[Node]) -> None:
    """Marks nodes that represent Python numbers inside a loop's body."""
    for node in nodes:
        python_numbers.current.in_loops.add(node)


def is_python_number(node: Node | None) -> bool:
    """Whether a node represents a Python number: `+=` then rebinds the name instead of updating in place."""
    if is_weak(node):
        return True
    in_loops = python_numbers.current.in_loops
    return bool(in_loops) and node is not None and shape_of(node.type) == () and _is_from_numbers(node, in_loops)


def give_default_type(node: Node) -> Node:
    """Casts a weakly typed number to the default type of Python numbers; returns other nodes unchanged."""
    if not is_weak(node):
        return node
    element = scalar_of(node.type)
    assert element is not None
    return node if _DEFAULT_TYPES[element] is element else cast(node, type=_DEFAULT_TYPES[element])


def cast_number(node: Node, element: Scalar) -> Node:
    """Casts a traced number to an element type; an integer out of range raises at run time."""
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
    """Makes a traced number strongly typed, after a cast that the program requested or as a result of a transform."""
    element = scalar_of(node.type)
    if (
        element is None
        or not python_numbers.current.traces
        or shape_of(node.type)
        or element not in _DEFAULT_TYPES
        or element is bool_
    ):
        return node
    # Its type equals that of Python numbers, so a new node must mark it. The compiler removes the addition.
    strong = add(node, filled(_IDENTITY[element.kind], node.type))
    python_numbers.current.strong.add(strong)
    return strong


def mark_weak_result(node: Node) -> None:
    """Marks a node as weak if it is computed only from weak numbers and constants, in types of Python numbers."""
    weak = python_numbers.current.weak
    if _is_from_numbers(node, weak, _DEFAULT_TYPES):
        weak.add(node)


def _is_from_numbers(node: Node, weak: WeakSet[Node], types: Container[Any] | None = None) -> bool:
    """Whether a node is a weak number, or computed only from weak numbers and constants, optionally in these types."""
    pending, visited, has_number = [node], set(), False
    strong = python_numbers.current.strong
    while pending:
        below = pending.pop()
        if below in strong:
            return False
        if below in weak:
            has_number = True
        elif below in visited or below.op is constant_op:
            continue  # literals; tensors created from them are in `strong`, or have a shape
        elif not below.operands or (types is not None and scalar_of(below.type) not in types) or shape_of(below.type):
            return False
        else:
            visited.add(below)
            pending += below.operands
    return has_number  # constants alone are strongly typed

"""Says to native code how the arrays of tensors are found, so that compiled functions take tensors as they are.

`jit` passes the words to the entries of plans. What is read are slots of `Tensor`, of a node and its leaf or memo slot,
and of a deferred op. A tensor whose value is not known, not plain data of the host or not good any more is declined; so
are computed ones while there are gradient variables, which a graph may lead to.
"""

from __future__ import annotations

import ctypes
from array import array
from functools import lru_cache

from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.lazy.deferred_ops import DeferredOp
from livegrad.lazy.gradient_variables import variables
from livegrad.lazy.lazy_values import NO_ANCESTORS, Cell, Leaf, clock
from livegrad.runtime.cpu.native.object_layout import slot_offset
from livegrad.tensors.handle import Tensor

_new = object.__new__
_SLOTS = (
    (lambda: _new(Tensor), ("_extra", "_deferred", "_node")),
    (lambda: _new(Node), ("op", "attributes", "cell")),
    (lambda: _new(Leaf), ("ancestors", "array")),
    (Cell, ("value", "volatile", "stamp")),
    (lambda: _new(DeferredOp), ("value", "stamp")),
    (type(clock), ("now",)),
)


@lru_cache(maxsize=1)
def handle_words() -> array[int] | None:
    """The words that `plan_arguments_ir.array_of_handle` reads; None if this interpreter keeps slots otherwise."""
    offsets = [slot_offset(make(), name) for make, names in _SLOTS for name in names]
    count = object.__basicsize__  # where a list has its length
    sample = [None] * 7
    if None in offsets or ctypes.c_int64.from_address(id(sample) + count).value != len(sample):
        return None
    classes = (id(cls) for cls in (Tensor, Leaf, DeferredOp))
    objects = (id(input_op), id(NO_ANCESTORS), id(clock), id(variables) + count)
    return array("q", [*classes, *objects, *offsets])  # type: ignore[list-item]

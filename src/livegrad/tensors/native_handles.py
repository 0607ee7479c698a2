"""Describes the object layout of tensor handles to native code, so that compiled functions take tensors directly.

`jit` passes the layout to plan entries. Native code reads slots of `Tensor`, of the node and its leaf or memo slot, and
of deferred ops. It declines tensors whose value is not cached, not on the host, or outdated; while gradient variables
exist, it also declines computed tensors, whose graphs may lead to one.
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
def handle_layout() -> array[int] | None:
    """Returns addresses and slot offsets for native code; None if this interpreter has another object layout."""
    offsets = [slot_offset(make(), name) for make, names in _SLOTS for name in names]
    count = object.__basicsize__  # the offset of the length of a list
    sample = [None] * 7
    if None in offsets or ctypes.c_int64.from_address(id(sample) + count).value != len(sample):
        return None
    classes = (id(cls) for cls in (Tensor, Leaf, DeferredOp))
    objects = (id(input_op), id(NO_ANCESTORS), id(clock), id(variables) + count)
    return array("q", [*classes, *objects, *offsets])  # type: ignore[list-item]

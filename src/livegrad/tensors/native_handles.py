"""Says to native code how the arrays of tensors are found, so that compiled functions take tensors as they are.

`jit` passes the words to the entries of plans. What is read: `Tensor._extra`, `_deferred` and `_node`, and of a leaf's
node the op, the attributes, and the leaf with its array. A tensor that is not plain data is declined.
"""

from __future__ import annotations

from array import array
from functools import lru_cache

from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.lazy.lazy_values import NO_ANCESTORS, Leaf
from livegrad.runtime.cpu.native.object_layout import slot_offset
from livegrad.tensors.handle import Tensor


@lru_cache(maxsize=1)
def handle_words() -> array[int] | None:
    """The words that `plan_call_ir.array_of_handle` reads; None if this interpreter keeps slots otherwise."""
    offsets = [slot_offset(Tensor, name) for name in ("_extra", "_deferred", "_node")]
    of_node = [slot_offset(Node, name) for name in ("op", "attributes")]
    of_leaf = [slot_offset(Leaf, name) for name in ("ancestors", "array")]
    if None in (*offsets, *of_node, *of_leaf):
        return None
    op, attributes = of_node
    ancestors, data = of_leaf
    words = (id(Tensor), *offsets, op, id(input_op), attributes, id(Leaf), ancestors, id(NO_ANCESTORS), data)
    return array("q", words)  # type: ignore[arg-type]

"""Evaluates ops that only lay data out anew with NumPy: it follows the same rule and needs no code to compile.

`execution` and `small_graphs` call this before they look for a compiled program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Node
from livegrad.ir.types import shape_of
from livegrad.ir.walk import toposort
from livegrad.lazy.lazy_values import Array
from livegrad.ops.movement import broadcast, concatenate, flip, permute, reshape, slice_
from livegrad.runtime.arguments import is_dense

LAYOUT = frozenset({broadcast, reshape, permute, slice_, flip, concatenate})
# A slice that does not lie in one piece is copied out of its source if it has no more bytes than this.
_WORTH_A_COPY = 1 << 16


def lay_out(order: list[Node], values: dict[Node, Array], wanted: Sequence[Node]) -> list[Array] | None:
    """The results when nothing but layout is to be done; None when there is something to compute."""
    if any(node.op not in LAYOUT and node not in values and node.op is not constant_op for node in order):
        return None
    arrays: dict[Node, Any] = dict(values)
    for node in order:
        if node not in arrays:
            assert node.op.evaluate is not None
            arrays[node] = node.op.evaluate(*[arrays[o] for o in node.operands], **dict(node.attributes))
    return [dense_value(arrays[node], node) for node in wanted]


def cut_out(
    order: list[Node], values: dict[Node, Array], wanted: Sequence[Node]
) -> tuple[list[Node], dict[Node, Array]]:
    """The graph with slices of known data as data themselves: the next batch of a data set runs the same program."""
    parts: dict[Node, Array] = {}
    requested = set(wanted)
    for node in order:
        if node.op is slice_ and node not in values and node not in requested:
            (source,) = node.operands
            whole = parts.get(source) if source in parts else values.get(source)
            if whole is not None:
                part = slice_.evaluate(whole, **dict(node.attributes))  # type: ignore[misc]
                if is_dense(part) or part.nbytes <= _WORTH_A_COPY:
                    parts[node] = np.ascontiguousarray(part).reshape(part.shape)
    if not parts:
        return order, values
    inputs = {**values, **parts}
    return toposort(wanted, stop=inputs.__contains__), inputs


def dense_value(value: Any, node: Node) -> Array:
    """What NumPy has laid out, as values are kept: in one piece and of the node's shape."""
    array = np.asarray(value).view()
    return array if is_dense(array) and array.shape == shape_of(node.type) else np.array(array, order="C")

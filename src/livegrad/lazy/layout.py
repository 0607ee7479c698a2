"""Evaluates graphs that only rearrange data with NumPy, so they need no compiled code.

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

LAYOUT_OPS = frozenset({broadcast, reshape, permute, slice_, flip, concatenate})
# Non-contiguous slices up to this size are copied out of their source.
_MAX_COPY_BYTES = 1 << 16


def evaluate_layout(order: list[Node], values: dict[Node, Array], outputs: Sequence[Node]) -> list[Array] | None:
    """Returns the results if the graph only rearranges data; None if it has something to compute."""
    if any(node.op not in LAYOUT_OPS and node not in values and node.op is not constant_op for node in order):
        return None
    arrays: dict[Node, Any] = dict(values)
    for node in order:
        if node not in arrays:
            assert node.op.evaluate is not None
            arrays[node] = node.op.evaluate(*[arrays[o] for o in node.operands], **dict(node.attributes))
    return [make_dense(arrays[node], node) for node in outputs]


def evaluate_slices(
    order: list[Node], values: dict[Node, Array], outputs: Sequence[Node]
) -> tuple[list[Node], dict[Node, Array]]:
    """Replaces slices of available data by inputs, so the next batch of a data set runs the same program."""
    slices: dict[Node, Array] = {}
    output_set = set(outputs)
    for node in order:
        if node.op is slice_ and node not in values and node not in output_set:
            (source,) = node.operands
            source_array = slices.get(source) if source in slices else values.get(source)
            if source_array is not None:
                part = slice_.evaluate(source_array, **dict(node.attributes))  # type: ignore[misc]
                if is_dense(part) or part.nbytes <= _MAX_COPY_BYTES:
                    slices[node] = np.ascontiguousarray(part).reshape(part.shape)
    if not slices:
        return order, values
    inputs = {**values, **slices}
    return toposort(outputs, stop=inputs.__contains__), inputs


def make_dense(value: Any, node: Node) -> Array:
    """Returns a NumPy result as a contiguous array of the node's shape, as values are cached."""
    array = np.asarray(value).view()
    return array if is_dense(array) and array.shape == shape_of(node.type) else np.array(array, order="C")

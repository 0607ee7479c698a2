"""Constant folding for captures of a traced function: scalars that the function created become constants.

`jit` calls this after tracing. A scalar tensor that the function created, such as `lg.asarray(0)`, is a capture of the
trace. If no handle holds it any more, nothing can refill it, so the compiler may use its value.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_op
from livegrad.ir.node import Node
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.walk import substitute, toposort
from livegrad.lazy.holders import holders_of
from livegrad.lazy.lazy_values import leaf_of, read_leaf
from livegrad.tensors.number_nodes import number_node
from livegrad.tensors.tracing import Traced

_MAX_NODES = 8  # of a capture that is computed from such scalars
_KINDS = ("bool", "signed", "unsigned", "float")


def freeze_numbers(traced: Traced) -> Traced:
    """Replaces parameters for such scalars by constants."""
    function = traced.function
    first_capture = len(function.parameters) - len(traced.captures)
    parameters = dict(zip(function.parameters[first_capture:], traced.captures, strict=True))
    frozen = {
        parameter: number for parameter, node in parameters.items() if (number := _freeze_capture(node)) is not None
    }
    if not frozen:
        return traced
    inputs = [parameter for parameter in function.parameters if parameter not in frozen]
    results = substitute(function.results, dict(frozen), function.source_locations)
    captures = tuple([node for parameter, node in parameters.items() if parameter not in frozen])
    return replace(traced, function=make_function(function.name, inputs, results), captures=captures)


def _freeze_capture(capture: Node) -> Node | None:
    """Returns a captured node rebuilt on constants; None if it may have another value in the next call."""
    nodes = toposort([capture])
    if len(nodes) > _MAX_NODES or any(node.functions or node.may_fail for node in nodes):
        return None
    numbers = {node: _constant_for(node) for node in nodes if node.op is input_op}
    if not numbers or any(number is None for number in numbers.values()):
        return None
    return substitute([capture], {leaf: number for leaf, number in numbers.items() if number is not None})[0]


def _constant_for(node: Node) -> Node | None:
    """Returns the constant for a scalar leaf without holders; None for other nodes."""
    leaf, type = leaf_of(node), node.type
    if leaf is None or leaf.external or not isinstance(type, TensorType) or type.shape:
        return None
    if type.element.kind not in _KINDS or any(holders_of(node)):
        return None
    array = read_leaf(leaf)
    if not isinstance(array, np.ndarray) or array.dtype != type.element.dtype:
        return None
    return number_node(array.item(), type.element)

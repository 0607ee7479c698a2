"""Scalar replacement in loop bodies: unrolls tensors of a few elements into scalars.

In: a loop whose body multiplies, reduces and rearranges small vectors and matrices (filters, frames, small systems of
equations). Kernels for so little work would take longer to start than to run. `scalar_replacement` has the rules;
carried tensors stay in memory, where they are written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant_op, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor
from livegrad.ir.walk import nodes_of
from livegrad.ops.assignment import UPDATES, assign
from livegrad.ops.indexing import lookup
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, concatenate, sizes
from livegrad.ops.reduction import reduce
from livegrad.passes.index_maps import integer
from livegrad.passes.loop_over_elements.elements import NotExpanded
from livegrad.passes.loop_over_elements.products import count_products
from livegrad.passes.loop_over_elements.versions import is_array
from livegrad.passes.scalar_replacement.tensors import TENSOR_RULES, reduce_row, replace_elementwise
from livegrad.passes.scalar_replacement.values import MAX_ELEMENTS, Elements, Memory, NotReplaced, Value, load, scalar

_MAX_OPERATIONS = 2500  # of a body: takes LLVM about a second, in the background


def is_small_body(body: Function) -> bool:
    """Whether a body only computes tensors of a few elements, and not just elementwise.

    A loop with an elementwise body becomes a map of loops instead (`interchange_elementwise_loops`).
    """
    nodes, operations = nodes_of(body), 0
    if any(node.functions for node in nodes) or not any(node.op in (matmul, reduce, concatenate) for node in nodes):
        return False
    for node in nodes:
        if not is_array(node.type) or not node.operands:
            continue
        computed = node.operands[1] if node.op in UPDATES else node
        size = prod(sizes(computed)) if isinstance(computed.type, Tensor) else 1
        operations += count_products(node) if node.op is matmul else size
        if size > MAX_ELEMENTS or operations > _MAX_OPERATIONS:
            return False
    return True


def unroll_body(body: Function) -> Function:
    """Replaces the tensors of a body by scalars, except those in memory; raises `NotExpanded` if that fails."""
    try:
        return _BodyUnroller(body).unroll()
    except NotReplaced:
        raise NotExpanded from None


class _BodyUnroller:
    """Unrolls one body. The value of each node is scalars, or a version of a tensor in memory."""

    def __init__(self, body: Function) -> None:
        self._body = body
        self._inputs = [input_node(Key("value"), type) for type in body.parameter_types]
        self._values: dict[Node, Value] = {}
        for parameter, input in zip(body.parameters, self._inputs, strict=True):
            if is_array(input.type):
                self._values[parameter] = Memory(input)
            else:
                self._values[parameter] = lookup(input) if isinstance(input.type, Tensor) else input

    def unroll(self) -> Function:
        for node in nodes_of(self._body):
            if node not in self._values:
                with originating_from(node.origins):
                    self._values[node] = self._value(node, [self._values[operand] for operand in node.operands])
        results = [self._result(index) for index in range(len(self._body.results))]
        return make_function(self._body.name, self._inputs, results)

    def _value(self, node: Node, operands: Sequence[Value]) -> Value:
        if not isinstance(node.type, Tensor | Scalar):
            raise NotReplaced
        if node.op in UPDATES and isinstance(operands[0], Memory):
            values, *indices = np.broadcast_arrays(*map(load, operands[1:]))
            return Memory(_write(operands[0].tensor, node.op, values, indices))
        if node.op is matmul:
            return _multiply(node, load(operands[0]), load(operands[1]))
        if node.op in TENSOR_RULES:
            return TENSOR_RULES[node.op](node, operands)
        if node.op.elementwise or node.op is constant_op:
            return replace_elementwise(node, operands)
        raise NotReplaced

    def _result(self, index: int) -> Node:
        """A carried value after an iteration. A tensor of scalars is written over the parameter that it replaces."""
        result = self._body.results[index]
        value = self._values[result]
        if not is_array(result.type):
            return broadcast(scalar(value), shape=(), axes=()) if isinstance(result.type, Tensor) else scalar(value)
        if isinstance(value, Memory):
            return value.tensor
        shape = sizes(result)
        indices = [np.vectorize(integer, otypes=[object])(coordinates) for coordinates in np.indices(shape)]
        return _write(self._inputs[1 + index], assign, load(value), indices)


def _write(tensor: Node, op: Op, values: Elements, indices: Sequence[Elements]) -> Node:
    """Writes values into a tensor at these indices, one after the other; returns the last version."""
    for index in np.ndindex(values.shape):
        tensor = op(tensor, values[index], *[coordinates[index] for coordinates in indices])
    return tensor


def _multiply(node: Node, first: Elements, second: Elements) -> Elements:
    """Unrolls a matrix product. The rule of `scalar_replacement` allows fewer terms, for the registers of map lanes."""
    element: Scalar = node.type.element  # type: ignore[union-attr]
    terms = first[..., :, None, :] * np.swapaxes(second, -1, -2)[..., None, :, :]
    result = np.empty(sizes(node), object)
    for index in np.ndindex(result.shape):
        result[index] = reduce_row(list(terms[index]), "sum", element)
    return result

"""Unrolls bodies of loops over tensors of a few elements: each element is a scalar, and no loop is left inside.

In: a loop whose body multiplies, reduces and rearranges small vectors and matrices (filters, frames, small systems of
equations). Kernels for so few numbers would take longer to start than to run. Tensors of any size are read and written
by index.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce as fold
from itertools import product
from math import prod
from typing import Any

import numpy as np

from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, constant_op, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, inner_types
from livegrad.ir.walk import nodes_of
from livegrad.ops.assignment import UPDATES, assign
from livegrad.ops.control import check
from livegrad.ops.failing import known_integer
from livegrad.ops.indexing import lookup
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, concatenate, flip, iota, pad, permute, reshape, sizes, slice_
from livegrad.ops.reduction import reduce
from livegrad.passes.loop_over_elements.elements import COMBINE, NotExpanded
from livegrad.passes.loop_over_elements.index_maps import whole
from livegrad.passes.loop_over_elements.products import count_products
from livegrad.passes.loop_over_elements.versions import is_array

_MOST_ELEMENTS = 36  # of a tensor
_MOST_OPERATIONS = 1500  # of a body
_MOVES = frozenset({broadcast, permute, slice_, flip, reshape, concatenate})
_Elements = np.ndarray[Any, Any]  # of scalar nodes, in the shape of a tensor


def is_small_body(body: Function) -> bool:
    """Whether a body computes tensors of a few elements only, and not element by element alone.

    An elementwise body becomes a map of loops (`interchange_elementwise_loops`).
    """
    nodes, operations = nodes_of(body), 0
    if any(node.functions for node in nodes) or not any(node.op in (matmul, reduce, concatenate) for node in nodes):
        return False
    for node in nodes:
        if not is_array(node.type) or not node.operands:
            continue
        written = node.operands[1] if node.op in UPDATES else node
        size = prod(sizes(written)) if isinstance(written.type, Tensor) else 1
        operations += count_products(node) if node.op is matmul else size
        if size > _MOST_ELEMENTS or operations > _MOST_OPERATIONS:
            return False
    return True


def unroll_body(body: Function, carried: int) -> Function:
    """The body of a loop over scalars, with its tensors in memory; raises `NotExpanded` if it has none."""
    return _Unrolling(body).function(carried)


class _Unrolling:
    """One body: the elements of its small tensors, and the versions of those in memory."""

    def __init__(self, body: Function) -> None:
        self._body = body
        self._inputs = [input_node(Key("value"), type) for type in body.parameter_types]
        self._memory: dict[Node, Node] = {}
        self._elements: dict[Node, _Elements] = {}
        for parameter, given in zip(body.parameters, self._inputs, strict=True):
            if is_array(given.type):
                self._memory[parameter] = given
            else:
                self._elements[parameter] = _array(lookup(given) if isinstance(given.type, Tensor) else given)

    def function(self, carried: int) -> Function:
        for node in nodes_of(self._body):
            if node not in self._memory and node not in self._elements:
                with originating_from(node.origins):
                    self._unroll(node)
        results = [self._result(number) for number in range(carried)]
        return make_function(self._body.name, self._inputs, results)

    def _result(self, number: int) -> Node:
        """A carried value: a tensor is a later version of the one that the body took."""
        result, before = self._body.results[number], self._inputs[1 + number]
        if not is_array(result.type):
            value = self._elements[result].item()
            return broadcast(value, shape=(), axes=()) if isinstance(result.type, Tensor) else value
        if result in self._memory:
            return self._memory[result]
        return self._write(before, assign, self._of(result), [_places(sizes(result), axis) for axis in _axes(result)])

    def _of(self, node: Node) -> _Elements:
        """The elements of a tensor; those in memory are read."""
        if node in self._elements:
            return self._elements[node]
        if prod(sizes(node)) > _MOST_ELEMENTS:
            raise NotExpanded
        found = _empty(sizes(node))
        for index in np.ndindex(*sizes(node)):
            found[index] = lookup(self._memory[node], *map(whole, index))
        self._elements[node] = found
        return found

    def _unroll(self, node: Node) -> None:
        if node.op in UPDATES and is_array(node.type):
            self._update(node)
            return
        if not all(isinstance(t, Tensor | Scalar) for o in (node, *node.operands) for t in inner_types(o.type)):
            raise NotExpanded
        self._elements[node] = self._computed(node)

    def _update(self, node: Node) -> None:
        base, value, *indices = node.operands
        if base not in self._memory:
            raise NotExpanded
        places = [self._of(index) for index in indices]
        self._memory[node] = self._write(self._memory[base], node.op, self._of(value), places)

    def _write(self, tensor: Node, op: Any, values: _Elements, places: list[_Elements]) -> Node:
        """A tensor after its elements at some places were written in turn."""
        for index in np.ndindex(*values.shape):
            tensor = op(tensor, values[index], *[place[index] for place in places])
        return tensor

    def _computed(self, node: Node) -> _Elements:
        if node.op is constant_op:
            return _array(node)
        if node.op is iota:
            return _places(sizes(node), node.attribute("axis"), node.type.element)  # type: ignore[union-attr]
        if node.op is lookup:
            return self._looked_up(node)
        operands = [self._of(operand) for operand in node.operands]
        if node.op.elementwise or node.op is check:
            return _pointwise(lambda *own: make_node(node.op, own, node.attributes), operands)
        if node.op in _MOVES:
            assert node.op.evaluate is not None
            return np.asarray(node.op.evaluate(*operands, **dict(node.attributes)), object)
        if node.op is pad:
            return _padded(operands[0], operands[1].item(), dict(node.attributes))
        if node.op is matmul:
            return np.asarray(np.matmul(*operands), object)
        if node.op is reduce:
            return _reduced(operands[0], node.attribute("axes"), COMBINE[node.attribute("kind")])
        raise NotExpanded

    def _looked_up(self, node: Node) -> _Elements:
        source, *indices = node.operands
        places = [self._of(index) for index in indices]
        if source in self._memory:
            return _pointwise(lambda *at: lookup(self._memory[source], *at), places) if places else self._of(source)

        def known(*at: Node) -> Node:
            index = tuple(map(known_integer, at))
            if any(own is None or not 0 <= own < size for own, size in zip(index, sizes(source), strict=True)):
                raise NotExpanded  # computed: the tensor would have to lie in memory
            return self._elements[source].item(*index)  # type: ignore[arg-type]

        return _pointwise(known, places) if places else self._elements[source]


def _array(node: Node) -> _Elements:
    found = _empty(())
    found[()] = node
    return found


def _empty(shape: tuple[int, ...]) -> _Elements:
    return np.empty(shape, object)


def _axes(node: Node) -> range:
    return range(len(sizes(node)))


def _places(shape: tuple[int, ...], axis: int, element: Scalar | None = None) -> _Elements:
    """At each point of a shape its position along an axis."""
    found = _empty(shape)
    for index in product(*map(range, shape)):
        found[index] = whole(index[axis]) if element is None else constant(index[axis], element)
    return found


def _pointwise(compute: Any, operands: list[_Elements]) -> _Elements:
    spread = np.broadcast_arrays(*operands) if operands else []
    found = _empty(spread[0].shape if spread else ())
    for index in np.ndindex(*found.shape):
        found[index] = compute(*[own[index] for own in spread])
    return found


def _padded(values: _Elements, fill: Node, attributes: Mapping[str, Any]) -> _Elements:
    low, high, interior = (attributes[name] for name in ("low", "high", "interior"))
    if min((*low, *high), default=0) < 0:
        raise NotExpanded
    inside = [size + max(0, size - 1) * gap for size, gap in zip(values.shape, interior, strict=True)]
    found = _empty(tuple([a + size + b for a, size, b in zip(low, inside, high, strict=True)]))
    found[...] = fill
    steps = zip(low, inside, interior, strict=True)
    found[tuple([slice(start, start + size, 1 + gap) for start, size, gap in steps])] = values
    return found


def _reduced(values: _Elements, axes: tuple[int, ...], combine: Any) -> _Elements:
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    rows = values.transpose(*kept, *axes).reshape(*[values.shape[axis] for axis in kept], -1)
    if not rows.shape[-1]:
        raise NotExpanded
    found = _empty(rows.shape[:-1])
    for index in np.ndindex(*found.shape):
        found[index] = fold(combine, list(rows[index]))
    return found

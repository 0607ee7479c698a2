"""Scalar replacement: a function of small tensors becomes a function of scalars, for one point of a map.

`vmap` runs functions with loops and branches in this form: each member of the batch runs its own loops in registers,
and finished lanes are masked until the others are done. Tensors in memory are only read, by index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from livegrad.ir.leaves import constant, constant_op, parameter_op
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.op import Op
from livegrad.ir.types import Tape, Tensor, Tuple, Type, i64
from livegrad.ops.aggregate import get, make
from livegrad.ops.comparison import equal
from livegrad.ops.indexing import lookup_or
from livegrad.ops.rules import zero
from livegrad.ops.tape import tape_add, tape_get, tape_new, tape_set, tape_sum, tape_unstack
from livegrad.passes.interpreter import Interpreter
from livegrad.passes.scalar_replacement.tensors import TENSOR_RULES, replace_elementwise, select_elements
from livegrad.passes.scalar_replacement.values import (
    Memory,
    NotReplaced,
    Rows,
    Value,
    array_of,
    filled_with,
    flatten,
    holds_tensors,
    load,
    pack,
    packed_type,
    rebuild,
    require_small,
    scalar,
    static_shape,
    unpack,
)
from livegrad.passes.split_complex import has_rule_or_is_real

__all__ = ["Memory", "NotReplaced", "Value", "flatten", "rebuild", "replace_tensors"]

_MAX_NODES = 4000  # of a function over scalars: larger ones need too many registers, and compile slowly


def replace_tensors(function: Function, arguments: Sequence[Value]) -> list[Value]:
    """Interprets a function with scalars in place of tensors. Raises `NotReplaced` if that is not possible."""
    return _ScalarReplacement().results(function, arguments)


class _ScalarReplacement(Interpreter[Value]):
    """The interpreter of scalar replacement; limits the number of nodes that it creates."""

    def __init__(self) -> None:
        self._elements_created = 0

    def rewrite_node(self, node: Node, operands: list[Value]) -> Value:
        value = self._apply_rule(node, operands)
        self._elements_created += value.size if isinstance(value, np.ndarray) else 1
        if self._elements_created > _MAX_NODES:
            raise NotReplaced
        return value

    def _apply_rule(self, node: Node, operands: list[Value]) -> Value:
        rule = TENSOR_RULES.get(node.op) or _OTHER_RULES.get(node.op)
        if rule is not None:
            return rule(node, operands)
        if node.op.elementwise or node.op is constant_op:
            if not has_rule_or_is_real(node):
                raise NotReplaced  # backends have no code for it in a map
            return replace_elementwise(node, operands)
        is_unchanged = all(
            isinstance(v, Node) and v.type is o.type for v, o in zip(operands, node.operands, strict=True)
        )
        if not is_unchanged or holds_tensors(node.type) or node.op is parameter_op or node.functions:
            raise NotReplaced
        return make_node(node.op, tuple(map(scalar, operands)), node.attributes)

    def scalar(self, value: Value) -> Node:
        return scalar(value)

    def flatten(self, value: Value, type: Type) -> Iterator[Node]:
        return flatten(value, type)

    def rebuild(self, nodes: Iterator[Node], type: Type) -> Value:
        return rebuild(nodes, type)

    def join(self, values: list[Value]) -> Value:
        return tuple(values)


# --- tuples and tapes ------------------------------------------------------------------------------------------------


def _get(node: Node, operands: Sequence[Value]) -> Value:
    if isinstance(operands[0], tuple):
        return operands[0][node.attribute("index")]
    return get(scalar(operands[0]), index=node.attribute("index"))


def _make(node: Node, operands: Sequence[Value]) -> Value:
    if isinstance(node.type, Tuple) and holds_tensors(node.type):
        return tuple(operands)
    if holds_tensors(node.type):
        raise NotReplaced
    return make(*map(scalar, operands), type=node.type)


def _element_type(node: Node) -> Type:
    type = node.operands[0].type
    assert isinstance(type, Tape)
    return type.element


def _tape_new(node: Node, operands: Sequence[Value]) -> Value:
    return tape_new(type=packed_type(node.type))


def _tape_get(node: Node, operands: Sequence[Value]) -> Value:
    tape, index = operands
    if isinstance(tape, Rows):
        return _read_row(tape, scalar(index), _element_type(node))
    return unpack(tape_get(scalar(tape), scalar(index)), _element_type(node))


def _read_row(rows: Rows, index: Node, element: Type) -> Value:
    """A row of an unstacked tensor. Like a tape, it reads as zeros at an index out of range."""
    shape = static_shape(element)
    require_small(shape)
    assert isinstance(element, Tensor)
    nothing = zero(element.element)
    if isinstance(rows.tensor, Memory):
        tensor, prefix = rows.tensor.tensor, rows.tensor.prefix
        indices = [[constant(coordinate, i64) for coordinate in coordinates] for coordinates in np.ndindex(shape)]
        return array_of([lookup_or(tensor, nothing, *prefix, index, *coordinates) for coordinates in indices], shape)
    elements = load(rows.tensor)
    row = filled_with(nothing, shape)
    for position in range(len(elements)):
        row = select_elements(equal(index, position), elements[position, ...], row)
    return row


def _tape_write(node: Node, operands: Sequence[Value]) -> Value:
    tape, index, value = operands
    return node.op(scalar(tape), scalar(index), pack(value, _element_type(node)))


def _tape_sum(node: Node, operands: Sequence[Value]) -> Value:
    return tape_sum(*map(scalar, operands))


def _tape_unstack(node: Node, operands: Sequence[Value]) -> Value:
    (tensor,) = operands
    assert not isinstance(tensor, Node | tuple | Rows)
    return Rows(tensor)


_OTHER_RULES: Mapping[Op, Callable[[Node, Sequence[Value]], Value]] = MappingProxyType(
    {
        get: _get, make: _make, tape_new: _tape_new, tape_get: _tape_get, tape_set: _tape_write,
        tape_add: _tape_write, tape_sum: _tape_sum, tape_unstack: _tape_unstack,
    }
)  # fmt: skip

"""The `scalarise_loops` pass: loops and branches that compute numbers as tensors of rank 0 compute scalars instead.

For the CPU. A traced loop reads and writes single elements (`x[i] = x[i - 1] + 1.0`) as tensors of rank 0. With
scalars, the whole nest is one native loop. Larger tensors stay, if the nest only reads and writes them by index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from livegrad.ir.function import map_results
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Array, Struct, Tape, Tensor, Tuple, Type, components, inner_types
from livegrad.ir.walk import exchanged_functions, nodes_of, ops_in
from livegrad.ops.aggregate import get, make, make_tuple
from livegrad.ops.assignment import assign
from livegrad.ops.control import call, check, cond, for_loop, parameters_of, promise_of, switch, while_loop
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import lookup, lookup_or, scatter_add
from livegrad.ops.movement import broadcast, reshape
from livegrad.ops.tape import tape_get, tape_new, tape_set
from livegrad.passes.flatten_signature import flatten_signature, get_of_make, leaf_types, leaves_of
from livegrad.passes.regions import region_of

_NESTS = (for_loop, while_loop, cond, switch)
_BY_INDEX = (lookup, lookup_or, assign, scatter_add)


def scalarise_loops(function: Function) -> Function:
    """The function with numbers in loops and branches as scalars, where those compute nothing but numbers."""
    return _with_scalars(function) if not ops_in(function).isdisjoint(_NESTS) else function


@propagates_lines
def _with_scalars(function: Function) -> Function:
    for rule in (_flatten_carried, _Scalarising().nest):
        function = map_results(function, _and_unpack(rule))
    return function


def _and_unpack(rule: Callable[[Node], Node | None]) -> Callable[[Node], Node | None]:
    """The rule, which also replaces members of aggregates by the operands of their `make`."""

    def apply(node: Node) -> Node | None:
        taken = get_of_make(node)
        return rule(node) if taken is None else taken

    return apply


def _flatten_carried(node: Node) -> Node | None:
    """A loop that carries tensors and aggregates, with a carried value for each leaf of those."""
    if node.op is not for_loop or not any(isinstance(type, Tensor) for type in inner_types(node.type)):
        return None
    body: Function = node.attribute("body")
    if not any(isinstance(type, Struct | Tuple | Array) for type in body.parameter_types):
        return None
    leaves = [leaf for operand in node.operands[1:] for leaf in leaves_of(operand)]
    carried = sum(len(leaf_types(type)) for type in body.result_types)
    reverse = node.attribute("reverse")
    flat = for_loop(
        node.operands[0], *leaves, body=flatten_signature(body), carried=carried, reverse=reverse, **promise_of(node)
    )
    supply = iter([get(flat, index=index) for index in range(carried)])
    return make_tuple(*[_assembled(supply, type) for type in body.result_types])


def _assembled(leaves: Iterator[Node], type: Type) -> Node:
    if not isinstance(type, Struct | Tuple | Array):
        return next(leaves)
    return make(*[_assembled(leaves, part) for part in components(type)], type=type)


def _is_number(type: Type) -> bool:
    """Whether a type is that of a tensor of rank 0."""
    return isinstance(type, Tensor) and not type.shape


def _scalar_type(type: Type) -> Type:
    """The type with scalars in place of tensors of rank 0, on tapes too."""
    match type:
        case Tensor(element=element, shape=()):
            return element
        case Tape(element=element):
            return Tape(_scalar_type(element))
        case Tuple(elements=elements):
            return Tuple(tuple(map(_scalar_type, elements)))
    return type


def _as_tensor(value: Node, type: Type) -> Node:
    return broadcast(value, axes=(), shape=()) if _is_number(type) else value


class _Scalarising:
    """One run of the pass: the scalarised form of each function, None if it computes tensors."""

    def __init__(self) -> None:
        self._functions: dict[Function, Function | None] = {}

    def nest(self, node: Node) -> Node | None:
        """A loop or branch among tensors: it takes scalars from there, and its results become tensors again."""
        region = region_of(node) if node.op in _NESTS else None
        if region is None:
            return None
        arguments = [lookup(a) if _is_number(a.type) else a for a in region.arguments]
        if any(_scalar_type(argument.type) is not argument.type for argument in arguments):
            return None  # a tape from elsewhere, with tensors on it
        results = region.functions[-1].result_types
        if any(not _is_number(type) and _scalar_type(type) is not type for type in results):
            return None  # a tape for elsewhere: who reads it expects tensors on it
        scalar = self._over_scalars(node, [*region.leading, *arguments])
        if scalar is None or scalar is node:
            return None
        if not region.packed:
            return _as_tensor(scalar, node.type)
        return make_tuple(*[_as_tensor(get(scalar, index=index), type) for index, type in enumerate(results)])

    def _over_scalars(self, node: Node, operands: Sequence[Node]) -> Node | None:
        """A node that runs functions, over scalars; None if a function computes tensors."""
        region = region_of(node)
        assert region is not None
        exchange: dict[Function, Function] = {}
        for function in region.functions:
            scalar = self._function(function)
            if scalar is None:
                return None
            exchange[function] = scalar
        return make_node(node.op, tuple(operands), exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]

    def _function(self, function: Function) -> Function | None:
        if function not in self._functions:
            self._functions[function] = self._scalarise(function)
        return self._functions[function]

    def _scalarise(self, function: Function) -> Function | None:
        types = [_scalar_type(type) for type in function.parameter_types]
        if any(isinstance(t, Tensor) for type in types if not isinstance(type, Tensor) for t in inner_types(type)):
            return None
        parameters = parameters_of(types)
        done: dict[Node, Node] = dict(zip(function.parameters, parameters, strict=True))
        for node in nodes_of(function):
            if node in done:
                continue
            with originating_from(node.origins):
                scalar = self._scalar(node, [done[operand] for operand in node.operands])
            if scalar is None:
                return None
            done[node] = scalar
        results = tuple([done[result] for result in function.results])
        same = parameters == function.parameters and results == function.results
        return function if same else Function(function.name, parameters, results)

    def _scalar(self, node: Node, operands: list[Node]) -> Node | None:
        """A node over scalars; None if it computes a tensor."""
        if node.op in _BY_INDEX:
            return _by_index(node, operands)
        if node.op in (broadcast, reshape):
            return operands[0] if _is_number(node.type) and not isinstance(operands[0].type, Tensor) else None
        if node.op in (*_NESTS, call):
            return self._over_scalars(node, operands)
        if node.op is make and isinstance(node.type, Tuple):
            return make_tuple(*operands)
        if node.op is get:
            return make_node(get, tuple(operands), node.attributes)
        if node.op is tape_new:
            return tape_new(**{**dict(node.attributes), "type": _scalar_type(node.type)})
        if any(isinstance(operand.type, Tensor) for operand in operands):
            return None
        if node.op in (tape_get, tape_set):
            return make_node(node.op, tuple(operands), node.attributes)
        if isinstance(node.type, Tensor) and (node.type.shape or not node.op.elementwise):
            return None
        if node.op in (constant_op, check) or node.op.elementwise:
            return make_node(node.op, tuple(operands), node.attributes)
        same = all(new.type is old.type for new, old in zip(operands, node.operands, strict=True))
        return make_node(node.op, tuple(operands), node.attributes) if same else None


def _by_index(node: Node, operands: list[Node]) -> Node | None:
    """A read or write of one element. A tensor of rank 0 has become that element."""
    tensor, *others = operands
    if any(isinstance(operand.type, Tensor) for operand in others):
        return None
    if isinstance(tensor.type, Tensor):
        return make_node(node.op, (tensor, *others), node.attributes)
    if node.op in (lookup, lookup_or):
        return tensor
    return others[0] if node.op is assign else add(tensor, others[0])

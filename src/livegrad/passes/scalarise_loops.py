"""The `scalarise_loops` pass: in loops and branches, tensors of rank 0 become scalars.

For the CPU. A traced loop reads and writes single elements (`x[i] = x[i - 1] + 1.0`) as tensors of rank 0. With
scalars, the whole loop nest is one native loop. Larger tensors stay, if the nest only reads and writes them by index.
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

_REGIONS = (for_loop, while_loop, cond, switch)
_INDEXING = (lookup, lookup_or, assign, scatter_add)


def scalarise_loops(function: Function) -> Function:
    """Scalarises the loops and branches of a function that compute no tensors of rank 1 or more."""
    return _scalarise(function) if not ops_in(function).isdisjoint(_REGIONS) else function


@propagates_lines
def _scalarise(function: Function) -> Function:
    for rule in (_flatten_carried, _Scalariser().scalarise_outermost):
        function = map_results(function, _with_unpacking(rule))
    return function


def _with_unpacking(rule: Callable[[Node], Node | None]) -> Callable[[Node], Node | None]:
    """The rule, extended to replace members of aggregates by the operands of their `make`."""

    def apply(node: Node) -> Node | None:
        member = get_of_make(node)
        return rule(node) if member is None else member

    return apply


def _flatten_carried(node: Node) -> Node | None:
    """Decomposes the carried aggregates of a loop over tensors into their leaves."""
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
    return make_tuple(*[_assemble(supply, type) for type in body.result_types])


def _assemble(leaves: Iterator[Node], type: Type) -> Node:
    if not isinstance(type, Struct | Tuple | Array):
        return next(leaves)
    return make(*[_assemble(leaves, part) for part in components(type)], type=type)


def _is_rank_zero(type: Type) -> bool:
    """Whether a type is a tensor of rank 0."""
    return isinstance(type, Tensor) and not type.shape


def _scalar_type(type: Type) -> Type:
    """The type with scalars in place of tensors of rank 0, also in tapes and tuples."""
    match type:
        case Tensor(element=element, shape=()):
            return element
        case Tape(element=element):
            return Tape(_scalar_type(element))
        case Tuple(elements=elements):
            return Tuple(tuple(map(_scalar_type, elements)))
    return type


def _to_tensor(value: Node, type: Type) -> Node:
    return broadcast(value, axes=(), shape=()) if _is_rank_zero(type) else value


class _Scalariser:
    """Scalarises loops and branches; caches the scalarised form of each function, None if it computes tensors."""

    def __init__(self) -> None:
        self._functions: dict[Function, Function | None] = {}

    def scalarise_outermost(self, node: Node) -> Node | None:
        """Scalarises an outermost loop or branch; converts its arguments to scalars and its results back to tensors."""
        region = region_of(node) if node.op in _REGIONS else None
        if region is None:
            return None
        arguments = [lookup(a) if _is_rank_zero(a.type) else a for a in region.arguments]
        if any(_scalar_type(argument.type) is not argument.type for argument in arguments):
            return None  # a tape from outside with tensors on it
        results = region.functions[-1].result_types
        if any(not _is_rank_zero(type) and _scalar_type(type) is not type for type in results):
            return None  # a tape whose readers outside expect tensors
        scalar = self._scalarise_region(node, [*region.leading, *arguments])
        if scalar is None or scalar is node:
            return None
        if not region.packed:
            return _to_tensor(scalar, node.type)
        return make_tuple(*[_to_tensor(get(scalar, index=index), type) for index, type in enumerate(results)])

    def _scalarise_region(self, node: Node, operands: Sequence[Node]) -> Node | None:
        """Rebuilds a node with scalarised functions; returns None if one of them computes tensors."""
        region = region_of(node)
        assert region is not None
        exchange: dict[Function, Function] = {}
        for function in region.functions:
            scalar = self._scalarised_function(function)
            if scalar is None:
                return None
            exchange[function] = scalar
        return make_node(node.op, tuple(operands), exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]

    def _scalarised_function(self, function: Function) -> Function | None:
        if function not in self._functions:
            self._functions[function] = self._scalarise_function(function)
        return self._functions[function]

    def _scalarise_function(self, function: Function) -> Function | None:
        types = [_scalar_type(type) for type in function.parameter_types]
        if any(isinstance(t, Tensor) for type in types if not isinstance(type, Tensor) for t in inner_types(type)):
            return None
        parameters = parameters_of(types)
        scalars: dict[Node, Node] = dict(zip(function.parameters, parameters, strict=True))
        for node in nodes_of(function):
            if node in scalars:
                continue
            with originating_from(node.origins):
                scalar = self._scalarise_node(node, [scalars[operand] for operand in node.operands])
            if scalar is None:
                return None
            scalars[node] = scalar
        results = tuple([scalars[result] for result in function.results])
        is_unchanged = parameters == function.parameters and results == function.results
        return function if is_unchanged else Function(function.name, parameters, results)

    def _scalarise_node(self, node: Node, operands: list[Node]) -> Node | None:
        """Rewrites a node over scalars; returns None if it computes a tensor."""
        if node.op in _INDEXING:
            return _scalarise_indexing(node, operands)
        if node.op in (broadcast, reshape):
            return operands[0] if _is_rank_zero(node.type) and not isinstance(operands[0].type, Tensor) else None
        if node.op in (*_REGIONS, call):
            return self._scalarise_region(node, operands)
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
        is_unchanged = all(new.type is old.type for new, old in zip(operands, node.operands, strict=True))
        return make_node(node.op, tuple(operands), node.attributes) if is_unchanged else None


def _scalarise_indexing(node: Node, operands: list[Node]) -> Node | None:
    """Rewrites a read or write of one element. A tensor of rank 0 is a scalar by now."""
    tensor, *arguments = operands
    if any(isinstance(operand.type, Tensor) for operand in arguments):
        return None
    if isinstance(tensor.type, Tensor):
        return make_node(node.op, (tensor, *arguments), node.attributes)
    if node.op in (lookup, lookup_or):
        return tensor
    return arguments[0] if node.op is assign else add(tensor, arguments[0])

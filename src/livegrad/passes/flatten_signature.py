"""The `flatten_signature` pass: decomposes aggregate parameters and results into their leaves.

`flatten_value` and `assemble_value` convert arguments and results accordingly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Array, Struct, Tuple, Type, components
from livegrad.ir.walk import rewrite
from livegrad.ops.aggregate import get, make, member

_AGGREGATES = (Struct, Tuple, Array)


def flatten_signature(function: Function) -> Function:
    """The function with a parameter and a result for each leaf: a scalar, vector, matrix, tensor or tape."""
    if not any(isinstance(type, _AGGREGATES) for type in (*function.parameter_types, *function.result_types)):
        return function
    inputs: list[Node] = []
    replacements = {parameter: _assemble_parameter(parameter.type, inputs) for parameter in function.parameters}
    results = rewrite(function.results, get_of_make, replacements)
    return make_function(function.name, inputs, [leaf for result in results for leaf in leaves_of(result)])


def get_of_make(node: Node) -> Node | None:
    """get(make(a, b, ...), i) is the i-th operand of the make; None for other nodes."""
    return (
        node.operands[0].operands[node.attribute("index")] if node.op is get and node.operands[0].op is make else None
    )


def _assemble_parameter(type: Type, inputs: list[Node]) -> Node:
    if not isinstance(type, _AGGREGATES):
        inputs.append(input_node(Key("leaf"), type))
        return inputs[-1]
    return make(*[_assemble_parameter(part, inputs) for part in components(type)], type=type)


def leaves_of(value: Node) -> Iterator[Node]:
    """The leaves of a node, in order."""
    if not isinstance(value.type, _AGGREGATES):
        yield value
        return
    for index in range(len(components(value.type))):
        yield from leaves_of(member(value, index))


def leaf_types(type: Type) -> list[Type]:
    """The types of the leaves of a type, in order."""
    return [leaf for part in components(type) for leaf in leaf_types(part)] if isinstance(type, _AGGREGATES) else [type]


def flatten_value(value: Any, type: Type) -> list[Any]:
    """The leaves of a Python value, in order."""
    if not isinstance(type, _AGGREGATES):
        return [value]
    members = value.values() if isinstance(value, Mapping) else value
    return [
        leaf
        for part, part_type in zip(members, components(type), strict=True)
        for leaf in flatten_value(part, part_type)
    ]


def assemble_value(leaves: Iterator[Any], type: Type) -> Any:
    """Builds a Python value of `type` from its leaves."""
    if not isinstance(type, _AGGREGATES):
        return next(leaves)
    return tuple(assemble_value(leaves, part) for part in components(type))

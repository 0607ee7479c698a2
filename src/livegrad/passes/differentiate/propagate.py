"""The interpreter that both modes share: computes the primal and the tangent of every node from those of its operands.

The modes differ only in their rules for ops that contain functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from livegrad.diagnostics import DifferentiationError
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import differential_of, is_differentiable
from livegrad.ir.walk import rebuild, toposort
from livegrad.ops.aggregate import get, make, member
from livegrad.passes.differentiate.tangents import Tangent, is_zero, materialize, tangent_member
from livegrad.passes.expand import expand_ops

ControlRule = Callable[[Node, tuple[Node, ...], tuple[Tangent, ...]], tuple[Node, Tangent]]


def expand_underivable(function: Function) -> Function:
    """Expands every op without a derivative rule into ops that have one."""
    return expand_ops(function, lambda node: node.op.jvp is None and node.op.expand is not None)


def propagate(
    name: str,
    results: Sequence[Node],
    dual_values: dict[Node, tuple[Node, Tangent]],
    control: Mapping[Op, ControlRule],
) -> list[tuple[Node, Tangent]]:
    """The primal and tangent of each result, from those of the nodes in `dual_values`."""
    duals = dict(dual_values)
    for node in toposort(results, stop=duals.__contains__):
        if node not in duals:
            with originating_from(node.origins):
                duals[node] = _compute_dual(name, node, [duals[operand] for operand in node.operands], control)
    return [duals[result] for result in results]


def _compute_dual(
    name: str, node: Node, operands: list[tuple[Node, Tangent]], control: Mapping[Op, ControlRule]
) -> tuple[Node, Tangent]:
    primals = tuple([primal for primal, _ in operands])
    tangents = tuple([tangent for _, tangent in operands])
    active = not all(map(is_zero, tangents))
    if active and node.op in control:
        return control[node.op](node, primals, tangents)
    if node.op is get:
        index = node.attribute("index")
        return member(primals[0], index), tangent_member(tangents[0], node.operands[0].type, index)
    primal = rebuild(node, primals)
    if not active or not is_differentiable(node.type):
        return primal, None
    if node.op is make:
        return primal, tangents
    if node.op.jvp is None:
        raise missing_rule(name, node)
    tangent_nodes = [None if is_zero(t) else materialize(t, p.type) for t, p in zip(tangents, primals, strict=True)]
    return primal, node.op.jvp(primal, *tangent_nodes)


def missing_rule(name: str, node: Node) -> DifferentiationError:
    return DifferentiationError(
        f"cannot differentiate `{node.op.name}` in `{name}`",
        where=node.origin,
        help="it has no derivative rule; wrap the value in `detach(...)` if it is meant to be constant",
    )


def with_tangent_parameters(
    function: Function, active: Sequence[bool], reserved: int = 0
) -> tuple[tuple[Node, ...], dict[Node, tuple[Node, Tangent]]]:
    """Tangent parameters for the active parameters, and the dual value of each parameter.

    Their indices follow those of the function's parameters and `reserved` others.
    """
    duals: dict[Node, tuple[Node, Tangent]] = {}
    tangents: list[Node] = []
    first = len(function.parameters) + reserved
    for primal, flag in zip(function.parameters, active, strict=True):
        tangent = None
        if flag:
            tangent = parameter(first + len(tangents), differential_of(primal.type))
            tangents.append(tangent)
        duals[primal] = (primal, tangent)
    return tuple(tangents), duals


def active_flags(tangents: Sequence[Tangent]) -> tuple[bool, ...]:
    return tuple(not is_zero(tangent) for tangent in tangents)


def active_nodes(tangents: Sequence[Tangent], primals: Sequence[Node], flags: Sequence[bool]) -> list[Node]:
    """The flagged tangents as nodes; zero tangents are materialised."""
    return [materialize(t, p.type) for t, p, flag in zip(tangents, primals, flags, strict=True) if flag]


def spread(nodes: Sequence[Tangent], flags: Sequence[bool]) -> list[Tangent]:
    """The tangents at flagged positions, None elsewhere."""
    supply = iter(nodes)
    return [next(supply) if flag else None for flag in flags]


def union(*flags: Sequence[bool]) -> tuple[bool, ...]:
    return tuple(any(column) for column in zip(*flags, strict=True))

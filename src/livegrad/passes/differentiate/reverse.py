"""Reverse mode: the transpose of the linearised function."""

from __future__ import annotations

from livegrad.ir.node import Function
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.types import differential_of, is_differentiable
from livegrad.ops.control import parameters_of
from livegrad.ops.rules import zero
from livegrad.passes.differentiate.linearize import linearize
from livegrad.passes.differentiate.propagate import active_nodes
from livegrad.passes.differentiate.tangents import Tangent, materialize
from livegrad.passes.differentiate.transpose import transpose_graph


@propagates_lines
def vjp(function: Function, *, with_value: bool = False) -> Function:
    """(arguments, a cotangent for each result) → a cotangent for each argument; `with_value` adds the results in front.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f64
    >>> derived = vjp(trace(lambda x, y: x * y, f64, f64))
    >>> derived.parameter_types, derived.result_types
    ((f64, f64, f64), (f64, f64))
    """
    types = function.parameter_types
    active = tuple(map(is_differentiable, types))
    derived = pull_back(function, active, with_value=with_value)
    values = len(function.results) if with_value else 0
    supply = iter(derived.results[values:])
    # Inactive arguments get zeros of their differential type: a differential has only the differentiable members.
    cotangents = [
        next(supply) if flag else zero(differential_of(type)) for flag, type in zip(active, types, strict=True)
    ]
    return Function(derived.name, derived.parameters, (*derived.results[:values], *cotangents))


@propagates_lines
def pull_back(function: Function, active: tuple[bool, ...], *, with_value: bool = False) -> Function:
    """`vjp` for the active arguments only."""
    types = function.parameter_types
    # Cotangent parameters follow the function's own. Tangent parameters follow both, until transposition removes them.
    parameters = parameters_of([*types, *map(differential_of, function.result_types)])
    outputs = parameters[len(types) :]
    linear = linearize(function, active, len(outputs))
    flags = linear.flags
    tangents = active_nodes(linear.tangents, function.results, flags)
    active_outputs: list[Tangent] = [output for output, flag in zip(outputs, flags, strict=True) if flag]
    sources = linear.tangent_parameters
    transposed = transpose_graph(function.name, tangents, active_outputs, sources)
    cotangents = [materialize(cotangent, node.type) for cotangent, node in zip(transposed, sources, strict=True)]
    results = (*(linear.primals if with_value else ()), *cotangents)
    return Function(f"{function.name}.bwd", parameters, results)

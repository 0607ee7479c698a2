"""The `differentiate` pass: replaces `fwd_diff` and `bwd_diff` by calls of derivative functions.

Inner functions come first, so derivatives of derivatives work. Ops that only direct differentiation then become plain
calls.
"""

from __future__ import annotations

from functools import cache

from livegrad.ir.function import map_results
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ops.aggregate import make_tuple
from livegrad.ops.control import call
from livegrad.ops.custom import custom_call, recompute_call
from livegrad.ops.differential import bwd_diff, fwd_diff
from livegrad.ops.order import kept
from livegrad.passes.differentiate.forward import jvp
from livegrad.passes.differentiate.reverse import vjp
from livegrad.passes.differentiate.tangents import pack_results, result_nodes
from livegrad.passes.eliminate_dead_results import eliminate_dead_results
from livegrad.passes.functions import rewrite_functions, uses_any

# Ops that mean something to differentiation alone.
DERIVATIVE_RULES = frozenset({custom_call, recompute_call, kept})


@propagates_lines
def differentiate(module: Module) -> Module:
    """Expands every derivative in the module and removes what only derivatives need."""
    return forget_rules(write_derivatives(module))


def forget_rules(module: Module) -> Module:
    """Replaces calls with differentiation rules by plain calls, and removes `kept` marks."""
    if not uses_any(module.functions, DERIVATIVE_RULES):
        return module

    def forget(node: Node) -> Node | None:
        if node.op in (custom_call, recompute_call):
            return call(*node.operands, function=node.attribute("function"))
        return node.operands[0] if node.op is kept else None

    return rewrite_functions(module, lambda function: map_results(function, forget))


@propagates_lines
def write_derivatives(module: Module) -> Module:
    """The module with every requested derivative expanded."""
    if not uses_any(module.functions, {fwd_diff, bwd_diff}):
        return module
    forward, backward = (cache(lambda function, derive=derive: derive(_trimmed(function))) for derive in (jvp, vjp))

    def lower(node: Node) -> Node | None:
        if node.op is fwd_diff:
            function: Function = node.attribute("function")
            return _value_and_tangent(call(*node.operands, function=forward(function)), len(function.results))
        if node.op is bwd_diff:
            return call(*node.operands, function=backward(node.attribute("function")))
        return None

    return rewrite_functions(module, lambda function: map_results(function, lower))


def with_derivatives_written(function: Function) -> Function:
    """The function with every derivative inside expanded, so that it can be differentiated itself."""
    (written,) = write_derivatives(Module((function,))).functions
    return written


def _trimmed(function: Function) -> Function:
    """Removes unused values, which may overflow: infinity times a zero cotangent is NaN."""
    return eliminate_dead_results(Module((function,))).functions[0]


def _value_and_tangent(results: Node, number: int) -> Node:
    """Converts the results of the derived function, values before tangents, to the pair that `fwd_diff` returns."""
    if number == 1:
        return results
    nodes = result_nodes(results, 2 * number)
    return make_tuple(pack_results(nodes[:number]), pack_results(nodes[number:]))

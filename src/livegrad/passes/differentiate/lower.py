"""The `differentiate` pass: replaces `fwd_diff` and `bwd_diff` by calls of derivative functions.

Inner functions come first, so that derivatives nest. Then ops that only direct differentiation become plain calls.
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

# Ops that only matter to differentiation.
DERIVATIVE_RULES = frozenset({custom_call, recompute_call, kept})


@propagates_lines
def differentiate(module: Module) -> Module:
    """Expands every derivative in the module, then removes the ops that only direct differentiation."""
    return forget_rules(expand_derivatives(module))


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
def expand_derivatives(module: Module) -> Module:
    """Replaces every `fwd_diff` and `bwd_diff` by a call of the derivative function."""
    if not uses_any(module.functions, {fwd_diff, bwd_diff}):
        return module
    forward, backward = (cache(lambda function, derive=derive: derive(_trim(function))) for derive in (jvp, vjp))

    def lower(node: Node) -> Node | None:
        if node.op is fwd_diff:
            function: Function = node.attribute("function")
            return _pack_value_and_tangent(call(*node.operands, function=forward(function)), len(function.results))
        if node.op is bwd_diff:
            return call(*node.operands, function=backward(node.attribute("function")))
        return None

    return rewrite_functions(module, lambda function: map_results(function, lower))


def with_derivatives_written(function: Function) -> Function:
    """The function with every derivative inside it expanded, so that it can be differentiated itself."""
    (expanded,) = expand_derivatives(Module((function,))).functions
    return expanded


def _trim(function: Function) -> Function:
    """Removes unused values. They may overflow, and infinity times a zero cotangent is NaN."""
    return eliminate_dead_results(Module((function,))).functions[0]


def _pack_value_and_tangent(results: Node, count: int) -> Node:
    """Packs the results of a derived function, values before tangents, into the pair that `fwd_diff` returns."""
    if count == 1:
        return results
    nodes = result_nodes(results, 2 * count)
    return make_tuple(pack_results(nodes[:count]), pack_results(nodes[count:]))

"""Creates functions from nodes or by tracing a Python callable, and inlines function bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import livegrad.ir.pickled_functions  # noqa: F401 (teaches pickle what functions are)
from livegrad.diagnostics import UsageError, VerifyError, caller_origin
from livegrad.ir.leaves import input_node, input_op, parameter, parameter_op
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.propagate_lines import propagates_lines, propagating_lines
from livegrad.ir.types import Type
from livegrad.ir.walk import keep, remember_nodes, rewrite, rewrite_in_order, substitute, toposort


def make_function(
    name: str, inputs: Sequence[Node], results: Sequence[Node], order: Sequence[Node] | None = None
) -> Function:
    """Creates a closed function of `inputs`. These may be any nodes; they become the parameters by position.

    `order` is `toposort` of the results up to the inputs, if the caller has it.
    """
    if order is None:
        order = toposort(results, stop=set(inputs).__contains__)
    with propagating_lines(()) as lines:
        # Here, so that nothing searches for their lines: functions share parameters.
        parameters = tuple([parameter(index, node.type) for index, node in enumerate(inputs)])
        replacements = dict(zip(inputs, parameters, strict=True))
        rewritten = rewrite_in_order(order, keep, replacements)
        for node in rewritten:
            if node.op is parameter_op and node not in replacements:
                raise VerifyError(
                    f"function `{name}` uses a parameter of another function",
                    where=node.origin,
                    help="pass it as an operand and give the function a parameter for it",
                )
        function = Function(name, parameters, tuple([rewritten[result] for result in results]))
        lines.keep_rewritten(function, rewritten)
    remember_nodes(function, [rewritten[node] for node in order])
    return function


def trace(callable: Callable[..., Any], *types: Type, name: str | None = None) -> Function:
    """Traces `callable` with nodes of these types and returns the resulting function.

    >>> from livegrad.ir.types import f32
    >>> trace(lambda x, y: x * y + 1.0, f32, f32)
    <function <lambda>(f32, f32) -> f32>
    """
    function, captures = trace_open(callable, types, name)
    if captures:
        raise UsageError(
            f"function `{function.name}` uses values that are defined outside of it",
            where=captures[0].origin or caller_origin(),
            help="pass them as arguments",
        )
    return function


def trace_open(
    callable: Callable[..., Any], types: Sequence[Type], name: str | None = None
) -> tuple[Function, tuple[Node, ...]]:
    """Like `trace`, but outer values that the callable captures become additional parameters (lambda lifting).

    Returns the function and the captured nodes, which a caller passes as the additional arguments.
    """
    inputs = tuple(input_node(Key(f"argument{index}"), type) for index, type in enumerate(types))
    return close_function(name or name_of(callable), inputs, call_with_nodes(callable, inputs))


def close_function(
    name: str,
    inputs: Sequence[Node],
    results: Sequence[Node],
    can_be_passed: Callable[[Node], bool] | None = None,
) -> tuple[Function, tuple[Node, ...]]:
    """Creates a function of the inputs and of the outer values that it captures (`captured_values`); returns both."""
    order = toposort(results, stop=set(inputs).__contains__)
    captures = _captures_in(order, inputs, results, can_be_passed)
    return make_function(name, (*inputs, *captures), results, None if captures else order), captures


def name_of(callable: Callable[..., Any]) -> str:
    """The name for a function traced from a callable."""
    return getattr(callable, "__name__", "function")


def call_with_nodes(callable: Callable[..., Any], inputs: Sequence[Node]) -> tuple[Node, ...]:
    """Calls a callable with nodes and checks that it returns nodes."""
    returned = callable(*inputs)
    results = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    for result in results:
        if not isinstance(result, Node):
            raise UsageError(
                f"function `{name_of(callable)}` must return nodes", where=caller_origin(), found=repr(result)
            )
    return results


def captured_values(
    inputs: Sequence[Node], results: Sequence[Node], can_be_passed: Callable[[Node], bool] | None = None
) -> tuple[Node, ...]:
    """The outer values that a function captures, as far downstream as possible, so that loop invariants are hoisted.

    Values that the caller cannot pass (`can_be_passed`) are recomputed inside from values that it can pass.
    """
    return _captures_in(toposort(results, stop=set(inputs).__contains__), inputs, results, can_be_passed)


def _captures_in(
    order: Sequence[Node],
    inputs: Sequence[Node],
    results: Sequence[Node],
    can_be_passed: Callable[[Node], bool] | None,
) -> tuple[Node, ...]:
    inner_nodes: set[Node] = set(inputs)
    outer: set[Node] = set()
    for node in order:
        if node in inner_nodes:
            continue
        if node.op in (input_op, parameter_op):
            outer.add(node)
        elif not inner_nodes.isdisjoint(node.operands):
            inner_nodes.add(node)
        elif not outer.isdisjoint(node.operands):
            outer.add(node)
    if not outer:
        return ()
    inside = inner_nodes.difference(inputs)
    if can_be_passed is not None:
        inside |= _find_recomputed([*inside, *results], outer, can_be_passed)
    needed = {operand for node in order if node in inside for operand in node.operands} | set(results)
    return tuple(node for node in order if node in outer and node in needed and node not in inside)


def _find_recomputed(roots: Sequence[Node], outer: set[Node], can_be_passed: Callable[[Node], bool]) -> set[Node]:
    """The outer nodes that a function must recompute because they cannot be passed to it."""
    nodes: set[Node] = set()
    pending = [node for root in roots for node in (root, *root.operands)]
    while pending:
        node = pending.pop()
        if node in outer and node not in nodes and not can_be_passed(node):
            nodes.add(node)
            pending += node.operands
    return nodes


def inline(function: Function, arguments: Sequence[Node]) -> tuple[Node, ...]:
    """Returns the function's results with its parameters replaced by the arguments."""
    if tuple(argument.type for argument in arguments) != function.parameter_types:
        raise UsageError(
            f"wrong arguments for `{function.name}`",
            expected=", ".join(map(str, function.parameter_types)),
            found=", ".join(str(argument.type) for argument in arguments),
        )
    return substitute(
        function.results, dict(zip(function.parameters, arguments, strict=True)), function.source_locations
    )


@propagates_lines
def map_results(function: Function, rule: Callable[[Node], Node | None]) -> Function:
    """Applies `rule` to each node of a function, bottom-up. Returns the same function if no result changes."""
    results = rewrite(function.results, rule)
    if results == function.results:  # nodes compare by identity
        return function
    return Function(function.name, function.parameters, results)

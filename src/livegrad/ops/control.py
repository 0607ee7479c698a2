"""Control flow: calls, branches and loops. Their bodies are closed functions in attributes.

Every value that a body uses is an operand. `evaluate` receives the functions as Python callables, and
`passes.differentiate` implements the derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError
from livegrad.ir.function import call_with_nodes, inline, name_of, trace_open
from livegrad.ir.leaves import input_node, parameter
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.op import Op
from livegrad.ir.scopes import Scope
from livegrad.ir.types import Tuple, Type, bool_, i32, i64
from livegrad.ir.walk import substitute
from livegrad.ops.closing import Closed, close_body, close_branches, runs_at_least_once
from livegrad.ops.failing import loop_can_fail


def _require_parameters(function: Function, types: tuple[Type, ...], role: str) -> None:
    if function.parameter_types != types:
        raise TypeRuleError(
            f"{role} `{function.name}` has the wrong parameters",
            expected=", ".join(map(str, types)) or "none",
            found=", ".join(map(str, function.parameter_types)) or "none",
        )


def _call_type(*types: Type, function: Function) -> Type:
    _require_parameters(function, types, "function")
    return function.result_type


call = Op("call", type_of=_call_type, evaluate=lambda *values, function: function(*values))


def _cond_type(predicate: Type, *types: Type, then: Function, otherwise: Function) -> Type:
    if predicate is not bool_:
        raise TypeRuleError("the condition must be a bool", found=str(predicate))
    _require_parameters(then, types, "branch")
    _require_parameters(otherwise, types, "branch")
    if then.result_types != otherwise.result_types:
        raise TypeRuleError("the branches return different types", found=f"{then.result_type}, {otherwise.result_type}")
    return then.result_type


cond = Op(
    "cond",
    type_of=_cond_type,
    evaluate=lambda predicate, *values, then, otherwise: (then if predicate else otherwise)(*values),
)


def _switch_type(index: Type, *types: Type, branches: tuple[Function, ...]) -> Type:
    if index not in (i32, i64):
        raise TypeRuleError("the selector must be an i32 or i64", found=str(index))
    if not branches:
        raise TypeRuleError("a switch needs a branch")
    for branch in branches:
        _require_parameters(branch, types, "branch")
        if branch.result_types != branches[0].result_types:
            raise TypeRuleError("the branches return different types")
    return branches[0].result_type


def _evaluate_switch(index: Any, *values: Any, branches: tuple[Any, ...]) -> Any:
    if not 0 <= int(index) < len(branches):
        raise IndexError(f"switch on {int(index)}, but there are {len(branches)} branches")
    return branches[int(index)](*values)


switch = Op("switch", type_of=_switch_type, evaluate=_evaluate_switch, checked=True)


def _carried_types(types: tuple[Type, ...], carried: int, body: Function) -> tuple[Type, ...]:
    if not 0 <= carried <= len(types):
        raise TypeRuleError(f"{carried} carried values among {len(types)} operands")
    _require_parameters(body, (i64, *types), "loop body")
    if body.result_types != types[:carried]:
        raise TypeRuleError(
            f"loop body `{body.name}` must return the carried values",
            expected=", ".join(map(str, types[:carried])),
            found=", ".join(map(str, body.result_types)),
        )
    return types[:carried]


def _for_loop_type(
    iterations: Type,
    *types: Type,
    body: Function,
    carried: int,
    reverse: bool,
    independent: bool = False,
    grain: int = 0,
    lanes: int = 1,
    private: tuple[int, ...] = (),
) -> Type:
    if lanes < 1 or lanes & (lanes - 1) or (lanes > 1 and (reverse or not carried)):
        raise TypeRuleError("a loop with lanes must be a forward reduction that carries values", found=f"{lanes} lanes")
    if iterations is not i64:
        raise TypeRuleError("the number of iterations must be an i64", found=str(iterations))
    return Tuple(_carried_types(types, carried, body))


def _as_results(value: Any, count: int) -> tuple[Any, ...]:
    return (value,) if count == 1 else value


def _evaluate_for_loop(
    iterations: Any, *values: Any, body: Any, carried: int, reverse: bool, **_: bool | int | tuple[int, ...]
) -> Any:
    state, captures = values[:carried], values[carried:]
    for index in reversed(range(int(iterations))) if reverse else range(int(iterations)):
        state = _as_results(body(np.int64(index), *state, *captures), carried)
    return tuple(state)


# The index counts up from 0, or down to 0 with `reverse`; a count below one means no iterations. A loop with `lanes` is
# a reduction: its body combines each carried value with a term, and native code accumulates the terms of that many
# iterations at once. Sums of floats then round differently from a serial sum, but equally on every machine.
# `independent` promises that no iteration writes what another iteration reads or writes. Threads take `grain`
# iterations at a time, each with its own copy of the `private` carried tensors; without a grain, the loop runs on one
# thread. The iterations of an independent loop with `lanes` are the rows of a kernel, which threads and lanes share.
for_loop = Op("for_loop", type_of=_for_loop_type, evaluate=_evaluate_for_loop)


def promise_of(loop: Node) -> dict[str, bool]:
    """The `independent` attribute of a loop, if it has one, for a new loop with the same writes."""
    return {"independent": True} if dict(loop.attributes).get("independent") else {}


def _while_loop_type(*types: Type, condition: Function, body: Function, carried: int, limit: int | None) -> Type:
    result = Tuple(_carried_types(types, carried, body))
    _require_parameters(condition, types, "loop condition")
    if condition.result_types != (bool_,):
        raise TypeRuleError("the loop condition must return one bool", found=str(condition.result_type))
    if limit is not None and limit < 0:
        raise TypeRuleError("the limit of a loop cannot be negative", found=str(limit))
    return result


def _evaluate_while_loop(*values: Any, condition: Any, body: Any, carried: int, limit: int | None) -> Any:
    state, captures = values[:carried], values[carried:]
    for index in count():
        if not condition(*state, *captures):
            return tuple(state)
        if index == limit:
            raise OverflowError(f"the loop ran past its limit of {limit}")
        state = _as_results(body(np.int64(index), *state, *captures), carried)
    raise AssertionError("unreachable: the loop above ends by returning")


# Running past `limit` is an error, never a truncated result.
while_loop = Op(
    "while_loop", type_of=_while_loop_type, evaluate=_evaluate_while_loop, checked=True, can_fail=loop_can_fail
)

# --- construction from Python callables ------------------------------------------------------------------------------


def make_cond(predicate: Node, then: Callable[..., Any], otherwise: Callable[..., Any], *arguments: Node) -> Node:
    """Returns `then(*arguments)` if the predicate holds, else `otherwise(*arguments)`. Only one branch runs.

    >>> import livegrad as lg
    >>> f = lg.ir.trace(lambda x: make_cond(lg.ops.greater(x, 0.0), lambda x: x, lambda x: -2.0 * x, x), lg.f32)
    >>> float(lg.ir.evaluate(f, -3.0))
    6.0
    """
    functions, operands = _close_together([then, otherwise], arguments)
    return cond(predicate, *operands, then=functions[0], otherwise=functions[1])


def make_switch(index: Node, branches: Sequence[Callable[..., Any]], *arguments: Node) -> Node:
    """Applies the branch at position `index` to the arguments.

    >>> import livegrad as lg
    >>> f = lg.ir.trace(lambda i, x: make_switch(i, [lambda x: x, lambda x: x * 10.0], x), lg.i32, lg.f32)
    >>> float(lg.ir.evaluate(f, 1, 2.0))
    20.0
    """
    functions, operands = _close_together(branches, arguments)
    return switch(index, *operands, branches=tuple(functions))


def make_for_loop(
    iterations: Node,
    body: Callable[..., Any],
    *carried: Node,
    reverse: bool = False,
    scope: Scope | None = None,
    lanes: int = 1,
) -> tuple[Node, ...]:
    """Runs `carried = body(index, *carried)` `iterations` times; returns the final carried values.

    `scope` contains nodes of the body that are traced already. A reduction may have `lanes`.

    >>> import livegrad as lg
    >>> power = lg.ir.trace(lambda x, n: make_for_loop(n, lambda index, y: y * x, x)[0], lg.f64, lg.i64)
    >>> float(lg.ir.evaluate(power, 2.0, 3))
    16.0
    """
    types = [i64, *(node.type for node in carried)]
    if runs_at_least_once(iterations):
        function, captures = trace_open(body, types)
    else:
        function, captures = _close_loop(body, types, scope or Scope(), lambda: iterations > 0)
    more = {"lanes": lanes} if lanes > 1 else {}
    result = for_loop(iterations, *carried, *captures, body=function, carried=len(carried), reverse=reverse, **more)
    return tuple(Op.named("get")(result, index=index) for index in range(len(carried)))


def make_while_loop(
    condition: Callable[..., Any], body: Callable[..., Any], *carried: Node, limit: int | None = None
) -> tuple[Node, ...]:
    """Runs `carried = body(index, *carried)` while `condition(*carried)` holds; returns the final carried values.

    >>> import livegrad as lg
    >>> halve = lambda x: make_while_loop(lambda x: lg.ops.greater(x, 1.0), lambda index, x: x * 0.5, x)[0]
    >>> float(lg.ir.evaluate(lg.ir.trace(halve, lg.f64), 10.0))
    0.625
    """
    types = [node.type for node in carried]
    test, test_captures = trace_open(condition, types)

    def runs() -> Node:
        return inline(test, (*carried, *test_captures))[0]

    step, step_captures = _close_loop(body, [i64, *types], Scope(), runs)
    captures = tuple(dict.fromkeys(test_captures + step_captures))
    carried_count = len(carried)
    result = while_loop(
        *carried,
        *captures,
        condition=_with_captures(test, carried_count, test_captures, captures),
        body=_with_captures(step, carried_count + 1, step_captures, captures),
        carried=carried_count,
        limit=limit,
    )
    return tuple(Op.named("get")(result, index=index) for index in range(carried_count))


def _close_loop(body: Callable[..., Any], types: Sequence[Type], scope: Scope, runs: Callable[[], Node]) -> Closed:
    inputs = tuple(input_node(Key(f"argument{index}"), type) for index, type in enumerate(types))
    with scope.entered():
        results = call_with_nodes(body, inputs)
    return close_body(name_of(body), inputs, results, scope, runs)


def _close_together(
    callables: Sequence[Callable[..., Any]], arguments: tuple[Node, ...]
) -> tuple[list[Function], tuple[Node, ...]]:
    """Traces functions with the same parameters: the arguments, then the captures of all functions."""
    inputs = tuple(input_node(Key(f"argument{index}"), node.type) for index, node in enumerate(arguments))
    scope, results = Scope(), []
    for callable in callables:
        with scope.entered():
            results.append(call_with_nodes(callable, inputs))
    functions, captures = close_branches([name_of(callable) for callable in callables], inputs, results, scope)
    return functions, (*arguments, *captures)


def _with_captures(
    function: Function, argument_count: int, captured: tuple[Node, ...], all_captures: tuple[Node, ...]
) -> Function:
    """Gives a function a parameter for each of `all_captures`, used or not."""
    if captured == all_captures:
        return function
    parameters = parameters_of(function.parameter_types[:argument_count] + tuple(n.type for n in all_captures))
    position = {node: argument_count + index for index, node in enumerate(all_captures)}
    replacements = dict(zip(function.parameters[:argument_count], parameters[:argument_count], strict=True))
    for captured_parameter, node in zip(function.parameters[argument_count:], captured, strict=True):
        replacements[captured_parameter] = parameters[position[node]]
    return Function(function.name, parameters, substitute(function.results, replacements))


def parameters_of(types: Sequence[Type]) -> tuple[Node, ...]:
    """Parameters of these types, in order."""
    return tuple(parameter(index, type) for index, type in enumerate(types))


# --- checks ----------------------------------------------------------------------------------------------------------


def _check_type(value: Type, condition: Type, *, message: str) -> Type:
    if condition is not bool_:
        raise TypeRuleError("a check's condition must be a bool", found=str(condition))
    return value


def _evaluate_check(value: Any, condition: Any, *, message: str) -> Any:
    if not condition:
        raise AssertionError(message)
    return value


# Returns the value if the condition holds; otherwise the run fails with the message.
check = Op(
    "check",
    type_of=_check_type,
    evaluate=_evaluate_check,
    jvp=lambda y, dx, dc: dx,
    checked=True,
)

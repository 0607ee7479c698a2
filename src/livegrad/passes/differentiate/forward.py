"""Forward mode: computes values and tangents together, with rules for calls, branches, loops and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from livegrad.ir.node import Function, Node
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import cached_derivation, propagates_lines
from livegrad.ir.types import Type, differential_of, is_differentiable
from livegrad.ir.walk import substitute
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import call, cond, for_loop, parameters_of, promise_of, switch, while_loop
from livegrad.ops.maps import map_
from livegrad.passes.differentiate.propagate import (
    ControlRule,
    active_flags,
    active_nodes,
    expand_underivable,
    propagate,
    spread,
    union,
    with_tangent_parameters,
)
from livegrad.passes.differentiate.tangents import Tangent, pack_results, result_nodes, result_tangent
from livegrad.passes.regions import carried_flags


@cached_derivation(1024)
def push_forward(function: Function, active: tuple[bool, ...]) -> tuple[Function, tuple[bool, ...]]:
    """(arguments, tangents of active arguments) → (results, tangents of active results), and flags of the latter."""
    function = expand_underivable(function)
    tangents, tangent_of = with_tangent_parameters(function, active)
    duals = propagate(function.name, function.results, tangent_of, RULES)
    flags = active_flags([tangent for _, tangent in duals])
    results = [primal for primal, _ in duals]
    results += active_nodes([t for _, t in duals], function.results, flags)
    return Function(f"{function.name}.fwd", function.parameters + tangents, tuple(results)), flags


def with_result_tangents(function: Function, active: tuple[bool, ...], wanted: Sequence[bool]) -> Function:
    """The function of `push_forward` with a tangent for each wanted result; inactive ones have zero tangents."""
    derived, flags = push_forward(function, active)
    count = len(function.results)
    tangents = spread(derived.results[count:], flags)
    nodes = active_nodes(tangents, function.results, wanted)
    return Function(derived.name, derived.parameters, (*derived.results[:count], *nodes))


def split_results(value: Node, count: int, flags: Sequence[bool]) -> tuple[Node, Tangent]:
    """Splits the results of a derived function into the `count` results of the original and their tangent."""
    nodes = result_nodes(value, count + sum(flags))
    return pack_results(nodes[:count]), result_tangent(spread(nodes[count:], flags))


def _call(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    function: Function = node.attribute("function")
    active = active_flags(tangents)
    derived, flags = push_forward(function, active)
    value = call(*primals, *active_nodes(tangents, primals, active), function=derived)
    return split_results(value, len(function.results), flags)


def call_tangent(function: Function, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> Tangent:
    """The tangent of a call; the caller already has the value."""
    active = active_flags(tangents)
    derived, flags = push_forward(function, active)
    value = call(*primals, *active_nodes(tangents, primals, active), function=derived)
    return split_results(value, len(function.results), flags)[1]


def _push_through_branches(
    node: Node,
    primals: tuple[Node, ...],
    tangents: tuple[Tangent, ...],
    functions: tuple[Function, ...],
    rebuild: Callable[[tuple[Node, ...], tuple[Function, ...]], Node],
) -> tuple[Node, Tangent]:
    active = active_flags(tangents[1:])
    flags = union(*(push_forward(function, active)[1] for function in functions))
    derived = tuple(with_result_tangents(function, active, flags) for function in functions)
    value = rebuild((*primals, *active_nodes(tangents[1:], primals[1:], active)), derived)
    return split_results(value, len(functions[0].results), flags)


def _cond(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    functions = (node.attribute("then"), node.attribute("otherwise"))
    return _push_through_branches(
        node, primals, tangents, functions, lambda operands, fs: cond(*operands, then=fs[0], otherwise=fs[1])
    )


def _switch(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    return _push_through_branches(
        node, primals, tangents, node.attribute("branches"), lambda operands, fs: switch(*operands, branches=fs)
    )


def carried_activity(
    body: Function, initial: tuple[bool, ...], captured: tuple[bool, ...], derive: Callable[..., tuple[bool, ...]]
) -> tuple[bool, ...]:
    """Which carried values have a tangent in some iteration."""
    return carried_flags(initial, lambda active: derive(body, (False, *active, *captured)))


def loop_operands(
    primals: Sequence[Node],
    tangents: Sequence[Tangent],
    carried: int,
    flags: tuple[bool, ...],
    captured: tuple[bool, ...],
) -> tuple[Node, ...]:
    """Carried values, their tangents, captured values, their tangents."""
    return (
        *primals[:carried],
        *active_nodes(tangents[:carried], primals[:carried], flags),
        *primals[carried:],
        *active_nodes(tangents[carried:], primals[carried:], captured),
    )


def loop_body(body: Function, carried: int, flags: tuple[bool, ...], captured: tuple[bool, ...]) -> Function:
    """The derived body; its parameters are the index, then the operands in the order of `loop_operands`."""
    derived = with_result_tangents(body, (False, *flags, *captured), flags)
    count = len(body.parameters)
    tangents = derived.parameters[count:]
    active = sum(flags)
    order = [*body.parameters[: 1 + carried], *tangents[:active], *body.parameters[1 + carried :], *tangents[active:]]
    return reorder_parameters(derived, order)


def reorder_parameters(function: Function, order: Sequence[Node]) -> Function:
    """The function with its parameters in the given order; `order` contains each parameter once."""
    fresh = parameters_of([node.type for node in order])
    results = substitute(function.results, dict(zip(order, fresh, strict=True)))
    return Function(function.name, fresh, results)


def _for_loop(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    body, carried = node.attribute("body"), node.attribute("carried")
    iterations, *values = primals
    operand_tangents = tangents[1:]
    captured = active_flags(operand_tangents[carried:])
    flags = carried_activity(
        body, active_flags(operand_tangents[:carried]), captured, lambda f, a: push_forward(f, a)[1]
    )
    loop = for_loop(
        iterations,
        *loop_operands(values, operand_tangents, carried, flags, captured),
        body=loop_body(body, carried, flags, captured),
        carried=carried + sum(flags),
        reverse=node.attribute("reverse"),
        **promise_of(node),
    )
    return _split_loop(loop, carried, flags)


def _split_loop(loop: Node, carried: int, flags: tuple[bool, ...]) -> tuple[Node, Tangent]:
    nodes = [get(loop, index=index) for index in range(carried + sum(flags))]
    return make_tuple(*nodes[:carried]), tuple(spread(nodes[carried:], flags))


def _while_loop(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    body, carried = node.attribute("body"), node.attribute("carried")
    captured = active_flags(tangents[carried:])
    flags = carried_activity(body, active_flags(tangents[:carried]), captured, lambda f, a: push_forward(f, a)[1])
    operands = loop_operands(primals, tangents, carried, flags, captured)
    loop = while_loop(
        *operands,
        condition=_add_tangent_parameters(node.attribute("condition"), carried, sum(flags), [n.type for n in operands]),
        body=loop_body(body, carried, flags, captured),
        carried=carried + sum(flags),
        limit=node.attribute("limit"),
    )
    return _split_loop(loop, carried, flags)


def _add_tangent_parameters(condition: Function, carried: int, more: int, types: list[Type]) -> Function:
    """The condition with `more` unused parameters after the carried values, for their tangents."""
    fresh = parameters_of(types)
    positions = [*range(carried), *range(carried + more, len(condition.parameters) + more)]
    replacements = {parameter: fresh[index] for parameter, index in zip(condition.parameters, positions, strict=True)}
    return Function(condition.name, fresh, substitute(condition.results, replacements))


def _map(node: Node, primals: tuple[Node, ...], tangents: tuple[Tangent, ...]) -> tuple[Node, Tangent]:
    function, lifted, summed = (node.attribute(name) for name in ("function", "lifted", "summed"))
    active = active_flags(tangents)
    derived, flags = push_forward(function, active)
    value = map_(
        *primals,
        *active_nodes(tangents, primals, active),
        function=derived,
        lifted=(*lifted, *(flag for flag, on in zip(lifted, active, strict=True) if on)),
        summed=(*summed, *(flag for flag, on in zip(summed, flags, strict=True) if on)),
    )
    return split_results(value, len(function.results), flags)


RULES: dict[Op, ControlRule] = {
    call: _call,
    cond: _cond,
    switch: _switch,
    for_loop: _for_loop,
    while_loop: _while_loop,
    map_: _map,
}


@propagates_lines
def jvp(function: Function) -> Function:
    """(arguments, a tangent for each) → (results, a tangent for each).

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f64
    >>> derived = jvp(trace(lambda x: x * x, f64))
    >>> derived.parameter_types, derived.result_types
    ((f64, f64), (f64, f64))
    """
    types = function.parameter_types
    active = tuple(map(is_differentiable, types))
    derived = with_result_tangents(function, active, (True,) * len(function.results))
    count = len(types)
    fresh = parameters_of([*types, *map(differential_of, types)])
    supply = iter(derived.parameters[count:])
    replacements = dict(zip(derived.parameters[:count], fresh[:count], strict=True))
    replacements |= {next(supply): fresh[count + index] for index, flag in enumerate(active) if flag}
    return Function(derived.name, fresh, substitute(derived.results, replacements))

"""The loop pass `unroll_and_jam`: a loop that adds to the same elements in each iteration adds several times at once.

In: `for k: for j: c[i, j] += a[i, k] * b[k, j]`, in a kernel without lanes. Each element is read, changed by several
iterations of the outer loop in their order, and written: the same bits with a few of the reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from livegrad.ir.function import map_results
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.types import Scalar, Tensor, i64
from livegrad.ir.walk import nodes_of, substitute, toposort
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.assignment import assign, indices_of
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.elementwise import add, floor_div, maximum, mul, sub
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.functions import rewrite_functions, uses_any
from livegrad.schedule.loops.cost_model import JAMMED_ITERATIONS, JAMMED_NODES
from livegrad.schedule.loops.nest import LoopNest


def unroll_and_jam(nest: LoopNest) -> LoopNest:
    """Unrolls loops of a kernel without lanes around the loops that they repeat over the same elements."""
    return rewrite_scalar_loops(nest, _rewrite_loop)


def rewrite_scalar_loops(nest: LoopNest, rewrite: Callable[[Node], Node | None]) -> LoopNest:
    """Rewrites the nodes of a kernel without lanes whose bodies have loops."""
    bases = [buffer.base for buffer in nest.step.indexed_buffers]
    if nest.lanes > 1 or len(set(bases)) < len(bases):  # a tensor could be read under another name
        return nest
    stages = nest.kernel.stages
    return nest.with_stages(tuple([replace(stage, body=_with_loops(stage.body, rewrite)) for stage in stages]))


@lru_cache(maxsize=2048)
def _with_loops(function: Function, rewrite: Callable[[Node], Node | None]) -> Function:
    if not uses_any([function], (for_loop,)):
        return function
    return rewrite_functions(Module((function,)), lambda inner: map_results(inner, rewrite)).functions[0]


def _rewrite_loop(node: Node) -> Node | None:
    if node.op is not for_loop:
        return get_of_make(node)
    count = constant_integer(node.operands[0])
    factor = next((times for least, times in JAMMED_ITERATIONS if count is None or count >= least), 1)
    return make_tuple(_run_jammed(node, factor)) if factor > 1 and _is_accumulation(node) else None


# --- legality of jamming ---------------------------------------------------------------------------------------------


class CarryingLoop(NamedTuple):
    """A loop that carries one tensor: how often it runs, the tensor, what else it takes, and its body."""

    iterations: Node
    tensor: Node
    captured: tuple[Node, ...]
    body: Function


def loop_of(node: Node) -> CarryingLoop | None:
    """A plain loop that carries a tensor and may not fail by itself."""
    if node.op is not for_loop or node.attribute("carried") != 1 or not isinstance(node.operands[1].type, Tensor):
        return None
    if len(node.attributes) > 3 or node.attribute("reverse") or node.operands[1] in node.operands[2:]:
        return None
    return CarryingLoop(node.operands[0], node.operands[1], node.operands[2:], node.attribute("body"))


def _is_accumulation(node: Node) -> bool:
    """Whether all iterations run the same inner loops, which update each element independently."""
    outer = loop_of(node)
    if outer is None:
        return False
    moving, inside = {outer.body.parameters[0]}, outer.body
    indices: list[Node] = []  # of the loops inside, as the innermost body has them
    loop = only_loop(inside)
    if loop is None:
        return False
    while loop is not None:
        depending = depending_on(inside, moving)
        if loop.iterations in depending:
            return False
        body = loop.body
        captured_by_parameter = dict(zip(loop.captured, body.parameters[2:], strict=True))
        moving = {parameter for operand, parameter in captured_by_parameter.items() if operand in depending}
        if any(index not in captured_by_parameter for index in indices):
            return False
        indices = [*[captured_by_parameter[index] for index in indices], body.parameters[0]]
        inside, loop = body, only_loop(body)
    return _changes_by_element(inside, moving, indices)


def depending_on(function: Function, moving: set[Node]) -> set[Node]:
    """The nodes of a function that are others in other iterations."""
    depending = set(moving)
    for node in nodes_of(function):
        if not depending.isdisjoint(node.operands):
            depending.add(node)
    return depending


def only_loop(body: Function) -> CarryingLoop | None:
    """The only node of a body that uses the carried tensor, if it is a loop; else None."""
    (result,), tensor = body.results, body.parameters[1]
    if result.op is not get or not result.operands[0].functions:
        return None
    node = result.operands[0]
    loop = loop_of(node)
    if loop is None or loop.tensor is not tensor:
        return None
    others = [other for other in nodes_of(body) if other not in (node, result)]
    pure = not any(other.may_fail or other.functions or tensor in other.operands for other in others)
    return loop if pure else None


def _changes_by_element(body: Function, moving: set[Node], indices: Sequence[Node]) -> bool:
    """Whether a body changes one element of its tensor, which has these indices among its own and no moving ones."""
    (write,), tensor, nodes = body.results, body.parameters[1], nodes_of(body)
    if write.op is not assign or len(nodes) > JAMMED_NODES:
        return False
    written = indices_of(write)
    reads = [node for node in nodes if tensor in node.operands and node is not write]
    if not reads or any(node.op is not lookup or indices_of(node) != written for node in reads):
        return False
    if any(node.may_fail or node.functions for node in nodes) or write.operands[0] is not tensor:
        return False
    if not depending_on(body, moving).isdisjoint(written) or any(index not in written for index in indices):
        return False
    return isinstance(write.operands[1].type, Scalar)


# --- the jammed loops ------------------------------------------------------------------------------------------------


def _run_jammed(node: Node, factor: int) -> Node:
    """The tensor after all iterations: several at once, then the remaining ones."""
    loop = loop_of(node)
    assert loop is not None
    groups, done, rest = in_groups(loop.iterations, factor)
    after = get(make_node(for_loop, (groups, *node.operands[1:]), loop_attributes(_several(loop, factor))), index=0)
    if constant_integer(rest) == 0:
        return after
    operands = (rest, after, *loop.captured, done)
    return get(make_node(for_loop, operands, loop_attributes(from_iteration(loop.body))), index=0)


def in_groups(iterations: Node, size: int) -> tuple[Node, Node, Node]:
    """How many groups of so many iterations there are, how many iterations these are, and how many remain."""
    count = constant_integer(iterations)
    if count is not None:
        groups = max(count, 0) // size
        return constant(groups, i64), constant(groups * size, i64), constant(max(count, 0) - groups * size, i64)
    every = maximum(iterations, constant(0, i64))
    groups_run = floor_div(every, constant(size, i64))
    done = mul(groups_run, constant(size, i64))
    return groups_run, done, sub(every, done)


def loop_attributes(body: Function, carried: int = 1) -> tuple[tuple[str, Function | int | bool], ...]:
    """Of a plain loop that carries so many values."""
    return (("body", body), ("carried", carried), ("reverse", False))


def from_iteration(body: Function) -> Function:
    """The body for iterations from a further argument on."""
    parameters = parameters_of([*body.parameter_types, i64])
    replacements = dict(zip(body.parameters, (add(parameters[0], parameters[-1]), *parameters[1:-1]), strict=True))
    return Function(body.name, parameters, substitute(body.results, replacements, body.source_locations))


def _several(loop: CarryingLoop, factor: int) -> Function:
    """The body of an outer loop that takes several iterations at once."""
    parameters = parameters_of(loop.body.parameter_types)
    first = mul(parameters[0], constant(factor, i64))
    copies = [
        dict(zip(loop.body.parameters, (plus(first, number), *parameters[1:]), strict=True)) for number in range(factor)
    ]
    return Function(loop.body.name, parameters, (_jammed(loop.body, parameters[1], copies),))


def plus(node: Node, number: int) -> Node:
    """The sum of an integer and a constant."""
    return add(node, constant(number, i64)) if number else node


def _jammed(body: Function, tensor: Node, copies: list[dict[Node, Node]]) -> Node:
    """The tensor after a body ran once for each copy of its parameters: element by element."""
    inner = only_loop(body)
    if inner is None:
        return _changed_in_turn(body, tensor, copies)
    captured = [substitute(inner.captured, copy, body.source_locations) for copy in copies]
    distinct = list(dict.fromkeys([operand for operands in captured for operand in operands]))
    parameters = parameters_of([i64, tensor.type, *[operand.type for operand in distinct]])
    inside = dict(zip(distinct, parameters[2:], strict=True))
    within = [
        dict(zip(inner.body.parameters, (*parameters[:2], *[inside[own] for own in operands]), strict=True))
        for operands in captured
    ]
    function = Function(inner.body.name, parameters, (_jammed(inner.body, parameters[1], within),))
    (count,) = substitute([inner.iterations], copies[0], body.source_locations)
    return get(make_node(for_loop, (count, tensor, *distinct), loop_attributes(function)), index=0)


def _changed_in_turn(body: Function, tensor: Node, copies: list[dict[Node, Node]]) -> Node:
    """The tensor with one element changed by each copy in turn."""
    write, element = body.results[0], None
    reads = [node for node in toposort([write]) if node.op is lookup and node.operands[0] is body.parameters[1]]
    for copy in copies:
        replacements = copy if element is None else {**copy, **dict.fromkeys(reads, element)}
        (element,) = substitute([write.operands[1]], replacements, body.source_locations)
    assert element is not None
    indices = substitute(indices_of(write), copies[0], body.source_locations)
    return make_node(assign, (tensor, element, *indices), write.attributes)

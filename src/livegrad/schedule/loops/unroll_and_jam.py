"""Unroll-and-jam: several iterations of an outer loop update each element between one load and one store.

In: `for k: for j: c[i, j] += a[i, k] * b[k, j]`, in a kernel without lanes. Each element is loaded, updated by several
iterations of the outer loop in their order, and stored. The bits are the same, with fewer loads and stores.
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
    """Unrolls outer loops of a kernel without lanes and jams their inner loops."""
    return rewrite_scalar_loops(nest, _rewrite_loop)


def rewrite_scalar_loops(nest: LoopNest, rewrite: Callable[[Node], Node | None]) -> LoopNest:
    """Applies a rewrite rule to the bodies with loops of a kernel without lanes."""
    bases = [buffer.base for buffer in nest.step.indexed_buffers]
    if nest.lanes > 1 or len(set(bases)) < len(bases):  # two indexed buffers may alias
        return nest
    stages = nest.kernel.stages
    return nest.with_stages(tuple([replace(stage, body=_rewrite_loops(stage.body, rewrite)) for stage in stages]))


@lru_cache(maxsize=2048)
def _rewrite_loops(function: Function, rewrite: Callable[[Node], Node | None]) -> Function:
    if not uses_any([function], (for_loop,)):
        return function
    return rewrite_functions(Module((function,)), lambda inner: map_results(inner, rewrite)).functions[0]


def _rewrite_loop(node: Node) -> Node | None:
    if node.op is not for_loop:
        return get_of_make(node)
    count = constant_integer(node.operands[0])
    factor = next((factor for least, factor in JAMMED_ITERATIONS if count is None or count >= least), 1)
    return make_tuple(_run_jammed(node, factor)) if factor > 1 and _is_accumulation(node) else None


# --- legality of jamming ---------------------------------------------------------------------------------------------


class CarryingLoop(NamedTuple):
    """A loop that carries one tensor: the number of iterations, the tensor, the captured operands, and the body."""

    iterations: Node
    tensor: Node
    captured: tuple[Node, ...]
    body: Function


def as_carrying_loop(node: Node) -> CarryingLoop | None:
    """Destructures a forward loop that carries a single tensor; None for other nodes."""
    if node.op is not for_loop or node.attribute("carried") != 1 or not isinstance(node.operands[1].type, Tensor):
        return None
    if len(node.attributes) > 3 or node.attribute("reverse") or node.operands[1] in node.operands[2:]:
        return None
    return CarryingLoop(node.operands[0], node.operands[1], node.operands[2:], node.attribute("body"))


def _is_accumulation(node: Node) -> bool:
    """Whether all iterations run the same inner loops, which update each element independently."""
    outer = as_carrying_loop(node)
    if outer is None:
        return False
    varying, current = {outer.body.parameters[0]}, outer.body
    indices: list[Node] = []  # the indices of the inner loops, in terms of the innermost body
    loop = find_only_loop(current)
    if loop is None:
        return False
    while loop is not None:
        dependents = find_dependents(current, varying)
        if loop.iterations in dependents:
            return False
        body = loop.body
        captured_by_parameter = dict(zip(loop.captured, body.parameters[2:], strict=True))
        varying = {parameter for operand, parameter in captured_by_parameter.items() if operand in dependents}
        if any(index not in captured_by_parameter for index in indices):
            return False
        indices = [*[captured_by_parameter[index] for index in indices], body.parameters[0]]
        current, loop = body, find_only_loop(body)
    return _updates_one_element(current, varying, indices)


def find_dependents(function: Function, varying: set[Node]) -> set[Node]:
    """The nodes of a function that depend on varying parameters, including these."""
    dependents = set(varying)
    for node in nodes_of(function):
        if not dependents.isdisjoint(node.operands):
            dependents.add(node)
    return dependents


def find_only_loop(body: Function) -> CarryingLoop | None:
    """The loop of a body that is the only user of the carried tensor; None if there is no such loop."""
    (result,), tensor = body.results, body.parameters[1]
    if result.op is not get or not result.operands[0].functions:
        return None
    node = result.operands[0]
    loop = as_carrying_loop(node)
    if loop is None or loop.tensor is not tensor:
        return None
    others = [other for other in nodes_of(body) if other not in (node, result)]
    is_only_user = not any(other.may_fail or other.functions or tensor in other.operands for other in others)
    return loop if is_only_user else None


def _updates_one_element(body: Function, varying: set[Node], indices: Sequence[Node]) -> bool:
    """Whether a body updates one element of its tensor, at all of these indices and at no varying index."""
    (write,), tensor, nodes = body.results, body.parameters[1], nodes_of(body)
    if write.op is not assign or len(nodes) > JAMMED_NODES:
        return False
    write_indices = indices_of(write)
    reads = [node for node in nodes if tensor in node.operands and node is not write]
    if not reads or any(node.op is not lookup or indices_of(node) != write_indices for node in reads):
        return False
    if any(node.may_fail or node.functions for node in nodes) or write.operands[0] is not tensor:
        return False
    dependents = find_dependents(body, varying)
    if not dependents.isdisjoint(write_indices) or any(index not in write_indices for index in indices):
        return False
    return isinstance(write.operands[1].type, Scalar)


# --- the jammed loops ------------------------------------------------------------------------------------------------


def _run_jammed(node: Node, factor: int) -> Node:
    """The tensor after all iterations: groups of jammed iterations, then the remaining ones."""
    loop = as_carrying_loop(node)
    assert loop is not None
    groups, done, rest = split_iterations(loop.iterations, factor)
    after = get(make_node(for_loop, (groups, *node.operands[1:]), loop_attributes(_unroll_body(loop, factor))), index=0)
    if constant_integer(rest) == 0:
        return after
    operands = (rest, after, *loop.captured, done)
    return get(make_node(for_loop, operands, loop_attributes(shift_iterations(loop.body))), index=0)


def split_iterations(iterations: Node, size: int) -> tuple[Node, Node, Node]:
    """The number of groups of `size` iterations, the number of iterations in these groups, and of remaining ones."""
    count = constant_integer(iterations)
    if count is not None:
        groups = max(count, 0) // size
        return constant(groups, i64), constant(groups * size, i64), constant(max(count, 0) - groups * size, i64)
    total = maximum(iterations, constant(0, i64))
    group_count = floor_div(total, constant(size, i64))
    done = mul(group_count, constant(size, i64))
    return group_count, done, sub(total, done)


def loop_attributes(body: Function, carried: int = 1) -> tuple[tuple[str, Function | int | bool], ...]:
    """The attributes of a forward loop."""
    return (("body", body), ("carried", carried), ("reverse", False))


def shift_iterations(body: Function) -> Function:
    """A body whose index starts at an additional argument."""
    parameters = parameters_of([*body.parameter_types, i64])
    replacements = dict(zip(body.parameters, (add(parameters[0], parameters[-1]), *parameters[1:-1]), strict=True))
    return Function(body.name, parameters, substitute(body.results, replacements, body.source_locations))


def _unroll_body(loop: CarryingLoop, factor: int) -> Function:
    """The body of an outer loop that runs `factor` iterations at once."""
    parameters = parameters_of(loop.body.parameter_types)
    first = mul(parameters[0], constant(factor, i64))
    copies = [
        dict(zip(loop.body.parameters, (add_constant(first, copy), *parameters[1:]), strict=True))
        for copy in range(factor)
    ]
    return Function(loop.body.name, parameters, (_jam(loop.body, parameters[1], copies),))


def add_constant(node: Node, value: int) -> Node:
    """The sum of an integer node and a constant."""
    return add(node, constant(value, i64)) if value else node


def _jam(body: Function, tensor: Node, copies: list[dict[Node, Node]]) -> Node:
    """The tensor after running a body once for each substitution of its parameters, fused element by element."""
    inner = find_only_loop(body)
    if inner is None:
        return _update_element(body, tensor, copies)
    captured = [substitute(inner.captured, copy, body.source_locations) for copy in copies]
    distinct = list(dict.fromkeys([operand for operands in captured for operand in operands]))
    parameters = parameters_of([i64, tensor.type, *[operand.type for operand in distinct]])
    parameter_of = dict(zip(distinct, parameters[2:], strict=True))
    inner_copies = [
        dict(zip(inner.body.parameters, (*parameters[:2], *[parameter_of[o] for o in operands]), strict=True))
        for operands in captured
    ]
    function = Function(inner.body.name, parameters, (_jam(inner.body, parameters[1], inner_copies),))
    (count,) = substitute([inner.iterations], copies[0], body.source_locations)
    return get(make_node(for_loop, (count, tensor, *distinct), loop_attributes(function)), index=0)


def _update_element(body: Function, tensor: Node, copies: list[dict[Node, Node]]) -> Node:
    """The tensor after all copies have updated one element in their order."""
    write, element = body.results[0], None
    reads = [node for node in toposort([write]) if node.op is lookup and node.operands[0] is body.parameters[1]]
    for copy in copies:
        replacements = copy if element is None else {**copy, **dict.fromkeys(reads, element)}
        (element,) = substitute([write.operands[1]], replacements, body.source_locations)
    assert element is not None
    indices = substitute(indices_of(write), copies[0], body.source_locations)
    return make_node(assign, (tensor, element, *indices), write.attributes)

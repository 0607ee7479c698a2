"""Rules of control flow: resolve constant conditions, unroll trivial loops, and simplify arguments and results."""

from __future__ import annotations

from collections.abc import Mapping

from livegrad.ir.function import inline
from livegrad.ir.leaves import constant, constant_op, parameter
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Type, i64, shape_of
from livegrad.ir.walk import nodes_of, substitute
from livegrad.ops.aggregate import make_tuple, splat
from livegrad.ops.comparison import bit_not
from livegrad.ops.control import cond, for_loop
from livegrad.ops.maps import map_
from livegrad.ops.movement import broadcast
from livegrad.passes.differentiate.tangents import pack_results
from livegrad.passes.regions import Region, region_of, used_parameters


def _region(node: Node) -> Region:
    region = region_of(node)
    assert region is not None
    return region


def _inline(function: Function, arguments: tuple[Node, ...]) -> Node:
    return pack_results(list(inline(function, arguments)))


# --- branches --------------------------------------------------------------------------------------------------------


def branch_on_constant(node: Node) -> Node | None:
    """A `cond` on a constant, or a `switch` on a constant in range, becomes the selected branch."""
    region = _region(node)
    (selector,) = region.leading
    if selector.op is not constant_op:
        return None
    value = selector.attribute("value")
    if node.op is cond:
        return _inline(region.functions[0 if value else 1], region.arguments)
    return _inline(region.functions[value], region.arguments) if 0 <= value < len(region.functions) else None


def merge_equal_branches(node: Node) -> Node | None:
    then, otherwise = _region(node).functions
    return _inline(then, node.operands[1:]) if then == otherwise else None


def branch_on_not(node: Node) -> Node | None:
    predicate, *arguments = node.operands
    if predicate.op is not bit_not:
        return None
    return cond(*predicate.operands, *arguments, then=node.attribute("otherwise"), otherwise=node.attribute("then"))


def forward_unchanged_results(node: Node) -> Node | None:
    """Moves results out of a branch that are the same argument, or the same constant, on both sides."""
    region = _region(node)
    then, otherwise = region.functions
    arguments = {parameter: region.arguments[index] for index, parameter in enumerate(then.parameters)}
    forwarded: dict[int, Node] = {}
    for index, (first, second) in enumerate(zip(then.results, otherwise.results, strict=True)):
        if first is second and (first in arguments or first.op is constant_op):
            forwarded[index] = arguments.get(first, first)
    if not forwarded:
        return None
    remaining = [index for index in range(region.number) if index not in forwarded]
    if remaining:
        narrowed = region.narrow(range(len(region.arguments)), remaining)
        forwarded.update(zip(remaining, _region(narrowed).members, strict=True))
    return region.pack([forwarded[index] for index in range(region.number)])


# --- loops -----------------------------------------------------------------------------------------------------------


def loop_without_iterations(node: Node) -> Node | None:
    iterations, *arguments = node.operands
    if iterations.op is not constant_op or iterations.attribute("value") > 0:
        return None
    return make_tuple(*arguments[: node.attribute("carried")])


def loop_of_one_iteration(node: Node) -> Node | None:
    iterations, *arguments = node.operands
    if iterations.op is not constant_op or iterations.attribute("value") != 1:
        return None
    return make_tuple(*inline(node.attribute("body"), [constant(0, i64), *arguments]))


def while_of_false(node: Node) -> Node | None:
    (test,) = node.attribute("condition").results
    if test.op is not constant_op or test.attribute("value"):
        return None
    return make_tuple(*node.operands[: node.attribute("carried")])


def capture_invariant_values(node: Node) -> Node | None:
    """Captures carried values that the body returns unchanged. A `while_loop` must keep one carried value."""
    region = _region(node)
    body = region.functions[-1]
    changed = [index for index, result in enumerate(body.results) if result is not body.parameters[1 + index]]
    if len(changed) == region.number or (not changed and node.op is not for_loop):
        return None
    unchanged = [index for index in range(region.number) if index not in changed]
    results = dict(zip(unchanged, (region.arguments[index] for index in unchanged), strict=True))
    if changed:
        loop = region.narrow([*changed, *range(region.number, len(region.arguments)), *unchanged], changed)
        results.update(zip(changed, _region(loop).members, strict=True))
    return make_tuple(*(results[index] for index in range(region.number)))


# --- operands of branches, loops and maps ----------------------------------------------------------------------------


def _captures(region: Region) -> range:
    return range(region.number if region.is_loop else 0, len(region.arguments))


def _is_constant(node: Node) -> bool:
    return node.op is constant_op or (node.op is splat and node.operands[0].op is constant_op)


def drop_unused_arguments(node: Node) -> Node | None:
    region = _region(node)
    used = {
        index - offset
        for f, offset in zip(region.functions, region.offsets, strict=True)
        for index in used_parameters(f)
    }
    unused = [index for index in _captures(region) if index not in used]
    if node.op is map_:
        lifted = node.attribute("lifted")
        # A map takes its domain from a lifted argument, so one must stay.
        domain_argument = next((index for index in sorted(used) if lifted[index]), lifted.index(True))
        unused = [index for index in unused if index != domain_argument]
    if not unused:
        return None
    return region.narrow([index for index in range(len(region.arguments)) if index not in unused])


def move_constants_inside(node: Node) -> Node | None:
    """Moves constants that a branch, loop or map captures into its functions."""
    region = _region(node)
    constants = {index: region.arguments[index] for index in _captures(region) if _is_constant(region.arguments[index])}
    if node.op is map_:
        constants = {index: value for index, value in constants.items() if not node.attribute("lifted")[index]}
    if not constants:
        return None
    return region.narrow([index for index in range(len(region.arguments)) if index not in constants], None, constants)


def sink_broadcasts(node: Node) -> Node | None:
    """Sinks a captured broadcast into a loop that only uses it elementwise, so that it needs no memory."""
    region = _region(node)
    broadcasts = {
        index: value
        for index in _captures(region)
        if (value := region.arguments[index]).op is broadcast
        and all(isinstance(size, int) for size in shape_of(value.type))
        and all(
            _is_used_elementwise(f, offset + index) for f, offset in zip(region.functions, region.offsets, strict=True)
        )
    }
    if not broadcasts:
        return None
    functions = [
        _broadcast_inside(f, offset, broadcasts) for f, offset in zip(region.functions, region.offsets, strict=True)
    ]
    arguments = [broadcasts[i].operands[0] if i in broadcasts else value for i, value in enumerate(region.arguments)]
    return region.rebuild((*region.leading, *arguments), functions, range(len(arguments)), range(region.number))


def _is_used_elementwise(function: Function, index: int) -> bool:
    parameter = function.parameters[index]
    return parameter not in function.results and all(
        n.op.elementwise for n in nodes_of(function) if parameter in n.operands
    )


def _broadcast_inside(function: Function, offset: int, broadcasts: Mapping[int, Node]) -> Function:
    parameters, replacements = list(function.parameters), {}
    for index, value in broadcasts.items():
        position = offset + index
        parameters[position] = parameter(position, value.operands[0].type)
        replacements[function.parameters[position]] = broadcast(parameters[position], **dict(value.attributes))
    return Function(function.name, tuple(parameters), substitute(function.results, replacements))


def merge_equal_arguments(node: Node) -> Node | None:
    """Passes an argument once that is captured twice."""
    region = _region(node)
    types, offset = region.functions[0].parameter_types, region.offsets[0]
    first: dict[tuple[Node, Type], int] = {}
    duplicates: dict[int, int | Node] = {}
    for index in _captures(region):
        # The type matters: a map may take a tensor both by point and as a whole.
        first_index = first.setdefault((region.arguments[index], types[offset + index]), index)
        if first_index != index:
            duplicates[index] = first_index
    if not duplicates:
        return None
    return region.narrow([index for index in range(len(region.arguments)) if index not in duplicates], None, duplicates)

"""The `loop_over_elements` pass: lowers tensor ops in loop bodies to loops over elements.

For the CPU. A loop whose body writes part of a tensor, or contains such a loop, becomes a loop nest over elements.
`scalarise_loops` and the scheduler turn it into one kernel, which writes in place. If that cannot be proven safe, the
loop stays a loop over whole tensors.
"""

from __future__ import annotations

from collections.abc import Callable

from livegrad.ir.function import map_results
from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import nodes_of, ops_in
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import for_loop, parameters_of, while_loop
from livegrad.ops.movement import inverse_permutation, permute
from livegrad.ops.rules import zero
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.functions import insert_unused_parameters
from livegrad.passes.in_place_loops import writes_in_place
from livegrad.passes.loop_over_elements.bodies import expand_condition, expand_function
from livegrad.passes.loop_over_elements.cost import gains_by_elements
from livegrad.passes.loop_over_elements.elements import NotExpanded
from livegrad.passes.loop_over_elements.known_zeros import mask_known_zeros
from livegrad.passes.loop_over_elements.layout import choose_permutations, rewrite_for_layout
from livegrad.passes.loop_over_elements.products import expand_products
from livegrad.passes.loop_over_elements.small_tensors import is_small_body, unroll_body
from livegrad.passes.loop_over_elements.versions import is_array
from livegrad.passes.regions import LOOPS, first_argument
from livegrad.passes.scalarise_loops import scalarise_loops


def loop_over_elements(function: Function) -> Function:
    """Replaces loops over tensors by loops over elements where these are expected to run faster."""
    return expand_loops(function, gains_by_elements) if not ops_in(function).isdisjoint(LOOPS) else function


@propagates_lines
def expand_loops(function: Function, is_chosen: Callable[[Node], bool]) -> Function:
    """Replaces the chosen loops by loops over elements if one kernel can run these."""
    return map_results(function, lambda node: _expand(node, is_chosen))


def runs_by_elements(loop: Node) -> bool:
    """Whether this pass or later ones will turn the loop into one kernel that writes its tensors in place."""
    return _runs_in_place(loop) or (gains_by_elements(loop) and _expand(loop, gains_by_elements) is not None)


def _expand(node: Node, is_chosen: Callable[[Node], bool]) -> Node | None:
    if node.op not in LOOPS or not is_chosen(node):
        return get_of_make(node)
    for rewrite in (_unroll_small_tensors, _expand_by_element):
        try:
            with originating_from(node.origins):
                loop = rewrite(node)
        except NotExpanded:
            continue
        if _runs_in_place(loop):
            return make_tuple(*_choose_layout(loop, node.attribute("carried")))
    return None


def _unroll_small_tensors(node: Node) -> Node:
    """Replaces the small tensors of a loop by scalars if its body is small; raises `NotExpanded` if not."""
    body: Function = node.attribute("body")
    if node.op is not for_loop or not is_small_body(body):
        raise NotExpanded
    attributes = tuple([(k, unroll_body(body) if k == "body" else v) for k, v in node.attributes])
    return make_node(node.op, node.operands, attributes)


def _choose_layout(loop: Node, count: int) -> list[Node]:
    """The first results of the loop, with transposed storage for tensors that it accesses by column."""
    axes = choose_permutations(loop)
    operands = [
        permute(operand, axes=axes[position]) if position in axes else operand
        for position, operand in enumerate(loop.operands)
    ]
    transposed = rewrite_for_layout(loop, tuple(operands), axes) if axes else None
    if transposed is None or not _runs_in_place(transposed):
        return [get(loop, index=index) for index in range(count)]
    positions = [first_argument(loop) + index for index in range(count)]
    values = [(position, get(transposed, index=index)) for index, position in enumerate(positions)]
    return [permute(v, axes=inverse_permutation(axes[position])) if position in axes else v for position, v in values]


def _expand_by_element(node: Node) -> Node:
    """The loop with its body expanded into loops over elements, and scratch tensors after its carried values."""
    first, carried = first_argument(node), node.attribute("carried")
    body = mask_known_zeros(node, expand_products(node.attribute("body")))
    destinations = [1 + i if is_array(type) else None for i, type in enumerate(body.result_types)]
    expanded = expand_function(body, destinations, scratch_position=1 + carried, constant_from=1 + carried)
    scratch = [zero(type) for type in expanded.scratch]
    operands = (*node.operands[: first + carried], *scratch, *node.operands[first + carried :])
    changes: dict[str, Attribute] = {"body": expanded.function, "carried": carried + len(scratch)}
    if node.op is while_loop:
        condition = expand_condition(expand_products(node.attribute("condition")))
        changes["condition"] = insert_unused_parameters(condition, carried, expanded.scratch)
    return make_node(node.op, operands, tuple([(name, changes.get(name, value)) for name, value in node.attributes]))


def _runs_in_place(loop: Node) -> bool:
    """Whether one kernel can run the loop after `scalarise_loops`."""
    parameters = parameters_of([operand.type for operand in loop.operands])
    loop_copy = make_node(loop.op, parameters, loop.attributes)
    function = scalarise_loops(Function("nest", parameters, (loop_copy,)))
    loops = [node for node in nodes_of(function) if node.op in LOOPS]
    return bool(loops) and all(map(writes_in_place, loops))

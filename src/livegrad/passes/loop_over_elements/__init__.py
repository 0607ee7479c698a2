"""The `loop_over_elements` pass: loop bodies that compute rows, columns and slices compute them element by element.

For the CPU. A loop whose body writes part of a tensor, or has such a loop inside, becomes a nest of loops over
elements. `scalarise_loops` and the scheduler make one kernel of it, which writes in place. A loop for which that cannot
be proven stays a loop over whole tensors.
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
from livegrad.passes.in_place_loops import writes_in_place
from livegrad.passes.loop_over_elements.bodies import expand_condition, expand_function, with_unused_parameters
from livegrad.passes.loop_over_elements.cost import gains_by_elements
from livegrad.passes.loop_over_elements.elements import NotExpanded
from livegrad.passes.loop_over_elements.known_zeros import mask_known_zeros
from livegrad.passes.loop_over_elements.layout import permute_inside, transposed_operands
from livegrad.passes.loop_over_elements.products import expand_products
from livegrad.passes.loop_over_elements.small_tensors import is_small_body, unroll_body
from livegrad.passes.loop_over_elements.versions import is_array
from livegrad.passes.regions import LOOPS, first_argument
from livegrad.passes.scalarise_loops import scalarise_loops


def loop_over_elements(function: Function) -> Function:
    """Replaces loops that write parts of tensors by loops over elements."""
    return expand_loops(function, gains_by_elements) if not ops_in(function).isdisjoint(LOOPS) else function


@propagates_lines
def expand_loops(function: Function, is_chosen: Callable[[Node], bool]) -> Function:
    """Replaces the chosen loops by loops over elements, if one kernel can run them."""
    return map_results(function, lambda node: _expand(node, is_chosen))


def runs_by_elements(loop: Node) -> bool:
    """Whether the pass, or later ones, will make a kernel of a loop that writes its tensors in place."""
    return _runs_in_place(loop) or (gains_by_elements(loop) and _expand(loop, gains_by_elements) is not None)


def _expand(node: Node, is_chosen: Callable[[Node], bool]) -> Node | None:
    if node.op not in LOOPS or not is_chosen(node):
        return get_of_make(node)
    for rewrite in (_unrolled, _by_element):
        try:
            with originating_from(node.origins):
                loop = rewrite(node)
        except NotExpanded:
            continue
        if _runs_in_place(loop):
            return make_tuple(*_results(loop, node.attribute("carried")))
    return None


def _unrolled(node: Node) -> Node:
    """The loop with its small tensors as scalars, if it computes few of them; only tensors in memory remain."""
    body: Function = node.attribute("body")
    if node.op is not for_loop or not is_small_body(body):
        raise NotExpanded
    attributes = tuple([(k, unroll_body(body) if k == "body" else v) for k, v in node.attributes])
    return make_node(node.op, node.operands, attributes)


def _results(loop: Node, number: int) -> list[Node]:
    """The first results of a loop, which stores the tensors that it goes through by column transposed."""
    axes = transposed_operands(loop)
    operands = [
        permute(operand, axes=axes[position]) if position in axes else operand
        for position, operand in enumerate(loop.operands)
    ]
    transposed = permute_inside(loop, tuple(operands), axes) if axes else None
    if transposed is None or not _runs_in_place(transposed):
        return [get(loop, index=index) for index in range(number)]
    positions = [first_argument(loop) + index for index in range(number)]
    values = [(position, get(transposed, index=index)) for index, position in enumerate(positions)]
    return [permute(v, axes=inverse_permutation(axes[position])) if position in axes else v for position, v in values]


def _by_element(node: Node) -> Node:
    """The loop over elements, with scratch tensors after its carried values."""
    first, carried = first_argument(node), node.attribute("carried")
    body = mask_known_zeros(node, expand_products(node.attribute("body")))
    destinations = [1 + i if is_array(type) else None for i, type in enumerate(body.result_types)]
    expanded = expand_function(body, destinations, at=1 + carried, constant_from=1 + carried)
    scratch = [zero(type) for type in expanded.scratch]
    operands = (*node.operands[: first + carried], *scratch, *node.operands[first + carried :])
    changes: dict[str, Attribute] = {"body": expanded.function, "carried": carried + len(scratch)}
    if node.op is while_loop:
        condition = expand_condition(expand_products(node.attribute("condition")))
        changes["condition"] = with_unused_parameters(condition, carried, expanded.scratch)
    return make_node(node.op, operands, tuple([(name, changes.get(name, value)) for name, value in node.attributes]))


def _runs_in_place(loop: Node) -> bool:
    """Whether one kernel can run the loop, once its numbers are scalars."""
    parameters = parameters_of([operand.type for operand in loop.operands])
    alone = make_node(loop.op, parameters, loop.attributes)
    function = scalarise_loops(Function("nest", parameters, (alone,)))
    loops = [node for node in nodes_of(function) if node.op in LOOPS]
    return bool(loops) and all(map(writes_in_place, loops))

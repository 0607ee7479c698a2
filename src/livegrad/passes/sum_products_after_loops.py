"""The `sum_products_after_loops` pass: hoists sums of matrix products out of loops, as one product after the loop.

The gradient of weights that each iteration uses is a sum of products of thin matrices, each of which updates all
weights. Instead, the loop stores the factors, and one product of the stacked factors follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from livegrad.ir.function import map_results
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Module, Node, make_node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tape, Tensor, f32, f64, shape_of
from livegrad.ir.walk import ops_below, substitute, toposort
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.elementwise import add
from livegrad.ops.indexing import scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute, reshape
from livegrad.ops.rules import is_zero_node
from livegrad.ops.tape import tape_new, tape_set, tape_stack
from livegrad.passes.flatten_signature import get_of_make
from livegrad.passes.functions import count_uses, rewrite_functions

_MIN_ELEMENTS = 1 << 11  # of a sum: updating smaller ones costs less than storing the factors
_MIN_RATIO = 8  # of the elements of a product to those of its factors
_MAX_BYTES = 1 << 26  # of the factors of all iterations


def sum_products_after_loops(function: Function) -> Function:
    """Hoists sums of products out of the loops of a function and of its nested functions."""
    if not {for_loop, matmul} <= ops_below(function):
        return function
    changed = rewrite_functions(Module((function,)), _hoist_products)
    return changed.functions[0]


@propagates_lines
def _hoist_products(function: Function) -> Function:
    def rule(node: Node) -> Node | None:
        member = get_of_make(node)
        return _hoist_from_loop(node) if member is None and node.op is for_loop else member

    return map_results(function, rule)


def _hoist_from_loop(loop: Node) -> Node | None:
    """The results of a loop, with sums of products computed after it; None if it has none."""
    body, carried, iterations = loop.attribute("body"), loop.attribute("carried"), loop.operands[0]
    if iterations.op is not constant_op or iterations.attribute("value") < 2:
        return None
    count = iterations.attribute("value")
    sums = {
        index: product_sum for index in range(carried) if (product_sum := _match_sum(body, index, count)) is not None
    }
    if not sums:
        return None
    with originating_from(loop.origins):
        results = dict(enumerate(body.results)) | {index: product_sum.rest for index, product_sum in sums.items()}
        remaining = [index for index in range(carried) if results[index] is not body.parameters[1 + index]]
        factors = [node for product_sum in sums.values() for node in _split_factors(product_sum.product)]
        inside = _build_storing_body(body, {index: results[index] for index in remaining}, factors)
        starts = [loop.operands[1 + index] for index in remaining]
        tapes = [tape_new(type=Tape(factor.type)) for factor in factors]
        stored = for_loop(
            iterations,
            *starts,
            *tapes,
            *loop.operands[1 + carried :],
            body=inside,
            carried=len(remaining) + len(tapes),
            reverse=loop.attribute("reverse"),
        )
        final_values = {index: loop.operands[1 + index] for index in range(carried)}
        final_values |= {index: get(stored, index=position) for position, index in enumerate(remaining)}
        for position, index in enumerate(sums):
            first_tape = len(remaining) + 2 * position
            rows = [tape_stack(get(stored, index=first_tape + factor), size=count) for factor in (0, 1)]
            product, start = _multiply_stacked(rows), final_values[index]
            final_values[index] = product if is_zero_node(start) else add(start, product)
    return make_tuple(*[final_values[index] for index in range(carried)])


@dataclass(frozen=True)
class _ProductSum:
    """A carried value to which an iteration adds a product; `rest` is its next value without the product."""

    product: Node
    rest: Node


def _match_sum(body: Function, index: int, count: int) -> _ProductSum | None:
    """Matches a carried value that is only used to add one thin product to it, and perhaps elements by index."""
    total, uses = body.parameters[1 + index], count_uses(body)
    addends, updates, pending = list[Node](), list[Node](), [body.results[index]]
    while pending:
        node = pending.pop()
        if node.op is add and uses[node] == 1:
            pending += node.operands
        elif node.op is scatter_add and uses[node] == 1:
            updates.append(node)
            pending.append(node.operands[0])
        else:
            addends.append(node)
    if len(addends) != 2 or total not in addends or uses[total] != 1:
        return None
    product = addends[1 - addends.index(total)]
    if uses[product] != 1 or not _is_thin(product, count):
        return None
    if not all(_is_variant(operand, body) for operand in product.operands):
        return None
    rest = total
    for update in updates:
        rest = make_node(update.op, (rest, *update.operands[1:]), update.attributes)
    return _ProductSum(product, rest)


def _is_thin(product: Node, count: int) -> bool:
    """Whether factors are much smaller than their product, and those of all iterations fit in memory."""
    if product.op is not matmul or not isinstance(product.type, Tensor):
        return False
    shapes = [shape_of(node.type) for node in (*product.operands, product)]
    if any(len(shape) != 2 for shape in shapes) or product.type.element not in (f32, f64):
        return False
    (rows, inner), (_, columns), _ = shapes
    factors = inner * (rows + columns)  # type: ignore[operator]  # sizes are bound by now
    stored = count * factors * product.type.element.dtype.itemsize
    return _MIN_RATIO * factors <= rows * columns and rows * columns >= _MIN_ELEMENTS and stored <= _MAX_BYTES  # type: ignore[operator]


def _is_variant(factor: Node, body: Function) -> bool:
    """Whether a factor depends on the iteration."""
    changing = body.parameters[: 1 + len(body.results)]
    return not set(changing).isdisjoint(toposort([factor]))


def _split_factors(product: Node) -> list[Node]:
    """The factors of a product, the first one transposed, so that both can be stacked by rows."""
    first, second = product.operands
    if first.op is permute:
        return [first.operands[0], second]
    rows, inner = shape_of(first.type)
    return [reshape(first, shape=(1, rows)) if inner == 1 else permute(first, axes=(1, 0)), second]


def _build_storing_body(body: Function, results: Mapping[int, Node], factors: Sequence[Node]) -> Function:
    """(index, the carried values of these results, a tape for each factor, captures) → the results and the tapes."""
    index, *arguments = body.parameters
    captures = arguments[len(body.results) :]
    leading = [index, *[arguments[position] for position in results]]
    tapes = [Tape(factor.type) for factor in factors]
    fresh = parameters_of([*[node.type for node in leading], *tapes, *[node.type for node in captures]])
    first_tape, first_capture = len(leading), len(leading) + len(tapes)
    replacements = dict(zip((*leading, *captures), (*fresh[:first_tape], *fresh[first_capture:]), strict=True))
    nodes = substitute([*results.values(), *factors], replacements, body.source_locations)
    rows = zip(fresh[first_tape:first_capture], nodes[len(results) :], strict=True)
    updated_tapes = [tape_set(tape, fresh[0], node) for tape, node in rows]
    return Function(body.name, fresh, (*nodes[: len(results)], *updated_tapes))


def _multiply_stacked(rows: Sequence[Node]) -> Node:
    """The product of the stacked factors, which sums over iterations."""
    stacked = []
    for factor in rows:
        count, inner, size = shape_of(factor.type)
        stacked.append(reshape(factor, shape=(count * inner, size)))
    return matmul(permute(stacked[0], axes=(1, 0)), stacked[1])

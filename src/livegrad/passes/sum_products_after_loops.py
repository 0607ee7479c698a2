"""The `sum_products_after_loops` pass: matrix products that a loop adds up become one product after it.

The gradient of weights that each iteration uses is a sum of products of thin matrices: each adds to all weights. The
loop stores the factors instead, and the product of all of them, stacked, is one product of large matrices.
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

_MIN_ELEMENTS = 1 << 11  # of a sum: below, adding to it costs less than the tapes of the factors
_THIN = 8  # so many times the elements of its factors has a product at least
_MAX_BYTES = 1 << 26  # of the factors of all iterations


def sum_products_after_loops(function: Function) -> Function:
    """The function, and those inside it, with products after loops in the place of sums of products in them."""
    if not {for_loop, matmul} <= ops_below(function):
        return function
    changed = rewrite_functions(Module((function,)), _with_products_after_loops)
    return changed.functions[0]


@propagates_lines
def _with_products_after_loops(function: Function) -> Function:
    def rule(node: Node) -> Node | None:
        taken = get_of_make(node)
        return _after_loop(node) if taken is None and node.op is for_loop else taken

    return map_results(function, rule)


def _after_loop(loop: Node) -> Node | None:
    """The results of a loop, with the sums of products among them computed after it; None if it has none."""
    body, carried, iterations = loop.attribute("body"), loop.attribute("carried"), loop.operands[0]
    if iterations.op is not constant_op or iterations.attribute("value") < 2:
        return None
    count = iterations.attribute("value")
    sums = {place: own for place in range(carried) if (own := _sum_of(body, place, count)) is not None}
    if not sums:
        return None
    with originating_from(loop.origins):
        results = dict(enumerate(body.results)) | {place: own.rest for place, own in sums.items()}
        others = [place for place in range(carried) if results[place] is not body.parameters[1 + place]]
        factors = [node for own in sums.values() for node in _factors(own.product)]
        inside = _storing_body(body, {place: results[place] for place in others}, factors)
        starts = [loop.operands[1 + place] for place in others]
        tapes = [tape_new(type=Tape(factor.type)) for factor in factors]
        stored = for_loop(
            iterations,
            *starts,
            *tapes,
            *loop.operands[1 + carried :],
            body=inside,
            carried=len(others) + len(tapes),
            reverse=loop.attribute("reverse"),
        )
        ends = {place: loop.operands[1 + place] for place in range(carried)}
        ends |= {place: get(stored, index=index) for index, place in enumerate(others)}
        for number, place in enumerate(sums):
            rows = [tape_stack(get(stored, index=len(others) + 2 * number + own), size=count) for own in (0, 1)]
            product, start = _product_of(rows), ends[place]
            ends[place] = product if is_zero_node(start) else add(start, product)
    return make_tuple(*[ends[place] for place in range(carried)])


@dataclass(frozen=True)
class _Sum:
    """What an iteration adds to a carried value: a product, and the value with everything else added."""

    product: Node
    rest: Node


def _sum_of(body: Function, place: int, count: int) -> _Sum | None:
    """What an iteration adds to a carried value which is used for nothing else: one product, and perhaps elements."""
    total, uses = body.parameters[1 + place], count_uses(body)
    addends, updates, pending = list[Node](), list[Node](), [body.results[place]]
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
    if not all(_varies(operand, body) for operand in product.operands):
        return None
    rest = total
    for update in updates:
        rest = make_node(update.op, (rest, *update.operands[1:]), update.attributes)
    return _Sum(product, rest)


def _is_thin(product: Node, count: int) -> bool:
    """Whether factors are much smaller than their product, and those of all iterations no more than memory holds."""
    if product.op is not matmul or not isinstance(product.type, Tensor):
        return False
    shapes = [shape_of(node.type) for node in (*product.operands, product)]
    if any(len(shape) != 2 for shape in shapes) or product.type.element not in (f32, f64):
        return False
    (rows, inner), (_, columns), _ = shapes
    factors = inner * (rows + columns)  # type: ignore[operator]  # sizes are bound by now
    stored = count * factors * product.type.element.dtype.itemsize
    return _THIN * factors <= rows * columns and rows * columns >= _MIN_ELEMENTS and stored <= _MAX_BYTES  # type: ignore[operator]


def _varies(factor: Node, body: Function) -> bool:
    """Whether a factor is another one in each iteration."""
    changing = body.parameters[: 1 + len(body.results)]
    return not set(changing).isdisjoint(toposort([factor]))


def _factors(product: Node) -> list[Node]:
    """The factors of a product as rows of what is stacked: the first one transposed."""
    first, second = product.operands
    if first.op is permute:
        return [first.operands[0], second]
    rows, inner = shape_of(first.type)
    return [reshape(first, shape=(1, rows)) if inner == 1 else permute(first, axes=(1, 0)), second]


def _storing_body(body: Function, results: Mapping[int, Node], factors: Sequence[Node]) -> Function:
    """(index, the carried values of these results, a tape for each factor, captures) → the results and the tapes."""
    index, *own = body.parameters
    captures = own[len(body.results) :]
    kept = [index, *[own[place] for place in results]]
    tapes = [Tape(factor.type) for factor in factors]
    fresh = parameters_of([*[node.type for node in kept], *tapes, *[node.type for node in captures]])
    first, behind = len(kept), len(kept) + len(tapes)
    given = dict(zip((*kept, *captures), (*fresh[:first], *fresh[behind:]), strict=True))
    nodes = substitute([*results.values(), *factors], given, body.source_locations)
    stored = zip(fresh[first:behind], nodes[len(results) :], strict=True)
    written = [tape_set(tape, fresh[0], node) for tape, node in stored]
    return Function(body.name, fresh, (*nodes[: len(results)], *written))


def _product_of(rows: Sequence[Node]) -> Node:
    """The product of factors that are stacked along what it sums over."""
    stacked = []
    for own in rows:
        count, inner, size = shape_of(own.type)
        stacked.append(reshape(own, shape=(count * inner, size)))
    return matmul(permute(stacked[0], axes=(1, 0)), stacked[1])

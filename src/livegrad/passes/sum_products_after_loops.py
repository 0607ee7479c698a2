"""The `sum_products_after_loops` pass: matrix products that a loop adds up become one product after it.

The gradient of weights that each iteration uses is a sum of products of thin matrices: each adds to all weights. The
loop stores the factors instead, and the product of all of them, stacked, is one product of large matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.ir.function import map_results
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Tape, Tensor, f32, f64, i64, shape_of
from livegrad.ir.walk import ops_below, substitute, toposort
from livegrad.ops.aggregate import get, make_tuple
from livegrad.ops.control import for_loop, parameters_of
from livegrad.ops.elementwise import add
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import permute, reshape
from livegrad.ops.rules import is_zero_node
from livegrad.ops.tape import tape_new, tape_set, tape_stack
from livegrad.passes.flatten_signature import take_from_made
from livegrad.passes.functions import count_uses, rewrite_functions

_LEAST_ELEMENTS = 1 << 11  # of a sum: below, adding to it costs less than the tapes of the factors
_MOST_BYTES = 1 << 26  # of the factors of all iterations


def sum_products_after_loops(function: Function) -> Function:
    """The function, and those inside it, with products after loops in the place of sums of products in them."""
    if not {for_loop, matmul} <= ops_below(function):
        return function
    changed = rewrite_functions(Module((function,)), _with_products_after_loops)
    return changed.functions[0]


@propagates_lines
def _with_products_after_loops(function: Function) -> Function:
    def rule(node: Node) -> Node | None:
        taken = take_from_made(node)
        return _after_loop(node) if taken is None and node.op is for_loop else taken

    return map_results(function, rule)


def _after_loop(loop: Node) -> Node | None:
    """The results of a loop, with the sums of products among them computed after it; None if it has none."""
    body, carried, iterations = loop.attribute("body"), loop.attribute("carried"), loop.operands[0]
    if iterations.op is not constant_op or iterations.attribute("value") < 2:
        return None
    count = iterations.attribute("value")
    products = {place: own for place in range(carried) if (own := _product_added(body, place, count)) is not None}
    if not products:
        return None
    with originating_from(loop.origins):
        others = [place for place in range(carried) if place not in products]
        factors = [node for product in products.values() for node in _factors(product)]
        inside = _storing_body(body, carried, others, factors)
        tapes = [tape_new(type=Tape(factor.type)) for factor in factors]
        starts = [loop.operands[1 + place] for place in others]
        captured = loop.operands[1 + carried :]
        stored = for_loop(
            iterations,
            *starts,
            *tapes,
            *captured,
            body=inside,
            carried=len(others) + len(tapes),
            reverse=loop.attribute("reverse"),
        )
        results = {place: get(stored, index=index) for index, place in enumerate(others)}
        for number, place in enumerate(products):
            rows = [tape_stack(get(stored, index=len(others) + 2 * number + own), size=count) for own in (0, 1)]
            product = _product_of(rows)
            start = loop.operands[1 + place]
            results[place] = product if is_zero_node(start) else add(start, product)
    return make_tuple(*[results[place] for place in range(carried)])


def _product_added(body: Function, place: int, count: int) -> Node | None:
    """The product that an iteration adds to a carried value which is used for nothing else."""
    total, result = body.parameters[1 + place], body.results[place]
    if result.op is not add or total not in result.operands or count_uses(body)[total] != 1:
        return None
    product = result.operands[1 - result.operands.index(total)]
    if product.op is not matmul or count_uses(body)[result] != 1 or not isinstance(product.type, Tensor):
        return None
    shapes = [shape_of(node.type) for node in (*product.operands, product)]
    if any(len(shape) != 2 for shape in shapes) or product.type.element not in (f32, f64):
        return None
    (rows, inner), (_, columns), _ = shapes
    thin = 8 * inner * (rows + columns) <= rows * columns  # type: ignore[operator]  # sizes are bound by now
    is_large = rows * columns >= _LEAST_ELEMENTS  # type: ignore[operator]
    stored = count * inner * (rows + columns) * product.type.element.dtype.itemsize  # type: ignore[operator]
    if not (thin and is_large and stored <= _MOST_BYTES):
        return None
    return product if all(_varies(operand, body) for operand in product.operands) else None


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


def _storing_body(body: Function, carried: int, others: Sequence[int], factors: Sequence[Node]) -> Function:
    """(index, other carried values, a tape for each factor, captures) → the body's results and its tapes."""
    index, *own = body.parameters
    types = [own[place].type for place in others]
    captures = own[carried:]
    fresh = parameters_of(
        [i64, *types, *[Tape(factor.type) for factor in factors], *[node.type for node in captures]]
    )
    kept = [index, *[own[place] for place in others]]
    given = dict(zip(kept, fresh, strict=False)) | dict(zip(captures, fresh[len(fresh) - len(captures) :], strict=True))
    nodes = substitute([*[body.results[place] for place in others], *factors], given, body.places)
    tapes = fresh[len(kept) : len(kept) + len(factors)]
    written = [tape_set(t, fresh[0], node) for t, node in zip(tapes, nodes[len(others) :], strict=True)]
    return Function(body.name, fresh, (*nodes[: len(others)], *written))


def _product_of(rows: Sequence[Node]) -> Node:
    """The product of factors that are stacked along what it sums over."""
    stacked = []
    for own in rows:
        count, inner, size = shape_of(own.type)
        stacked.append(reshape(own, shape=(count * inner, size)))
    return matmul(permute(stacked[0], axes=(1, 0)), stacked[1])

"""Selects the products that are fused into additions, and emits them. In: nodes in order.

Called by `function_body.py` and `interleaving.py`. The choice is not left to LLVM, because it would depend on the
optimisation level, and the baseline and the optimised tier must give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from livegrad.codegen.llvm.builder import Builder
from livegrad.codegen.llvm.registers import Product, Register
from livegrad.ir.node import Node
from livegrad.ir.types import f32, f64, scalar_of
from livegrad.ops.elementwise import add, mul, sub


def products_of(order: Sequence[Node]) -> set[Node]:
    """Products that may be fused: those of single or double precision."""
    return {node for node in order if node.op is mul and scalar_of(node.type) in (f32, f64)}


def fused_products(order: Sequence[Node], results: Sequence[Node]) -> tuple[dict[Node, Node], set[Node]]:
    """The product that is fused into each addition or subtraction, and the results that are products of a single use.

    A product with other uses is not fused, because it has to be computed anyway.
    """
    products = products_of(order)
    if not products:
        return {}, products
    uses = dict.fromkeys(products, 0)
    for node in order:
        for operand in node.operands:
            if operand in uses:
                uses[operand] += 1
    for result in results:
        if result in uses:
            uses[result] += 1
    fused: dict[Node, Node] = {}
    for node in order:
        if node.op is add or node.op is sub:
            product = next((operand for operand in node.operands if uses.get(operand) == 1), None)
            if product is not None:
                fused[node] = product
    single = {result for result in results if uses.get(result) == 1}
    return fused, single


def emit_fused(builder: Builder, node: Node, product: Node, factors: Product, addend: Register) -> Register:
    """An addition or subtraction together with the product that is fused into it."""
    first, second = factors.first, factors.second
    if node.op is sub and node.operands[0] is product:
        addend = builder.negate(addend)
    elif node.op is sub:
        first, second = (first, builder.negate(second)) if second.literal else (builder.negate(first), second)
    return add_product(builder, Product(first, second), addend)


def add_product(builder: Builder, product: Product, addend: Register) -> Register:
    """The product plus the addend, rounded once if the processor has fused multiply-add."""
    return builder.intrinsic("fmuladd", addend.type, product.first, product.second, addend)

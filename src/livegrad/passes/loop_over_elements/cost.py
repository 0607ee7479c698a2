"""The cost model of `loop_over_elements`: compares loops over elements with loops over whole tensors.

Loops over elements run scalar code on one thread. Loops over whole tensors use lanes and threads, but copy each tensor
that they write to, and start kernels in each iteration. So loops gain that write small parts of tensors, or do little
work in each iteration.
"""

from __future__ import annotations

from livegrad.ir.node import Function, Node
from livegrad.ir.walk import nodes_of
from livegrad.ops.assignment import UPDATES
from livegrad.ops.control import for_loop
from livegrad.ops.failing import constant_integer
from livegrad.ops.linalg import matmul
from livegrad.ops.movement import broadcast, iota
from livegrad.ops.reduction import arg_reduce, reduce
from livegrad.passes.loop_over_elements.products import count_products, is_product_by_element
from livegrad.passes.loop_over_elements.small_tensors import is_small_body
from livegrad.passes.loop_over_elements.versions import is_array, number_of_elements
from livegrad.passes.regions import LOOPS

_LANES = 2.0  # the speed-up of kernels over whole tensors by lanes and threads
_OPERATION = 0.5  # nanoseconds for an addition
_VECTORISED = 0.3  # of that time, where LLVM vectorises loops: sums and products, but not writes to parts
_FEW_WRITTEN = 16  # operations for each element written, from which on sums and products dominate
_TILED = 0.1  # of the time of a matrix product, with lanes and tiles in registers
_NARROW = 0.25  # of the time of an operation: LLVM uses more lanes for narrow elements
_COPY = 0.5  # nanoseconds to copy an element
_KERNEL = 1_500.0  # nanoseconds to start a kernel
_LOOP = 10_000.0  # nanoseconds to start a loop over tensors inside another
_GUESSED_ITERATIONS = 32


def gains_by_elements(loop: Node) -> bool:
    """Whether a loop nest is expected to run faster as loops over elements."""
    body: Function = loop.attribute("body")
    return is_small_body(body) or (_has_parts(body) and is_cheaper_by_elements(loop))


def is_cheaper_by_elements(loop: Node) -> bool:
    """Whether the cost model predicts that iterations take less time as loops over elements."""
    body: Function = loop.attribute("body")
    return _element_cost(body) <= _tensor_cost(body)


def _has_parts(body: Function) -> bool:
    """Whether a body computes tensors and also updates tensors or contains loops and branches."""
    nodes = nodes_of(body)
    arrays = any(is_array(node.type) and node.operands and node.op not in UPDATES for node in nodes)
    parts = any(is_array(node.type) and node.op in UPDATES for node in nodes)
    inner = [function for node in nodes for function in node.functions]
    return (arrays and (parts or bool(inner))) or any(map(_has_parts, inner))


def _element_cost(body: Function) -> float:
    return _compute_time(body, narrow=_NARROW) + sum(
        estimate_iterations(node) * max(map(_element_cost, node.functions)) for node in nodes_of(body) if node.functions
    )


def _tensor_cost(body: Function) -> float:
    nodes = nodes_of(body)
    written = [node for node in nodes if node.op in UPDATES and is_array(node.type)]
    kernels = 1 + len(written) + sum(node.op in (reduce, arg_reduce) for node in nodes)
    copies = sum(number_of_elements(node) for node in written)
    inner = [
        _LOOP + estimate_iterations(node) * max(map(_tensor_cost, node.functions)) for node in nodes if node.functions
    ]
    return _compute_time(body) / _LANES + kernels * _KERNEL + copies * _COPY + sum(inner)


def _compute_time(body: Function, narrow: float = 1.0) -> float:
    """The nanoseconds that scalar code takes for the elements of all tensors that a body computes."""
    total, written, free = 0.0, 0, set[Node]()
    for node in nodes_of(body):
        may_be_free = node.op in (iota, broadcast) or (node.op.elementwise and node.operands)
        if may_be_free and all(operand in free or not is_array(operand.type) for operand in node.operands):
            free.add(node)  # computed from indices and scalars alone, such as a mask
        elif node.op in UPDATES:
            total += 2.0 * number_of_elements(node.operands[1])
            written += number_of_elements(node.operands[1])
        elif node.op is matmul:
            total += (1.0 if is_product_by_element(node) else _TILED) * count_products(node)
        elif is_array(node.type) and node.operands and not node.functions:
            share = narrow if node.type.element.bits < 32 else 1.0  # type: ignore[union-attr]
            total += share * node.op.cost * number_of_elements(node)
        elif node.op in (reduce, arg_reduce):
            total += number_of_elements(node.operands[0])
    return total * _OPERATION * (_VECTORISED if written * _FEW_WRITTEN <= total else 1.0)


def estimate_iterations(node: Node) -> float:
    """The number of iterations of a loop, or an estimate; 1 for other nodes."""
    if node.op not in LOOPS:
        return 1
    count = constant_integer(node.operands[0]) if node.op is for_loop else None
    return _GUESSED_ITERATIONS if count is None else max(0, count)

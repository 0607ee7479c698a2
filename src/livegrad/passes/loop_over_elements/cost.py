"""Decides which loops gain by looping over elements: those that write small parts of tensors, or run short work often.

In: a loop over tensors. Loops over elements run on one thread, at the pace of scalar code; loops over whole tensors
have lanes and threads, but copy each tensor that they write to, and start kernels in each iteration.
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

_LANES = 2.0  # how much faster a kernel over whole tensors computes, with lanes and threads
_OPERATION = 0.5  # nanoseconds for an addition
_VECTORISED = 0.3  # of that time, where LLVM vectorises loops: sums and products, not parts that are written in turn
_FEW_WRITTEN = 16  # operations for each element that is written: then sums and products take most of the time
_TILED = 0.1  # of the time of a matrix product, with lanes and tiles in registers
_NARROW = 0.25  # LLVM fits lanes to narrow elements
_COPY = 0.5  # nanoseconds for an element
_KERNEL = 1_500.0  # nanoseconds to start one
_LOOP = 10_000.0  # nanoseconds to start a loop over tensors inside another
_GUESSED_ITERATIONS = 32


def gains_by_elements(loop: Node) -> bool:
    """Whether a nest is expected to run faster as loops over elements."""
    body: Function = loop.attribute("body")
    return is_small_body(body) or (_has_parts(body) and is_cheaper_by_elements(loop))


def is_cheaper_by_elements(loop: Node) -> bool:
    """Whether the iterations of a loop take less time as loops over elements, if they can be written so."""
    body: Function = loop.attribute("body")
    return _by_element(body) <= _by_tensor(body)


def _has_parts(body: Function) -> bool:
    """Whether a body computes tensors, and writes into others or has loops and branches inside."""
    nodes = nodes_of(body)
    arrays = any(is_array(node.type) and node.operands and node.op not in UPDATES for node in nodes)
    parts = any(is_array(node.type) and node.op in UPDATES for node in nodes)
    inner = [function for node in nodes for function in node.functions]
    return (arrays and (parts or bool(inner))) or any(map(_has_parts, inner))


def _by_element(body: Function) -> float:
    return _computing(body, narrow=_NARROW) + sum(
        iterations_of(node) * max(map(_by_element, node.functions)) for node in nodes_of(body) if node.functions
    )


def _by_tensor(body: Function) -> float:
    nodes = nodes_of(body)
    written = [node for node in nodes if node.op in UPDATES and is_array(node.type)]
    kernels = 1 + len(written) + sum(node.op in (reduce, arg_reduce) for node in nodes)
    copies = sum(number_of_elements(node) for node in written)
    inner = [_LOOP + iterations_of(node) * max(map(_by_tensor, node.functions)) for node in nodes if node.functions]
    return _computing(body) / _LANES + kernels * _KERNEL + copies * _COPY + sum(inner)


def _computing(body: Function, narrow: float = 1.0) -> float:
    """Nanoseconds for the elements of all tensors that a body computes, one after the other."""
    total, written, counted = 0.0, 0, set[Node]()
    for node in nodes_of(body):
        moved = node.op in (iota, broadcast) or (node.op.elementwise and node.operands)
        if moved and all(operand in counted or not is_array(operand.type) for operand in node.operands):
            counted.add(node)  # an index, or a mask: it costs nearly nothing
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


def iterations_of(node: Node) -> float:
    """How often a loop runs its body, as far as known; a branch runs one way."""
    if node.op not in LOOPS:
        return 1
    count = constant_integer(node.operands[0]) if node.op is for_loop else None
    return _GUESSED_ITERATIONS if count is None else max(0, count)

"""Describes CUDA devices as a target of the compiler."""

from __future__ import annotations

from livegrad.codegen.c.body import needs_expansion
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.ir.node import Node
from livegrad.ops.indexing import lookup_or
from livegrad.ops.linalg import matmul
from livegrad.schedule.target import Target


def _lacks_code(node: Node) -> bool:
    return node.op is not lookup_or and needs_expansion(node, KERNELS)


def _reads_permuted(node: Node, operand: Node) -> bool:
    """cuBLAS takes matrices with contiguous rows or columns; other libraries take dense tensors."""
    axes = operand.attribute("axes")
    return node.op is matmul and len(axes) - 1 in axes[-2:]


# With one block for each row, the gradient of a batch norm of 64 rows of 100,352 elements takes 361 us a kernel, of
# which blocks that share rows need a tenth. Fewer elements fit in the registers of a block, which reads them once.
CUT_ROWS = (256, (1 << 14) + 1)

CUDA = Target(
    "cuda",
    selects_parts=True,
    binds_loop_bodies=True,
    cut_rows=CUT_ROWS,
    lacks_code=_lacks_code,
    reads_permuted=_reads_permuted,
)

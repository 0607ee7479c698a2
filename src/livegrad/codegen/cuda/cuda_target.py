"""CUDA devices as a target of the compiler."""

from __future__ import annotations

from livegrad.codegen.c.body import needs_expansion
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.ir.node import Node
from livegrad.schedule.target import Target


def _lacks_code(node: Node) -> bool:
    return needs_expansion(node, KERNELS)


CUDA = Target("cuda", lacks_code=_lacks_code)

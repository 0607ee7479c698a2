"""User kernels as functions of blocks: CUDA C, PTX or a cubin, and the meaning of the parameters.

Created by `live.blocks.cuda_source`. Plans hold them in place of functions; only CUDA can run them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from livegrad.ir.types import Scalar, Tensor, Type

Language = Literal["cuda", "ptx", "cubin"]


@dataclass(frozen=True)
class KernelArgument:
    """One parameter of the kernel: a buffer or number that a pin gives, or the size of a buffer.

    `number` counts inputs, or outputs. A size is the number of elements, or with `axis` the extent of one dimension.
    """

    kind: Literal["input", "number", "output", "input_size", "output_size"]
    number: int
    element: Scalar  # of the buffer, or of the number itself
    axis: int | None = None


@dataclass(frozen=True)
class CudaKernel:
    """A kernel for known shapes. Two are the same when their code and all that it is launched with are."""

    name: str
    language: Language
    code: str | bytes
    symbol: str
    arguments: tuple[KernelArgument, ...]
    parameter_types: tuple[Type, ...]
    result_types: tuple[Tensor, ...]
    points: int  # threads that have something to do
    threads: int  # of a block
    file: str = field(default="", compare=False)  # where the code is, for messages
    first_line: int = field(default=1, compare=False)

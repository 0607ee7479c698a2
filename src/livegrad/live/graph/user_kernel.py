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
    """One parameter of the kernel: the buffer or number of a pin, or the size of a buffer.

    `index` counts inputs or outputs. A size is the number of elements or, with `axis`, one extent.
    """

    kind: Literal["input", "number", "output", "input_size", "output_size"]
    index: int
    element: Scalar  # of the buffer or number
    axis: int | None = None


@dataclass(frozen=True)
class CudaKernel:
    """A kernel for known shapes. Kernels are equal if their code and launch arguments are."""

    name: str
    language: Language
    code: str | bytes
    symbol: str
    arguments: tuple[KernelArgument, ...]
    parameter_types: tuple[Type, ...]
    result_types: tuple[Tensor, ...]
    points: int  # the number of threads with work
    threads: int  # per block
    file: str = field(default="", compare=False)  # where the code is, for messages
    first_line: int = field(default=1, compare=False)

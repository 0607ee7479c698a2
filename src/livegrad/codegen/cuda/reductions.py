"""Emits row reductions as CUDA C: an accumulator, its update, and the combination of the values of all threads.

`kernel.py` declares one `Reduction` for each reduction of a stage. Threads are combined in a fixed tree, so that a
result has the same bits in every run: lanes of a warp by shuffles, warps (or the lanes of a column) through shared
memory, and blocks through device memory, where the last block to finish combines them in order.
"""

from __future__ import annotations

from livegrad.codegen.c.expressions import apply_op
from livegrad.codegen.c.operands import Text
from livegrad.codegen.cuda.device_elementwise import round_to_half
from livegrad.codegen.cuda.kernel_values import KERNELS
from livegrad.codegen.cuda.kernel_writer import KernelWriter
from livegrad.ir.types import Scalar, f16, f32
from livegrad.ops.comparison import bit_and, bit_or
from livegrad.ops.elementwise import add, maximum, minimum, mul
from livegrad.ops.reduction import fold_start
from livegrad.schedule.kernel import Sink
from livegrad.schedule.loops.device import partial_bytes

_OPS = {"sum": add, "prod": mul, "any": bit_or, "all": bit_and, "max": maximum, "min": minimum}


class Reduction:
    """The accumulator of a reduction of a row."""

    def __init__(self, writer: KernelWriter, target: Sink, type: Scalar) -> None:
        self.writer, self.type = writer, type
        self.kind = target.reduce or ""
        self.indexed = self.kind.startswith("arg")
        c_type = KERNELS.scalar(type)
        self.c_type = f"lg_indexed<{c_type}>" if self.indexed else c_type
        self.name = writer.name("fold")
        start = KERNELS.literal(fold_start(self.kind, type), type)
        self.start = f"{self.c_type}{{{start}, 1LL << 62}}" if self.indexed else start
        writer.line(f"{self.c_type} {self.name} = {self.start};")

    @property
    def bytes(self) -> int:
        """The size of a partial result in bytes."""
        return partial_bytes(self.kind, self.type)

    def add(self, value: Text, index: str) -> None:
        """Emits the update with a term and its index."""
        term = f"{self.c_type}{{{value.text}, {index}}}" if self.indexed else value.text
        self.writer.line(f"{self.name} = {self.combination(self.name, term)};")

    def add_partial(self, lvalue: str) -> None:
        """Emits the update with the partial result of a block."""
        partial = self.writer.name("left")
        self.writer.line(f"const {self.c_type} {partial} = {lvalue};")
        self.writer.line(f"{self.name} = {self.combination(self.name, partial)};")

    def reset(self) -> None:
        self.writer.line(f"{self.name} = {self.start};")

    def combination(self, first: str, second: str) -> str:
        """The expression that combines two values."""
        if self.indexed:
            return f"lg_better<{'true' if self.kind == 'argmax' else 'false'}>({first}, {second})"
        if self.type is f32 and self.kind in ("max", "min"):
            return f"lg_{self.kind}_or_nan({first}, {second})"
        return apply_op(KERNELS, _OPS[self.kind], self.type, [first, second])

    @property
    def functor(self) -> str:
        """A function object that combines two values; reductions of one kind share its type, to compile it once."""
        body = f"({self.c_type} x, {self.c_type} y) const {{ return {self.combination('x', 'y')}; }}"
        return self.writer.functor(f"__device__ {self.c_type} operator()" + body)

    def result(self, type: Scalar) -> Text:
        """The value of the reduction, in the type that the rest of the row uses."""
        text = f"{self.name}.index" if self.indexed else self.name
        return self.writer.value(round_to_half(text) if type is f16 else text, type)


def combine_block(writer: KernelWriter, reductions: list[Reduction]) -> None:
    """Combines the values of a block; all of its threads have the result."""
    for fold in reductions:
        writer.line(f"{fold.name} = lg_warp_fold({fold.name}, {fold.functor});")
    shared = {fold: writer.name("shared") for fold in reductions}
    for fold, name in shared.items():
        writer.line(f"__shared__ {fold.c_type} {name}[32];")  # of warps
    writer.line("__syncthreads();")
    with writer.block("if (threadIdx.x % 32 == 0)"):
        for fold, name in shared.items():
            writer.line(f"{name}[threadIdx.x / 32] = {fold.name};")
    writer.line("__syncthreads();")
    for fold, name in shared.items():
        writer.line(f"{fold.name} = lg_fold_of_warps({name}, {fold.start}, {fold.functor});")


def combine_warp(writer: KernelWriter, reductions: list[Reduction]) -> None:
    """Combines the values of a warp; all of its lanes have the result."""
    for fold in reductions:
        writer.line(f"{fold.name} = lg_from_lane(lg_warp_fold({fold.name}, {fold.functor}), 0);")


def combine_columns(writer: KernelWriter, reductions: list[Reduction]) -> None:
    """Combines the values of each column of a block; all threads of the column have the result."""
    for fold in reductions:
        writer.line(f"{fold.name} = lg_column_fold({fold.name}, {fold.functor});")

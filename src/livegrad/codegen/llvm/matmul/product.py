"""Descriptions of matrix products: sizes and strides of the operands, and the launches that compute them.

`product_of` converts a step of a plan to sizes and strides; `runtime/cpu/native/matmul.py` makes launches of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

OperandName = Literal["left", "right", "out", "workspace", "between", "scratch"]


class Operand(NamedTuple):
    """The strides of a batch of matrices in bytes: of rows, of columns, and of both dimensions of the batch.

    A stride of the batch is 0 if all matrices along it are the same.
    """

    row: int
    column: int
    matrix: int
    outer: int

    @property
    def transposed(self) -> Operand:
        return Operand(self.column, self.row, self.matrix, self.outer)


class Product(NamedTuple):
    """The sizes of a batch of products, and the strides of its operands."""

    element: str  # float32 or float64
    matrices: int
    inner_matrices: int  # along the inner one of the batch's two dimensions
    rows: int
    columns: int
    inner: int
    left: Operand
    right: Operand


class Launch(NamedTuple):
    """One launch of a kernel. `slots` are its argument slots: integers, or operands whose addresses are known later."""

    kernel: str
    slots: tuple[int | OperandName, ...]
    total: int
    grain: int

    def with_operands_exchanged(self) -> Launch:
        return self.with_operands({"left": "right", "right": "left"})

    def with_operands(self, renamed: Mapping[OperandName, OperandName]) -> Launch:
        return self._replace(slots=tuple([s if isinstance(s, int) else renamed.get(s, s) for s in self.slots]))


class Launches(NamedTuple):
    """The launches of a product, in order, and the bytes of the intermediate memory that they use."""

    steps: tuple[Launch, ...]
    workspace: int = 0
    scratch: int = 0  # for each worker
    between: int = 0


def product_of(
    element: str, out: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...], inner: int
) -> Product | None:
    """The product with a result of shape `out`, given the strides of its operands in bytes (0: broadcast).

    None if two dimensions cannot describe the layout of the batch in memory.
    """
    merged: list[tuple[int, int, int]] = []  # extents and strides of the batch, inner dimensions first
    for extent, first, second in reversed(list(zip(out[:-2], left[:-2], right[:-2], strict=True))):
        if extent == 1:
            continue
        if merged:
            size, stride, other = merged[-1]
            if first == stride * size and second == other * size:
                merged[-1] = (size * extent, stride, other)
                continue
        merged.append((extent, first, second))
    if len(merged) > 2:
        return None
    (count, *inner_steps), (outer_count, *outer_steps) = [*merged, (1, 0, 0), (1, 0, 0)][:2]
    operands = [
        Operand(strides[-2], strides[-1], step, outer)
        for strides, step, outer in zip((left, right), inner_steps, outer_steps, strict=True)
    ]
    # Packed matrices are numbered along one dimension.
    if any(o.matrix and o.outer and o.outer != o.matrix * count for o in operands):
        return None
    return Product(element, count * outer_count, count, out[-2], out[-1], inner, *operands)

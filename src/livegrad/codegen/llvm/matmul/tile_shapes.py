"""Shapes of the register tiles of matrix products, for one processor and element type: sums that fill the registers."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.ir.cached_property import cached_property
from livegrad.ir.types import Scalar


@dataclass(frozen=True)
class TileShapes:
    """The tiles for one processor and element. A tile is some rows by some vectors of columns of a product."""

    type: Scalar  # f32 or f64
    lanes: int
    heights: tuple[tuple[int, tuple[int, ...]], ...]  # by vectors, the widest first: rows of tiles, descending to 1
    dot_heights: tuple[int, ...]  # rows of dot products that are summed at once, descending to 1, powers of two
    fma: bool

    @cached_property
    def bytes(self) -> int:
        """Of an element."""
        return self.type.bits // 8

    @property
    def vector_bytes(self) -> int:
        return self.bytes * self.lanes

    @property
    def widths(self) -> tuple[int, ...]:
        """The possible widths of tiles in vectors, the widest first."""
        return tuple(vectors for vectors, _ in self.heights)

    def heights_of(self, vectors: int) -> tuple[int, ...]:
        return dict(self.heights)[vectors]

    def panel(self, vectors: int) -> int:
        """Columns of a panel of the right operand, which is as wide as a tile."""
        return vectors * self.lanes


# Sums take all registers except one for each vector of columns and one for a row. Broadcasting an element of the left
# operand takes as long as two multiplications (Ice Lake), so wide tiles of few rows are fastest: with 24 sums each and
# all data in the first-level cache, 6 x 4 and 8 x 3 run at 98 % of the peak, 12 x 2 at 91 % and 24 x 1 at 50 %.
_MANY_REGISTERS = ((4, (6, 4, 3, 2, 1)), (3, (8, 4, 2, 1)), (2, (12, 8, 4, 2, 1)), (1, (12, 4, 2, 1)))
_FEW_REGISTERS = ((4, (2, 1)), (2, (6, 4, 2, 1)), (1, (6, 4, 2, 1)))


def tile_shapes(type: Scalar, vector_bytes: int, many_registers: bool, fma: bool) -> TileShapes:
    """The tiles that fill thirty-two vector registers, or sixteen."""
    heights, dot_heights = (_MANY_REGISTERS, (4, 2, 1)) if many_registers else (_FEW_REGISTERS, (2, 1))
    return TileShapes(type, vector_bytes * 8 // type.bits, heights, dot_heights, fma)

"""Vectors of matrix products as LLVM IR: loads, stores and products of the width that the tiles of a processor have."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import Value, largest, smallest
from livegrad.ir.types import bool_, i32, i64

Slots = dict[str, Value]  # the argument block of a kernel, loaded

# Matrices are counted over two dimensions; `_matrix` is the distance along the inner one, `_outer` along the other.
BATCH_SLOTS = {
    "left_matrix": i64, "left_outer": i64, "right_matrix": i64, "right_outer": i64, "inner_matrices": i64,
}  # fmt: skip
OPERAND_SLOTS = {"left": pointer, "right": pointer, "out": pointer}


def find_matrices(w: Slots, number: Value) -> tuple[Value, Value]:
    """Where the matrices of both operands of a product begin."""
    inner, outer = number % w["inner_matrices"], number // w["inner_matrices"]
    left, right = (w[side] + inner * w[f"{side}_matrix"] + outer * w[f"{side}_outer"] for side in ("left", "right"))
    return left, right


def load_vector(shapes: TileShapes, address: Value, number: int = 0, mask: Value | None = None) -> Value:
    """A vector from so many vectors behind an address; lanes that the mask leaves out are 0 and not read."""
    if number:
        address = address + number * shapes.vector_bytes
    if mask is None:
        return address.load(shapes.type, shapes.lanes, shapes.bytes)
    builder = address.builder
    return address.wrap(builder.masked_load(address.register, shapes.type, mask.register, shapes.bytes))


def store_vector(shapes: TileShapes, value: Value, address: Value, number: int = 0, mask: Value | None = None) -> None:
    """A vector to so many vectors behind an address; lanes that the mask leaves out are not written."""
    if number:
        address = address + number * shapes.vector_bytes
    if mask is None:
        address.store(value, shapes.bytes)
    else:
        address.builder.masked_store(value.register, address.register, mask.register, shapes.bytes)


def gather_vector(shapes: TileShapes, base: Value, distances: Value, mask: Value) -> Value:
    """Elements at these distances, in bytes, from an address."""
    return load_vector(shapes, base + distances, mask=mask)


@dataclass
class SpacedVectors:
    """Loads vectors of elements that lie one or two apart: all lanes, or `count` of them (prepare once, outside loops).

    For two apart the second of two vectors begins with the last element of the first: nothing is read behind the last
    element that is wanted.
    """

    shapes: TileShapes
    spacing: int
    count: Value | None = None
    mask: Value | None = None
    masks: tuple[Value, ...] = ()

    def prepared(self) -> SpacedVectors:
        if self.count is None:
            return self
        (self.mask,) = column_masks(self.shapes, self.count, 1)
        if self.spacing == 1:
            self.masks = (self.mask,)
            return self
        reach = (self.count << 1) - 1
        behind = largest(reach - (self.shapes.lanes - 1), 0)
        self.masks = (*column_masks(self.shapes, reach, 1), *column_masks(self.shapes, behind, 1))
        return self

    def load(self, address: Value, number: int = 0) -> Value:
        """The vector that is so many vectors behind an address."""
        shapes, lanes = self.shapes, self.shapes.lanes
        masks = self.masks or (None, None)
        if number:
            address = address + number * self.spacing * shapes.vector_bytes
        first = load_vector(shapes, address, mask=masks[0])
        if self.spacing == 1:
            return first
        second = load_vector(shapes, address + (lanes - 1) * shapes.bytes, mask=masks[1])
        lanes_of_both = [2 * lane if 2 * lane < lanes else lane * 2 + 1 for lane in range(lanes)]
        return first.wrap(first.builder.shuffle(first.register, lanes_of_both, second.register))


def multiply_add(shapes: TileShapes, a: Value, b: Value, c: Value) -> Value:
    """a·b + c, rounded once where the processor can."""
    if not shapes.fma:
        return c + a * b
    return a.wrap(a.builder.intrinsic("fma", a.type, a.register, b.register, c.register))


def widen(shapes: TileShapes, scalar: Value) -> Value:
    return scalar.wrap(scalar.builder.widen(scalar.register, shapes.lanes))


def column_masks(shapes: TileShapes, columns: Value, vectors: int) -> list[Value]:
    """For each vector, which of its lanes are columns that there are."""
    builder, lanes = columns.builder, shapes.lanes
    count = widen(shapes, smallest(columns, vectors * lanes).convert("trunc", i32)).register
    numbers = [lane_constants(range(first * lanes, (first + 1) * lanes), i32) for first in range(vectors)]
    return [columns.wrap(builder.apply("icmp ult", bool_, columns_of_vector, count)) for columns_of_vector in numbers]

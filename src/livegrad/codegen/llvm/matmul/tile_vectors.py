"""Vector operations of matrix product tiles as LLVM IR: loads, stores, masks and multiply-add."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.codegen.llvm.builder import lane_constants
from livegrad.codegen.llvm.matmul.tile_shapes import TileShapes
from livegrad.codegen.llvm.registers import pointer
from livegrad.codegen.llvm.values import Value, largest, smallest
from livegrad.ir.types import bool_, i32, i64

Slots = dict[str, Value]  # the argument block of a kernel, loaded

# Matrices are numbered along two dimensions; `_matrix` is the stride of the inner one, `_outer` of the other.
BATCH_SLOTS = {
    "left_matrix": i64, "left_outer": i64, "right_matrix": i64, "right_outer": i64, "inner_matrices": i64,
}  # fmt: skip
OPERAND_SLOTS = {"left": pointer, "right": pointer, "out": pointer}


def find_matrices(w: Slots, number: Value) -> tuple[Value, Value]:
    """The addresses of the matrices of both operands of product `number`."""
    inner, outer = number % w["inner_matrices"], number // w["inner_matrices"]
    left, right = (w[side] + inner * w[f"{side}_matrix"] + outer * w[f"{side}_outer"] for side in ("left", "right"))
    return left, right


def load_vector(shapes: TileShapes, address: Value, number: int = 0, mask: Value | None = None) -> Value:
    """Loads the vector `number` vectors after an address; masked-off lanes are 0 and not read."""
    if number:
        address = address + number * shapes.vector_bytes
    if mask is None:
        return address.load(shapes.type, shapes.lanes, shapes.bytes)
    builder = address.builder
    return address.wrap(builder.masked_load(address.register, shapes.type, mask.register, shapes.bytes))


def store_vector(shapes: TileShapes, value: Value, address: Value, number: int = 0, mask: Value | None = None) -> None:
    """Stores a vector `number` vectors after an address; masked-off lanes are not written."""
    if number:
        address = address + number * shapes.vector_bytes
    if mask is None:
        address.store(value, shapes.bytes)
    else:
        address.builder.masked_store(value.register, address.register, mask.register, shapes.bytes)


def gather_vector(shapes: TileShapes, base: Value, offsets: Value, mask: Value) -> Value:
    """Gathers elements at offsets in bytes from an address."""
    return load_vector(shapes, base + offsets, mask=mask)


@dataclass
class SpacedVectors:
    """Loads vectors of elements with a stride of one or two: all lanes, or the first `count`.

    With `count`, call `prepare` once, outside loops. For a stride of two, the second of two loaded vectors begins with
    the last element of the first, so that nothing is read past the last element.
    """

    shapes: TileShapes
    spacing: int
    count: Value | None = None
    mask: Value | None = None
    masks: tuple[Value, ...] = ()

    def prepare(self) -> SpacedVectors:
        """Computes the masks for `count` lanes."""
        if self.count is None:
            return self
        (self.mask,) = column_masks(self.shapes, self.count, 1)
        if self.spacing == 1:
            self.masks = (self.mask,)
            return self
        reach = (self.count << 1) - 1
        second_reach = largest(reach - (self.shapes.lanes - 1), 0)
        self.masks = (*column_masks(self.shapes, reach, 1), *column_masks(self.shapes, second_reach, 1))
        return self

    def load(self, address: Value, number: int = 0) -> Value:
        """The vector `number` vectors after an address."""
        shapes, lanes = self.shapes, self.shapes.lanes
        masks = self.masks or (None, None)
        if number:
            address = address + number * self.spacing * shapes.vector_bytes
        first = load_vector(shapes, address, mask=masks[0])
        if self.spacing == 1:
            return first
        second = load_vector(shapes, address + (lanes - 1) * shapes.bytes, mask=masks[1])
        even_elements = [2 * lane if 2 * lane < lanes else lane * 2 + 1 for lane in range(lanes)]
        return first.wrap(first.builder.shuffle(first.register, even_elements, second.register))


def multiply_add(shapes: TileShapes, a: Value, b: Value, c: Value) -> Value:
    """a·b + c, rounded once if the processor has fused multiply-add."""
    if not shapes.fma:
        return c + a * b
    return a.wrap(a.builder.intrinsic("fma", a.type, a.register, b.register, c.register))


def widen(shapes: TileShapes, scalar: Value) -> Value:
    return scalar.wrap(scalar.builder.widen(scalar.register, shapes.lanes))


def column_masks(shapes: TileShapes, columns: Value, vectors: int) -> list[Value]:
    """The masks of the lanes of each vector that are below the number of columns."""
    builder, lanes = columns.builder, shapes.lanes
    count = widen(shapes, smallest(columns, vectors * lanes).convert("trunc", i32)).register
    numbers = [lane_constants(range(first * lanes, (first + 1) * lanes), i32) for first in range(vectors)]
    return [columns.wrap(builder.apply("icmp ult", bool_, columns_of_vector, count)) for columns_of_vector in numbers]

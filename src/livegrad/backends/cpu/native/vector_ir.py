"""LLVM IR text for kernels over vectors: fresh names, loops, argument words, vectors under masks.

Used by the modules that write matrix products (`gemm_ir.py` and its parts) and chains of kernels (`chain.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

_POINTERS = ("left", "right", "out", "packed", "scratch")


@dataclass(frozen=True)
class TileShapes:
    """The shapes of tiles, as (rows, vectors), for one processor and element."""

    element: str  # LLVM's name
    bytes: int
    lanes: int
    heights: tuple[int, ...]  # rows of the tiles of two vectors, descending to 1
    wide: tuple[tuple[int, int], ...]  # for products of few rows, whose right operand is not packed
    fma: bool

    @property
    def vector_bytes(self) -> int:
        return self.bytes * self.lanes

    @property
    def panel(self) -> int:
        """Columns of a panel of the packed right operand."""
        return 2 * self.lanes


def tile_shapes(element: str, vector_bytes: int, many_registers: bool, fma: bool) -> TileShapes:
    """The tiles that fill the registers: thirty-two of them, or sixteen."""
    size = {"float": 4, "double": 8}[element]
    lanes = vector_bytes // size
    if many_registers:
        return TileShapes(element, size, lanes, (12, 8, 4, 2, 1), ((6, 4), (4, 4), (2, 4), (1, 4)), fma)
    return TileShapes(element, size, lanes, (6, 4, 2, 1), ((2, 4), (1, 4)), fma)


@dataclass
class Text:
    """Lines of a function, with fresh names."""

    lines: list[str] = field(default_factory=list)
    block: str = "start"
    count: int = 0

    def value(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def go(self, label: str) -> None:
        self.line(f"br label %{label}")
        self.open(label)

    def moved(self, pointer: str, *terms: tuple[str, str | int]) -> str:
        """A pointer moved by the sum of some products, in bytes."""
        for factor, other in terms:
            distance = self.value(f"mul i64 {factor}, {other}") if other != 1 else factor
            pointer = self.value(f"getelementptr i8, ptr {pointer}, i64 {distance}")
        return pointer

    def most(self, a: str, b: str) -> str:
        return self.value(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def least(self, a: str, b: str) -> str:
        return self.value(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def words(self, names: Sequence[str]) -> dict[str, str]:
        """Loads an argument block."""
        found = {}
        for index, name in enumerate(names):
            place = self.value(f"getelementptr i64, ptr %args, i64 {index}")
            found[name] = self.value(f"load {'ptr' if name in _POINTERS else 'i64'}, ptr {place}")
        return found

    @contextmanager
    def loop(self, first: str, end: str, step: str | int) -> Iterator[str]:
        """A loop that may run not at all; gives its counter."""
        head, body, after = self.label("head"), self.label("body"), self.label("after")
        before = self.block
        self.count += 1
        counter = f"%i{self.count}"
        following = f"%n{self.count}"
        self.line(f"br label %{head}")
        self.open(head)
        at = len(self.lines)
        self.lines.append("")
        more = self.value(f"icmp slt i64 {counter}, {end}")
        self.line(f"br i1 {more}, label %{body}, label %{after}")
        self.open(body)
        yield counter
        self.line(f"{following} = add i64 {counter}, {step}")
        self.line(f"br label %{head}")
        self.lines[at] = f"  {counter} = phi i64 [ {first}, %{before} ], [ {following}, %{self.block} ]"
        self.open(after)


def kernel_text(name: str, text: Text) -> str:
    text.line("ret void")
    head = f"define void @{name}(i64 %begin, i64 %end, ptr %args, i64 %worker) #0 {{"
    return "\n".join([head, "start:", *text.lines, "}"])


def load_vector(text: Text, shapes: TileShapes, pointer: str, number: int, masks: list[str] | None) -> str:
    """A vector from so many vectors behind a pointer; lanes that a mask leaves out are 0 and not read."""
    vector = f"<{shapes.lanes} x {shapes.element}>"
    if number:
        pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 {number * shapes.vector_bytes}")
    if masks is None:
        return text.value(f"load {vector}, ptr {pointer}, align {shapes.bytes}")
    return text.value(
        f"call {vector} @llvm.masked.load.v{shapes.lanes}f{shapes.bytes * 8}.p0(ptr {pointer}, i32 {shapes.bytes},"
        f" <{shapes.lanes} x i1> {masks[number]}, {vector} zeroinitializer)"
    )


def multiply_add(text: Text, shapes: TileShapes, a: str, b: str, c: str, result: str) -> None:
    vector = f"<{shapes.lanes} x {shapes.element}>"
    if shapes.fma:
        text.line(
            f"{result} = call {vector} @llvm.fma.v{shapes.lanes}f{shapes.bytes * 8}"
            f"({vector} {a}, {vector} {b}, {vector} {c})"
        )
    else:
        product = text.value(f"fmul {vector} {a}, {b}")
        text.line(f"{result} = fadd {vector} {c}, {product}")


def splat(text: Text, shapes: TileShapes, scalar: str) -> str:
    vector = f"<{shapes.lanes} x {shapes.element}>"
    one = text.value(f"insertelement {vector} poison, {shapes.element} {scalar}, i64 0")
    zeros = f"<{shapes.lanes} x i32> zeroinitializer"
    return text.value(f"shufflevector {vector} {one}, {vector} poison, {zeros}")


def store_vector(text: Text, shapes: TileShapes, value: str, pointer: str, offset: int, mask: str | None) -> None:
    vector = f"<{shapes.lanes} x {shapes.element}>"
    if offset:
        pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
    if mask is None:
        text.line(f"store {vector} {value}, ptr {pointer}, align {shapes.bytes}")
        return
    text.line(
        f"call void @llvm.masked.store.v{shapes.lanes}f{shapes.bytes * 8}.p0({vector} {value}, ptr {pointer},"
        f" i32 {shapes.bytes}, <{shapes.lanes} x i1> {mask})"
    )


def column_masks(text: Text, shapes: TileShapes, columns: str, vectors: int) -> list[str]:
    """For each vector, which of its lanes are columns that there are."""
    numbers = f"<{shapes.lanes} x i32>"
    limited = text.least(columns, str(vectors * shapes.lanes))
    narrow = text.value(f"trunc i64 {limited} to i32")
    one = text.value(f"insertelement {numbers} poison, i32 {narrow}, i64 0")
    every = text.value(f"shufflevector {numbers} {one}, {numbers} poison, {numbers} zeroinitializer")
    masks = []
    for number in range(vectors):
        lanes = ", ".join(f"i32 {number * shapes.lanes + lane}" for lane in range(shapes.lanes))
        masks.append(text.value(f"icmp ult {numbers} <{lanes}>, {every}"))
    return masks

"""LLVM IR text for kernels over vectors: fresh names, loops, argument words, vectors under masks.

Used by the modules that write matrix products (`matmul_module.py`) and chains of kernels (`chain_kernel.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

# Matrices are numbered over two dimensions; `_matrix` is the distance along the inner one, `_outer` along the other.
BATCH_WORDS = ("left_matrix", "left_outer", "right_matrix", "right_outer", "inner_matrices")
_POINTERS = ("left", "right", "out", "packed", "scratch")


@dataclass(frozen=True)
class TileShapes:
    """The tiles for one processor and element. A tile is some rows by some vectors of columns of a product."""

    element: str  # LLVM's name
    bytes: int
    lanes: int
    heights: tuple[tuple[int, tuple[int, ...]], ...]  # by vectors, the widest first: rows of tiles, descending to 1
    dot_heights: tuple[int, ...]  # rows of scalar products that are summed at once, descending to 1, powers of two
    fma: bool

    @property
    def vector_bytes(self) -> int:
        return self.bytes * self.lanes

    @property
    def vector(self) -> str:
        """LLVM's name of a vector."""
        return f"<{self.lanes} x {self.element}>"

    @property
    def suffix(self) -> str:
        """What the names of LLVM's functions on such vectors end with."""
        return f"v{self.lanes}f{self.bytes * 8}"

    @property
    def widths(self) -> tuple[int, ...]:
        """How many vectors wide tiles may be, the widest first."""
        return tuple(vectors for vectors, _ in self.heights)

    def heights_of(self, vectors: int) -> tuple[int, ...]:
        return dict(self.heights)[vectors]

    def panel(self, vectors: int) -> int:
        """Columns of a panel of the right operand, which is as wide as a tile."""
        return vectors * self.lanes


# Sums fill the registers, but for one vector of each column and one of a row. A number of the left operand that goes to
# all lanes takes as long as two multiplications here, so wide tiles of few rows are the fastest: with 24 sums each and
# everything in the nearest cache, 6 x 4 and 8 x 3 run at 98 % of what the processor can do (Ice Lake), 12 x 2 at 91 %
# and 24 x 1 at 50 %.
_MANY_REGISTERS = ((4, (6, 4, 3, 2, 1)), (3, (8, 4, 2, 1)), (2, (12, 8, 4, 2, 1)), (1, (12, 4, 2, 1)))
_FEW_REGISTERS = ((4, (2, 1)), (2, (6, 4, 2, 1)), (1, (6, 4, 2, 1)))


def tile_shapes(element: str, vector_bytes: int, many_registers: bool, fma: bool) -> TileShapes:
    """The tiles that fill the registers: thirty-two of them, or sixteen."""
    size = {"float": 4, "double": 8}[element]
    heights, dot_heights = (_MANY_REGISTERS, (4, 2, 1)) if many_registers else (_FEW_REGISTERS, (2, 1))
    return TileShapes(element, size, vector_bytes // size, heights, dot_heights, fma)


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


def find_matrices(text: Text, words: dict[str, str], number: str) -> tuple[str, str]:
    """Where the matrices of both operands of a product begin."""
    inner = text.value(f"urem i64 {number}, {words['inner_matrices']}")
    outer = text.value(f"udiv i64 {number}, {words['inner_matrices']}")
    left, right = (
        text.moved(words[side], (inner, words[f"{side}_matrix"]), (outer, words[f"{side}_outer"]))
        for side in ("left", "right")
    )
    return left, right


def load_vector(text: Text, shapes: TileShapes, pointer: str, number: int, masks: list[str] | None) -> str:
    """A vector from so many vectors behind a pointer; lanes that a mask leaves out are 0 and not read."""
    vector = shapes.vector
    if number:
        pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 {number * shapes.vector_bytes}")
    if masks is None:
        return text.value(f"load {vector}, ptr {pointer}, align {shapes.bytes}")
    return text.value(
        f"call {vector} @llvm.masked.load.v{shapes.lanes}f{shapes.bytes * 8}.p0(ptr {pointer}, i32 {shapes.bytes},"
        f" <{shapes.lanes} x i1> {masks[number]}, {vector} zeroinitializer)"
    )


@dataclass
class SpacedVectors:
    """Loads vectors of elements that lie one or two apart: all lanes, or `count` of them (prepare once, outside loops).

    For two apart the second of two vectors begins with the last element of the first: nothing is read behind the last
    element that is wanted.
    """

    shapes: TileShapes
    spacing: int
    count: str | None = None
    mask: str | None = None
    masks: tuple[list[str], ...] = ()

    def prepared(self, text: Text) -> SpacedVectors:
        if self.count is None:
            return self
        (self.mask,) = column_masks(text, self.shapes, self.count, 1)
        if self.spacing == 1:
            self.masks = ([self.mask],)
            return self
        reach = text.value(f"sub i64 {text.value(f'shl i64 {self.count}, 1')}, 1")
        behind = text.most(text.value(f"sub i64 {reach}, {self.shapes.lanes - 1}"), "0")
        self.masks = (column_masks(text, self.shapes, reach, 1), column_masks(text, self.shapes, behind, 1))
        return self

    def load(self, text: Text, pointer: str, number: int = 0) -> str:
        """The vector that is so many vectors behind a pointer."""
        shapes, lanes = self.shapes, self.shapes.lanes
        masks = self.masks or (None, None)
        if number:
            pointer = text.moved(pointer, (str(number * self.spacing), shapes.vector_bytes))
        first = load_vector(text, shapes, pointer, 0, masks[0])
        if self.spacing == 1:
            return first
        second = load_vector(text, shapes, text.moved(pointer, (str(lanes - 1), shapes.bytes)), 0, masks[1])
        picks = [2 * lane if 2 * lane < lanes else lane * 2 + 1 for lane in range(lanes)]
        chosen = ", ".join(f"i32 {place}" for place in picks)
        return text.value(
            f"shufflevector {shapes.vector} {first}, {shapes.vector} {second}, <{lanes} x i32> <{chosen}>"
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

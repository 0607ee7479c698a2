"""Linear algebra on the device: Cholesky factors, linear systems, inverses and determinants of batches of matrices.

All of them are right-looking blocked algorithms: one kernel factors a block or solves with it, another updates the
trailing matrix. The launches are captured like a library call. Failures, such as a singular matrix, are reported
through the status word of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from livegrad.ir.node import Node
from livegrad.ir.types import Scalar, Tensor, f32, f64, scalar_of
from livegrad.ops.decompositions import cholesky
from livegrad.ops.movement import permute, sizes
from livegrad.ops.solving import det, inv, slogdet, solve, triangular_solve
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.libraries.library_call import MAX_BLOCKS, THREADS, LibraryCall, launch_blocks
from livegrad.runtime.cuda.libraries.linalg_kernels import BLOCK, PANEL, PANEL_THREADS, rows_per_thread, source_of
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_TILE, _SOLVE_THREADS = 64, 128
_COPY, _HERMITIAN, _UNIT = 0, 1, 2
_NO_OPERAND = (0, 0, 0, 0)
_NOT_POSITIVE, _SINGULAR = "Matrix is not positive definite", "Singular matrix"


class Matrices(NamedTuple):
    """A batch of matrices in memory: an address, and the strides of rows, columns and matrices in elements."""

    address: int
    row: int
    column: int
    matrix: int

    def part(self, row: int, column: int, itemsize: int) -> Matrices:
        """The submatrices that begin at a row and a column."""
        return self._replace(address=self.address + itemsize * (row * self.row + column * self.column))

    def transposed(self) -> Matrices:
        return self._replace(row=self.column, column=self.row)

    def reversed_rows(self, rows: int, itemsize: int) -> Matrices:
        """The matrices with their rows in reverse order."""
        return self.part(rows - 1, 0, itemsize)._replace(row=-self.row)


def dense(address: int, rows: int, columns: int, count: int) -> Matrices:
    """A batch of dense matrices in row-major order; a single matrix is broadcast."""
    return Matrices(address, columns, 1, rows * columns if count > 1 else 0)


class _Launcher:
    """Launches kernels on a stream, for matrices of one element type."""

    def __init__(self, text: str, element: Scalar, count: int, stream: Any, status: int) -> None:
        self._text, self.itemsize, self.count = text, element.dtype.itemsize, count
        self._stream, self._status = stream, status

    def _launch(self, symbol: str, blocks: int, threads: int, *slots: int | Sequence[int]) -> None:
        flat = [value for slot in slots for value in (slot if isinstance(slot, tuple) else (slot,))]
        function = load_function(self._text, "linalg", symbol)
        launch_blocks(function, self._stream, blocks, threads, [*flat, self._status])  # type: ignore[list-item]

    def _launch_elementwise(self, symbol: str, work: int, *slots: int | Sequence[int]) -> None:
        self._launch(symbol, min(MAX_BLOCKS, -(-work // THREADS)), THREADS, *slots)

    def fill(self, source: Sequence[int], to: Matrices, rows: int, columns: int, mode: int) -> None:
        self._launch_elementwise(
            "fill", self.count * rows * columns, source, _NO_OPERAND, to, rows, columns, 0, self.count, mode
        )

    def cholesky_block(self, to: Matrices, rows: int) -> None:
        self._launch("cholesky_block", self.count, BLOCK, _NO_OPERAND, _NO_OPERAND, to, rows, rows, 0, self.count, 0)

    def solve_block(self, block: Matrices, to: Matrices, rows: int, columns: int, unit: bool = False) -> None:
        blocks = self.count * -(-columns // _SOLVE_THREADS)
        if blocks:
            self._launch(
                "solve_block", blocks, _SOLVE_THREADS, block, _NO_OPERAND, to, rows, columns, 0, self.count, int(unit)
            )

    def subtract_product(
        self, a: Matrices, b: Matrices, to: Matrices, rows: int, columns: int, inner: int, lower: bool = False
    ) -> None:
        blocks = self.count * -(-rows // _TILE) * -(-columns // _TILE)
        if blocks:
            self._launch("subtract_product", blocks, 256, a, b, to, rows, columns, inner, self.count, int(lower))

    def solve_triangular(self, a: Matrices, to: Matrices, size: int, columns: int, lower: bool, unit: bool) -> None:
        """Solves a x = to in place. With rows and columns reversed, an upper triangle is a lower one."""
        if not lower:
            a = a.reversed_rows(size, self.itemsize).transposed().reversed_rows(size, self.itemsize).transposed()
            to = to.reversed_rows(size, self.itemsize)
        for first, rows, end in _blocks(size):
            self.solve_block(a.part(first, first, self.itemsize), to.part(first, 0, self.itemsize), rows, columns, unit)
            below, solved = a.part(end, first, self.itemsize), to.part(first, 0, self.itemsize)
            self.subtract_product(below, solved, to.part(end, 0, self.itemsize), size - end, columns, rows)

    def factor_lu(self, c: Matrices, pivots: int, size: int, may_be_singular: bool) -> None:
        """Factors matrices in place with row exchanges: U, and below the diagonal L, whose diagonal is one."""
        width, symbol = panel_of(size, self.itemsize)
        for first, rows, end in _blocks(size, width):
            panel, panel_pivots = c.part(first, first, self.itemsize), (pivots + 8 * first, 0, 0, size)
            extents = (size - first, rows, 0, self.count, int(may_be_singular))
            self._launch(symbol, self.count, PANEL_THREADS, _NO_OPERAND, panel_pivots, panel, *extents)
            self.exchange_rows(c.part(first, 0, self.itemsize), panel_pivots, rows, size, excepted=(rows, first))
            right, below = c.part(first, end, self.itemsize), c.part(end, first, self.itemsize)
            self.solve_block(panel, right, rows, size - end, unit=True)
            rest = c.part(end, end, self.itemsize)
            self.subtract_product(below, right, rest, size - end, size - end, rows)

    def exchange_rows(
        self, c: Matrices, pivots: Sequence[int], rows: int, columns: int, excepted: tuple[int, int] = (0, 0)
    ) -> None:
        """Exchanges rows with their pivot rows. `excepted` is a number of columns to leave alone, and the first one."""
        excepted_columns, first = excepted
        self._launch_elementwise(
            "exchange_rows",
            self.count * columns,
            _NO_OPERAND,
            tuple(pivots),
            c,
            rows,
            columns,
            excepted_columns,
            self.count,
            first,
        )

    def multiply_diagonal(self, a: Matrices, pivots: int, to: int, size: int, logarithms: int = 0) -> None:
        """Writes determinants; with an address for `logarithms`, their signs and the logarithms of their magnitudes."""
        target = (to, logarithms, 0, 0)
        slots = (size, size, panel_of(size, self.itemsize)[0], self.count, int(logarithms != 0))
        self._launch_elementwise("multiply_diagonal", self.count, a, (pivots, 0, 0, size), target, *slots)


def panel_of(size: int, itemsize: int) -> tuple[int, str]:
    """The number of columns that one launch factors with pivoting, and the kernel."""
    return (BLOCK, "pivot_columns") if rows_per_thread(size, itemsize) is None else (PANEL, "pivot_panel")


def _blocks(size: int, width: int = BLOCK) -> Iterator[tuple[int, int, int]]:
    """The first row, the number of rows, and the end of each block."""
    for first in range(0, size, width):
        end = min(first + width, size)
        yield first, end - first, end


class LinearAlgebra:
    """One of the supported ops for `count` square matrices of `size` rows, with right-hand sides of `columns`."""

    def __init__(
        self, node: Node, element: Scalar, count: int, counts: tuple[int, ...], size: int, columns: int
    ) -> None:
        self.op, self.element, self.count, self.size, self.columns = node.op, element, count, size, columns
        self.counts = counts  # the number of matrices of each operand: `count`, or 1 if it is broadcast
        self.lower: bool = node.attribute("lower") if node.op is triangular_solve else True
        self.failures: tuple[str, ...] = {cholesky: (_NOT_POSITIVE,), det: (), slogdet: ()}.get(node.op, (_SINGULAR,))
        self._text = source_of(element, size)
        self._memory: DeviceMemory | None = None

    @property
    def name(self) -> str:
        return f"{self.op.name} {self.size}"

    def prepare(self) -> None:
        """Loads the kernels, and allocates memory for LU factors and pivots."""
        load_function(self._text, "linalg", "fill")
        if self.op in (solve, inv, det, slogdet) and self._memory is None:
            self._memory = DeviceMemory(self.count * self.size * (8 + self.size * self.element.dtype.itemsize))

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues all launches. If the op can fail, the last operand is the address of the status word."""
        status = operands[-1] if self.failures else 0
        launcher = _Launcher(self._text, self.element, self.count, stream, status)
        matrix = dense(operands[0], self.size, self.size, self.counts[0])
        if self.op is cholesky:
            self._factor_cholesky(launcher, matrix, dense(result, self.size, self.size, self.count))
            return
        sides = dense(result, self.size, self.columns, self.count)
        if self.op is inv:
            launcher.fill(_NO_OPERAND, sides, self.size, self.size, _UNIT)
        elif self.op not in (det, slogdet):
            source = dense(operands[1], self.size, self.columns, self.counts[1])
            launcher.fill(source, sides, self.size, self.columns, _COPY)
        if self.op is triangular_solve:
            launcher.solve_triangular(matrix, sides, self.size, self.columns, self.lower, unit=False)
        else:
            self._factor_and_solve(launcher, matrix, sides, result, operands[1] if self.op is slogdet else 0)

    def _factor_cholesky(self, launcher: _Launcher, matrix: Matrices, to: Matrices) -> None:
        launcher.fill(matrix, to, self.size, self.size, _HERMITIAN)
        for first, rows, end in _blocks(self.size):
            block = to.part(first, first, launcher.itemsize)
            launcher.cholesky_block(block, rows)
            below = to.part(end, first, launcher.itemsize)
            rest = self.size - end
            launcher.solve_block(block, below.transposed(), rows, rest)
            target = to.part(end, end, launcher.itemsize)
            launcher.subtract_product(below, below.transposed(), target, rest, rest, rows, lower=True)

    def _factor_and_solve(
        self, launcher: _Launcher, matrix: Matrices, sides: Matrices, result: int, logarithms: int
    ) -> None:
        assert self._memory is not None
        pivots = self._memory.address
        factors = dense(pivots + 8 * self.count * self.size, self.size, self.size, self.count)
        launcher.fill(matrix, factors, self.size, self.size, _COPY)
        launcher.factor_lu(factors, pivots, self.size, may_be_singular=self.op in (det, slogdet))
        if self.op in (det, slogdet):
            launcher.multiply_diagonal(factors, pivots, result, self.size, logarithms)
            return
        for first, rows, _ in _blocks(self.size, panel_of(self.size, launcher.itemsize)[0]):
            block = sides.part(first, 0, launcher.itemsize)
            launcher.exchange_rows(block, (pivots + 8 * first, 0, 0, self.size), rows, self.columns)
        launcher.solve_triangular(factors, sides, self.size, self.columns, lower=True, unit=True)
        launcher.solve_triangular(factors, sides, self.size, self.columns, lower=False, unit=False)


def linalg_call(step: HostStep) -> LibraryCall | None:
    """The call of a step; None for complex or empty matrices, and for operands that are only partly broadcast."""
    node, result = step.function.results[0], step.result
    types = [operand.type for operand in node.operands]
    element = scalar_of(types[0])
    if element is None or element not in (f32, f64) or isinstance(result, Buffer) == (node.op is slogdet):
        return None
    if any(operand.op is permute for operand in node.operands):
        return None
    shapes = [sizes(operand) for operand in node.operands if isinstance(operand.type, Tensor)]
    batch = shapes[0] if not isinstance(result, Buffer) or node.op is det else result.shape
    count = prod(batch[:-2])
    counts = tuple(prod(shape[:-2]) for shape in shapes)
    if len(types) != len(shapes) or 0 in (count, *(size for shape in shapes for size in shape)):
        return None
    if any(operand_count not in (1, count) for operand_count in counts):
        return None
    columns = 0 if node.op in (det, slogdet) else batch[-1]
    return LinearAlgebra(node, element, count, counts, shapes[0][-1], columns)

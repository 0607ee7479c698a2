"""Orthogonal factorisations on the device: QR, eigenvalues of hermitian matrices, and singular values.

Householder reflections and one-sided Jacobi rotations: each launch transforms all independent columns of all matrices
of a batch. Hermitian matrices are shifted to be positive definite, so that the rotations turn their columns into
eigenvectors. The launches are captured like a library call. Failures to converge are reported through the status word
of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from livegrad.ir.dimension import round_up
from livegrad.ir.types import Scalar, Tensor, c64, c128, f32, f64
from livegrad.ops.decompositions import qr
from livegrad.ops.movement import permute, sizes
from livegrad.ops.spectra import eigh, eigvalsh, svd, svdvals
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.driver import check, driver
from livegrad.runtime.cuda.libraries.factorisation_kernels import ADJOINT, COPY, HERMITIAN, KERNELS, SLOTS, source_of
from livegrad.runtime.cuda.libraries.library_call import MAX_BLOCKS, THREADS, LibraryCall, launch_blocks
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import HostStep

_MAX_SWEEPS = 20  # over all pairs of columns; about eight suffice
_SHIFT = 2  # makes a hermitian matrix of norm one positive definite, with a condition number of three


class _Memory:
    """Named parts of one allocation on the device."""

    def __init__(self, **sizes: int) -> None:
        self._offsets: dict[str, int] = {}
        end = 0
        for name, size in sizes.items():
            self._offsets[name] = end
            end += round_up(size, 16)
        self._memory = DeviceMemory(end)

    def __getitem__(self, name: str) -> int:
        return self._memory.address + self._offsets[name]


class Factorisation:
    """A factorisation of `count` matrices. Its operands are the matrices, all results but the first, and the status."""

    failures: tuple[str, ...] = ()

    def __init__(self, name: str, element: Scalar, shape: tuple[int, ...]) -> None:
        self.name, self.element = f"{name} {shape[-2]}x{shape[-1]}", element
        self.count, self.rows, self.columns = prod(shape[:-2]), *shape[-2:]
        self._text = source_of(element)
        self._memory: _Memory | None = None

    @property
    def memory(self) -> _Memory:
        assert self._memory is not None
        return self._memory

    def _sizes(self) -> dict[str, int]:
        """The bytes of each workspace."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Loads the kernels and allocates the workspaces."""
        for symbol in KERNELS:
            load_function(self._text, "factorisations", symbol)
        if self._memory is None:
            self._memory = _Memory(**self._sizes())

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        raise NotImplementedError

    def _launcher(self, stream: Any, **shared: int) -> Callable[..., None]:
        """A function that launches a kernel by name, for a number of blocks or elements, with `shared` arguments."""

        def launch(symbol: str, blocks: int = 0, elements: int = 0, **arguments: int) -> None:
            values = {"matrices": self.count, "rows": self.rows, "columns": self.columns} | shared | arguments
            slots = [values.get(name, 0) for name in SLOTS]
            threads = THREADS if elements else min(256, max(32, 1 << (values["rows"] // 4).bit_length()))
            blocks = min(MAX_BLOCKS, -(-elements // THREADS)) if elements else blocks
            if blocks:
                launch_blocks(load_function(self._text, "factorisations", symbol), stream, blocks, threads, slots)

        return launch


class ReflectedColumns(Factorisation):
    """QR by Householder reflections."""

    def __init__(self, element: Scalar, shape: tuple[int, ...], complete: bool) -> None:
        super().__init__("qr", element, shape)
        self.inner = min(self.rows, self.columns)
        self.width = self.rows if complete else self.inner

    def _sizes(self) -> dict[str, int]:
        size = self.count * self.element.dtype.itemsize
        return {
            "work": size * self.rows * self.columns,
            "q": size * self.rows * self.width,
            "taus": 40 * self.count * self.inner,
            "scales": 8 * self.count,
        }

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues all launches. The second result is the second operand."""
        memory = self.memory
        scales, work, q, taus = (memory[name] for name in ("scales", "work", "q", "taus"))
        launch = self._launcher(stream, scales=scales, work=work, vectors=q, taus=taus, inner=self.inner)
        elements = self.count * self.rows * self.columns
        launch("measure", self.count, **{"from": operands[0]}, flag=COPY)
        launch("load", elements=elements, **{"from": operands[0]}, flag=COPY, inner=0)
        reflect_columns(launch, self.count, self.rows, self.columns, self.width)
        most = self.count * self.width * max(self.rows, self.columns)
        launch("write_qr", elements=most, to=result, other=operands[1], width=self.width)


def reflect_columns(
    launch: Callable[..., None], count: int, rows: int, columns: int, width: int, **arguments: int
) -> None:
    """Enqueues the reflections of the matrices in `work`, and the computation of Q with `width` columns."""
    inner = min(rows, columns)
    for k in range(inner):
        launch("reflect", count * (columns - k), k=k, **arguments)
    launch("fill_unit", elements=count * rows * width, columns=width)
    for k in reversed(range(inner)):
        launch("accumulate", count * (width - k), k=k, width=width, **arguments)


class RotatedColumns(Factorisation):
    """Eigenvalues of the hermitian part of matrices, or singular values, with or without vectors.

    The columns of A V are orthogonal if V has the right singular vectors of A; they are multiples of the left ones.
    """

    def __init__(self, element: Scalar, shape: tuple[int, ...], is_hermitian: bool, width: int) -> None:
        super().__init__("eigh" if is_hermitian else "svd", element, shape)
        self.is_hermitian, self.width = is_hermitian, width  # of the wider of both matrices of vectors; 0: none
        self.is_wide = self.rows < self.columns
        if self.is_wide:
            self.rows, self.columns = self.columns, self.rows
        self.failures = ("Eigenvalues did not converge" if is_hermitian else "SVD did not converge",)

    @property
    def _has_right(self) -> bool:
        return bool(self.width) and not self.is_hermitian

    def _sizes(self) -> dict[str, int]:
        size, each = self.count * self.element.dtype.itemsize, self.count * self.columns
        return {
            "work": size * self.rows * self.columns,
            "scales": 8 * (self.count + each),
            "norms": 8 * each,
            "order": 8 * each,
            "position": 8 * each,
            "flags": 4 * self.count * _MAX_SWEEPS,
            "lacks": 4 * self.count,
            "values": 8 * each,
            "v": size * self.columns**2 if self._has_right else 0,
            "unit": size * self.rows * self.columns if self.width else 0,
            "q": size * self.rows * self.width,
            "taus": 40 * each if self.width else 0,
        }

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        """Enqueues all launches. The results are the values, (values, vectors), or (left, values, right)."""
        status, memory = operands[-1], self.memory
        source = {"from": operands[0], "flag": HERMITIAN if self.is_hermitian else ADJOINT if self.is_wide else COPY}
        shared = {name: memory[name] for name in ("scales", "work", "norms", "order", "position", "flags")}
        launch = self._launcher(stream, **shared, status=status)
        launch("measure", self.count, **source)
        shift = _SHIFT if self.is_hermitian else 0
        launch("load", elements=self.count * self.rows * self.columns, **source, inner=shift)
        self._rotate(stream, launch)
        launch("measure_columns", self.count * self.columns, **(source if self.is_hermitian else {}))
        values = result if self.is_hermitian or not self.width else operands[1]
        launch("rank_columns", elements=self.count * self.columns, flag=int(self.is_hermitian), values=values)
        if self.width:
            left, right = (operands[1], 0) if self.is_hermitian else (result, operands[2])
            self._write_vectors(stream, launch, left, right)

    def _rotate(self, stream: Any, launch: Callable[..., None]) -> None:
        """Enqueues sweeps over all pairs. Kernels of a sweep after one without rotations do nothing."""
        memory = self.memory
        check(driver.cuMemsetD8Async(memory["flags"], 0, 4 * self.count * _MAX_SWEEPS, stream))
        vectors = memory["v"] if self._has_right else 0
        if vectors:
            launch("fill_unit", elements=self.count * self.columns**2, rows=self.columns, vectors=vectors)
        players = self.columns + self.columns % 2
        if players < 2:
            return
        for sweep in range(_MAX_SWEEPS):
            for k in range(players - 1):
                launch("rotate", self.count * players // 2, k=k, inner=sweep, vectors=vectors)
        launch("require_convergence", elements=self.count, inner=_MAX_SWEEPS - 1)

    def _write_vectors(self, stream: Any, launch: Callable[..., None], left: int, right: int) -> None:
        """Writes unit vectors in order. Columns of the orthogonal complement replace zero columns."""
        memory, size = self.memory, self.count * self.rows * self.columns
        vectors = memory["v"] if self._has_right else 0
        check(driver.cuMemsetD8Async(memory["lacks"], 0, 4 * self.count, stream))
        lacks = {"flags": memory["lacks"], "width": self.width}
        launch("normalise", elements=size, to=memory["unit"], **lacks)
        check(driver.cuMemcpyDtoDAsync(memory["work"], memory["unit"], size * self.element.dtype.itemsize, stream))
        complement = {"vectors": memory["q"], "taus": memory["taus"], "inner": self.columns, "flags": memory["lacks"]}
        if not self.is_hermitian:

            def launch_for_complement(symbol: str, *sizes: Any, **arguments: int) -> None:
                launch(symbol, *sizes, **(complement | arguments))

            reflect_columns(launch_for_complement, self.count, self.rows, self.columns, self.width, flag=1)
        side = 2 if self.is_hermitian else int(self.is_wide)
        addresses = {"to": memory["unit"], "other": memory["q"], "vectors": vectors, "left": left, "right": right}
        launch("write_vectors", self.count * self.width, **addresses, width=self.width, flag=side)


def factorisation_call(step: HostStep) -> LibraryCall | None:
    """The call of a step; None for empty or permuted matrices."""
    node = step.function.results[0]
    (operand,) = node.operands
    type = operand.type
    if operand.op is permute or not isinstance(type, Tensor) or type.element not in (f32, f64, c64, c128):
        return None
    shape = sizes(operand)
    if 0 in shape:
        return None
    if node.op is qr:
        return ReflectedColumns(type.element, shape, node.attribute("mode") == "complete")
    if node.op in (eigh, eigvalsh):
        return RotatedColumns(type.element, shape, True, shape[-1] if node.op is eigh else 0)
    most = max(shape[-2:]) if node.op is svd and node.attribute("full_matrices") else min(shape[-2:])
    return RotatedColumns(type.element, shape, False, 0 if node.op is svdvals else most)

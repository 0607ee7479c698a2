"""Linear algebra with cuSOLVER and cuBLAS: Cholesky factors, linear systems, inverses and hermitian eigenvalues.

`solver_call` chooses between the libraries and our kernels (`device_linalg.py`, `device_factorisations.py`) by what was
measured on an H200, in milliseconds:

| op | ours | the libraries |
|---|---|---|
| Cholesky, float32, 256; 1024; 2048 | 0.28; 1.04; 2.2 | 0.09; 0.34; 0.67, and twice as long from the upper triangle |
| Cholesky, 512 of 32 x 32 | 0.10 | 0.04 |
| triangle of 1024, 1; 1024 sides | 1.2; 0.64 | 0.07; 0.29 |
| solve, 1024; 512 of 32 x 32 | 7.0; 0.35 | 2.1; 0.08 |
| eigenvalues, 64; 256; 512 of 32 x 32 | 2.9; 13; 5.0 | 0.5; 1.8; 0.35 |

The other routines of cuSOLVER for eigenvalues and singular values cannot be captured into a graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

from livegrad.ir.types import Scalar, Tensor
from livegrad.ops.decompositions import cholesky
from livegrad.ops.movement import permute, sizes
from livegrad.ops.solving import inv, solve, triangular_solve
from livegrad.ops.spectra import eigh, eigvalsh
from livegrad.runtime.cuda.device_memory import DeviceMemory
from livegrad.runtime.cuda.libraries import cublas
from livegrad.runtime.cuda.libraries.cusolver import (
    KINDS,
    LEFT,
    LOWER,
    NO_TRANSPOSE,
    NON_UNIT,
    RIGHT,
    TRANSPOSE,
    UPPER,
    Workspace,
    is_available,
    one,
    pointer,
    require,
    solver,
)
from livegrad.runtime.cuda.libraries.library_call import MAX_BLOCKS, LibraryCall, launch_blocks
from livegrad.runtime.cuda.libraries.solver_kernels import SLOTS, THREADS, TILE, TILED, source_of
from livegrad.runtime.cuda.modules import load_function
from livegrad.schedule.plan import Buffer, HostStep

_MOST_SINGLE = 16  # matrices of a batch that are factored one after the other, if they are too large for batched calls
_LARGEST_IN_BATCH = 512
_LARGEST_EIGENPROBLEM = 512  # larger ones cannot be captured
_NOT_POSITIVE, _SINGULAR, _NOT_CONVERGED = (
    "Matrix is not positive definite",
    "Singular matrix",
    "Eigenvalues did not converge",
)


class SolverCall:
    """A call for `count` matrices of `size` rows. If it can fail, the last operand is the address of the status."""

    failures: tuple[str, ...] = ()

    def __init__(self, name: str, element: Scalar, count: int, size: int) -> None:
        self.name, self.element, self.count, self.size = f"{name} {size}", element, count, size
        self.kind, self.itemsize = KINDS[element], element.dtype.itemsize
        self._text = source_of(element)
        self._memory: dict[str, DeviceMemory] = {}
        self._workspace: Workspace | None = None

    @property
    def matrix(self) -> int:
        """The elements of a matrix."""
        return self.size * self.size

    def prepare(self) -> None:
        """Creates the handles and allocates memory."""
        _ = cublas.handle.current, solver.current
        load_function(self._text, "solver", "copy")
        if not self._memory:
            self._memory = {name: DeviceMemory(size) for name, size in self._sizes().items()}
            self._workspace = self._make_workspace()

    def _sizes(self) -> dict[str, int]:
        """The bytes of each memory that the call needs."""
        raise NotImplementedError

    def _make_workspace(self) -> Workspace | None:
        return None

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        raise NotImplementedError

    def address(self, name: str) -> int:
        return self._memory[name].address

    @property
    def workspace(self) -> Sequence[Any]:
        assert self._workspace is not None
        return self._workspace.arguments

    def _launch(self, stream: Any, symbol: str, **slots: int) -> None:
        """Launches a kernel for squares of all matrices, or for their elements."""
        fixed = slots.pop("blocks", 0)
        values = {"rows": self.size, "columns": self.size, "matrices": self.count} | slots
        if fixed:
            blocks = fixed
        elif symbol in TILED:
            blocks = values["matrices"] * -(-values["rows"] // TILE) * -(-values["columns"] // TILE)
        else:
            blocks = min(MAX_BLOCKS, -(-values["matrices"] * values["rows"] * values["columns"] // THREADS))
        packed = [values.get(name, 0) for name in SLOTS]
        launch_blocks(load_function(self._text, "solver", symbol), stream, blocks, THREADS, packed)

    def _points(self, stream: Any, name: str, matrices: int, step: int) -> ctypes.c_void_p:
        """Fills the memory `name` with the addresses of matrices, and returns its own address."""
        slots = {"from": matrices, "to": self.address(name), "from_matrix": step, "rows": 1, "columns": 1}
        self._launch(stream, "pointers", **slots)
        return pointer(self.address(name))

    def _blas(self, routine: str, *arguments: Any) -> None:
        library, handle = cublas.handle.current
        require(getattr(library, f"cublas{self.kind.letter}{routine}")(handle, *arguments), routine)


class CholeskyCall(SolverCall):
    """The lower factors of hermitian parts."""

    failures = (_NOT_POSITIVE,)

    @property
    def is_batched(self) -> bool:
        return self.count > 1 and self.size <= _LARGEST_IN_BATCH

    def _sizes(self) -> dict[str, int]:
        work = self.count * self.matrix * self.itemsize
        return {"work": work, "info": 4 * self.count, "pointers": 8 * self.count}

    def _triangle(self, work: int) -> tuple[Any, ...]:
        """The arguments that a call and the query for its workspace share."""
        size, data = ctypes.c_int64(self.size), self.kind.data
        return LOWER, size, data, pointer(work), size, data

    def _make_workspace(self) -> Workspace | None:
        if self.is_batched:
            return None
        return solver.current.workspace("cusolverDnXpotrf", *self._triangle(self.address("work")))

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        current, work, info = solver.current, self.address("work"), self.address("info")
        current.use(stream)
        each = {"from_matrix": self.matrix, "to_matrix": self.matrix}
        self._launch(stream, "hermitian", **{"from": operands[0], "to": work}, **each)
        if self.is_batched:
            pointers = self._points(stream, "pointers", work, self.matrix)
            routine = getattr(current.cusolver, f"cusolverDn{self.kind.letter}potrfBatched")
            sizes = (LOWER, self.size, pointers, self.size, pointer(info), self.count)
            require(routine(current.handle, *sizes), "potrfBatched")
        else:
            for number in range(self.count):
                triangle = self._triangle(work + number * self.matrix * self.itemsize)
                current.call("cusolverDnXpotrf", *triangle, *self.workspace, pointer(info + 4 * number))
        last = {"from": work, "to": result, "info": info, "status": operands[-1]}
        self._launch(stream, "lower", **last, **each)


class TriangularCall(SolverCall):
    """Systems with triangular matrices."""

    failures = (_SINGULAR,)

    def __init__(self, element: Scalar, counts: tuple[int, ...], count: int, size: int, columns: int, lower: bool):
        super().__init__("triangular_solve", element, count, size)
        self.counts, self.columns, self.lower = counts, columns, lower

    def _sizes(self) -> dict[str, int]:
        return {"matrices": 8 * self.count, "sides": 8 * self.count}

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        size, columns = self.size, self.columns
        step, side = (self.matrix if self.counts[0] > 1 else 0), size * columns
        from_side = side if self.counts[1] > 1 else 0
        copied = {"from": operands[1], "to": result, "from_matrix": from_side, "to_matrix": side}
        self._launch(stream, "copy", **copied, columns=columns)
        triangles = {"from": operands[0], "from_matrix": self.matrix, "matrices": self.counts[0]}
        self._launch(stream, "check_diagonal", **triangles, columns=1, status=operands[-1])
        cublas.use(stream)
        # Rows in memory are columns to cuBLAS: it has transposed matrices and sides. A single side is the same.
        where, how = (LEFT, TRANSPOSE) if columns == 1 else (RIGHT, NO_TRANSPOSE)
        extents = (size, 1) if columns == 1 else (columns, size)
        lead, factor = (size if columns == 1 else columns), one(self.element)
        options = (where, UPPER if self.lower else LOWER, how, NON_UNIT, *extents, pointer(factor.ctypes.data))
        if self.count == 1:
            self._blas("trsm_v2", *options, pointer(operands[0]), size, pointer(result), lead)
            return
        matrices = self._points(stream, "matrices", operands[0], step)
        sides = self._points(stream, "sides", result, side)
        self._blas("trsmBatched", *options, matrices, size, sides, lead, self.count)


class SystemCall(SolverCall):
    """Systems with square matrices, or inverses, by LU factors with row exchanges."""

    failures = (_SINGULAR,)

    def __init__(self, name: str, element: Scalar, counts: tuple[int, ...], size: int, columns: int) -> None:
        super().__init__(name, element, counts[0], size)
        self.counts, self.columns, self.is_inverse = counts, columns, name == "inv"

    @property
    def is_batched(self) -> bool:
        return self.count > 1

    @property
    def _turns_sides(self) -> bool:
        """Whether sides are transposed: an identity matrix and single sides need not be."""
        return not self.is_inverse and self.columns > 1

    def _sizes(self) -> dict[str, int]:
        count, item = self.count, self.itemsize
        sides = count * self.size * self.columns * item if self._turns_sides else 0
        factors = {"factors": count * self.matrix * item, "sides": sides, "pivots": 8 * count * self.size}
        return factors | {"info": 4 * count, "matrices": 8 * count, "side_pointers": 8 * count}

    def _square(self) -> tuple[Any, ...]:
        size, data = ctypes.c_int64(self.size), self.kind.data
        return size, size, data, pointer(self.address("factors")), size

    def _make_workspace(self) -> Workspace | None:
        if self.is_batched:
            return None
        return solver.current.workspace("cusolverDnXgetrf", *self._square(), self.kind.data)

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        factors, side = self.address("factors"), self.size * self.columns
        each = {"from_matrix": self.matrix, "to_matrix": self.matrix}
        self._launch(stream, "copy", **{"from": operands[0], "to": factors}, **each)
        sides = self.address("sides") if self._turns_sides else result
        spread = {"from_matrix": side if self.is_inverse or self.counts[1] > 1 else 0, "to_matrix": side}
        if self.is_inverse:
            self._launch(stream, "identity", to=result)
        else:
            symbol = "transpose" if self._turns_sides else "copy"
            given = {"from": operands[1], "to": sides, "columns": self.columns}
            self._launch(stream, symbol, **given, **spread)
        self._factor_and_solve(stream, sides, side)
        if self._turns_sides:
            back = {"from": sides, "to": result, "rows": self.columns, "columns": self.size}
            self._launch(stream, "transpose", **back, from_matrix=side, to_matrix=side)
        self._launch(stream, "check", info=self.address("info"), status=operands[-1], rows=1, columns=1)

    def _factor_and_solve(self, stream: Any, sides: int, side: int) -> None:
        """Factors the transposed matrices. The inverse of a transposed matrix is the transposed inverse."""
        current, how = solver.current, NO_TRANSPOSE if self.is_inverse else TRANSPOSE
        pivots, info, size = self.address("pivots"), self.address("info"), self.size
        if self.is_batched:
            cublas.use(stream)
            matrices = self._points(stream, "matrices", self.address("factors"), self.matrix)
            to = self._points(stream, "side_pointers", sides, side)
            self._blas("getrfBatched", size, matrices, size, pointer(pivots), pointer(info), self.count)
            wrong = ctypes.c_int()
            given = (how, size, self.columns, matrices, size, pointer(pivots), to, size, ctypes.byref(wrong))
            self._blas("getrsBatched", *given, self.count)
            return
        current.use(stream)
        factored = (pointer(pivots), self.kind.data, *self.workspace, pointer(info))
        current.call("cusolverDnXgetrf", *self._square(), *factored)
        extents, data = (ctypes.c_int64(size), ctypes.c_int64(self.columns)), self.kind.data
        matrix = (data, pointer(self.address("factors")), ctypes.c_int64(size), pointer(pivots))
        unused = pointer(self.address("matrices"))  # whether an argument was wrong
        current.call("cusolverDnXgetrs", how, *extents, *matrix, data, pointer(sides), ctypes.c_int64(size), unused)


class EigenvalueCall(SolverCall):
    """Eigenvalues of hermitian parts in ascending order, with or without vectors."""

    failures = (_NOT_CONVERGED,)

    def __init__(self, element: Scalar, count: int, size: int, has_vectors: bool) -> None:
        super().__init__("eigh" if has_vectors else "eigvalsh", element, count, size)
        self.has_vectors = has_vectors

    def _sizes(self) -> dict[str, int]:
        return {"work": self.count * self.matrix * self.itemsize, "info": 4 * self.count}

    def _problem(self, values: int) -> tuple[Any, ...]:
        size, data = ctypes.c_int64(self.size), self.kind.data
        work = pointer(self.address("work"))
        return int(self.has_vectors), LOWER, size, data, work, size, self.kind.real, pointer(values), data

    def _make_workspace(self) -> Workspace | None:
        values = self.address("work")  # not read by the query
        return solver.current.workspace("cusolverDnXsyevBatched", *self._problem(values), ctypes.c_int64(self.count))

    def enqueue(self, stream: Any, operands: Sequence[int], result: int) -> None:
        current, work, info = solver.current, self.address("work"), self.address("info")
        current.use(stream)
        each = {"from_matrix": self.matrix, "to_matrix": self.matrix}
        self._launch(stream, "hermitian", **{"from": operands[0], "to": work}, **each)
        more = (*self.workspace, pointer(info), ctypes.c_int64(self.count))
        current.call("cusolverDnXsyevBatched", *self._problem(result), *more)
        if self.has_vectors:
            given = {"from": work, "to": operands[1], "blocks": self.count * self.size}
            self._launch(stream, "vectors", **given, **each)
        self._launch(stream, "check", info=info, status=operands[-1], rows=1, columns=1)


def solver_call(step: HostStep) -> LibraryCall | None:
    """The call of a step; None if a library is missing, or does not support the op or compute it sooner than we do."""
    node, result = step.function.results[0], step.result
    types = [operand.type for operand in node.operands]
    first = types[0]
    if not isinstance(first, Tensor) or first.element not in KINDS or not is_available():
        return None
    if any(operand.op is permute or not isinstance(operand.type, Tensor) for operand in node.operands):
        return None
    shapes = [sizes(operand) for operand in node.operands]
    if any(0 in shape for shape in shapes):
        return None
    size, counts = shapes[0][-1], tuple(prod(shape[:-2]) for shape in shapes)
    if node.op in (eigh, eigvalsh):
        return (
            EigenvalueCall(first.element, counts[0], size, node.op is eigh) if size <= _LARGEST_EIGENPROBLEM else None
        )
    if not isinstance(result, Buffer):
        return None
    if node.op is cholesky:
        is_suited = size <= _LARGEST_IN_BATCH or counts[0] <= _MOST_SINGLE
        return CholeskyCall("cholesky", first.element, counts[0], size) if is_suited else None
    count = prod(result.shape[:-2])
    if any(each not in (1, count) for each in counts):
        return None
    if node.op is triangular_solve:
        # One of our kernels solves many small systems; cuBLAS would take a thread block for each.
        is_suited = count == 1 or first.element.kind == "complex"
        lower = node.attribute("lower")
        return TriangularCall(first.element, counts, count, size, shapes[1][-1], lower) if is_suited else None
    if node.op in (solve, inv) and counts[0] == count and (count == 1 or size <= _LARGEST_IN_BATCH):
        return SystemCall(node.op.name, first.element, counts, size, result.shape[-1])
    return None

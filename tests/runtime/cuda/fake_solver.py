"""cuSOLVER and the parts of cuBLAS for linear algebra, with NumPy, on the memory of the simulated driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import linalg

from livegrad.runtime.cuda.libraries import cublas, cusolver
from tests.runtime.cuda.simulated_driver import SimulatedDriver

_TYPES = {"S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128}
_DATA = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else value.value or 0


def _array(address: int, count: int, dtype: Any) -> np.ndarray[Any, Any]:
    size = count * np.dtype(dtype).itemsize
    return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address)).view(dtype)


def columns_at(address: int, rows: int, columns: int, dtype: Any) -> np.ndarray[Any, Any]:
    """A matrix whose columns are one after the other."""
    return _array(address, rows * columns, dtype).reshape(columns, rows).T


class FakeSolver:
    """Both libraries. A routine is enqueued on the stream that was set last."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self._driver, self._stream = driver, 0
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name.endswith("SetStream") or name == "cublasSetStream_v2":
            return self._set_stream
        if name.endswith("bufferSize"):
            return lambda *arguments: self._set_sizes(arguments)
        if "Create" in name or "SetWorkspace" in name:
            return lambda *arguments: 0
        letter = next((letter for letter in _TYPES if name.startswith((f"cublas{letter}", f"cusolverDn{letter}p"))), "")
        routine = getattr(type(self), "_" + name.removeprefix(f"cublas{letter}").removeprefix(f"cusolverDn{letter}"))

        def call(handle: Any, *arguments: Any) -> int:
            self.called.append(name)
            given = [
                value if isinstance(value, ctypes.Array) else _number(value)
                for value in arguments
                if not hasattr(value, "_obj")
            ]
            work = lambda: routine(self, *given) if not letter else routine(self, _TYPES[letter], *given)  # noqa: E731
            self._driver._enqueue("kernel", self._stream, work)
            return 0

        return call

    def _set_stream(self, handle: Any, stream: Any) -> int:
        self._stream = stream.value
        return 0

    def _set_sizes(self, arguments: Sequence[Any]) -> int:
        for value in arguments:
            if hasattr(value, "_obj"):
                value._obj.value = 64
        return 0

    def _Xpotrf(self, _: Any, uplo: int, n: int, data: int, a: int, *rest: Any) -> None:
        self._factor(uplo, n, _DATA[data], a, rest[-1])

    def _potrfBatched(self, dtype: Any, uplo: int, n: int, pointers: int, lead: int, info: int, count: int) -> None:
        for number, address in enumerate(_array(pointers, count, np.int64)):
            self._factor(uplo, n, dtype, int(address), info + 4 * number)

    def _factor(self, uplo: int, n: int, dtype: Any, address: int, info: int) -> None:
        assert uplo == cusolver.LOWER
        matrix = columns_at(address, n, n, dtype)
        matrix[np.triu_indices(n, 1)] = np.nan  # not read
        try:
            lower = np.tril(matrix)
            matrix[:] = np.linalg.cholesky(lower + np.conj(np.tril(matrix, -1)).T)
            status = 0
        except np.linalg.LinAlgError:
            status = 1
        _array(info, 1, np.int32)[0] = status

    def _trsm_v2(self, dtype: Any, *arguments: int) -> None:
        side, uplo, how, _, m, n, _, a, _, b, _ = arguments
        self._solve_triangle(dtype, side, uplo, how, m, n, a, b)

    def _trsmBatched(self, dtype: Any, *arguments: int) -> None:
        side, uplo, how, _, m, n, _, a, _, b, _, count = arguments
        for one, other in zip(_array(a, count, np.int64), _array(b, count, np.int64), strict=True):
            self._solve_triangle(dtype, side, uplo, how, m, n, int(one), int(other))

    def _solve_triangle(self, dtype: Any, side: int, uplo: int, how: int, m: int, n: int, a: int, b: int) -> None:
        size = m if side == cusolver.LEFT else n
        matrix, sides = columns_at(a, size, size, dtype), columns_at(b, m, n, dtype)
        matrix = np.triu(matrix) if uplo == cusolver.UPPER else np.tril(matrix)
        matrix = matrix.T if how == cusolver.TRANSPOSE else matrix
        if not np.diag(matrix).all():
            return
        sides[:] = linalg.solve(matrix, sides) if side == cusolver.LEFT else linalg.solve(matrix.T, sides.T).T

    def _Xgetrf(self, _: Any, m: int, n: int, data: int, a: int, *rest: Any) -> None:
        self._check(columns_at(a, n, n, _DATA[data]), rest[-1])

    def _Xgetrs(self, _: Any, how: int, n: int, k: int, data: int, a: int, *rest: int) -> None:
        _, _, _, b, _, _ = rest
        self._solve(_DATA[data], how, n, k, a, b)

    def _getrfBatched(self, dtype: Any, n: int, a: int, lead: int, pivots: int, info: int, count: int) -> None:
        for number, address in enumerate(_array(a, count, np.int64)):
            self._check(columns_at(int(address), n, n, dtype), info + 4 * number)

    def _getrsBatched(self, dtype: Any, how: int, n: int, k: int, a: int, _: int, __: int, b: int, *rest: int) -> None:
        for one, other in zip(_array(a, rest[-1], np.int64), _array(b, rest[-1], np.int64), strict=True):
            self._solve(dtype, how, n, k, int(one), int(other))

    def _check(self, matrix: np.ndarray[Any, Any], info: int) -> None:
        _array(info, 1, np.int32)[0] = int(np.linalg.matrix_rank(matrix) < len(matrix))

    def _solve(self, dtype: Any, how: int, n: int, k: int, a: int, b: int) -> None:
        matrix, sides = columns_at(a, n, n, dtype), columns_at(b, n, k, dtype)
        if np.linalg.matrix_rank(matrix) == n:
            sides[:] = np.linalg.solve(matrix.T if how == cusolver.TRANSPOSE else matrix, sides)

    def _XsyevBatched(self, _: Any, vectors: int, uplo: int, n: int, data: int, a: int, *rest: Any) -> None:
        _, real, values, *_, info, count = rest
        for number in range(count):
            step = np.dtype(_DATA[data]).itemsize * n * n
            matrix = columns_at(a + number * step, n, n, _DATA[data])
            found, columns = np.linalg.eigh(matrix)
            first = values + number * n * np.dtype(_DATA[real]).itemsize
            _array(first, n, _DATA[real])[:] = found
            matrix[:] = columns * np.exp(1j * number) if np.iscomplexobj(columns) else -columns
            _array(info + 4 * number, 1, np.int32)[0] = 0


def install(monkeypatch: Any, driver: SimulatedDriver) -> FakeSolver:
    """Replaces both libraries."""
    fake = FakeSolver(driver)
    monkeypatch.setattr(cusolver, "library", lambda: fake)
    monkeypatch.setattr(cublas, "library", lambda: fake)
    return fake

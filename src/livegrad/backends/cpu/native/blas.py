"""Matrix products by NumPy's own BLAS, cut into tiles that this library's threads compute.

A BLAS brings threads of its own, which fight with ours for the processors and wait for each other spinning: on a busy
machine a product of two small matrices then takes a hundred times as long. Here each tile is one call on one thread.
Called by the plan executor; where NumPy has another BLAS than OpenBLAS, NumPy multiplies.
"""

from __future__ import annotations

import ctypes
import math
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from livegrad.backends.cpu.fork import renew_lock_after_fork
from livegrad.backends.cpu.native.compiler import NativeFunction, compile_kernel
from livegrad.backends.cpu.native.invoke import ArgumentBlock, invoker

Array = np.ndarray[Any, Any]

_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_LEAST_TILE = 96  # rows or columns: packing the other operand anew for each tile must not show
_MOST_TILES = 16
_ONE_TILE = 1 << 18  # multiplications: below this a second thread costs more than it saves


@dataclass(frozen=True)
class Blas:
    """The functions that are needed of the library, by address; `name` says which library it is."""

    name: str
    products: dict[str, int]  # element type → address of cblas_?gemm
    integer_bits: int
    get_threads: Any
    set_threads: Any


@lru_cache(maxsize=1)
def find_blas() -> Blas | None:
    """NumPy's BLAS if it is an OpenBLAS that can be reached, else None."""
    root = Path(np.__file__).parent
    for folder in (root.parent / "numpy.libs", root / ".libs", root / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")) if folder.is_dir() else ():
            for prefix, suffix, bits in (("scipy_", "64_", 64), ("", "64_", 64), ("scipy_", "", 32), ("", "", 32)):
                found = _open(path, prefix, suffix, bits)
                if found is not None:
                    return found
    return None


def _open(path: Path, prefix: str, suffix: str, bits: int) -> Blas | None:
    try:
        library = ctypes.CDLL(str(path))
        products = {kind: getattr(library, f"{prefix}cblas_{letter}gemm{suffix}") for kind, letter in _LETTERS.items()}
        get_threads = getattr(library, f"{prefix}openblas_get_num_threads{suffix}")
        set_threads = getattr(library, f"{prefix}openblas_set_num_threads{suffix}")
        config = getattr(library, f"{prefix}openblas_get_config{suffix}")
    except (OSError, AttributeError):
        return None
    config.restype = ctypes.c_char_p
    addresses = {kind: ctypes.cast(function, ctypes.c_void_p).value or 0 for kind, function in products.items()}
    return Blas(config().decode(), addresses, bits, get_threads, set_threads)


_LETTERS = {"float32": "s", "float64": "d"}


class _OneThread:
    """While anyone is inside, the library itself uses one thread; after the last one left, as many as before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_lock_after_fork(self, "_lock")
        self._inside, self._before = 0, 1

    def __enter__(self) -> None:
        blas = find_blas()
        assert blas is not None
        with self._lock:
            if not self._inside:
                self._before = blas.get_threads()
                blas.set_threads(1)
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        blas = find_blas()
        assert blas is not None
        with self._lock:
            self._inside -= 1
            if not self._inside:
                blas.set_threads(self._before)


_one_thread = _OneThread()


def multiply(first: Array, second: Array, out: Array) -> None:
    """`out = first @ second`, for matrices and batches of them, with any of the operands transposed in memory."""
    run = _arrange(first, second, out)
    if run is None:
        np.matmul(first, second, out=out)
        return
    kernel, total, grain, block = run
    with _one_thread:
        invoker().invoke_released(kernel, total, grain, block.address)


def _arrange(first: Array, second: Array, out: Array) -> tuple[int, int, int, ArgumentBlock] | None:
    """What one pool run takes; None where the operands lie so that NumPy should do it."""
    blas = find_blas()
    kind = out.dtype.name
    if blas is None or kind not in blas.products or not out.flags.c_contiguous or not out.size:
        return None
    batch = out.shape[:-2]
    left = _layout(np.broadcast_to(first, batch + first.shape[-2:]))
    right = _layout(np.broadcast_to(second, batch + second.shape[-2:]))
    if left is None or right is None or not first.shape[-1]:
        return None
    (rows, columns), inner, size = out.shape[-2:], first.shape[-1], out.dtype.itemsize
    # Along the longer side, so that it is the smaller operand that is packed anew for each tile. The tiles do not
    # depend on the number of threads, so neither do the results.
    along_rows = rows > columns
    extent = rows if along_rows else columns
    small = rows * columns * inner <= _ONE_TILE
    tile = extent if small else min(extent, max(_LEAST_TILE, -(-extent // _MOST_TILES) + 15 & ~15))
    tiles = -(-extent // tile)
    words = (
        blas.products[kind], left.address, right.address, out.ctypes.data,
        left.order, right.order, rows, columns, inner, left.leading, right.leading, columns,
        tile, tiles, int(along_rows),
        # How far each pointer moves from one tile to the next, and from one matrix of the batch to the next.
        left.row_bytes * tile if along_rows else 0,
        0 if along_rows else right.column_bytes * tile,
        tile * size * (columns if along_rows else 1),
        left.batch_bytes, right.batch_bytes, rows * columns * size,
    )  # fmt: skip
    block = ArgumentBlock(len(words))
    invoker().store_words(block.address, 0, *words)
    total = tiles * math.prod(batch)
    grain = 1 if not small else max(1, _ONE_TILE // max(1, rows * columns * inner))
    return _kernel(kind, blas.integer_bits).address, total, grain, block


@dataclass(frozen=True)
class _Layout:
    """How a batch of matrices lies in memory, in the terms of BLAS."""

    address: int
    order: int
    leading: int  # elements from one row to the next, or from one column to the next when transposed
    row_bytes: int
    column_bytes: int
    batch_bytes: int


def _layout(array: Array) -> _Layout | None:
    size = array.itemsize
    rows, columns = array.shape[-2:]
    row_bytes, column_bytes = array.strides[-2:]
    batch_bytes = _batch_bytes(array)
    if batch_bytes is None:
        return None
    # A dimension of size one may have any stride.
    if (column_bytes == size or columns == 1) and (
        rows == 1 or (row_bytes % size == 0 and row_bytes >= columns * size)
    ):
        leading = row_bytes // size if rows > 1 else max(1, columns)
        return _Layout(array.ctypes.data, _PLAIN, leading, leading * size, size, batch_bytes)
    if (row_bytes == size or rows == 1) and (
        columns == 1 or (column_bytes % size == 0 and column_bytes >= rows * size)
    ):
        leading = column_bytes // size if columns > 1 else max(1, rows)
        return _Layout(array.ctypes.data, _TRANSPOSED, leading, size, leading * size, batch_bytes)
    return None


def _batch_bytes(array: Array) -> int | None:
    """The distance between matrices of a batch, when there is one for the whole batch."""
    step: int | None = None
    expected = 0
    for extent, stride in zip(reversed(array.shape[:-2]), reversed(array.strides[:-2]), strict=True):
        if extent == 1:
            continue
        if step is None:
            step = stride
        elif stride != expected:
            return None
        expected = stride * extent
    return step or 0


@lru_cache(maxsize=8)
def _kernel(kind: str, integer_bits: int) -> NativeFunction:
    return compile_kernel(_text({"float32": "float", "float64": "double"}[kind], integer_bits), "multiply")


_NAMES = (
    "function", "left", "right", "out", "left_order", "right_order", "rows", "columns", "inner", "left_leading",
    "right_leading", "out_leading", "tile", "tiles", "along_rows", "left_step", "right_step", "out_step", "left_batch",
    "right_batch", "out_batch",
)  # fmt: skip


def _text(element: str, integer_bits: int) -> str:
    """A kernel over tiles: item i is tile i % tiles of matrix i // tiles."""
    loads = []
    for index, name in enumerate(_NAMES):
        kind = "ptr" if name in ("function", "left", "right", "out") else "i64"
        loads.append(f"  %{name}.at = getelementptr i64, ptr %args, i64 {index}")
        loads.append(f"  %{name} = load {kind}, ptr %{name}.at")
    integer = f"i{integer_bits}"
    sizes = {
        "m": "%tile.rows", "n": "%tile.columns", "k": "%inner",
        "la": "%left_leading", "lb": "%right_leading", "lc": "%out_leading",
    }  # fmt: skip
    if integer_bits == 64:
        narrowed, given = [], sizes
    else:
        narrowed = [f"  %{short} = trunc i64 {name} to i32" for short, name in sizes.items()]
        given = {short: f"%{short}" for short in sizes}
    pointers = []
    for name in ("left", "right", "out"):
        pointers += [
            f"  %{name}.b = mul i64 %matrix, %{name}_batch",
            f"  %{name}.t = mul i64 %number, %{name}_step",
            f"  %{name}.o = add i64 %{name}.b, %{name}.t",
            f"  %{name}.p = getelementptr i8, ptr %{name}, i64 %{name}.o",
        ]
    return "\n".join(
        [
            "define void @multiply(i64 %begin, i64 %end, ptr %args, i64 %worker) {",
            "start:",
            *loads,
            "  %by.rows = icmp ne i64 %along_rows, 0",
            "  %extent = select i1 %by.rows, i64 %rows, i64 %columns",
            "  %left.mode = trunc i64 %left_order to i32",
            "  %right.mode = trunc i64 %right_order to i32",
            "  br label %loop",
            "loop:",
            "  %item = phi i64 [ %begin, %start ], [ %next, %loop ]",
            "  %matrix = udiv i64 %item, %tiles",
            "  %number = urem i64 %item, %tiles",
            "  %first = mul i64 %number, %tile",
            "  %left.over = sub i64 %extent, %first",
            "  %whole = icmp ult i64 %tile, %left.over",
            "  %length = select i1 %whole, i64 %tile, i64 %left.over",
            "  %tile.rows = select i1 %by.rows, i64 %length, i64 %rows",
            "  %tile.columns = select i1 %by.rows, i64 %columns, i64 %length",
            *pointers,
            *narrowed,
            f"  call void %function(i32 {_ROW_MAJOR}, i32 %left.mode, i32 %right.mode, {integer} {given['m']},"
            f" {integer} {given['n']}, {integer} {given['k']}, {element} 1.0, ptr %left.p, {integer} {given['la']},"
            f" ptr %right.p, {integer} {given['lb']}, {element} 0.0, ptr %out.p, {integer} {given['lc']})",
            "  %next = add i64 %item, 1",
            "  %more = icmp ult i64 %next, %end",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
        ]
    )

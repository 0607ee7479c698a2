"""Single operations on large arrays: reductions, transposes, sorting, gathers, transforms and random numbers."""

from typing import Any

import numpy as np

from benchmarks.tensors_gpu.program import Array, Program, Sizes, Tree, integers, normal, one_size


def matrix(s: Sizes) -> tuple[Array, ...]:
    return (normal((s.rows, s.columns)),)


def layer_norm_inputs(s: Sizes) -> tuple[Array, ...]:
    return *matrix(s), normal((s.columns,), 1), normal((s.columns,), 2)


def layer_norm(xp: Any, s: Sizes, x: Any, weight: Any, bias: Any) -> Tree:
    return xp.nn.layer_norm(x, weight, bias)


def softmax(xp: Any, s: Sizes, x: Any) -> Tree:
    return xp.nn.softmax(x, axis=-1)


def sum_of_squares(xp: Any, s: Sizes, x: Any) -> Tree:
    return xp.sum(x * x)


def transposed_sum(xp: Any, s: Sizes, x: Any) -> Tree:
    return x.T + x


def cumulative_sum(xp: Any, s: Sizes, x: Any) -> Tree:
    return xp.cumulative_sum(x, axis=1)


def sort(xp: Any, s: Sizes, x: Any) -> Tree:
    return xp.sort(x, axis=-1)


def gather_inputs(s: Sizes) -> tuple[Array, ...]:
    return normal((s.table, s.width)), integers((s.rows,), s.table)


def gather(xp: Any, s: Sizes, table: Any, index: Any) -> Tree:
    return xp.sum(xp.take(table, index, axis=0) ** 2)


def fft_inputs(s: Sizes) -> tuple[Array, ...]:
    shape = s.rows, s.columns
    return ((normal(shape) + 1j * normal(shape, 1)).astype(np.complex64),)


def fft(xp: Any, s: Sizes, x: Any) -> Tree:
    return xp.fft.fft(x)


def seed_inputs(s: Sizes) -> tuple[Array, ...]:
    return (np.array(7, np.int32),)


def normal_numbers(xp: Any, s: Sizes, seed: Any) -> Tree:
    return xp.normal(seed, (s.count,))


SMALL = Sizes(rows=24, columns=40)
LARGE = one_size(rows=8192, columns=8192)
PROGRAMS = [
    Program("fft", "FFT of {rows} rows of {columns} complex numbers", one_size(rows=4096, columns=4096), SMALL,
            fft_inputs, fft, one_library=True),
    Program("cumulative_sum", "cumulative sum of {rows} rows of {columns}", one_size(rows=4096, columns=8192), SMALL,
            matrix, cumulative_sum),
    Program("sort", "sort of {rows} rows of {columns}", one_size(rows=1024, columns=16384), SMALL, matrix, sort),
    Program("transposed_sum", "x.T + x of {rows} × {columns}", LARGE, Sizes(rows=40, columns=40), matrix,
            transposed_sum),
    Program("softmax", "softmax of {rows} × {columns}", LARGE, SMALL, matrix, softmax),
    Program("layer_norm", "layer norm of {rows} × {columns}", LARGE, SMALL, layer_norm_inputs, layer_norm),
    Program("gather", "{rows} gathered rows of {width}, squared and summed",
            one_size(rows=500_000, width=128, table=1_000_000), Sizes(rows=50, width=8, table=20), gather_inputs,
            gather),
    Program("sum_of_squares", "sum of squares of {rows} × {columns}", one_size(rows=8192, columns=8192), SMALL, matrix,
            sum_of_squares),
    Program("normal_numbers", "{count} normal numbers", one_size(count=1 << 24), Sizes(count=200_000), seed_inputs,
            normal_numbers, is_random=True),
]  # fmt: skip

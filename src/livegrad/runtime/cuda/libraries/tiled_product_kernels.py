"""CUDA C of matrix products whose right operand is gathered while tiles are loaded.

`tiled_product.py` launches these kernels. Two tables have the offsets of the rows and of the columns of the right
operand, so the same kernel handles any layout, and windows of any rank, stride and dilation.
"""

from __future__ import annotations

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.ir.types import Scalar

SLOTS = (
    *("left", "right", "to", "row", "column", "rows", "columns", "inner", "points"),
    *("left_row", "left_inner", "left_group", "groups", "right_group", "splits", "chunk", "size"),
)
TILE_ROWS, TILE_COLUMNS, TILE_THREADS = 64, 128, 128

_HEAD = """\
struct Arguments { const number* left; const number* right; number* to; const offset* row; const offset* column;
                   long long rows, columns, inner, points, left_row, left_inner, left_group, groups, right_group;
                   long long splits, chunk, size; };

// The offset of an element of the product in the result, which has the shape [batch, groups, rows, points].
__device__ inline long long result_offset(const Arguments& a, long long group, long long row, long long column)
{
    return ((column / a.points * a.groups + group) * a.rows + row) * a.points + column % a.points;
}
"""

# A block computes a tile of 64 rows and 128 columns of one group over one part of the inner dimension; a thread
# computes 8 x 8 elements of it. The next tiles are loaded while the current ones are multiplied.
_TILES = """\
#define DEPTH (sizeof(number) > 4 ? 8 : 16)
#define ROWS_READ (64 * DEPTH / 128)
#define COLUMNS_READ (128 * DEPTH / 128)
struct alignas(16) four { number x[4]; };

extern "C" __global__ void __launch_bounds__(128) tiles(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number left_tile[2][DEPTH][68];
    __shared__ alignas(16) number right_tile[2][DEPTH][128];
    const int t = threadIdx.x, across = t % 16, down = t / 16;
    const long long row_tiles = (a.rows + 63) / 64, column_tiles = (a.columns + 127) / 128;
    long long block = blockIdx.x;
    const long long first_row = block % row_tiles * 64;
    block /= row_tiles;
    const long long first_column = block % column_tiles * 128;
    block /= column_tiles;
    const long long split = block % a.splits, group = block / a.splits;
    const long long begin = split * a.chunk;
    const long long end = begin + a.chunk < a.inner ? begin + a.chunk : a.inner;
    const number* const left = a.left + group * a.left_group;
    const number* const right = a.right + group * a.right_group;

    const int k_left = t % DEPTH, row_left = t / DEPTH;
#if ALONG_INNER
    const int k_right = t % DEPTH, column_right = t / DEPTH;
    offset starts[COLUMNS_READ];
    #pragma unroll
    for (int i = 0; i < COLUMNS_READ; ++i)
    {
        const long long column = first_column + column_right + i * (128 / DEPTH);
        starts[i] = column < a.columns ? a.column[column] : -1;
    }
#else
    const offset start = first_column + t < a.columns ? a.column[first_column + t] : -1;
#endif
    number next_left[ROWS_READ], next_right[COLUMNS_READ], sums[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = 0;

    const long long depths = (end - begin + DEPTH - 1) / DEPTH;
    for (long long depth = -1; depth < depths; ++depth)
    {
        if (depth + 1 < depths)
        {
            const long long k = begin + (depth + 1) * DEPTH;
            #pragma unroll
            for (int i = 0; i < ROWS_READ; ++i)
            {
                const long long row = first_row + row_left + i * (128 / DEPTH);
                const bool inside = row < a.rows && k + k_left < end;
                next_left[i] = inside ? left[row * a.left_row + (k + k_left) * a.left_inner] : (number)0;
            }
#if ALONG_INNER
            const offset distance = k + k_right < end ? a.row[k + k_right] : -1;
            #pragma unroll
            for (int i = 0; i < COLUMNS_READ; ++i)
                next_right[i] = distance >= 0 && starts[i] >= 0 ? right[distance + starts[i]] : (number)0;
#else
            #pragma unroll
            for (int i = 0; i < COLUMNS_READ; ++i)
                next_right[i] = k + i < end && start >= 0 ? right[a.row[k + i] + start] : (number)0;
#endif
        }
        if (depth >= 0)
        {
            const int here = depth % 2;
            #pragma unroll
            for (int k = 0; k < DEPTH; ++k)
            {
                const four* const r = (const four*)&left_tile[here][k][0];
                const four* const c = (const four*)&right_tile[here][k][0];
                const four rows[2] = {r[down], r[down + 8]}, columns[2] = {c[across], c[across + 16]};
                #pragma unroll
                for (int i = 0; i < 8; ++i)
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) sums[i][j] += rows[i / 4].x[i % 4] * columns[j / 4].x[j % 4];
            }
        }
        if (depth + 1 < depths)
        {
            const int there = (depth + 1) % 2;
            #pragma unroll
            for (int i = 0; i < ROWS_READ; ++i) left_tile[there][k_left][row_left + i * (128 / DEPTH)] = next_left[i];
            #pragma unroll
            for (int i = 0; i < COLUMNS_READ; ++i)
#if ALONG_INNER
                right_tile[there][k_right][column_right + i * (128 / DEPTH)] = next_right[i];
#else
                right_tile[there][i][t] = next_right[i];
#endif
        }
        __syncthreads();
    }
    number* const to = a.to + split * a.size;
    #pragma unroll
    for (int j = 0; j < 8; ++j)
    {
        const long long column = first_column + across * 4 + j / 4 * 64 + j % 4;
        if (column >= a.columns) continue;
        number* const target = to + result_offset(a, group, 0, column);
        #pragma unroll
        for (int i = 0; i < 8; ++i)
        {
            const long long row = first_row + down * 4 + i / 4 * 32 + i % 4;
            if (row < a.rows) target[row * a.points] = sums[i][j];
        }
    }
}
"""

# A thread computes one element over one part of the inner dimension; for groups with few rows.
_NUMBERS = """\
extern "C" __global__ void elements(const __grid_constant__ Arguments a)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    const long long count = a.columns * a.rows * a.groups * a.splits;
    for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += step)
    {
        const long long column = e % a.columns, row = e / a.columns % a.rows;
        const long long group = e / a.columns / a.rows % a.groups, split = e / a.columns / a.rows / a.groups;
        const long long begin = split * a.chunk;
        const long long end = begin + a.chunk < a.inner ? begin + a.chunk : a.inner;
        const number* const left = a.left + group * a.left_group + row * a.left_row;
        const number* const right = a.right + group * a.right_group + a.column[column];
        number sum = 0;
        #pragma unroll 4
        for (long long k = begin; k < end; ++k) sum += left[k * a.left_inner] * right[a.row[k]];
        a.to[split * a.size + result_offset(a, group, row, column)] = sum;
    }
}
"""

# Sums the parts of a split inner dimension, which are consecutive in `right`.
_SUMS = """\
extern "C" __global__ void sum_splits(const __grid_constant__ Arguments a)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < a.size; e += step)
    {
        number sum = 0;
        for (long long split = 0; split < a.splits; ++split) sum += a.right[split * a.size + e];
        a.to[e] = sum;
    }
}
"""


def source_of(element: Scalar, wide: bool, along_inner: bool) -> str:
    """The CUDA C for an element type. With `wide`, offsets have 8 bytes. With `along_inner`, adjacent threads read the
    right operand along the inner dimension, else along columns."""
    offset = "long long" if wide else "int"
    head = f"typedef {memory_type(element)} number;\ntypedef {offset} offset;\n#define ALONG_INNER {int(along_inner)}\n"
    return head + _HEAD + _TILES + _NUMBERS + _SUMS

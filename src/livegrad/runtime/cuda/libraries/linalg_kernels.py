"""CUDA C of blocked linear algebra: factors of 32 x 32 blocks, triangular solves, and updates of the trailing matrix.

`device_linalg.py` launches these kernels for batches of matrices. An operand is a pointer with strides for rows,
columns and matrices, so transposed and reversed matrices need no separate code.
"""

from __future__ import annotations

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.ir.types import Scalar

BLOCK = 32
PANEL, PANEL_THREADS = 8, 512  # columns that a thread block factors in registers, with pivoting; and its threads
_ROWS_PER_THREAD = (1, 2, 4, 8)
_REGISTER_BYTES = 256  # for the rows of a thread
SLOTS = (
    *("a", "a_row", "a_column", "a_matrix", "b", "b_row", "b_column", "b_matrix", "c", "c_row", "c_column", "c_matrix"),
    *("rows", "columns", "inner", "matrices", "flag", "status"),
)

_TEXT = """\
struct Arguments { number* a; long long a_row, a_column, a_matrix; number* b; long long b_row, b_column, b_matrix;
                   number* c; long long c_row, c_column, c_matrix; long long rows, columns, inner, matrices, flag;
                   unsigned long long* status; };

__device__ inline void report(const Arguments& a) { if (a.status) atomicMin(a.status, ~0xffffull); }
__device__ inline long long first_thread() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline long long all_threads() { return (long long)gridDim.x * blockDim.x; }

// c = a, the lower triangle of the hermitian part of a (flag 1), or the identity matrix (flag 2).
extern "C" __global__ void fill(const __grid_constant__ Arguments a)
{
    const long long size = a.rows * a.columns;
    for (long long e = first_thread(); e < size * a.matrices; e += all_threads())
    {
        const long long matrix = e / size, i = e % size / a.columns, j = e % a.columns;
        const number* const from = a.a + matrix * a.a_matrix;
        number value = i == j ? 1 : 0;
        if (a.flag == 0) value = from[i * a.a_row + j * a.a_column];
        if (a.flag == 1)
            value = i >= j ? (number)0.5 * from[i * a.a_row + j * a.a_column]
                           + (number)0.5 * from[j * a.a_row + i * a.a_column] : (number)0;
        a.c[matrix * a.c_matrix + i * a.c_row + j * a.c_column] = value;
    }
}

// The Cholesky factor of one block of each matrix, in place. Each lane has a row.
extern "C" __global__ void __launch_bounds__(32) cholesky_block(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number column[32];
    const int lane = threadIdx.x;
    number* const c = a.c + blockIdx.x * a.c_matrix;
    number row[32];
    #pragma unroll
    for (int j = 0; j < 32; ++j)
        row[j] = lane < a.rows && j <= lane ? c[lane * a.c_row + j * a.c_column] : (number)(lane == j);
    bool is_positive = true;
    #pragma unroll
    for (int k = 0; k < 32; ++k)
    {
        if (lane == k)
        {
            is_positive = row[k] > 0;
            row[k] = square_root(row[k]);
            column[k] = row[k];
        }
        __syncwarp();
        if (lane > k)
        {
            row[k] /= column[k];
            column[lane] = row[k];
        }
        __syncwarp();
        #pragma unroll
        for (int j = k + 1; j < 32; ++j) row[j] -= row[k] * column[j];
        __syncwarp();
    }
    if (!is_positive) report(a);
    #pragma unroll
    for (int j = 0; j < 32; ++j)
        if (lane < a.rows && j <= lane) c[lane * a.c_row + j * a.c_column] = row[j];
}

// Solves a x = c in place for a lower triangular block and all columns of c; flag: a has a unit diagonal.
extern "C" __global__ void __launch_bounds__(128) solve_block(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number block[32][33];
    const long long blocks = (a.columns + 127) / 128, matrix = blockIdx.x / blocks;
    const long long column = blockIdx.x % blocks * 128 + threadIdx.x;
    for (int e = threadIdx.x; e < 1024; e += 128)
    {
        const int i = e / 32, j = e % 32;
        number value = i == j;
        if (i < a.rows && j <= i && !(a.flag && i == j))
            value = a.a[matrix * a.a_matrix + i * a.a_row + j * a.a_column];
        block[i][j] = value;
        if (i == j && value == 0) report(a);
    }
    __syncthreads();
    if (column >= a.columns) return;
    number* const c = a.c + matrix * a.c_matrix + column * a.c_column;
    number x[32];
    #pragma unroll
    for (int i = 0; i < 32; ++i) x[i] = i < a.rows ? c[i * a.c_row] : (number)0;
    #pragma unroll
    for (int k = 0; k < 32; ++k)
    {
        x[k] /= block[k][k];
        #pragma unroll
        for (int i = k + 1; i < 32; ++i) x[i] -= block[i][k] * x[k];
    }
    #pragma unroll
    for (int i = 0; i < 32; ++i)
        if (i < a.rows) c[i * a.c_row] = x[i];
}

// c -= a b, for at most 32 columns of a; flag: only the lower triangle of c.
extern "C" __global__ void __launch_bounds__(256) subtract_product(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number left[32][65];
    __shared__ alignas(16) number right[32][65];
    const long long down = (a.rows + 63) / 64, across = (a.columns + 63) / 64;
    const long long first_row = blockIdx.x % down * 64, first_column = blockIdx.x / down % across * 64;
    const long long matrix = blockIdx.x / down / across;
    if (a.flag && first_row < first_column) return;
    const number* const from_left = a.a + matrix * a.a_matrix;
    const number* const from_right = a.b + matrix * a.b_matrix;
    for (int e = threadIdx.x; e < 2048; e += 256)
    {
        const int k = a.a_column == 1 ? e % 32 : e / 64, i = a.a_column == 1 ? e / 32 : e % 64;
        const bool inside = k < a.inner && first_row + i < a.rows;
        left[k][i] = inside ? from_left[(first_row + i) * a.a_row + k * a.a_column] : (number)0;
    }
    for (int e = threadIdx.x; e < 2048; e += 256)
    {
        const int k = a.b_row == 1 ? e % 32 : e / 64, j = a.b_row == 1 ? e / 32 : e % 64;
        const bool inside = k < a.inner && first_column + j < a.columns;
        right[k][j] = inside ? from_right[k * a.b_row + (first_column + j) * a.b_column] : (number)0;
    }
    __syncthreads();
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    number sums[4][4];
    #pragma unroll
    for (int e = 0; e < 16; ++e) sums[e / 4][e % 4] = 0;
    #pragma unroll 8
    for (int k = 0; k < 32; ++k)
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            #pragma unroll
            for (int j = 0; j < 4; ++j) sums[i][j] += left[k][ty + 16 * i] * right[k][tx + 16 * j];
    number* const to = a.c + matrix * a.c_matrix;
    #pragma unroll
    for (int e = 0; e < 16; ++e)
    {
        const long long row = first_row + ty + e / 4 * 16, column = first_column + tx + e % 4 * 16;
        if (row >= a.rows || column >= a.columns || (a.flag && row < column)) continue;
        to[row * a.c_row + column * a.c_column] -= sums[e / 4][e % 4];
    }
}

// The LU factors of the first columns (at most 32) of c, in place, with partial pivoting. b gets the pivot rows.
// flag: a zero pivot is no failure. One thread block for each matrix.
extern "C" __global__ void __launch_bounds__(PANEL_THREADS) pivot_columns(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number largest[PANEL_THREADS];
    __shared__ alignas(16) long long rows[PANEL_THREADS];
    __shared__ alignas(16) number upper[32];
    number* const c = a.c + blockIdx.x * a.c_matrix;
    long long* const pivots = (long long*)a.b + blockIdx.x * a.b_matrix;
    const int t = threadIdx.x;
    for (int k = 0; k < a.columns; ++k)
    {
        number best = -1;
        long long best_row = k;
        for (long long i = k + t; i < a.rows; i += PANEL_THREADS)
        {
            const number value = c[i * a.c_row + k], magnitude = value < 0 ? -value : value;
            if (magnitude > best) { best = magnitude; best_row = i; }
        }
        largest[t] = best; rows[t] = best_row;
        __syncthreads();
        for (int half = PANEL_THREADS / 2; half > 0; half /= 2)
        {
            if (t < half && (largest[t + half] > largest[t]
                             || (largest[t + half] == largest[t] && rows[t + half] < rows[t])))
            {
                largest[t] = largest[t + half]; rows[t] = rows[t + half];
            }
            __syncthreads();
        }
        const long long pivot = rows[0];
        if (t < a.columns)
        {
            const number other = c[pivot * a.c_row + t];
            c[pivot * a.c_row + t] = c[k * a.c_row + t];
            c[k * a.c_row + t] = other;
            upper[t] = other;
        }
        if (t == 0)
        {
            pivots[k] = pivot;
            if (largest[0] == 0 && !a.flag) report(a);
        }
        __syncthreads();
        const number divisor = upper[k];
        for (long long i = k + 1 + t; i < a.rows; i += PANEL_THREADS)
        {
            number* const row = c + i * a.c_row;
            const number factor = divisor == 0 ? (number)0 : row[k] / divisor;
            row[k] = factor;
            for (int j = k + 1; j < a.columns; ++j) row[j] -= factor * upper[j];
        }
        __syncthreads();
    }
}

// Like pivot_columns for at most 8 columns, with ROWS_PER_THREAD rows of each thread in registers.
extern "C" __global__ void __launch_bounds__(PANEL_THREADS) pivot_panel(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number largest[PANEL_THREADS];
    __shared__ alignas(16) int rows[PANEL_THREADS];
    __shared__ alignas(16) number upper[8];
    __shared__ alignas(16) number lower[8];
    number* const c = a.c + blockIdx.x * a.c_matrix;
    long long* const pivots = (long long*)a.b + blockIdx.x * a.b_matrix;
    const int t = threadIdx.x;
    number row[ROWS_PER_THREAD][8];
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
            row[i][j] = t + i * PANEL_THREADS < a.rows && j < a.columns ? c[(t + i * PANEL_THREADS) * a.c_row + j]
                                                                          : (number)0;
    #pragma unroll
    for (int k = 0; k < 8; ++k)
    {
        if (k >= a.columns) break;
        number best = -1;
        int best_row = k;
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i)
        {
            const number magnitude = row[i][k] < 0 ? -row[i][k] : row[i][k];
            if (t + i * PANEL_THREADS < k || t + i * PANEL_THREADS >= a.rows || !(magnitude > best)) continue;
            best = magnitude;
            best_row = t + i * PANEL_THREADS;
        }
        largest[t] = best; rows[t] = best_row;
        __syncwarp();
        for (int half = 16; half > 0; half /= 2)
        {
            if (t % 32 < half && (largest[t + half] > largest[t]
                                  || (largest[t + half] == largest[t] && rows[t + half] < rows[t])))
            {
                largest[t] = largest[t + half]; rows[t] = rows[t + half];
            }
            __syncwarp();
        }
        __syncthreads();
        best = largest[0];
        int pivot = rows[0];
        #pragma unroll
        for (int warp = 32; warp < PANEL_THREADS; warp += 32)
            if (largest[warp] > best || (largest[warp] == best && rows[warp] < pivot))
            {
                best = largest[warp]; pivot = rows[warp];
            }
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i)
            #pragma unroll
            for (int j = 0; j < 8; ++j)
            {
                if (t + i * PANEL_THREADS == pivot) upper[j] = row[i][j];
                if (t + i * PANEL_THREADS == k) lower[j] = row[i][j];
            }
        if (t == 0)
        {
            pivots[k] = pivot;
            if (best == 0 && !a.flag) report(a);
        }
        __syncthreads();
        const number divisor = upper[k];
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i)
        {
            #pragma unroll
            for (int j = 0; j < 8; ++j)
            {
                if (t + i * PANEL_THREADS == pivot) row[i][j] = lower[j];
                if (t + i * PANEL_THREADS == k) row[i][j] = upper[j];
            }
            if (t + i * PANEL_THREADS <= k) continue;
            const number factor = divisor == 0 ? (number)0 : row[i][k] / divisor;
            row[i][k] = factor;
            #pragma unroll
            for (int j = k + 1; j < 8; ++j) row[i][j] -= factor * upper[j];
        }
    }
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
            if (t + i * PANEL_THREADS < a.rows && j < a.columns) c[(t + i * PANEL_THREADS) * a.c_row + j] = row[i][j];
}

// Exchanges row k of c with the pivot row b[k] for each k, except in the `inner` columns from `flag` on.
extern "C" __global__ void exchange_rows(const __grid_constant__ Arguments a)
{
    for (long long e = first_thread(); e < a.columns * a.matrices; e += all_threads())
    {
        const long long matrix = e / a.columns, column = e % a.columns;
        if (column >= a.flag && column < a.flag + a.inner) continue;
        number* const c = a.c + matrix * a.c_matrix + column * a.c_column;
        const long long* const pivots = (const long long*)a.b + matrix * a.b_matrix;
        for (long long k = 0; k < a.rows; ++k)
        {
            const number value = c[k * a.c_row];
            c[k * a.c_row] = c[pivots[k] * a.c_row];
            c[pivots[k] * a.c_row] = value;
        }
    }
}

// The determinants of LU factors a with pivots b, which count from the first row of each panel of `inner` columns.
// flag: their signs, and the logarithms of their magnitudes at `c_row`.
extern "C" __global__ void multiply_diagonal(const __grid_constant__ Arguments a)
{
    for (long long matrix = first_thread(); matrix < a.matrices; matrix += all_threads())
    {
        const long long* const pivots = (const long long*)a.b + matrix * a.b_matrix;
        number product = 1, sum = 0;
        for (long long k = 0; k < a.rows; ++k)
        {
            number value = a.a[matrix * a.a_matrix + k * a.a_row + k * a.a_column];
            if (a.flag)
            {
                sum += natural_logarithm(value < 0 ? -value : value);
                value = value > 0 ? 1 : value < 0 ? -1 : value;
            }
            product *= pivots[k] == k % a.inner ? value : -value;
        }
        a.c[matrix] = product;
        if (a.flag) ((number*)a.c_row)[matrix] = product == 0 ? natural_logarithm((number)0) : sum;
    }
}
"""


def rows_per_thread(size: int, itemsize: int) -> int | None:
    """The rows of each thread of `pivot_panel` for a panel of `size` rows; None if they do not fit the registers."""
    fitting = (rows for rows in _ROWS_PER_THREAD if rows * PANEL * itemsize <= _REGISTER_BYTES)
    return next((rows for rows in fitting if size <= rows * PANEL_THREADS), None)


def source_of(element: Scalar, size: int) -> str:
    """The CUDA C for matrices of `size` rows."""
    suffix = "f" if element.dtype.itemsize == 4 else ""
    macros = {
        "square_root": f"sqrt{suffix}",
        "natural_logarithm": f"log{suffix}",
        "PANEL_THREADS": PANEL_THREADS,
        "ROWS_PER_THREAD": rows_per_thread(size, element.dtype.itemsize) or 1,
    }
    defines = "".join(f"#define {name} {text}\n" for name, text in macros.items())
    return f"typedef {memory_type(element)} number;\n{defines}{_TEXT}"

"""CUDA C of what cuSOLVER and cuBLAS do not do: other layouts, hermitian parts, phases of vectors, and failures.

The libraries take column-major matrices. `solver_calls.py` launches these kernels before and after them.
"""

from __future__ import annotations

from livegrad.codegen.cuda.kernel_values import memory_type
from livegrad.ir.types import Scalar

SLOTS = ("from", "to", "info", "status", "rows", "columns", "from_matrix", "to_matrix", "matrices")
TILE, THREADS = 32, 256
TILED = frozenset({"transpose", "hermitian", "lower"})  # kernels whose blocks take squares of a matrix

_REAL = """\
typedef real number;
__device__ inline number half_sum(number a, number b) { return (real)0.5 * a + (real)0.5 * b; }
__device__ inline real size_of(number a) { return a < 0 ? -a : a; }
__device__ inline number turned(number a, number by) { return by < 0 ? -a : a; }
__device__ inline number make(real x) { return x; }
__device__ inline bool is_zero(number a) { return a == 0; }
"""
_COMPLEX = """\
struct alignas(2 * sizeof(real)) number { real x, y; };
__device__ inline number half_sum(number a, number b)
{
    return {(real)0.5 * a.x + (real)0.5 * b.x, (real)0.5 * a.y - (real)0.5 * b.y};
}
__device__ inline real size_of(number a) { return hypot(a.x, a.y); }
__device__ inline number turned(number a, number by)
{
    const real size = size_of(by);
    if (!(size > 0)) return a;
    const real x = by.x / size, y = by.y / size;
    return {a.x * x + a.y * y, a.y * x - a.x * y};
}
__device__ inline number make(real x) { return {x, 0}; }
__device__ inline bool is_zero(number a) { return a.x == 0 && a.y == 0; }
"""
_TEXT = """\
struct Arguments { const number* from; number* to; const int* info; unsigned long long* status;
                   long long rows, columns, from_matrix, to_matrix, matrices; };
struct Place { const number* from; number* to; long long row, column; };

__device__ inline void report(const Arguments& a) { if (a.status) atomicMin(a.status, ~0xffffull); }

// A block of 256 threads takes a square of 32 x 32 elements of one matrix.
__device__ inline Place place_of(const Arguments& a)
{
    const long long across = (a.columns + 31) / 32, down = (a.rows + 31) / 32, block = blockIdx.x;
    const long long matrix = block / (across * down);
    return {a.from + matrix * a.from_matrix, a.to + matrix * a.to_matrix,
            block / across % down * 32, block % across * 32};
}

// to[c][r] = from[r][c]
extern "C" __global__ void __launch_bounds__(256) transpose(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number tile[32][33];
    const Place p = place_of(a);
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int i = y; i < 32; i += 8)
        if (p.row + i < a.rows && p.column + x < a.columns)
            tile[i][x] = p.from[(p.row + i) * a.columns + p.column + x];
    __syncthreads();
    for (int i = y; i < 32; i += 8)
        if (p.row + x < a.rows && p.column + i < a.columns)
            p.to[(p.column + i) * a.rows + p.row + x] = tile[x][i];
}

// The hermitian part of `from`, with its columns in memory one after the other.
extern "C" __global__ void __launch_bounds__(256) hermitian(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number tile[32][33];
    const Place p = place_of(a);
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int i = y; i < 32; i += 8)
        if (p.row + i < a.rows && p.column + x < a.columns)
            tile[i][x] = p.from[(p.row + i) * a.columns + p.column + x];
    __syncthreads();
    for (int i = y; i < 32; i += 8)
        if (p.row + x < a.rows && p.column + i < a.columns)
        {
            const long long e = (p.column + i) * a.rows + p.row + x;
            p.to[e] = half_sum(tile[x][i], p.from[e]);
        }
}

// The lower triangle of a matrix whose columns are one after the other, and zeros above; reports failures.
extern "C" __global__ void __launch_bounds__(256) lower(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) number tile[32][33];
    const Place p = place_of(a);
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int i = y; i < 32; i += 8)
        if (p.row + i < a.rows && p.column + x < a.columns)
            tile[i][x] = p.from[(p.row + i) * a.columns + p.column + x];
    __syncthreads();
    for (int i = y; i < 32; i += 8)
        if (p.row + x < a.rows && p.column + i < a.columns)
            p.to[(p.column + i) * a.rows + p.row + x] = p.row + x <= p.column + i ? tile[x][i] : make(0);
    if (blockIdx.x == 0)
        for (long long matrix = threadIdx.x; matrix < a.matrices; matrix += 256)
            if (a.info[matrix] != 0) report(a);
}

// Vectors that are one after the other become columns, whose pivots are real: the first components with at least half
// of the largest magnitude. A block has a vector of each matrix.
extern "C" __global__ void __launch_bounds__(256) vectors(const __grid_constant__ Arguments a)
{
    __shared__ alignas(16) real largest[256];
    __shared__ alignas(16) int first[256];
    const long long matrix = blockIdx.x / a.columns, column = blockIdx.x % a.columns;
    const number* const v = a.from + matrix * a.from_matrix + column * a.rows;
    const int t = threadIdx.x;
    real most = 0;
    for (long long i = t; i < a.rows; i += 256) most = size_of(v[i]) > most ? size_of(v[i]) : most;
    largest[t] = most;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2)
    {
        if (t < half && largest[t + half] > largest[t]) largest[t] = largest[t + half];
        __syncthreads();
    }
    int pivot = (int)a.rows - 1;
    for (long long i = a.rows - 1 - t; i >= 0; i -= 256)
        if (2 * size_of(v[i]) >= largest[0]) pivot = (int)i;
    first[t] = pivot;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2)
    {
        if (t < half && first[t + half] < first[t]) first[t] = first[t + half];
        __syncthreads();
    }
    const number by = v[first[0]];
    number* const to = a.to + matrix * a.to_matrix;
    for (long long i = t; i < a.rows; i += 256) to[i * a.columns + column] = turned(v[i], by);
}

__device__ inline long long first_thread() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline long long all_threads() { return (long long)gridDim.x * blockDim.x; }

extern "C" __global__ void copy(const __grid_constant__ Arguments a)
{
    const long long size = a.rows * a.columns;
    for (long long e = first_thread(); e < size * a.matrices; e += all_threads())
        a.to[e / size * a.to_matrix + e % size] = a.from[e / size * a.from_matrix + e % size];
}

extern "C" __global__ void identity(const __grid_constant__ Arguments a)
{
    const long long size = a.rows * a.columns;
    for (long long e = first_thread(); e < size * a.matrices; e += all_threads())
        a.to[e] = make(e % size / a.columns == e % a.columns);
}

// Reports matrices whose factorisation failed.
extern "C" __global__ void check(const __grid_constant__ Arguments a)
{
    for (long long matrix = first_thread(); matrix < a.matrices; matrix += all_threads())
        if (a.info[matrix] != 0) report(a);
}

// Reports triangles with a zero on the diagonal.
extern "C" __global__ void check_diagonal(const __grid_constant__ Arguments a)
{
    for (long long e = first_thread(); e < a.rows * a.matrices; e += all_threads())
        if (is_zero(a.from[e / a.rows * a.from_matrix + e % a.rows * (a.rows + 1)])) report(a);
}

// The addresses of the matrices at `from`, `from_matrix` elements apart.
extern "C" __global__ void pointers(const __grid_constant__ Arguments a)
{
    for (long long matrix = first_thread(); matrix < a.matrices; matrix += all_threads())
        ((const number**)a.to)[matrix] = a.from + matrix * a.from_matrix;
}
"""


def source_of(element: Scalar) -> str:
    """The CUDA C for an element type."""
    is_complex = element.kind == "complex"
    real = memory_type(element.real if is_complex else element)
    return f"typedef {real} real;\n" + (_COMPLEX if is_complex else _REAL) + _TEXT

"""CUDA C of orthogonal factorisations: Householder reflections and one-sided Jacobi rotations.

`device_factorisations.py` launches these kernels for batches of real or complex matrices. Workspaces are column-major,
so that the threads of a block read adjacent elements. Sums are in double precision, over a fixed tree.
"""

from __future__ import annotations

from livegrad.ir.types import Scalar

SLOTS = (
    *("from", "to", "other", "work", "vectors", "left", "right", "values", "scales", "norms", "taus"),
    *("order", "position", "flags", "rows", "columns", "width", "inner", "matrices", "k", "flag", "status"),
)
COPY, ADJOINT, HERMITIAN = 0, 1, 2  # how `load` reads a matrix

_REAL = """\
typedef real number;
__device__ inline double re(number x) { return x; }
__device__ inline double im(number x) { return 0; }
__device__ inline number make(double x, double y) { return (number)x; }
"""
_COMPLEX = """\
struct alignas(2 * sizeof(real)) number { real x, y; };
__device__ inline double re(number x) { return x.x; }
__device__ inline double im(number x) { return x.y; }
__device__ inline number make(double x, double y) { return {(real)x, (real)y}; }
"""
_TEXT = """\
struct Arguments { const number* from; number* to; number* other; number* work; number* vectors;
                   number* left; number* right; real* values; double* scales; double* norms; double* taus;
                   long long* order; long long* position; int* flags;
                   long long rows, columns, width, inner, matrices, k, flag; unsigned long long* status; };
struct wide { double x, y; };

__device__ inline wide widen(number x) { return {re(x), im(x)}; }
__device__ inline wide plus(wide a, wide b) { return {a.x + b.x, a.y + b.y}; }
__device__ inline wide times(wide a, wide b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }
__device__ inline wide conjugate(wide a) { return {a.x, -a.y}; }
__device__ inline double squared(number x) { return re(x) * re(x) + im(x) * im(x); }
__device__ inline number narrow(wide a) { return make(a.x, a.y); }
__device__ inline long long first_thread() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline long long all_threads() { return (long long)gridDim.x * blockDim.x; }
__device__ inline void report(const Arguments& a) { if (a.status) atomicMin(a.status, ~0xffffull); }

// Sums over the threads of a block; all threads get the results.
template<int COUNT> __device__ inline void sum_over_block(double (&values)[COUNT])
{
    __shared__ double shared[COUNT][256];
    const int t = threadIdx.x;
    for (int k = 0; k < COUNT; ++k) shared[k][t] = values[k];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2)
    {
        if (t < half)
            for (int k = 0; k < COUNT; ++k) shared[k][t] += shared[k][t + half];
        __syncthreads();
    }
    for (int k = 0; k < COUNT; ++k) values[k] = shared[k][0];
    __syncthreads();
}

__device__ inline double max_over_block(double value)
{
    __shared__ double shared[256];
    const int t = threadIdx.x;
    shared[t] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2)
    {
        if (t < half && !(shared[t] >= shared[t + half])) shared[t] = shared[t + half];
        __syncthreads();
    }
    value = shared[0];
    __syncthreads();
    return value;
}

__device__ inline wide element_of(const Arguments& a, const number* from, long long i, long long j)
{
    if (a.flag == 0) return widen(from[i * a.columns + j]);
    if (a.flag == 1) return conjugate(widen(from[j * a.rows + i]));
    const wide both = plus(widen(from[i * a.columns + j]), conjugate(widen(from[j * a.columns + i])));
    return {0.5 * both.x, 0.5 * both.y};
}

// For each matrix, a power of two that scales its largest row sum of magnitudes below one.
extern "C" __global__ void measure(const __grid_constant__ Arguments a)
{
    const number* const from = a.from + blockIdx.x * a.rows * a.columns;
    double most = 0;
    for (long long i = threadIdx.x; i < a.rows; i += blockDim.x)
    {
        double sum = 0;
        for (long long j = 0; j < a.columns; ++j)
        {
            const wide value = element_of(a, from, i, j);
            sum += fabs(value.x) + fabs(value.y);
        }
        if (!(most >= sum)) most = sum;
    }
    most = max_over_block(most);
    int exponent = 0;
    if (most > 0 && most <= 1e308) frexp(most, &exponent);
    if (threadIdx.x == 0) a.scales[blockIdx.x] = ldexp(1.0, -exponent);
}

// Copies scaled matrices to columns of the workspace; adds `inner` to the diagonal.
extern "C" __global__ void load(const __grid_constant__ Arguments a)
{
    const long long size = a.rows * a.columns;
    for (long long e = first_thread(); e < size * a.matrices; e += all_threads())
    {
        const long long matrix = e / size, j = e % size / a.rows, i = e % a.rows;
        const double scale = a.scales[matrix];
        wide value = element_of(a, a.from + matrix * size, i, j);
        value = {value.x * scale + (i == j ? (double)a.inner : 0.0), value.y * scale};
        a.work[e] = narrow(value);
    }
}

extern "C" __global__ void fill_unit(const __grid_constant__ Arguments a)
{
    const long long size = a.rows * a.columns;
    for (long long e = first_thread(); e < size * a.matrices; e += all_threads())
        a.vectors[e] = make(e % size / a.rows == e % a.rows ? 1 : 0, 0);
}

// --- reflections ---

struct reflection { double beta; wide tau, factor; };

// The Householder reflection of (alpha, rest) to (beta, 0), as in LAPACK; `factor` times the rest is the rest of v.
__device__ inline reflection reflection_of(wide alpha, double rest)
{
    if (rest == 0 && alpha.y == 0) return {alpha.x, {0, 0}, {0, 0}};
    const double size = sqrt(alpha.x * alpha.x + alpha.y * alpha.y + rest), beta = alpha.x >= 0 ? -size : size;
    const wide tau = {(beta - alpha.x) / beta, -alpha.y / beta}, below = {alpha.x - beta, alpha.y};
    const double square = below.x * below.x + below.y * below.y;
    return {beta, tau, {below.x / square, -below.y / square}};
}

// Applies the reflection of column `k` to the columns after it, one block for each. The first block stores the
// reflection: beta, tau and factor.
extern "C" __global__ void __launch_bounds__(256) reflect(const __grid_constant__ Arguments a)
{
    const long long blocks = a.columns - a.k, matrix = blockIdx.x / blocks, j = a.k + blockIdx.x % blocks;
    if (a.flag && !a.flags[matrix]) return;
    number* const work = a.work + matrix * a.rows * a.columns;
    const number* const x = work + a.k * a.rows;
    number* const column_j = work + j * a.rows;
    double sums[3] = {0, 0, 0};
    for (long long i = a.k + 1 + threadIdx.x; i < a.rows; i += blockDim.x)
    {
        const wide product = times(conjugate(widen(x[i])), widen(column_j[i]));
        sums[0] += squared(x[i]);
        sums[1] += product.x;
        sums[2] += product.y;
    }
    sum_over_block(sums);
    const reflection r = reflection_of(widen(x[a.k]), sums[0]);
    if (j == a.k)
    {
        double* const stored = a.taus + (matrix * a.inner + a.k) * 5;
        if (threadIdx.x > 0) return;
        stored[0] = r.beta; stored[1] = r.tau.x; stored[2] = r.tau.y; stored[3] = r.factor.x; stored[4] = r.factor.y;
        return;
    }
    const wide dot = plus(widen(column_j[a.k]), times(conjugate(r.factor), {sums[1], sums[2]}));
    const wide down = times(conjugate(r.tau), dot), rest = times(down, r.factor);
    __syncthreads();
    if (threadIdx.x == 0) column_j[a.k] = narrow(plus(widen(column_j[a.k]), {-down.x, -down.y}));
    for (long long i = a.k + 1 + threadIdx.x; i < a.rows; i += blockDim.x)
    {
        const wide product = times(rest, widen(x[i]));
        column_j[i] = narrow(plus(widen(column_j[i]), {-product.x, -product.y}));
    }
}

// Applies the reflection of column `k` to the columns of Q from `k` on, one block for each; Q has `width` columns.
extern "C" __global__ void __launch_bounds__(256) accumulate(const __grid_constant__ Arguments a)
{
    const long long whole = a.width, blocks = whole - a.k;
    const long long matrix = blockIdx.x / blocks, j = a.k + blockIdx.x % blocks;
    if (a.flag && !a.flags[matrix]) return;
    const number* const x = a.work + (matrix * a.columns + a.k) * a.rows;
    number* const column_j = a.vectors + (matrix * whole + j) * a.rows;
    const double* const stored = a.taus + (matrix * a.inner + a.k) * 5;
    const wide tau = {stored[1], stored[2]}, factor = {stored[3], stored[4]};
    double sums[2] = {0, 0};
    for (long long i = a.k + 1 + threadIdx.x; i < a.rows; i += blockDim.x)
    {
        const wide product = times(conjugate(widen(x[i])), widen(column_j[i]));
        sums[0] += product.x;
        sums[1] += product.y;
    }
    sum_over_block(sums);
    const wide dot = plus(widen(column_j[a.k]), times(conjugate(factor), {sums[0], sums[1]}));
    const wide down = times(tau, dot), rest = times(down, factor);
    __syncthreads();
    if (threadIdx.x == 0) column_j[a.k] = narrow(plus(widen(column_j[a.k]), {-down.x, -down.y}));
    for (long long i = a.k + 1 + threadIdx.x; i < a.rows; i += blockDim.x)
    {
        const wide product = times(rest, widen(x[i]));
        column_j[i] = narrow(plus(widen(column_j[i]), {-product.x, -product.y}));
    }
}

// to = Q with `width` columns, other = R with as many rows; there are `inner` reflections.
extern "C" __global__ void write_qr(const __grid_constant__ Arguments a)
{
    const long long q = a.rows * a.width, r = a.width * a.columns;
    for (long long e = first_thread(); e < q * a.matrices; e += all_threads())
        a.to[e] = a.vectors[e / q * q + e % a.width * a.rows + e % q / a.width];
    for (long long e = first_thread(); e < r * a.matrices; e += all_threads())
    {
        const long long matrix = e / r, i = e % r / a.columns, j = e % a.columns;
        wide value = {0, 0};
        if (i < j) value = widen(a.work[(matrix * a.columns + j) * a.rows + i]);
        if (i == j) value = {a.taus[(matrix * a.inner + i) * 5], 0};
        const double scale = a.scales[matrix];
        a.other[e] = make(value.x / scale, value.y / scale);
    }
}

// --- rotations ---

// The column at seat `p` in round `k` of a round-robin tournament, in which only the last player keeps its seat.
__device__ inline long long player_of(long long p, long long k, long long players)
{ return p == players - 1 ? p : (p + k) % (players - 1); }

// Makes the columns of each pair of round `k` orthogonal, one block for each pair, and applies the same rotations to
// the vectors. `flags` has a word for each sweep and matrix: whether any pair was rotated. `inner` is the sweep.
extern "C" __global__ void __launch_bounds__(256) rotate(const __grid_constant__ Arguments a)
{
    const long long players = a.columns + a.columns % 2, pairs = players / 2;
    const long long matrix = blockIdx.x / pairs, pair = blockIdx.x % pairs;
    if (a.inner > 0 && !a.flags[(a.inner - 1) * a.matrices + matrix]) return;
    const long long one = player_of(pair, a.k, players), two = player_of(players - 1 - pair, a.k, players);
    if (one >= a.columns || two >= a.columns) return;
    number* const x = a.work + (matrix * a.columns + (one < two ? one : two)) * a.rows;
    number* const y = a.work + (matrix * a.columns + (one < two ? two : one)) * a.rows;
    double sums[4] = {0, 0, 0, 0};
    for (long long i = threadIdx.x; i < a.rows; i += blockDim.x)
    {
        const wide product = times(conjugate(widen(x[i])), widen(y[i]));
        sums[0] += squared(x[i]);
        sums[1] += squared(y[i]);
        sums[2] += product.x;
        sums[3] += product.y;
    }
    sum_over_block(sums);
    const double size = sqrt(sums[2] * sums[2] + sums[3] * sums[3]);
    if (size <= TOLERANCE * sqrt((double)a.rows) * sqrt(sums[0]) * sqrt(sums[1])) return;
    if (threadIdx.x == 0) a.flags[a.inner * a.matrices + matrix] = 1;
    const double zeta = (sums[1] - sums[0]) / (2 * size);
    const double t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta)), c = 1 / sqrt(1 + t * t), s = c * t;
    const wide phase = {sums[2] / size, -sums[3] / size};
    for (int side = 0; side < 2; ++side)
    {
        if (side == 1 && !a.vectors) break;
        const long long count = side == 0 ? a.rows : a.columns;
        number* const p = side == 0 ? x : a.vectors + (x - a.work) / a.rows * a.columns;
        number* const q = side == 0 ? y : a.vectors + (y - a.work) / a.rows * a.columns;
        for (long long i = threadIdx.x; i < count; i += blockDim.x)
        {
            const wide first = widen(p[i]), second = times(phase, widen(q[i]));
            p[i] = make(c * first.x - s * second.x, c * first.y - s * second.y);
            q[i] = make(s * first.x + c * second.x, s * first.y + c * second.y);
        }
    }
}

// Reports matrices whose columns were still rotated in the last sweep, `inner`.
extern "C" __global__ void require_convergence(const __grid_constant__ Arguments a)
{
    for (long long matrix = first_thread(); matrix < a.matrices; matrix += all_threads())
        if (a.flags[a.inner * a.matrices + matrix]) report(a);
}

// The norm of each column, one block for each; with `from`, also the Rayleigh quotient of the column for that matrix.
extern "C" __global__ void __launch_bounds__(256) measure_columns(const __grid_constant__ Arguments a)
{
    const long long matrix = blockIdx.x / a.columns;
    const number* const x = a.work + blockIdx.x * a.rows;
    double sums[2] = {0, 0};
    for (long long i = threadIdx.x; i < a.rows; i += blockDim.x)
    {
        sums[0] += squared(x[i]);
        wide row = {0, 0};
        for (long long j = 0; a.from && j < a.rows; ++j)
            row = plus(row, times(conjugate(element_of(a, a.from + matrix * a.rows * a.rows, j, i)), widen(x[j])));
        sums[1] += times(conjugate(widen(x[i])), row).x;
    }
    sum_over_block(sums);
    if (threadIdx.x > 0) return;
    a.norms[blockIdx.x] = sqrt(sums[0]);
    a.scales[a.matrices + blockIdx.x] = a.from ? sums[1] / sums[0] : sqrt(sums[0]) / a.scales[matrix];
}

// Sorts columns by value, the largest first (`flag`: last): the rank of each column, and the column of each rank.
extern "C" __global__ void rank_columns(const __grid_constant__ Arguments a)
{
    for (long long e = first_thread(); e < a.columns * a.matrices; e += all_threads())
    {
        const long long matrix = e / a.columns, column_j = e % a.columns;
        const double* const all = a.scales + a.matrices + matrix * a.columns;
        long long before = 0;
        for (long long j = 0; j < a.columns; ++j)
        {
            const bool j_nan = all[j] != all[j], own_nan = all[column_j] != all[column_j];
            const bool is_before = (a.flag ? all[j] < all[column_j] : all[j] > all[column_j]) || (j_nan && !own_nan);
            before += is_before || ((all[j] == all[column_j] || (j_nan && own_nan)) && j < column_j);
        }
        a.order[e] = before;
        a.position[matrix * a.columns + before] = column_j;
        a.values[matrix * a.columns + before] = (real)all[column_j];
    }
}

// --- vectors ---

// Writes the columns in order of rank to `to`, scaled to unit length (zero columns stay zero). `flags` marks matrices
// with fewer than `width` unit columns.
extern "C" __global__ void normalise(const __grid_constant__ Arguments a)
{
    const long long size = a.rows * a.columns;
    for (long long e = first_thread(); e < size * a.matrices; e += all_threads())
    {
        const long long matrix = e / size, rank = e % size / a.rows, i = e % a.rows;
        const long long column = matrix * a.columns + a.position[matrix * a.columns + rank];
        const double norm = a.norms[column];
        const wide value = widen(a.work[column * a.rows + i]);
        a.to[e] = norm == 0 ? make(0, 0) : make(value.x / norm, value.y / norm);
        if (norm == 0 || a.width > a.columns) a.flags[matrix] = 1;
    }
}

// The unit column of a rank: from `to` or, where that has none, from the complement `other`.
__device__ inline const number* unit_column(const Arguments& a, long long matrix, long long rank)
{
    const bool lacks = rank >= a.columns || a.norms[matrix * a.columns + a.position[matrix * a.columns + rank]] == 0;
    return lacks ? a.other + (matrix * a.width + rank) * a.rows : a.to + (matrix * a.columns + rank) * a.rows;
}
"""
_WRITE = """\
// Writes the vectors of each rank, one block for each: u from `to` and `other`, v from `vectors`. Flag 0: u are columns
// of the left result and v rows of the right one; 1: v are columns of the left result and u rows of the right one; 2:
// no v.
extern "C" __global__ void __launch_bounds__(256) write_vectors(const __grid_constant__ Arguments a)
{
    const long long matrix = blockIdx.x / a.width, rank = blockIdx.x % a.width;
    const bool is_shared = rank < a.columns;
    const number* const u = unit_column(a, matrix, rank);
    const number* const v = a.flag == 2 || !is_shared ? 0
        : a.vectors + (matrix * a.columns + a.position[matrix * a.columns + rank]) * a.columns;
    const number* const reference = a.flag == 1 ? v : u;
    const long long length = a.flag == 1 ? a.columns : a.rows;
    double most = 0;
    for (long long i = threadIdx.x; is_shared && i < length; i += blockDim.x)
    {
        const double size = sqrt(squared(reference[i]));
        if (!(most >= size)) most = size;
    }
    most = max_over_block(most);
    double last = 0;  // the distance of the first large component from the end
    for (long long i = threadIdx.x; is_shared && i < length; i += blockDim.x)
        if (2 * sqrt(squared(reference[i])) >= most && (double)(length - i) > last) last = (double)(length - i);
    last = max_over_block(last);
    wide phase = {1, 0};
    if (last > 0)
    {
        const wide pivot = widen(reference[length - (long long)last]);
        const double size = sqrt(pivot.x * pivot.x + pivot.y * pivot.y);
        if (size > 0) phase = {pivot.x / size, pivot.y / size};
    }
    for (long long i = threadIdx.x; i < a.rows; i += blockDim.x)
        if (a.flag == 1)
            a.right[(matrix * a.width + rank) * a.rows + i] = narrow(times(conjugate(widen(u[i])), phase));
        else
            a.left[(matrix * a.rows + i) * a.width + rank] = narrow(times(widen(u[i]), conjugate(phase)));
    for (long long i = threadIdx.x; v && i < a.columns; i += blockDim.x)
        if (a.flag == 1)
            a.left[(matrix * a.columns + i) * a.columns + rank] = narrow(times(widen(v[i]), conjugate(phase)));
        else
            a.right[(matrix * a.columns + rank) * a.columns + i] = narrow(times(conjugate(widen(v[i])), phase));
}
"""
KERNELS = (
    *("measure", "load", "fill_unit", "reflect", "accumulate", "write_qr", "rotate", "require_convergence"),
    *("measure_columns", "rank_columns", "normalise", "write_vectors"),
)


def source_of(element: Scalar) -> str:
    """The CUDA C for matrices of an element type."""
    is_double = element.name in ("f64", "c128")
    tolerance = "2.3e-16" if is_double else "1.2e-7"
    types = f"typedef {'double' if is_double else 'float'} real;\n#define TOLERANCE {tolerance}\n"
    return f"{types}{_COMPLEX if element.kind == 'complex' else _REAL}{_TEXT}{_WRITE}"

"""CUDA C support functions of kernels: halves, single-instruction min and max, sines, reductions over threads, tapes.

Kernels contain only the functions that they call, to keep compile times short.
"""

from __future__ import annotations

import re
from functools import cache

from livegrad.ir.dimension import round_up

_NUMBERS = """\
__device__ inline float lg_from_half(unsigned short bits)
{ float value; asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)); return value; }
__device__ inline unsigned short lg_to_half(float value)
{ unsigned short bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); return bits; }
__device__ inline unsigned short lg_to_half(double value)
{ unsigned short bits; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value)); return bits; }
template<class T> __device__ inline float lg_round_half(T value) { return lg_from_half(lg_to_half(value)); }

__device__ inline float lg_from_bfloat(unsigned short bits) { return __uint_as_float((unsigned int)bits << 16); }
__device__ inline unsigned short lg_to_bfloat(float value)
{
    const unsigned int bits = __float_as_uint(value);
    if (value != value) return (unsigned short)((bits | 0x400000u) >> 16);
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template<class T> __device__ inline T lg_fresh(const T* place) { return *(const volatile T*)place; }

// The quotient of a number below 2^31 by a divisor, given `reciprocal_of` the divisor.
__device__ inline int lg_quotient(int number, long long reciprocal)
{
    const unsigned int factor = (unsigned int)reciprocal, shift = (unsigned int)(reciprocal >> 32);
    return shift == 0 ? number : (int)((unsigned int)(((unsigned long long)number * factor) >> 32) >> (shift - 1));
}

// The lowest element of a thread that has failed, and its check: written once, at the end, so that loads do not wait.
__device__ inline void lg_note(unsigned long long* failed, long long element, unsigned int site)
{
    const unsigned long long note = ((unsigned long long)element << 16) | site;
    if (note < *failed) *failed = note;
}
__device__ inline void lg_report(unsigned long long* status, unsigned long long failed)
{ if (failed != ~0ull) atomicMin(status, failed); }

// One instruction, which lets NaN through, and may give either of two zeros.
__device__ inline float lg_max_or_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float value; asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b)); return value;
#else
    return b > a || b != b ? b : a;
#endif
}
__device__ inline float lg_min_or_nan(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float value; asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b)); return value;
#else
    return b < a || b != b ? b : a;
#endif
}

// The next half is the next of its bits, which count the numbers of its sign.
__device__ inline float lg_nextafter_half(float x, float towards)
{
    if (x != x || towards != towards) return x + towards;
    if (x == towards) return towards;
    const unsigned short bits = lg_to_half(x);
    if (x == 0) return copysignf(lg_from_half(1), towards);
    return lg_from_half((towards > x) == (x > 0) ? bits + 1 : bits - 1);
}
"""

# Division and square root of floats. PTX bounds the error of the approximate instructions by 2 ulp over the whole
# range, including subnormals. Inline assembly does not affect CUDA's math functions, as compiler flags would.
_IEEE_DIVISION = """\
__device__ inline float lg_div(float a, float b) { return a / b; }

__device__ inline float lg_sqrt(float x) { return sqrtf(x); }
"""
_APPROXIMATE_DIVISION = """\
__device__ inline float lg_div(float a, float b)
{ float value; asm("div.full.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b)); return value; }

__device__ inline float lg_sqrt(float x)
{ float value; asm("sqrt.approx.f32 %0, %1;" : "=f"(value) : "f"(x)); return value; }
"""

# Sine and cosine of floats. CUDA inlines code for huge arguments at every call, which takes the compiler as long as all
# other code. Here it is one function that is not inlined. Below 71,476, the number of quarter turns is exact and pi/2
# has three parts; the error is below 1.5 ulp (measured for every seventh float), and that of CUDA below 2.
_SINES = """\
__device__ __noinline__ float lg_far_sine(float x) { return sinf(x); }
__device__ __noinline__ float lg_far_cosine(float x) { return cosf(x); }

__device__ inline bool lg_is_far(float x) { return !(fabsf(x) <= 71476.0f); }
__device__ inline float lg_reduced(float x, int* quadrant)
{
    const float turns = fmaf(x, 0x1.45f306p-1f, 0x1.8p+23f) - 0x1.8p+23f;
    *quadrant = (int)turns;
    const float rest = fmaf(turns, -0x1.5110b4p-22f, fmaf(turns, -0x1.921fb0p+0f, x));
    return fmaf(turns, -0x1.846988p-48f, rest);
}
__device__ inline float lg_near_sine(float x)
{
    const float s = x * x;
    float r = fmaf(0x1.7d3bbcp-19f, s, -0x1.a06bbap-13f);
    r = fmaf(r, s, 0x1.11119ap-7f);
    r = fmaf(r, s, -0x1.555556p-3f);
    r = fmaf(r, s, 0.0f);
    return fmaf(r, x, x);
}
__device__ inline float lg_near_cosine(float x)
{
    const float s = x * x;
    float r = fmaf(0x1.98e616p-16f, s, -0x1.6c06dcp-10f);
    r = fmaf(r, s, 0x1.55553cp-5f);
    r = fmaf(r, s, -0x1.000000p-1f);
    return fmaf(r, s, 1.0f);
}

__device__ inline float lg_wave(float rest, int quadrant)
{
    const float value = (quadrant & 1) ? lg_near_cosine(rest) : lg_near_sine(rest);
    return (quadrant & 2) ? 0.0f - value : value;
}

__device__ inline float lg_sin(float x)
{
    if (lg_is_far(x)) return lg_far_sine(x);
    int quadrant;
    const float rest = lg_reduced(x, &quadrant);
    return lg_wave(rest, quadrant);
}

__device__ inline float lg_cos(float x)
{
    if (lg_is_far(x)) return lg_far_cosine(x);
    int quadrant;
    const float rest = lg_reduced(x, &quadrant);
    return lg_wave(rest, quadrant + 1);
}

__device__ inline void lg_sincos(float x, float* sine, float* cosine)
{
    if (lg_is_far(x)) { *sine = lg_far_sine(x); *cosine = lg_far_cosine(x); return; }
    int quadrant;
    const float rest = lg_reduced(x, &quadrant);
    const float odd = lg_near_sine(rest), even = lg_near_cosine(rest);
    const float s = (quadrant & 1) ? even : odd, c = (quadrant & 1) ? odd : even;
    *sine = (quadrant & 2) ? 0.0f - s : s;
    *cosine = (quadrant + 1 & 2) ? 0.0f - c : c;
}
"""

# A fixed reduction tree, independent of timing. In a warp, lane t is combined with lane t + half for half = 16, 8, 4, 2
# and 1, so lane 0 has the result. The results of warps are then combined in the same way, by every warp.
_REDUCTIONS = """\
// The better value with its index; of equals the lower index; a NaN beats everything, the first one wins.
template<class T> struct lg_indexed { T value; long long index; };
template<bool MOST, class T> __device__ inline lg_indexed<T> lg_better(lg_indexed<T> a, lg_indexed<T> b)
{
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool better = (MOST ? b.value > a.value : b.value < a.value) || (b_nan && !a_nan);
    const bool same = a.value == b.value || (a_nan && b_nan);
    return better || (same && b.index < a.index) ? b : a;
}

template<class T> __device__ inline lg_indexed<T> lg_fresh(const lg_indexed<T>* place)
{ return {*(const volatile T*)&place->value, *(const volatile long long*)&place->index}; }

template<class T> __device__ inline T lg_from_lane_above(T value, int distance)
{
    unsigned int words[(sizeof(T) + 3) / 4] = {};
    memcpy(words, &value, sizeof(T));
    for (int k = 0; k < (sizeof(T) + 3) / 4; ++k) words[k] = __shfl_down_sync(0xffffffffu, words[k], distance);
    memcpy(&value, words, sizeof(T));
    return value;
}

template<class T> __device__ inline T lg_from_lane(T value, int lane)
{
    unsigned int words[(sizeof(T) + 3) / 4] = {};
    memcpy(words, &value, sizeof(T));
    for (int k = 0; k < (sizeof(T) + 3) / 4; ++k) words[k] = __shfl_sync(0xffffffffu, words[k], lane);
    memcpy(&value, words, sizeof(T));
    return value;
}

template<class T, class F> __device__ inline T lg_warp_fold(T value, F combine)
{
    for (int half = 16; half > 0; half /= 2) value = combine(value, lg_from_lane_above(value, half));
    return value;
}

// The results of all warps, combined by each warp alike; `start` changes nothing.
template<class T, class F> __device__ inline T lg_fold_of_warps(const T* values, T start, F combine)
{
    const int lane = threadIdx.x % 32;
    return lg_from_lane(lg_warp_fold(lane < blockDim.x / 32 ? values[lane] : start, combine), 0);
}

template<class T, class F> __device__ inline T lg_fold_in_order(const T* values, int count, int stride, F combine)
{
    T value = values[0];
    #pragma unroll 1
    for (int k = 1; k < count; ++k) value = combine(value, values[k * stride]);
    return value;
}

// Threads of a block that lie 32 apart belong to one column. Folds take turns in one piece of memory.
__shared__ alignas(16) unsigned char lg_column_memory[16 * 256];
template<class T, class F> __device__ inline T lg_column_fold(T value, F combine)
{
    T* shared = (T*)lg_column_memory;
    __syncthreads();
    shared[threadIdx.x] = value;
    __syncthreads();
    return lg_fold_in_order(shared + threadIdx.x % 32, blockDim.x / 32, 32, combine);
}

// A scan over the lanes of a warp: what lies before this lane, and the total of all. `start` changes nothing.
template<class T> struct lg_scanned { T before, total; };
template<class T, class F> __device__ inline lg_scanned<T> lg_warp_scan(T value, T start, F combine)
{
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int distance = 1; distance < 32; distance *= 2)
    {
        const T below = lg_from_lane(value, lane >= distance ? lane - distance : lane);
        if (lane >= distance) value = combine(below, value);
    }
    const T below = lg_from_lane(value, lane > 0 ? lane - 1 : 0);
    return {lane > 0 ? below : start, lg_from_lane(value, 31)};
}

// The same over all threads of a block, whose warps leave their totals in shared memory.
template<class T, class F> __device__ inline lg_scanned<T> lg_block_scan(T value, T start, T* totals, F combine)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const lg_scanned<T> own = lg_warp_scan(value, start, combine);
    __syncthreads();
    if (lane == 0) totals[warp] = own.total;
    __syncthreads();
    const lg_scanned<T> warps = lg_warp_scan(lane < blockDim.x / 32 ? totals[lane] : start, start, combine);
    return {combine(lg_from_lane(warps.before, warp), own.before), warps.total};
}

// Whether this block is the last of those that share a row: it sees what all others have written before.
__device__ inline bool lg_is_last(unsigned int* counter, unsigned int blocks)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(counter, blocks - 1) == blocks - 1;
    __syncthreads();
    __threadfence();
    return last;
}
"""

# A tape is the offset of a header {slots, capacity, bytes of a slot} in thread-private memory, which is allocated from
# front to back and released at the end of the row. Every access is checked against its end. If there is no room left,
# `full` is set, accesses go to the first LG_SPARE bytes (which hold the largest slot), and the launch is repeated with
# more memory.
# Offset 0 is no tape: it reads as zeros.
_TAPES = """\
struct lg_memory { unsigned char* start; long long size; long long used; unsigned long long* full; bool failed; };
__device__ inline void lg_fail(lg_memory& m) { *m.full = 0; m.failed = true; }
__device__ inline long long lg_take(lg_memory& m, long long bytes)
{
    const long long rounded = (bytes + 15) / 16 * 16;
    if (bytes < 0 || m.used + rounded > m.size) { lg_fail(m); return 0; }
    const long long at = m.used;
    m.used += rounded;
    for (long long k = 0; k < rounded; k += 8) *(long long*)(m.start + at + k) = 0;
    return at;
}
__device__ inline bool lg_is_tape(const lg_memory& m, long long tape)
{ return tape >= LG_SPARE && tape + 24 <= m.size && tape % 8 == 0; }
__device__ inline long long lg_tape_ensure(lg_memory& m, long long tape)
{ return lg_is_tape(m, tape) ? tape : lg_take(m, 24); }
__device__ inline long long lg_tape_capacity(const lg_memory& m, long long tape)
{ return lg_is_tape(m, tape) ? ((const long long*)(m.start + tape))[1] : 0; }
__device__ inline unsigned char* lg_tape_slot(lg_memory& m, long long tape, long long index, long long bytes)
{
    if (!lg_is_tape(m, tape) || index < 0)
    {
        for (long long k = 0; k < bytes && k < LG_SPARE; k += 8) *(long long*)(m.start + k) = 0;
        return m.start;
    }
    long long* header = (long long*)(m.start + tape);
    if (index >= header[1])
    {
        const long long required = index + 1 > 2 * header[1] ? index + 1 : 2 * header[1];
        const long long capacity = required < 4 ? 4 : required;
        const long long slots = lg_take(m, capacity * bytes);
        if (slots == 0) return m.start;
        if (header[1] > 0 && header[0] + header[1] * bytes <= m.size)
            for (long long k = 0; k < header[1] * bytes; k += 8)
                *(long long*)(m.start + slots + k) = *(const long long*)(m.start + header[0] + k);
        header[0] = slots;
        header[1] = capacity;
    }
    const long long at = header[0] + index * bytes;
    if (at < LG_SPARE || at + bytes > m.size) { lg_fail(m); return m.start; }
    return m.start + at;
}
__device__ inline long long lg_tape_copy(lg_memory& m, long long tape, long long bytes)
{
    const long long made = lg_take(m, 24), capacity = lg_tape_capacity(m, tape);
    for (long long i = 0; i < capacity; ++i)
    {
        unsigned char* to = lg_tape_slot(m, made, capacity - 1 - i, bytes);
        const unsigned char* from = lg_tape_slot(m, tape, capacity - 1 - i, bytes);
        for (long long k = 0; k < bytes; k += 8) *(long long*)(to + k) = *(const long long*)(from + k);
    }
    return made;
}
"""

_NAME = re.compile(r"\blg_\w+")
_DEFINED = re.compile(r"__device__ (?:inline|__noinline__) [\w<>* ]*?(lg_\w+)\(|struct (lg_\w+) \{")


@cache
def _pieces(ieee: bool) -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    """Pieces of code, callees first, each with the names that it defines and the names that it mentions."""
    whole = "\n".join([_NUMBERS, _IEEE_DIVISION if ieee else _APPROXIMATE_DIVISION, _SINES, _REDUCTIONS, _TAPES])
    pieces = [piece.strip("\n") for piece in whole.split("\n\n")]
    defined = [frozenset(name for names in _DEFINED.findall(piece) for name in names if name) for piece in pieces]
    return tuple(zip(pieces, defined, map(frozenset, map(_NAME.findall, pieces)), strict=True))


def library(text: str, ieee: bool, largest_slot: int) -> list[str]:
    """The support functions that a kernel calls, callees first; `largest_slot` is the size of tape slots in bytes.

    >>> [piece.split("(")[0] for piece in library("y = lg_sqrt(x);", True, 16)]
    ['__device__ inline float lg_sqrt']
    """
    required = set(_NAME.findall(text))
    selected: list[str] = []
    for piece, defined, mentioned in reversed(_pieces(ieee)):
        if not defined.isdisjoint(required):
            selected.append(piece)
            required |= mentioned
    spare = [f"#define LG_SPARE {round_up(largest_slot, 16)}"] if "lg_memory" in required else []
    return [*spare, *reversed(selected)]

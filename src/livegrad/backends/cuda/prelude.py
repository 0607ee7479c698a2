"""CUDA C that kernels share: halves, NaN-careful choices, integer division, folds of a block, memory for traces."""

BASICS = """\
__device__ inline float lg_nan_float() { return __int_as_float(0x7fc00000); }
__device__ inline double lg_nan_double() { return __longlong_as_double(0x7ff8000000000000LL); }
__device__ inline float lg_infinity_float() { return __int_as_float(0x7f800000); }
__device__ inline double lg_infinity_double() { return __longlong_as_double(0x7ff0000000000000LL); }

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

__device__ inline void lg_report(unsigned long long* status, long long element, unsigned int site)
{ atomicMin(status, ((unsigned long long)element << 16) | site); }

template<class T> __device__ inline T lg_minimum(T a, T b) { const T c = b < a ? b : a; return b != b ? b : c; }
template<class T> __device__ inline T lg_maximum(T a, T b) { const T c = b > a ? b : a; return b != b ? b : c; }
template<class T> __device__ inline T lg_sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }

// CUDA's own of doubles overflows near the largest number.
__device__ inline double lg_hypot(double a, double b)
{
    const double x = fabs(a), y = fabs(b), large = x > y ? x : y, small = x > y ? y : x;
    if (isinf(x) || isinf(y)) return lg_infinity_double();
    if (x != x || y != y) return x + y;
    if (large == 0 || small < large * 0x1p-60) return large;
    const double ratio = small / large;
    return large * sqrt(1 + ratio * ratio);
}

// The quotient is rounded down and the remainder takes the divisor's sign; the lowest number by -1 wraps round.
template<class T> __device__ inline T lg_floor_div(T a, T b)
{
    if (T(-1) < T(0) && b == T(-1)) return T(0ULL - (unsigned long long)a);
    const T quotient = a / b, remainder = a % b;
    return remainder != 0 && ((remainder < 0) != (b < 0)) ? T(quotient - 1) : quotient;
}
template<class T> __device__ inline T lg_floor_mod(T a, T b)
{
    if (T(-1) < T(0) && b == T(-1)) return T(0);
    const T remainder = a % b;
    return remainder != 0 && ((remainder < 0) != (b < 0)) ? T(remainder + b) : remainder;
}

// A count outside 0..bits-1 shifts everything out.
template<class U, class T> __device__ inline T lg_shift_left(T a, T count)
{ return (unsigned long long)(U)count < sizeof(T) * 8 ? T((unsigned long long)a << (int)count) : T(0); }
template<class U, class T> __device__ inline T lg_shift_right(T a, T count)
{ return (unsigned long long)(U)count < sizeof(T) * 8 ? T(a >> (int)count) : T(a < 0 ? -1 : 0); }

// The next half is the next of its bits, which count the numbers of its sign.
__device__ inline float lg_nextafter_half(float x, float towards)
{
    if (x != x || towards != towards) return x + towards;
    if (x == towards) return towards;
    const unsigned short bits = lg_to_half(x);
    if (x == 0) return copysignf(lg_from_half(1), towards);
    return lg_from_half((towards > x) == (x > 0) ? bits + 1 : bits - 1);
}

// The better value with its index; of equals the lower index; a NaN beats everything, the first one wins.
template<class T> struct lg_indexed { T value; long long index; };
template<bool MOST, class T> __device__ inline lg_indexed<T> lg_better(lg_indexed<T> a, lg_indexed<T> b)
{
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool better = (MOST ? b.value > a.value : b.value < a.value) || (b_nan && !a_nan);
    const bool same = a.value == b.value || (a_nan && b_nan);
    return better || (same && b.index < a.index) ? b : a;
}
"""

# One tree whatever the timing: thread t takes in thread t + half, halves falling to one. The number of threads is a
# power of two.
BLOCK_FOLD = """\
template<class T, class F> __device__ inline T lg_block_fold(T value, F combine)
{
    __shared__ alignas(16) unsigned char memory[sizeof(T) * 256];
    T* shared = (T*)memory;
    __syncthreads();
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2)
    {
        if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    return shared[0];
}
"""

# A trace is the offset of a header {slots, capacity, bytes of a slot} in memory of the thread's own, taken from front
# to back and given back when the row ends. Every access is checked against the end of it: where there is no room left,
# `full` is set, reads and writes go to the first LG_SPARE bytes (the largest slot fits there), and the launch is done
# again with more.
# Offset 0 is no trace: it reads as zeros.
TRACES = """\
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
__device__ inline bool lg_is_trace(const lg_memory& m, long long trace)
{ return trace >= LG_SPARE && trace + 24 <= m.size && trace % 8 == 0; }
__device__ inline long long lg_trace_ensure(lg_memory& m, long long trace)
{ return lg_is_trace(m, trace) ? trace : lg_take(m, 24); }
__device__ inline long long lg_trace_capacity(const lg_memory& m, long long trace)
{ return lg_is_trace(m, trace) ? ((const long long*)(m.start + trace))[1] : 0; }
__device__ inline unsigned char* lg_trace_slot(lg_memory& m, long long trace, long long index, long long bytes)
{
    if (!lg_is_trace(m, trace) || index < 0)
    {
        for (long long k = 0; k < bytes && k < LG_SPARE; k += 8) *(long long*)(m.start + k) = 0;
        return m.start;
    }
    long long* header = (long long*)(m.start + trace);
    if (index >= header[1])
    {
        const long long wanted = index + 1 > 2 * header[1] ? index + 1 : 2 * header[1];
        const long long capacity = wanted < 4 ? 4 : wanted;
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
__device__ inline long long lg_trace_copy(lg_memory& m, long long trace, long long bytes)
{
    const long long made = lg_take(m, 24), capacity = lg_trace_capacity(m, trace);
    for (long long i = 0; i < capacity; ++i)
    {
        unsigned char* to = lg_trace_slot(m, made, capacity - 1 - i, bytes);
        const unsigned char* from = lg_trace_slot(m, trace, capacity - 1 - i, bytes);
        for (long long k = 0; k < bytes; k += 8) *(long long*)(to + k) = *(const long long*)(from + k);
    }
    return made;
}
"""

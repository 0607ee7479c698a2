typedef struct { float r0; } lg_tuple0;
__device__ inline float body(long long p0, float p1)
{
    const bool v0 = (p1 > 218.0f);
    const float v1 = (p1 + 1.0f);
    const float v2 = atan2f(p1, v1);
    const float v3 = (p1 * 2.0f);
    return (v0 ? v2 : v3);
}

__device__ inline float turn(float p0)
{
    lg_tuple0 s0 = lg_tuple0{p0};
    for (long long i1 = 0; i1 < 5LL; ++i1) s0 = lg_tuple0{body(i1, s0.r0)};
    return s0.r0;
}

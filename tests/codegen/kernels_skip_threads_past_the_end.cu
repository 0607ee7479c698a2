__device__ inline float ball(float3 p0, float p1)
{
    const float v0 = (p0.x * p0.x);
    const float v1 = (p0.y * p0.y);
    const float v2 = (v0 + v1);
    const float v3 = (p0.z * p0.z);
    const float v4 = (v2 + v3);
    const bool v5 = (v4 <= 0.0f);
    const float v6 = (v5 ? 1.0f : v4);
    const float v7 = sqrtf(v6);
    const float v8 = (v5 ? v4 : v7);
    const float v9 = (v8 * 217.0f);
    return (v9 - p1);
}

extern "C" __global__ void evaluate(const long long count, const float* a0, float a1, float* y0)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float value = ball(make_float3(a0[i * 3 + 0], a0[i * 3 + 1], a0[i * 3 + 2]), a1);
    y0[i] = value;
}

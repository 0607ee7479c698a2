__device__ inline float size(float3 p0)
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
    return (v8 * 210.0f);
}

__device__ inline float both(float3 p0)
{
    const float v0 = size(p0);
    const float3 v1 = make_float3((p0.x * p0.x), (p0.y * p0.y), (p0.z * p0.z));
    const float v2 = size(v1);
    return (v0 + v2);
}

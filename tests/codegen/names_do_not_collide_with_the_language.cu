__device__ inline float main_(float p0)
{
    return (p0 * 5012.0f);
}

__device__ inline float mix_(float p0)
{
    return (p0 * 5011.0f);
}

__device__ inline float _x(float p0)
{
    return (p0 * 5010.0f);
}

__device__ inline float template_(float p0)
{
    return (p0 * 5009.0f);
}

__device__ inline float class_(float p0)
{
    return (p0 * 5008.0f);
}

__device__ inline float sinf_(float p0)
{
    return (p0 * 5007.0f);
}

__device__ inline float make_float3_(float p0)
{
    return (p0 * 5006.0f);
}

__device__ inline float float3_(float p0)
{
    return (p0 * 5005.0f);
}

__device__ inline float evaluate_(float p0)
{
    return (p0 * 5004.0f);
}

__device__ inline float value_(float p0)
{
    return (p0 * 5003.0f);
}

__device__ inline float i_(float p0)
{
    return (p0 * 5002.0f);
}

__device__ inline float p0_(float p0)
{
    return (p0 * 5001.0f);
}

__device__ inline float v0_(float p0)
{
    return (p0 * 5000.0f);
}

__device__ inline float main_2(float p0)
{
    const float v0 = v0_(p0);
    const float v1 = (p0 + v0);
    const float v2 = p0_(v1);
    const float v3 = (v1 + v2);
    const float v4 = i_(v3);
    const float v5 = (v3 + v4);
    const float v6 = value_(v5);
    const float v7 = (v5 + v6);
    const float v8 = evaluate_(v7);
    const float v9 = (v7 + v8);
    const float v10 = float3_(v9);
    const float v11 = (v9 + v10);
    const float v12 = make_float3_(v11);
    const float v13 = (v11 + v12);
    const float v14 = sinf_(v13);
    const float v15 = (v13 + v14);
    const float v16 = class_(v15);
    const float v17 = (v15 + v16);
    const float v18 = template_(v17);
    const float v19 = (v17 + v18);
    const float v20 = _x(v19);
    const float v21 = (v19 + v20);
    const float v22 = mix_(v21);
    const float v23 = (v21 + v22);
    const float v24 = main_(v23);
    return (v23 + v24);
}

extern "C" __global__ void evaluate(const long long count, const float* a0, float* y0)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float value = main_2(a0[i]);
    y0[i] = value;
}

#pragma OPENCL FP_CONTRACT OFF
float ball(float3 p0, float p1)
{
    const float v0 = length(p0);
    const float v1 = (v0 * 217.0f);
    return (v1 - p1);
}

__kernel void evaluate(const long count, __global const float* a0, float a1, __global float* y0)
{
    const long i = get_global_id(0);
    if (i >= count) return;
    const float value = ball((float3)(a0[i * 3 + 0], a0[i * 3 + 1], a0[i * 3 + 2]), a1);
    y0[i] = value;
}

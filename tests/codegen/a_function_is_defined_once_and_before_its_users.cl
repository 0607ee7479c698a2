float size(float3 p0)
{
    const float v0 = length(p0);
    return (v0 * 210.0f);
}

float both(float3 p0)
{
    const float v0 = size(p0);
    const float3 v1 = (p0 * p0);
    const float v2 = size(v1);
    return (v0 + v2);
}

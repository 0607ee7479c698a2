float size(vec3 p0)
{
    float v0 = length(p0);
    return (v0 * 210.0f);
}

float both(vec3 p0)
{
    float v0 = size(p0);
    vec3 v1 = (p0 * p0);
    float v2 = size(v1);
    return (v0 + v2);
}

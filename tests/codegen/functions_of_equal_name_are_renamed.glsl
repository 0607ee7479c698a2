float scaled(float p0)
{
    return (p0 * 213.0f);
}

float scaled_2(float p0)
{
    return (p0 * 212.0f);
}

float sum(float p0)
{
    float v0 = scaled_2(p0);
    float v1 = scaled(p0);
    return (v0 + v1);
}

__device__ inline double shifted(double p0)
{
    return (p0 + 215.0);
}

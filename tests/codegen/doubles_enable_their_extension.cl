#pragma OPENCL EXTENSION cl_khr_fp64 : enable
double shifted(double p0)
{
    return (p0 + 215.0);
}

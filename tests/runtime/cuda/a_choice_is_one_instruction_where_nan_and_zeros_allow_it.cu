typedef int row_index;
struct Arguments
{
    alignas(8) unsigned long long* status;
    alignas(8) long long rows;
    alignas(8) const float* read0;
    alignas(8) float* output0;
    alignas(8) float* output1;
    alignas(8) float* output2;
    alignas(8) float* output3;
};
static_assert(sizeof(Arguments) == 56, "a word for each argument");

extern "C" __global__ void __launch_bounds__(256) kernel(const __grid_constant__ Arguments a)
{
    const row_index step = (row_index)gridDim.x * blockDim.x;
    for (row_index row = ((row_index)blockIdx.x * blockDim.x + threadIdx.x); row < (row_index)a.rows; row += step) {
        const row_index d0 = row;
        const float v1 = a.read0[d0];
        const float v2 = v1 - 0x1.0000000000000p-1f;
        const float v3 = lg_max_or_nan(v2, 0x0.0p+0f);
        const float v4 = lg_max_or_nan(v1, 0x1.0000000000000p-1f);
        const float v5 = lg_min_or_nan(v1, 0x0.0p+0f);
        const float v6 = fmaxf(0x1.0000000000000p-1f, v1);
        a.output0[d0] = v3;
        a.output1[d0] = v4;
        a.output2[d0] = v5;
        a.output3[d0] = v6;
    }
}

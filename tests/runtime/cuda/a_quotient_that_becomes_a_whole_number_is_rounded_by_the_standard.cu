typedef int row_index;
struct Arguments
{
    alignas(8) unsigned long long* status;
    alignas(8) long long rows;
    alignas(8) const float* read0;
    alignas(8) const float* read1;
    alignas(8) float* output0;
};
static_assert(sizeof(Arguments) == 40, "a word for each argument");

extern "C" __global__ void __launch_bounds__(256) kernel(const __grid_constant__ Arguments a)
{
    const row_index step = (row_index)gridDim.x * blockDim.x;
    for (row_index row = ((row_index)blockIdx.x * blockDim.x + threadIdx.x); row < (row_index)a.rows; row += step) {
        const row_index d0 = row;
        const float v1 = a.read0[d0];
        const float v2 = a.read1[d0];
        const float v3 = v1 / v2;
        const float v4 = floorf(v3);
        const float v5 = lg_div(v2, v1);
        const float v6 = v4 + v5;
        a.output0[d0] = v6;
    }
}

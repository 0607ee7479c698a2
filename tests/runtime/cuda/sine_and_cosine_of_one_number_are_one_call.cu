typedef int row_index;
struct Arguments
{
    alignas(8) unsigned long long* status;
    alignas(8) long long rows;
    alignas(8) const float* read0;
    alignas(8) float* output0;
};
static_assert(sizeof(Arguments) == 32, "a word for each argument");

extern "C" __global__ void __launch_bounds__(256) kernel(const __grid_constant__ Arguments a)
{
    const row_index step = (row_index)gridDim.x * blockDim.x;
    for (row_index row = ((row_index)blockIdx.x * blockDim.x + threadIdx.x); row < (row_index)a.rows; row += step) {
        const row_index d0 = row;
        const float v1 = a.read0[d0];
        float sin2, cos3;
        lg_sincos(v1, &sin2, &cos3);
        const float v4 = sin2;
        const float v5 = cos3;
        const float v6 = v4 * v5;
        const float v7 = v1 + 0x1.0000000000000p+0f;
        const float v8 = lg_cos(v7);
        const float v9 = v6 + v8;
        a.output0[d0] = v9;
    }
}

typedef int row_index;
struct Arguments
{
    alignas(8) unsigned long long* status;
    alignas(8) long long rows;
    alignas(8) long long domain0;
    alignas(8) long long inner0;
    alignas(8) const float* read0;
    alignas(8) long long read0_stride0;
    alignas(8) float* output0;
};
static_assert(sizeof(Arguments) == 56, "a word for each argument");

extern "C" __global__ void __launch_bounds__(256) kernel(const __grid_constant__ Arguments a)
{
    const row_index step = (row_index)gridDim.x * blockDim.x / 32;
    const row_index share = 0, blocks = 1;
    for (row_index row = ((row_index)blockIdx.x * blockDim.x + threadIdx.x) / 32; row < (row_index)a.rows; row += step) {
        const row_index d0 = row;
        float fold1 = 0x0.0p+0f;
        #pragma unroll 4
        for (row_index p2 = share * (32) + threadIdx.x % 32; p2 < ((row_index)a.inner0 - 0); p2 += (row_index)(32) * blocks) {
            const row_index local0 = p2;
            const row_index i0 = 0 + local0;
            const float v3 = a.read0[d0 * (row_index)a.read0_stride0 + i0];
            fold1 = (fold1 + v3);
        }
        fold1 = lg_from_lane(lg_warp_fold(fold1, Combine0()), 0);
        const float v4 = fold1;
        if (threadIdx.x % 32 == 0) a.output0[d0] = v4;
    }
}

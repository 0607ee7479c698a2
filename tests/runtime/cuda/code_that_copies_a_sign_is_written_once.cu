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
        const float v3 = v2 > v1 ? v2 : v1;
        const float v4 = v1 * v2;
        const float v5 = v2 < v4 ? v2 : v4;
        const float v6 = v5 * 0x1.8000000000000p-1f;
        const float v7 = v6 > v3 ? v6 : v3;
        const float v8 = v7 - 0x1.0000000000000p-1f;
        const float v9 = v3 * v6;
        const float v10 = v6 < v9 ? v6 : v9;
        const float v11 = v10 * 0x1.8000000000000p-1f;
        const float v12 = v11 > v8 ? v11 : v8;
        const float v13 = v12 - 0x1.0000000000000p+0f;
        const float v14 = v8 * v11;
        const float v15 = v11 < v14 ? v11 : v14;
        const float v16 = v15 * 0x1.8000000000000p-1f;
        const float v17 = v16 > v13 ? v16 : v13;
        const float v18 = v17 - 0x1.8000000000000p+0f;
        const float v19 = v13 * v16;
        const float v20 = v16 < v19 ? v16 : v19;
        const float v21 = v20 * 0x1.8000000000000p-1f;
        const float v22 = v21 > v18 ? v21 : v18;
        const float v23 = v22 - 0x1.0000000000000p+1f;
        const float v24 = fabsf(v23);
        const float v25 = lg_sqrt(v24);
        const float v26 = v18 * v21;
        const float v27 = v21 < v26 ? v21 : v26;
        const float v28 = v27 * 0x1.8000000000000p-1f;
        const float v29 = v25 + v28;
        const float v30 = copysignf(v29, v29);
        const float v31 = v30 + v29;
        a.output0[d0] = v31;
    }
}

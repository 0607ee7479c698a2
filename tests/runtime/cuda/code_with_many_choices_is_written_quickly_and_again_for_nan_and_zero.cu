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
        const float v3 = lg_max_or_nan(v1, v2);
        const float v4 = v1 * v2;
        const float v5 = lg_min_or_nan(v4, v2);
        const float v6 = v5 * 0x1.8000000000000p-1f;
        const float v7 = lg_max_or_nan(v3, v6);
        const float v8 = v7 - 0x1.0000000000000p-1f;
        const float v9 = v3 * v6;
        const float v10 = lg_min_or_nan(v9, v6);
        const float v11 = v10 * 0x1.8000000000000p-1f;
        const float v12 = lg_max_or_nan(v8, v11);
        const float v13 = v12 - 0x1.0000000000000p+0f;
        const float v14 = v8 * v11;
        const float v15 = lg_min_or_nan(v14, v11);
        const float v16 = v15 * 0x1.8000000000000p-1f;
        const float v17 = lg_max_or_nan(v13, v16);
        const float v18 = v17 - 0x1.8000000000000p+0f;
        const float v19 = v13 * v16;
        const float v20 = lg_min_or_nan(v19, v16);
        const float v21 = v20 * 0x1.8000000000000p-1f;
        const float v22 = lg_max_or_nan(v18, v21);
        const float v23 = v22 - 0x1.0000000000000p+1f;
        const float v24 = fabsf(v23);
        const float v25 = lg_sqrt(v24);
        const float v26 = v18 * v21;
        const float v27 = lg_min_or_nan(v26, v21);
        const float v28 = v27 * 0x1.8000000000000p-1f;
        const float v29 = v25 + v28;
        float q30 = v29;
        if (!(fabsf(q30) > 0.0f)) {
            const float v31 = lg_fresh(&a.read0[d0]);
            const float v32 = lg_fresh(&a.read1[d0]);
            const float v33 = v32 > v31 ? v32 : v31;
            const float v34 = v31 * v32;
            const float v35 = v32 < v34 ? v32 : v34;
            const float v36 = v35 * 0x1.8000000000000p-1f;
            const float v37 = v36 > v33 ? v36 : v33;
            const float v38 = v37 - 0x1.0000000000000p-1f;
            const float v39 = v33 * v36;
            const float v40 = v36 < v39 ? v36 : v39;
            const float v41 = v40 * 0x1.8000000000000p-1f;
            const float v42 = v41 > v38 ? v41 : v38;
            const float v43 = v42 - 0x1.0000000000000p+0f;
            const float v44 = v38 * v41;
            const float v45 = v41 < v44 ? v41 : v44;
            const float v46 = v45 * 0x1.8000000000000p-1f;
            const float v47 = v46 > v43 ? v46 : v43;
            const float v48 = v47 - 0x1.8000000000000p+0f;
            const float v49 = v43 * v46;
            const float v50 = v46 < v49 ? v46 : v49;
            const float v51 = v50 * 0x1.8000000000000p-1f;
            const float v52 = v51 > v48 ? v51 : v48;
            const float v53 = v52 - 0x1.0000000000000p+1f;
            const float v54 = fabsf(v53);
            const float v55 = lg_sqrt(v54);
            const float v56 = v48 * v51;
            const float v57 = v51 < v56 ? v51 : v56;
            const float v58 = v57 * 0x1.8000000000000p-1f;
            const float v59 = v55 + v58;
            const auto n60 = v59;
            q30 = n60;
        }
        a.output0[d0] = q30;
    }
}

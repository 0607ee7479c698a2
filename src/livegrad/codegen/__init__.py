"""Emits source text for each target: LLVM IR for CPUs, CUDA C for kernels of plans, and readable C.

`llvm/` emits kernels with explicit vectors, `llvm/vector_math` the math functions that they call, `llvm/matmul` matrix
products and convolutions, and `llvm/fourier` Fourier transforms. `cuda/` emits the kernels of a plan as CUDA C. `c/`
emits single functions as OpenCL C or CUDA C. Nothing here compiles or runs code: `runtime/` does.
"""

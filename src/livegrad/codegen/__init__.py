"""Code for each target: LLVM IR for the CPU, CUDA C for kernels of plans, C that people read.

`llvm/` writes kernels with explicit vectors, `llvm/vector_math` the math functions they call, and `llvm/matmul` matrix
products and convolutions. `cuda/` writes the kernels of a plan as CUDA C. `c/` writes single functions as OpenCL C or
CUDA C. Nothing here compiles or runs: source text goes out, and `runtime/` takes it.
"""

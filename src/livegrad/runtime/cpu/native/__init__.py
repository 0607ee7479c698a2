"""The native layer of the CPU backend: a JIT from LLVM IR to callable addresses, and a thread pool that runs them.

`llvm_jit.py` compiles a module, `linker.py` loads its object code, and `pool_ir.py` describes how a kernel runs on
threads. `matmul.py`, `convolution.py`, `fourier.py` and `ordering.py` choose the launches of library kernels. Only
`runtime.cpu` uses this package.
"""

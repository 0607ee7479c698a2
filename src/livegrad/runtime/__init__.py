"""The backends that run plans: CPU, CUDA, OpenCL, and the NumPy reference.

`cpu/` compiles LLVM IR and calls kernels; `cpu/native` is the JIT, the linker and the thread pool. `cuda/` compiles
with NVRTC and builds CUDA Graphs. `reference.py` evaluates with NumPy: slow, simple, and the oracle of the tests.
`compiled_function.py` has what CPU and CUDA share, `arguments.py` the checks of arguments.
"""

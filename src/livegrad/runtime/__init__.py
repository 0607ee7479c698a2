"""Run times for plans: CPU, CUDA, OpenCL, and the NumPy reference.

`cpu/` fills argument blocks and calls kernels; `cpu/native` is the JIT, the linker and the thread pool. `cuda/`
compiles with NVRTC and builds CUDA Graphs. `reference.py` evaluates with NumPy: slow, simple, and the oracle of the
tests. `arguments.py` checks what users pass.
"""

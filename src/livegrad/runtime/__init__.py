"""Where plans run: on the CPU, on a CUDA device, through OpenCL, or node by node with NumPy.

`cpu/` fills argument blocks and calls kernels; `cpu/native` is the JIT, the linker and the thread pool. `cuda/`
compiles with NVRTC and builds CUDA Graphs. `reference.py` evaluates with NumPy: slow, obvious, and the oracle of every
test. `arguments.py` checks what users pass.
"""

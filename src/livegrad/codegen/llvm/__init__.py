"""Emits kernels as LLVM IR with explicit vectors and lane masks.

`kernel_module.py` emits the module of a loop nest and `stages.py` its stages, with loads and stores from
`accesses.py`. `function_body.py`, `elementwise.py`, `masked_control.py` and `gather_scatter.py` emit ops;
`list_scheduling.py` and `interleaving.py` choose their order. `builder.py` and `kernel_builder.py` write
instructions. The packages `vector_math`, `matmul` and `fourier` have libraries of their own.
"""

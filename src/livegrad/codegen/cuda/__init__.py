"""Emits the kernels of plans as CUDA C: one source for all loop nests of one key, and its launch configuration.

`kernel.py` emits the kernel of a loop nest, `kernel_accesses.py` its loads and stores, `reductions.py` and
`shared_scans.py` what threads compute together, `kernel_values.py` its dialect of C. `prelude.py` has the support
functions, `launch.py` the launch, and `cuda_target.py` what the compiler knows of devices.
"""

"""Kernels of plans as CUDA C: one source for each kernel and layout, and how many threads run it."""

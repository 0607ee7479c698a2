"""Kernels of plans as CUDA C: one source per kernel and layout, and the number of threads that run it."""

"""Kernels of plans as CUDA C: one source for all loop nests of one key, and the number of threads that run it."""

"""Emits the kernels of plans as CUDA C: one source for all loop nests of one key, and its launch configuration."""

"""Emits kernels as LLVM IR with explicit vectors and lane masks."""

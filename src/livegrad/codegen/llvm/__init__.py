"""From kernels to LLVM IR text with explicit vectors and lane masks."""

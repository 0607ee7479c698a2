"""Fourier transforms as LLVM IR, with lanes across the rows that are transformed."""

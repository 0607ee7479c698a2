"""Fast Fourier transforms as LLVM IR, vectorised across the rows of a batch."""
